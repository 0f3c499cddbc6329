// Package appquery reads the query by which lists of applications are filtered:
// health:degraded project:shop -cluster:prod label:team=a "text". The hub
// filters with it; the CLI checks a query before it sends it.
//
// Terms are separated by white space. Terms of one field are alternatives, and
// fields must hold together. A term that begins with "-" excludes.
package appquery

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/suggest"
)

// A Field is what a term is about.
type Field string

// The fields. Text is a term without a field: a part of the name in any case.
const (
	Text         Field = ""
	Name         Field = "name"
	Project      Field = "project"
	Cluster      Field = "cluster"
	Namespace    Field = "namespace"     // of the destination
	AppNamespace Field = "app-namespace" // of the application itself
	Sync         Field = "sync"
	Health       Field = "health"
	Operation    Field = "operation"
	Auto         Field = "auto"
	State        Field = "state" // the one thing to know of it
	Repo         Field = "repo"
	Revision     Field = "revision"
	Label        Field = "label"
	Annotation   Field = "annotation"
	Owner        Field = "owner" // the application that renders it
	Author       Field = "author"
	By           Field = "by" // who started the last operation
)

// Me stands for the caller in the fields author and by.
const Me = "me"

// Keyed reports whether values of the field belong to keys, as those of labels.
func (f Field) Keyed() bool { return f == Label || f == Annotation }

// Fields are the fields that a query may name.
func Fields() []Field {
	return []Field{
		Name, Project, Cluster, Namespace, AppNamespace, Sync, Health, Operation, Auto, State,
		Repo, Revision, Label, Annotation, Owner, Author, By,
	}
}

// aliases are other names of fields.
var aliases = map[string]Field{"drift": Sync, "set": Owner, "ns": Namespace, "repository": Repo, "rev": Revision, "op": Operation}

// Values are all values that a field can have; nil: any text.
func (f Field) Values() []string {
	switch f {
	case Sync:
		return []string{"synced", "outofsync", "unknown"}
	case Health:
		return []string{"healthy", "suspended", "progressing", "missing", "degraded", "unknown"}
	case Operation:
		return []string{"none", "pending", "running", "terminating", "approval", "succeeded", "failed", "error"}
	case Auto:
		return []string{"auto", "manual", "paused"}
	case State:
		return []string{
			"syncfailed", "degraded", "sourceerror", "awaitingapproval", "stale", "missing", "paused", "outofsync", "notdeployed",
			"deleting", "syncing", "progressing", "suspended", "unknown", "healthy",
		}
	}
	return nil
}

const (
	maxText   = 2000
	maxTerms  = 50
	maxValues = 100
)

// A Term is one condition. Values and Match are alternatives. Neither means
// that the key exists.
type Term struct {
	Field  Field
	Key    string // of a label or an annotation
	Values []string
	Match  []*regexp.Regexp
	Not    bool
}

// Exists reports whether the term asks for a key alone.
func (t Term) Exists() bool { return t.Field.Keyed() && len(t.Values) == 0 && len(t.Match) == 0 }

// Holds reports whether a value is one of those of the term.
func (t Term) Holds(value string) bool {
	return slices.Contains(t.Values, value) || slices.ContainsFunc(t.Match, func(m *regexp.Regexp) bool { return m.MatchString(value) })
}

// A Query is a list of terms.
type Query []Term

// Parse reads a query. The error is fault.Invalid; it says at which character
// the query is wrong, from 1 on.
func Parse(text string) (Query, error) {
	if len(text) > maxText {
		return nil, fault.New(fault.Exceeded, "the query has %d bytes, and %d are the limit", len(text), maxText)
	}
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return nil, fault.With(fault.New(fault.Invalid, "the query is no text"), "", "write it in UTF-8")
	}
	p := &parser{text: text}
	var out Query
	for p.skipSpace(); p.at < len(text); p.skipSpace() {
		t, err := p.term()
		if err != nil {
			return nil, err
		}
		if out = append(out, t); len(out) > maxTerms {
			return nil, fault.New(fault.Exceeded, "the query has more than %d terms", maxTerms)
		}
	}
	return out, nil
}

// A parser reads a query from left to right.
type parser struct {
	text string
	at   int // in bytes
}

// wrong is the error about a place of the query.
func (p *parser) wrong(at int, fix, format string, args ...any) error {
	place := utf8.RuneCountInString(p.text[:at]) + 1
	return fault.With(fault.New(fault.Invalid, "at character %d of the query: "+format, append([]any{place}, args...)...), "", fix)
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func (p *parser) skipSpace() {
	for p.at < len(p.text) && isSpace(p.text[p.at]) {
		p.at++
	}
}

// term reads one term. It begins at something that is no space.
func (p *parser) term() (Term, error) {
	begin := p.at
	var t Term
	if p.text[p.at] == '-' {
		t.Not = true
		p.at++
	}
	if p.at == len(p.text) || isSpace(p.text[p.at]) {
		return t, p.wrong(begin, "write a term behind it, such as -cluster:prod, or quote it", "a %q excludes nothing", "-")
	}
	start := p.at
	end := start
	for end < len(p.text) && !isSpace(p.text[end]) && !strings.ContainsRune(`:~"`, rune(p.text[end])) {
		end++
	}
	if end == len(p.text) || isSpace(p.text[end]) || p.text[end] == '"' {
		word, err := p.value("")
		t.Values = []string{strings.ToLower(word)}
		return t, err
	}
	var err error
	if t.Field, err = p.field(start, p.text[start:end]); err != nil {
		return t, err
	}
	p.at = end + 1
	if p.text[end] == '~' {
		return p.pattern(t)
	}
	return p.values(t)
}

func (p *parser) field(at int, word string) (Field, error) {
	name := Field(strings.ToLower(word))
	if name != Text && slices.Contains(Fields(), name) {
		return name, nil
	}
	if f, ok := aliases[string(name)]; ok {
		return f, nil
	}
	var known []string
	for _, f := range Fields() {
		known = append(known, string(f))
	}
	fix := "use one of " + strings.Join(known, ", ") + ", or quote the text"
	if near := suggest.Nearest(string(name), known); near != "" {
		fix = "did you mean " + near + "? Quote the text if it is no field"
	}
	return "", p.wrong(at, fix, "there is no field %q", shorten(word))
}

// value reads a word or a quoted text, up to a space or one of the stops.
func (p *parser) value(stops string) (string, error) {
	if p.at < len(p.text) && p.text[p.at] == '"' {
		return p.quoted()
	}
	begin := p.at
	for p.at < len(p.text) && !isSpace(p.text[p.at]) && p.text[p.at] != '"' && !strings.ContainsRune(stops, rune(p.text[p.at])) {
		p.at++
	}
	return p.text[begin:p.at], nil
}

// quoted reads a text in quotes, in which a backslash precedes a quote or
// another backslash.
func (p *parser) quoted() (string, error) {
	begin := p.at
	var b strings.Builder
	for p.at++; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case c == '"':
			p.at++
			return b.String(), nil
		case c == '\\' && p.at+1 < len(p.text) && (p.text[p.at+1] == '"' || p.text[p.at+1] == '\\'):
			p.at++
			b.WriteByte(p.text[p.at])
		default:
			b.WriteByte(c)
		}
	}
	return "", p.wrong(begin, "close it with another quote", "the quote is not closed")
}

// key reads the key of a label or an annotation and what stands behind it.
func (p *parser) key(t *Term) (more bool, err error) {
	at := p.at
	if t.Key, err = p.value("=~,"); err != nil {
		return false, err
	}
	if t.Key == "" {
		return false, p.wrong(at, "write it like "+string(t.Field)+":team=shop", "the term has no key")
	}
	if p.at == len(p.text) || isSpace(p.text[p.at]) {
		return false, nil
	}
	if c := p.text[p.at]; c != '=' {
		return false, p.wrong(p.at, "write it like "+string(t.Field)+":team=shop", "%q cannot follow a key", string(c))
	}
	p.at++
	return true, nil
}

// values reads what follows a colon: values with commas between them.
func (p *parser) values(t Term) (Term, error) {
	if t.Field.Keyed() {
		more, err := p.key(&t)
		if err != nil || !more {
			return t, err
		}
	}
	for {
		at := p.at
		quoted := at < len(p.text) && p.text[at] == '"'
		v, err := p.value(",")
		if err != nil {
			return t, err
		}
		if v == "" && !quoted && !t.Field.Keyed() {
			return t, p.wrong(at, `write a value, or "" for none`, "the field %s has no value", t.Field)
		}
		if err := p.add(&t, at, v, quoted); err != nil {
			return t, err
		}
		if p.at == len(p.text) || isSpace(p.text[p.at]) {
			return t, nil
		}
		if p.text[p.at] != ',' {
			return t, p.wrong(p.at, "put a space or a comma before it", "%q cannot follow a value", string(p.text[p.at]))
		}
		p.at++
	}
}

// add adds one value to a term. A star outside of quotes stands for any text.
func (p *parser) add(t *Term, at int, v string, quoted bool) error {
	if len(t.Values)+len(t.Match) == maxValues {
		return p.wrong(at, "use a pattern", "the term has more than %d values", maxValues)
	}
	if known := t.Field.Values(); known != nil {
		v = strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(v))
		if v == "drifted" && t.Field == Sync {
			v = "outofsync"
		}
		if !slices.Contains(known, v) {
			return p.wrong(at, "use one of "+strings.Join(known, ", "), "%q is no value of the field %s", shorten(v), t.Field)
		}
	}
	if !quoted && strings.Contains(v, "*") {
		parts := strings.Split(v, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		t.Match = append(t.Match, regexp.MustCompile(`(?s)\A`+strings.Join(parts, ".*")+`\z`))
		return nil
	}
	t.Values = append(t.Values, v)
	return nil
}

// pattern reads what follows a tilde: a regular expression.
func (p *parser) pattern(t Term) (Term, error) {
	if t.Field.Values() != nil {
		return t, p.wrong(p.at-1, "write "+string(t.Field)+":"+t.Field.Values()[0], "the field %s has no patterns", t.Field)
	}
	if t.Field.Keyed() {
		if more, err := p.key(&t); err != nil || !more {
			if err == nil {
				err = p.wrong(p.at, "write it like "+string(t.Field)+"~team=^shop", "the pattern is missing")
			}
			return t, err
		}
	}
	at := p.at
	text, err := p.value("")
	if err != nil {
		return t, err
	}
	if text == "" {
		return t, p.wrong(at, "write it like name~^web-", "the pattern is missing")
	}
	m, err := regexp.Compile(text)
	if err != nil {
		return t, p.wrong(at, "write a regular expression of RE2, and quote it if it has spaces", "the pattern cannot be read: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	t.Match = []*regexp.Regexp{m}
	return t, nil
}

// shorten keeps what is repeated of a query short.
func shorten(s string) string {
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return s
}
