package diff

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// An element is one step of a path through an object, as fieldsV1 has it.
type element struct {
	kind  byte     // 'f' field of a map, 'k' item by key, 'v' item by value, 'i' item by place
	name  string   // of a field; canonical JSON of the keys or the value
	keys  []string // names of the key fields, sorted
	index int
}

// A path is the way from an object to one of its fields.
type path []element

// String writes a path for people: spec.containers[name=web].image.
func (p path) String() string {
	var b strings.Builder
	for _, e := range p {
		switch e.kind {
		case 'f':
			if strings.ContainsAny(e.name, "./[ ") {
				fmt.Fprintf(&b, "[%q]", e.name)
				continue
			}
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(e.name)
		case 'k':
			b.WriteString(keyText(e.name))
		case 'v':
			b.WriteString("[" + e.name + "]")
		case 'i':
			b.WriteString("[" + strconv.Itoa(e.index) + "]")
		}
	}
	return b.String()
}

// keyText turns {"name":"web"} into [name=web].
func keyText(canonical string) string {
	var m map[string]any
	if json.Unmarshal([]byte(canonical), &m) != nil {
		return "[" + canonical + "]"
	}
	parts := make([]string, 0, len(m))
	for k, v := range m {
		parts = append(parts, fmt.Sprintf("%s=%v", k, v))
	}
	slices.Sort(parts)
	return "[" + strings.Join(parts, ",") + "]"
}

// A field is a node of the tree of owned fields. A node without children is a
// leaf: its whole value is ours. A node with children is itself ours (its
// existence) only if it is owned.
type field struct {
	element
	owned    bool
	children []*field
}

// leaves calls fn for every hashed place of the tree, in the order in which
// walker writes them.
func (f *field) leaves(p path, fn func(path)) {
	for _, c := range f.children {
		q := append(p, c.element)
		if c.owned || len(c.children) == 0 {
			fn(q)
		}
		c.leaves(q, fn)
	}
}

// find looks up a path. The element's own text must be equal.
func (f *field) find(p path) *field {
	for _, e := range p {
		i := slices.IndexFunc(f.children, func(c *field) bool {
			return c.kind == e.kind && c.name == e.name && c.index == e.index
		})
		if i < 0 {
			return nil
		}
		f = f.children[i]
	}
	return f
}

// covers reports whether the tree owns the field at p, or a parent of it.
func (f *field) covers(p path) bool {
	for i := range p {
		n := f.find(p[:i+1])
		if n == nil {
			return false
		}
		if len(n.children) == 0 {
			return true
		}
	}
	return f.find(p).owned
}

// parseFields reads fieldsV1 JSON: objects in objects, whose keys are "f:name",
// `k:{"name":"x"}`, "v:value", "i:0", and "." for the node itself.
func parseFields(data []byte) (*field, error) {
	p := fieldParser{data: data}
	root := &field{}
	if err := p.object(root, 0); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the record of owned fields is not fieldsV1")
	}
	if p.skip(); p.at != len(p.data) {
		return nil, fault.New(fault.Invalid, "the record of owned fields is not fieldsV1: more text follows")
	}
	return root, nil
}

type fieldParser struct {
	data []byte
	at   int
}

func (p *fieldParser) skip() {
	for p.at < len(p.data) && strings.IndexByte(" \t\r\n", p.data[p.at]) >= 0 {
		p.at++
	}
}

func (p *fieldParser) accept(c byte) bool {
	if p.skip(); p.at < len(p.data) && p.data[p.at] == c {
		p.at++
		return true
	}
	return false
}

const deepest = 512

// object reads the fields of one node.
func (p *fieldParser) object(into *field, depth int) error {
	if depth > deepest {
		return fmt.Errorf("nested more than %d deep", deepest)
	}
	if !p.accept('{') {
		return fmt.Errorf("no object at byte %d", p.at)
	}
	if p.accept('}') {
		return nil
	}
	for {
		if err := p.member(into, depth); err != nil {
			return err
		}
		if p.accept('}') {
			return nil
		}
		if !p.accept(',') {
			return fmt.Errorf("no comma at byte %d", p.at)
		}
	}
}

// member reads one key of a node with the node below it.
func (p *fieldParser) member(into *field, depth int) error {
	name, err := p.text()
	if err != nil {
		return err
	}
	if !p.accept(':') {
		return fmt.Errorf("no colon at byte %d", p.at)
	}
	child, err := newField(name)
	if err != nil {
		return err
	}
	if err := p.object(child, depth+1); err != nil {
		return err
	}
	if child.kind == '.' {
		into.owned = true
	} else {
		into.children = append(into.children, child)
	}
	return nil
}

// text reads a JSON string.
func (p *fieldParser) text() (string, error) {
	if p.skip(); p.at >= len(p.data) || p.data[p.at] != '"' {
		return "", fmt.Errorf("no text at byte %d", p.at)
	}
	start, escaped := p.at, false
	for p.at++; p.at < len(p.data); p.at++ {
		switch p.data[p.at] {
		case '\\':
			escaped = true
			p.at++
		case '"':
			p.at++
			if !utf8.Valid(p.data[start:p.at]) {
				return "", fmt.Errorf("text at byte %d is not UTF-8", start)
			}
			if !escaped {
				return string(p.data[start+1 : p.at-1]), nil
			}
			var s string
			if err := json.Unmarshal(p.data[start:p.at], &s); err != nil {
				return "", fmt.Errorf("text at byte %d: %w", start, err)
			}
			return s, nil
		}
	}
	return "", fmt.Errorf("text at byte %d does not end", start)
}

// newField reads one key of fieldsV1.
func newField(name string) (*field, error) {
	if name == "." {
		return &field{element: element{kind: '.'}}, nil
	}
	kind, rest, ok := strings.Cut(name, ":")
	if !ok || len(kind) != 1 {
		return nil, fmt.Errorf("%q is not a path element", name)
	}
	f := &field{element: element{kind: kind[0], name: rest}}
	switch kind[0] {
	case 'f':
		return f, nil
	case 'i':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%q is not an index of a list", name)
		}
		f.name, f.index = "", n
		return f, nil
	case 'k', 'v':
		v, err := jsonValue(rest)
		if err != nil {
			return nil, fmt.Errorf("%q is not a path element: %w", name, err)
		}
		return f, f.setValue(v)
	}
	return nil, fmt.Errorf("%q is not a path element", name)
}

func (f *field) setValue(v any) error {
	if f.kind == 'k' {
		m, ok := v.(map[string]any)
		if !ok || len(m) == 0 {
			return fmt.Errorf("%q has no keys", f.name)
		}
		for k := range m {
			f.keys = append(f.keys, k)
		}
		slices.Sort(f.keys)
	}
	text, err := manifest.AppendCanonical(nil, v)
	f.name = string(text)
	return err
}

func jsonValue(s string) (any, error) {
	if len(s) > 0 && s[0] == '{' {
		o, err := manifest.FromCanonical([]byte(s))
		if err != nil {
			return nil, err
		}
		return o.Object, nil
	}
	o, err := manifest.FromCanonical([]byte(`{"v":` + s + `}`))
	if err != nil {
		return nil, err
	}
	return o.Object["v"], nil
}
