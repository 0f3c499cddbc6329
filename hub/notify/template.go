package notify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	text "text/template"
	"text/template/parse"

	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/shared/fault"
)

// Limits of templates.
const (
	maxTemplate = 128 << 10 // bytes of one template
	maxRanges   = 20        // loops in one text
	maxDepth    = 2         // loops in each other
	maxRendered = 256 << 10 // bytes of a message
)

// A Template is a message, with parts for single types of services. All texts
// in it are templates.
type Template struct {
	Name string
	tree map[string]any
}

// A Message is a rendered template: message, and the part of one service.
type Message map[string]any

// ReadTemplate reads the value of a key template.<name>.
func ReadTemplate(name, value string) (Template, error) {
	t := Template{Name: name}
	if len(value) > maxTemplate {
		return t, fault.New(fault.Exceeded, "the template has %d bytes, and may have %d", len(value), maxTemplate)
	}
	if err := decode(value, &t.tree, "a map of message and parts for services"); err != nil {
		return t, err
	}
	return t, walk("", t.tree, func(path, leaf string) error {
		_, err := prepare(path, leaf, newBudget(), false)
		return err
	})
}

// Text is the template as a value of the ConfigMap.
func (t Template) Text() string {
	out, err := yaml.Marshal(t.tree)
	if err != nil {
		return ""
	}
	return string(out)
}

// Render renders templates for one service. What a later template says replaces
// what an earlier one says. A part for another service is not rendered.
func Render(all []Template, s Service, vars map[string]any) (Message, error) {
	out, budget := Message{}, newBudget()
	for _, t := range all {
		tree := map[string]any{}
		if m, ok := t.tree["message"]; ok {
			tree["message"] = m
		}
		if part := t.part(s); part != nil {
			tree[s.Type] = part
		}
		rendered, err := renderNode("", tree, vars, budget, s.HTML())
		if err != nil {
			return nil, fault.With(err, "template "+t.Name, "")
		}
		merge(out, rendered.(map[string]any)) //nolint:forcetypeassert // a map makes a map
	}
	text, err := json.Marshal(out)
	if err != nil || len(text) > maxRendered {
		return nil, fault.New(fault.Exceeded, "the message has %d bytes, and may have %d", len(text), maxRendered)
	}
	return out, nil
}

// HTML reports whether messages of the service are pages of HTML, in which values
// are escaped.
func (s Service) HTML() bool {
	var o struct {
		HTML bool `json:"html"`
	}
	return s.Type == "email" && json.Unmarshal(s.Options, &o) == nil && o.HTML
}

// part is what a template says for a service alone, with what Argo CD adds to it.
func (t Template) part(s Service) any {
	part, _ := t.tree[s.Type].(map[string]any)
	var added map[string]any
	switch s.Type {
	case "webhook":
		if part == nil {
			return nil
		}
		return part[s.Name]
	case "github":
		added = map[string]any{"repoURLPath": "{{.app.spec.source.repoURL}}", "revisionPath": "{{.app.status.operationState.syncResult.revision}}"}
	case "newrelic":
		added = map[string]any{
			"revision":  "{{.app.status.operationState.syncResult.revision}}",
			"changelog": "{{(call .repo.GetCommitMetadata .app.status.sync.revision).Message}}",
			"user":      "{{(call .repo.GetCommitMetadata .app.status.sync.revision).Author}}",
		}
	case "alertmanager":
		added = map[string]any{"generatorURL": "{{.app.spec.source.repoURL}}"}
	}
	if part == nil {
		return nil
	}
	out := maps.Clone(part)
	for k, v := range added {
		if out[k] == nil || out[k] == "" {
			out[k] = v
		}
	}
	return out
}

// walk calls do with all texts of a tree, in order.
func walk(path string, node any, do func(path, leaf string) error) error {
	switch n := node.(type) {
	case string:
		return do(path, n)
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(n)) {
			if err := walk(strings.TrimPrefix(path+"."+k, "."), n[k], do); err != nil {
				return err
			}
		}
	case []any:
		for i, v := range n {
			if err := walk(fmt.Sprintf("%s[%d]", path, i), v, do); err != nil {
				return err
			}
		}
	}
	return nil
}

func renderNode(path string, node any, vars map[string]any, budget *budget, html bool) (any, error) {
	switch n := node.(type) {
	case string:
		t, err := prepare(path, n, budget, html && (path == "message" || path == "email.body"))
		if err != nil {
			return nil, err
		}
		return fill(path, t, vars)
	case map[string]any:
		out := make(map[string]any, len(n))
		for k, v := range n {
			r, err := renderNode(strings.TrimPrefix(path+"."+k, "."), v, vars, budget, html)
			if err != nil {
				return nil, err
			}
			out[k] = r
		}
		return out, nil
	case []any:
		out := make([]any, len(n))
		for i, v := range n {
			r, err := renderNode(fmt.Sprintf("%s[%d]", path, i), v, vars, budget, html)
			if err != nil {
				return nil, err
			}
			out[i] = r
		}
		return out, nil
	}
	return node, nil
}

// merge lets what a message says replace what is there.
func merge(into, from map[string]any) {
	for k, v := range from {
		old, isMap := into[k].(map[string]any)
		if part, ok := v.(map[string]any); ok && isMap {
			merge(old, part)
			continue
		}
		if s, ok := v.(string); ok && s == "" && into[k] != nil {
			continue
		}
		into[k] = v
	}
}

// An executor is a template of either kind.
type executor interface {
	Execute(w io.Writer, data any) error
}

// prepare parses one text.
func prepare(path, leaf string, b *budget, html bool) (executor, error) {
	t, err := text.New(path).Funcs(b.functions()).Parse(leaf)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%s cannot be read: %w", named(path), err)
	}
	for _, other := range t.Templates() {
		if other.Name() != path {
			return nil, fault.New(fault.Invalid, "%s defines a template of its own", named(path))
		}
	}
	if t.Tree == nil {
		return t, nil
	}
	ranges := 0
	if err := bounded(t.Root, 0, &ranges); err != nil {
		return nil, fault.With(err, named(path), "")
	}
	if !html {
		return t, nil
	}
	page, err := template.New(path).Funcs(template.FuncMap(b.functions())).Parse(leaf)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%s cannot be read: %w", named(path), err)
	}
	return page, nil
}

func named(path string) string {
	if path == "" {
		return "the text"
	}
	return path
}

// bounded refuses loops that multiply, and calls of templates.
func bounded(list *parse.ListNode, depth int, ranges *int) error {
	if list == nil {
		return nil
	}
	for _, node := range list.Nodes {
		var err error
		switch n := node.(type) {
		case *parse.IfNode:
			err = errors.Join(bounded(n.List, depth, ranges), bounded(n.ElseList, depth, ranges))
		case *parse.WithNode:
			err = errors.Join(bounded(n.List, depth, ranges), bounded(n.ElseList, depth, ranges))
		case *parse.RangeNode:
			*ranges++
			if depth >= maxDepth || *ranges > maxRanges {
				return fault.New(fault.Invalid, "at most %d loops are possible, and %d in each other", maxRanges, maxDepth)
			}
			err = errors.Join(bounded(n.List, depth+1, ranges), bounded(n.ElseList, depth, ranges))
		case *parse.TemplateNode:
			err = fault.New(fault.Invalid, "a template cannot call another one")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fill executes a template.
func fill(path string, t executor, vars map[string]any) (string, error) {
	out := limited{most: maxRendered}
	if err := t.Execute(&out, vars); err != nil {
		return "", fault.New(fault.Invalid, "%s cannot be made: %w", named(path), err)
	}
	return out.String(), nil
}

// limited is a buffer that refuses more than it may have.
type limited struct {
	bytes.Buffer
	most int
}

// Write appends, or fails.
func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > l.most {
		return 0, errTooLong
	}
	return l.Buffer.Write(p)
}

var errTooLong = errors.New("a text in it is too long")

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
