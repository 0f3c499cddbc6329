// Package rbac reads access policies in the syntax of Argo CD's ConfigMap
// argocd-rbac-cm and decides by them: subjects, roles, rules that allow or
// deny, a default role and rules of the organisation. It does no I/O and knows
// no tenant. The hub decides by it and the command line checks files with it, so
// both read a policy alike. A compiled policy never changes; its decisions
// are those of casbin's Enforce with Argo CD's model.
package rbac

import (
	"encoding/csv"
	"fmt"
	"regexp"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/glob"
)

// Prefixes of subjects that are roles. No account and no group can have them.
const (
	RolePrefix    = "role:"
	ProjectPrefix = "proj:"
)

// IsRole reports whether a subject is a role of a policy or of a project.
func IsRole(name string) bool {
	return strings.HasPrefix(name, RolePrefix) || strings.HasPrefix(name, ProjectPrefix)
}

// A Rule is one policy line.
type Rule struct {
	Subject  string
	Resource string
	Action   string
	Object   string
	Deny     bool
	// Regex means that resource, action and object are regular expressions that
	// match anywhere in a value; otherwise they are globs.
	Regex bool
	// Within restricts objects to this project; empty: to none.
	Within string
	Origin
}

// An Origin is where a line is written.
type Origin struct {
	Source string // the key of argocd-rbac-cm, "project NAME, role NAME" or BuiltIn
	Line   int    // from 1; 0: the source has no lines
}

// BuiltIn is the source of rules that every tenant has.
const BuiltIn = "built in"

// String names the line for people.
func (o Origin) String() string {
	if o.Line == 0 {
		return o.Source
	}
	return fmt.Sprintf("%s, line %d", o.Source, o.Line)
}

// String is the line as it is written in a policy.
func (r Rule) String() string {
	return "p, " + strings.Join([]string{quote(r.Subject), quote(r.Resource), quote(r.Action), quote(r.Object), r.Effect()}, ", ")
}

// quote writes a field so that it is read again as one.
func quote(field string) string {
	if !strings.ContainsAny(field, "\",\n") {
		return field
	}
	return `"` + strings.ReplaceAll(field, `"`, `""`) + `"`
}

// Effect is "allow" or "deny".
func (r Rule) Effect() string {
	if r.Deny {
		return "deny"
	}
	return "allow"
}

// A Binding gives a subject a role, or the rights of a group.
type Binding struct {
	Subject string
	Role    string
	Origin
}

// Parse reads policy lines "p, subject, resource, action, object, effect" and
// "g, subject, role". Empty lines and those that begin with # are skipped; a
// field with a comma stands in double quotes. With regex, patterns are regular
// expressions. It reads all lines that it can, and returns an error for each of
// the others that names source and line.
func Parse(source, text string, regex bool) (rules []Rule, bindings []Binding, errs []error) {
	each(source, text, func(at Origin, fields []string) (err error) {
		switch {
		case fields[0] == "p":
			var rule Rule
			if rule, err = parseRule(fields, regex); err == nil {
				rule.Origin = at
				rules = append(rules, rule)
			}
			return err
		case fields[0] == "g" && len(fields) == 3 && fields[1] != "" && fields[2] != "":
			bindings = append(bindings, Binding{Subject: fields[1], Role: fields[2], Origin: at})
			return nil
		}
		return fault.With(fault.New(fault.Invalid, "it is neither a rule nor a binding"), "",
			`write "p, subject, resource, action, object, allow" or "g, subject, role"`)
	}, &errs)
	return rules, bindings, errs
}

// each calls do with the fields of every line that has some.
func each(source, text string, do func(at Origin, fields []string) error, errs *[]error) {
	for n, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		at := Origin{Source: source, Line: n + 1}
		fields, err := split(line)
		if err == nil {
			err = do(at, fields)
		}
		if err != nil {
			*errs = append(*errs, fault.With(err, at.String(), ""))
		}
	}
}

// split returns the fields of a line.
func split(line string) ([]string, error) {
	var fields []string
	if strings.Contains(line, `"`) {
		r := csv.NewReader(strings.NewReader(line))
		r.TrimLeadingSpace = true
		var err error
		if fields, err = r.Read(); err != nil {
			return nil, fault.With(fault.New(fault.Invalid, "its quotes are not usable"), "", `put a whole field into double quotes, and write "" for one inside`)
		}
	} else {
		fields = strings.Split(line, ",")
	}
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
		if strings.ContainsFunc(fields[i], func(c rune) bool { return c < ' ' || c == 0x7f }) {
			return nil, fault.New(fault.Invalid, "it contains a control character")
		}
	}
	return fields, nil
}

func parseRule(fields []string, regex bool) (Rule, error) {
	if len(fields) != 6 {
		return Rule{}, fault.New(fault.Invalid, "a rule has subject, resource, action, object and effect, and this one has %d fields", len(fields)-1)
	}
	for i, what := range []string{"", "subject", "resource", "action", "object", "effect"} {
		if fields[i] == "" {
			return Rule{}, fault.New(fault.Invalid, "its %s is empty", what)
		}
	}
	for _, pattern := range fields[2:5] {
		if err := checkPattern(pattern, regex); err != nil {
			return Rule{}, err
		}
	}
	if fields[5] != "allow" && fields[5] != "deny" {
		return Rule{}, fault.New(fault.Invalid, "its effect is %q, which is neither allow nor deny", fields[5])
	}
	return Rule{Subject: fields[1], Resource: fields[2], Action: fields[3], Object: fields[4], Deny: fields[5] == "deny", Regex: regex}, nil
}

func checkPattern(pattern string, regex bool) error {
	if !regex {
		return glob.Check(pattern)
	}
	if len(pattern) > glob.MaxPattern {
		return fault.New(fault.Exceeded, "a pattern has %d bytes, and may have %d", len(pattern), glob.MaxPattern)
	}
	if _, err := regexp.Compile(pattern); err != nil {
		return fault.With(fault.New(fault.Invalid, "the pattern %q is no regular expression: %v", pattern, err), "",
			"policy.matchMode is regex; write .* for any run of characters")
	}
	return nil
}

// A matcher is a compiled pattern.
type matcher struct {
	pattern string
	re      *regexp.Regexp // nil: pattern is a glob
}

func newMatcher(pattern string, regex bool) matcher {
	m := matcher{pattern: pattern}
	if regex {
		var err error
		if m.re, err = regexp.Compile(pattern); err != nil {
			m.pattern = "[" // which matches nothing
		}
	}
	return m
}

func (m matcher) match(s string) bool {
	if m.re != nil {
		return m.re.MatchString(s)
	}
	return glob.Match(m.pattern, s)
}

// A line is a rule that is ready to be compared.
type line struct {
	Rule

	order         int
	res, act, obj matcher
}

func newLine(r Rule, order int) *line {
	return &line{Rule: r, order: order, res: newMatcher(r.Resource, r.Regex), act: newMatcher(r.Action, r.Regex), obj: newMatcher(r.Object, r.Regex)}
}

// about reports whether the rule speaks of an action on a resource.
func (l *line) about(resource, action string) bool {
	return l.res.match(resource) && l.act.match(action)
}

// on reports whether the rule speaks of an object.
func (l *line) on(object string) bool {
	if l.Within != "" && object != l.Within && !strings.HasPrefix(object, l.Within+"/") {
		return false
	}
	return l.obj.match(object)
}
