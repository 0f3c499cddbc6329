package deeplink

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/capstan-cd/capstan/shared/fault"
)

// maxArgument bounds texts that functions of templates take and return.
const maxArgument = 16 << 10

var errTooLong = errors.New("a text in it is too long")

// functions are those that templates may call: of text/template and of sprig, as
// far as none makes a long text of short ones.
func functions() template.FuncMap {
	text := func(do func(string) string) any {
		return func(v any) (string, error) { return limited(do(fmt.Sprint(value(v)))) }
	}
	return template.FuncMap{
		"lower": text(strings.ToLower), "upper": text(strings.ToUpper), "trim": text(strings.TrimSpace), "urlquery": text(url.QueryEscape), "pathEscape": text(url.PathEscape),
		"quote": text(func(s string) string { return fmt.Sprintf("%q", s) }), "toString": text(func(s string) string { return s }),
		"trimPrefix": func(cut, s string) string { return strings.TrimPrefix(s, cut) },
		"trimSuffix": func(cut, s string) string { return strings.TrimSuffix(s, cut) },
		"hasPrefix":  func(part, s string) bool { return strings.HasPrefix(s, part) },
		"hasSuffix":  func(part, s string) bool { return strings.HasSuffix(s, part) },
		"contains":   func(part, s string) bool { return strings.Contains(s, part) },
		"splitList":  func(sep, s string) []string { return strings.SplitN(s, sep, 1000) },
		"first":      func(list []string) string { return at(list, 0) },
		"last":       func(list []string) string { return at(list, len(list)-1) },
		"default":    func(otherwise, v any) any { return either(empty(v), otherwise, v) },
		"empty":      empty,
		"ternary":    func(yes, no any, condition bool) any { return either(condition, yes, no) },
		"replace":    replace,
		"trunc": func(n int, s string) string {
			runes := []rune(s)
			return string(runes[:max(0, min(n, len(runes)))])
		},
		"print":   func(all ...any) (string, error) { return printed(fmt.Sprint, all) },
		"println": func(all ...any) (string, error) { return printed(fmt.Sprintln, all) },
		"printf": func(format string, all ...any) (string, error) {
			return printed(func(all ...any) string { return fmt.Sprintf(format, all...) }, all)
		},
		"html": text(template.HTMLEscapeString), "js": text(template.JSEscapeString),
	}
}

// value is what a text is made of: nothing is an empty text.
func value(v any) any { return either(v == nil, "", v) }

func either(condition bool, yes, no any) any {
	if condition {
		return yes
	}
	return no
}

func empty(v any) bool {
	truth, ok := template.IsTrue(v)
	return !ok || !truth
}

func at(list []string, i int) string {
	if i < 0 || i >= len(list) {
		return ""
	}
	return list[i]
}

func replace(old, with, s string) (string, error) {
	if old == "" || len(s)+strings.Count(s, old)*len(with) > maxArgument {
		return "", errTooLong
	}
	return strings.ReplaceAll(s, old, with), nil
}

// printed formats texts that are short enough.
func printed(do func(...any) string, all []any) (string, error) {
	for _, v := range all {
		if s, ok := v.(string); ok && len(s) > maxArgument/4 {
			return "", errTooLong
		}
	}
	return limited(do(all...))
}

func limited(s string) (string, error) {
	if len(s) > maxArgument {
		return "", errTooLong
	}
	return s, nil
}

// parseTemplate parses a template of an address.
func parseTemplate(text string) (*template.Template, error) {
	t, err := template.New("url").Funcs(functions()).Option("missingkey=zero").Parse(text)
	if err != nil {
		return nil, fault.New(fault.Invalid, "its url cannot be read: %w", err)
	}
	for _, named := range t.Templates() {
		if named.Name() != "url" {
			return nil, fault.New(fault.Invalid, "its url defines a template of its own")
		}
	}
	if t.Tree == nil {
		return t, nil
	}
	return t, plain(t.Root)
}

// plain refuses loops and calls of templates.
func plain(list *parse.ListNode) error {
	if list == nil {
		return nil
	}
	for _, node := range list.Nodes {
		var err error
		switch n := node.(type) {
		case *parse.TextNode, *parse.ActionNode, *parse.CommentNode:
		case *parse.IfNode:
			err = errors.Join(plain(n.List), plain(n.ElseList))
		case *parse.WithNode:
			err = errors.Join(plain(n.List), plain(n.ElseList))
		default:
			err = fault.New(fault.Invalid, "its url has %q, and only values, if and with are possible", shorten(node.String()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fill executes a template.
func fill(t *template.Template, data map[string]any) (string, error) {
	var out bounded
	if err := t.Execute(&out, data); err != nil {
		return "", fault.New(fault.Invalid, "its url cannot be made: %w", err)
	}
	// What a map lacks is printed like this.
	return strings.ReplaceAll(out.String(), "<no value>", ""), nil
}

// bounded is a buffer that refuses more than an address may have.
type bounded struct{ bytes.Buffer }

// Write appends, or fails.
func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxText {
		return 0, errTooLong
	}
	return b.Buffer.Write(p)
}
