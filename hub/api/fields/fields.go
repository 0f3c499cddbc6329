// Package fields selects fields of a list that is answered: it parses the parameter
// fields and takes the rest out of the JSON.
package fields

import (
	"slices"
	"strings"
)

// A tree says which fields of a JSON value are meant; an empty one, all of
// what is there.
type tree map[string]tree

// listFields are those of a list and of its items. What is below them depends
// on the application.
func listFields() map[string][]string {
	return map[string][]string{
		"apiVersion": nil, "kind": nil, "cursor": nil, "metadata": nil,
		"items": {"apiVersion", "kind", "metadata", "spec", "operation", "status", "warnings"},
	}
}

// A Selection is what the parameter fields asks for.
type Selection struct {
	fields   tree
	leaveOut bool // all but the fields
}

// Parse reads the parameter fields: paths with commas between them, and -
// before the first if they are to be left out. If lists do not have one of the paths,
// it is unknown and ok is false.
func Parse(text string) (s Selection, unknown string, ok bool) {
	text, leaveOut := strings.CutPrefix(text, "-")
	fields := tree{}
	for path := range strings.SplitSeq(text, ",") {
		steps := strings.Split(path, ".")
		below, known := listFields()[steps[0]]
		if !known || slices.Contains(steps, "") || len(steps) > 1 && below != nil && !slices.Contains(below, steps[1]) {
			return Selection{}, path, false
		}
		add(fields, steps)
	}
	return Selection{fields: fields, leaveOut: leaveOut}, "", true
}

// From returns what is selected of a page, which may change.
func (s Selection) From(page map[string]any) any {
	if !s.leaveOut {
		return s.fields.keep(page)
	}
	s.fields.drop(page)
	return page
}

// add adds a path. A shorter one covers the longer ones.
func add(fields tree, steps []string) {
	for i, step := range steps {
		below, there := fields[step]
		switch {
		case i == len(steps)-1:
			fields[step] = tree{}
			return
		case there && len(below) == 0:
			return
		case !there:
			below = tree{}
			fields[step] = below
		}
		fields = below
	}
}

// keep returns the fields of a value alone.
func (f tree) keep(v any) any {
	if len(f) == 0 {
		return v
	}
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, below := range f {
			if value, there := v[name]; there {
				out[name] = below.keep(value)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = f.keep(v[i])
		}
		return out
	}
	return v
}

// drop takes the fields out of a value.
func (f tree) drop(v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, below := range f {
			if len(below) == 0 {
				delete(v, name)
			} else {
				below.drop(v[name])
			}
		}
	case []any:
		for i := range v {
			f.drop(v[i])
		}
	}
}
