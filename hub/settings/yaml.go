package settings

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/suggest"
	"github.com/capstan-cd/capstan/shared/yamltext"
)

// A text is a value, or a part of one that is YAML in itself.
type text struct {
	value string
	above int // lines of the value above it
}

// A node is a part of a text with its position. Aliases are refused, so that
// nothing is read twice.
type node struct {
	*yaml.Node
	above int
	name  string // the key that it is the value of; empty: of none
}

// yaml parses a text. An empty one is an empty node.
func (t text) yaml() (n node, err error) {
	defer func() {
		if r := recover(); r != nil { // the library panics on some hostile texts
			n, err = node{}, fault.New(fault.Invalid, "it is not YAML")
		}
	}()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(t.value), &doc); err != nil {
		return node{}, t.notYAML(err)
	}
	if len(doc.Content) == 0 {
		return node{}, nil
	}
	root := node{Node: doc.Content[0], above: t.above}
	return root, root.plain(0)
}

// maxDepth is how deep a value may be nested.
const maxDepth = 20

// plain refuses aliases and what is nested too deep.
func (n node) plain(depth int) error {
	if n.Kind == yaml.AliasNode {
		return n.fail("aliases are not supported here")
	}
	if depth > maxDepth {
		return n.fail("it is nested more than %d deep", maxDepth)
	}
	for _, c := range n.Content {
		if err := (node{Node: c, above: n.above}).plain(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

func (t text) notYAML(err error) error {
	line, cause := yamltext.Place([]byte(t.value), err)
	line += t.above
	return &fault.Error{Kind: fault.Invalid, Cause: fmt.Sprintf("line %d: it is not YAML: %s", line, short(cause)), Line: line}
}

// fail says what is wrong at the place of a node.
func (n node) fail(format string, args ...any) error {
	cause := fmt.Sprintf(format, args...)
	if n.Node == nil || n.Line == 0 {
		return fault.New(fault.Invalid, "%s", cause)
	}
	line := n.Line + n.above
	return &fault.Error{Kind: fault.Invalid, Cause: fmt.Sprintf("line %d: %s", line, cause), Line: line}
}

// or returns the first error, the second one with the place of the node.
func (n node) or(first, second error) error {
	if first != nil || second == nil {
		return first
	}
	return n.fail("%s", fault.Sentence(second))
}

func (n node) empty() bool {
	return n.Node == nil || n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

// called is how errors name the value.
func (n node) called() string {
	if n.name == "" {
		return "it"
	}
	return short(n.name)
}

// given says of what shape the value is.
func (n node) given() string {
	switch {
	case n.empty():
		return "empty"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "a map"
	}
	return "a text"
}

func (n node) list(what string) ([]node, error) {
	if n.Kind != yaml.SequenceNode {
		return nil, n.fail("%s must be a list, and is %s", what, n.given())
	}
	out := make([]node, len(n.Content))
	for i, c := range n.Content {
		out[i] = node{Node: c, above: n.above}
	}
	return out, nil
}

func (n node) each(what string, do func(key, value node) error) error {
	if n.Kind != yaml.MappingNode {
		return n.fail("%s must be a map, and is %s", what, n.given())
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := node{Node: n.Content[i], above: n.above}
		if key.Kind != yaml.ScalarNode || seen[key.Value] {
			return key.fail("%q is there twice, or is no name", short(key.Value))
		}
		seen[key.Value] = true
		if err := do(key, node{Node: n.Content[i+1], above: n.above, name: key.Value}); err != nil {
			return err
		}
	}
	return nil
}

// fields reads a map whose keys are known. Any other is a mistake: a rule with
// a misspelled field would mean more than its author thinks.
func (n node) fields(known map[string]func(node) error) error {
	return n.each(n.called(), func(key, value node) error {
		read, ok := known[key.Value]
		if !ok {
			names := make([]string, 0, len(known))
			for name := range known {
				names = append(names, name)
			}
			slices.Sort(names)
			return key.fail("there is no field %q; there are %s%s", short(key.Value), strings.Join(names, ", "), suggest.Question(key.Value, names))
		}
		if value.empty() {
			return nil
		}
		return read(value)
	})
}

func (n node) text() (string, error) {
	if n.Kind != yaml.ScalarNode {
		return "", n.fail("%s must be a text, and is %s", n.called(), n.given())
	}
	return n.Value, nil
}

// nested parses a text that is YAML in itself; a map or list in its place is
// accepted as well.
func (n node) nested() (text, error) {
	if n.Kind == yaml.ScalarNode {
		above := n.above + n.Line - 1
		if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
			above++ // it begins on the line after its key
		}
		return text{n.Value, above}, nil
	}
	out, err := yaml.Marshal(n.Node)
	if err != nil {
		return text{}, n.fail("it cannot be read")
	}
	return text{string(out), n.above + n.Line - 1}, nil
}

func (n node) truth() (bool, error) {
	v, err := strconv.ParseBool(n.Value)
	if err != nil || n.Kind != yaml.ScalarNode {
		return false, n.fail("%s must be true or false", n.called())
	}
	return v, nil
}

func (n node) texts() ([]string, error) {
	items, err := n.list(n.called())
	if err != nil {
		return nil, err
	}
	out := make([]string, len(items))
	for i, item := range items {
		if out[i], err = item.text(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (n node) globs() ([]string, error) {
	out, err := n.texts()
	if err != nil {
		return nil, err
	}
	for i, g := range out {
		if _, err := path.Match(g, ""); err != nil || strings.ContainsAny(g, "{}") {
			return nil, node{Node: n.Content[i], above: n.above}.fail("%q is not a pattern; only *, ? and [a-z] have a meaning", short(g))
		}
	}
	return out, nil
}

func (n node) types() ([]*linkv1.KnownTypeField, error) {
	items, err := n.list(n.called())
	if err != nil {
		return nil, err
	}
	out := make([]*linkv1.KnownTypeField, len(items))
	for i, item := range items {
		f := &linkv1.KnownTypeField{}
		err := item.fields(map[string]func(node) error{
			"field": func(n node) (err error) { f.Field, err = n.text(); return err },
			"type":  func(n node) (err error) { f.Type, err = n.text(); return err },
		})
		if err != nil {
			return nil, err
		}
		if f.GetField() == "" || f.GetType() == "" {
			return nil, item.fail("a known type needs field and type")
		}
		out[i] = f
	}
	return out, nil
}

// among says that a word must be one of some.
func (n node) among(v string, words ...string) error {
	if slices.Contains(words, v) {
		return nil
	}
	words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
	return n.fail("%q is none of %s", short(v), strings.Join(words, ", "))
}
