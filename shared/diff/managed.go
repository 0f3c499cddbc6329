package diff

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// Managed is what one manager owns of a live object.
type Managed struct {
	Manager string
	Fields  []byte // fieldsV1 JSON
}

// managedFields returns the fieldsV1 of what a manager owns by server-side apply.
func managedFields(o *manifest.Object, manager string) ([]byte, error) {
	for _, entry := range managedEntries(o) {
		if entry["manager"] != manager || entry["operation"] != "Apply" || (entry["subresource"] != nil && entry["subresource"] != "") {
			continue
		}
		fields, ok := entry["fieldsV1"].(map[string]any)
		if !ok {
			break
		}
		return manifest.AppendCanonical(nil, fields)
	}
	return nil, fault.With(fault.New(fault.Missing, "manager %q has applied nothing of it", manager), manifest.KeyOf(o).Describe(), "")
}

// ManagedBy returns what the given managers own of a live object, by any
// operation and through any subresource.
func ManagedBy(o *manifest.Object, managers []string) []Managed {
	return managed(o, func(m string) bool { return slices.Contains(managers, m) })
}

func managed(o *manifest.Object, want func(manager string) bool) []Managed {
	var out []Managed
	for _, entry := range managedEntries(o) {
		name, _ := entry["manager"].(string)
		fields, ok := entry["fieldsV1"].(map[string]any)
		if !ok || !want(name) {
			continue
		}
		text, err := manifest.AppendCanonical(nil, fields)
		if err != nil {
			continue // an object that came as JSON has only values that can be written
		}
		out = append(out, Managed{Manager: name, Fields: text})
	}
	return out
}

func managedEntries(o *manifest.Object) []map[string]any {
	meta, _ := o.Object["metadata"].(map[string]any)
	list, _ := meta["managedFields"].([]any)
	out := make([]map[string]any, 0, len(list))
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// fieldsOf returns the fields of an object as fieldsV1: maps by field, lists by
// item if the items have names, other lists whole. The fields that identify the
// object, and its status, are omitted.
func fieldsOf(o *manifest.Object) []byte {
	top := make(map[string]any, len(o.Object))
	for k, v := range o.Object {
		if k != "apiVersion" && k != "kind" && k != "status" {
			top[k] = v
		}
	}
	if meta, ok := top["metadata"].(map[string]any); ok {
		rest := make(map[string]any, len(meta))
		for _, k := range [...]string{"labels", "annotations", "finalizers", "ownerReferences"} {
			if v, ok := meta[k]; ok {
				rest[k] = v
			}
		}
		top["metadata"] = rest
		if len(rest) == 0 {
			delete(top, "metadata")
		}
	}
	text, err := manifest.AppendCanonical(nil, fieldTree(top))
	if err != nil {
		return []byte("{}") // a tree of maps and texts can always be written
	}
	return text
}

func fieldTree(v any) map[string]any {
	out := make(map[string]any)
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			out["f:"+k] = fieldTree(e)
		}
	case []any:
		names := itemNames(v)
		for i, name := range names {
			item := fieldTree(v[i])
			item["."] = map[string]any{}
			out[`k:{"name":`+name+`}`] = item
		}
	}
	return out
}

// itemNames returns the names of a list's items as JSON, if all have one and no
// two the same.
func itemNames(list []any) []string {
	seen := make(map[string]bool, len(list))
	out := make([]string, 0, len(list))
	for _, item := range list {
		m, _ := item.(map[string]any)
		name, ok := m["name"].(string)
		if !ok || seen[name] {
			return nil
		}
		seen[name] = true
		text, err := manifest.AppendCanonical(nil, name)
		if err != nil {
			return nil
		}
		out = append(out, string(text))
	}
	return out
}

// locate converts the place of a value in an object, as keys and indexes, to
// its path in a tree of owned fields.
func locate(tree *field, object any, place []any) (path, error) {
	var p path
	at, v := tree, object
	for _, step := range place {
		var e element
		switch step := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			e, v = element{kind: 'f', name: step}, m[step]
		case int:
			list, _ := v.([]any)
			if step < 0 || step >= len(list) {
				return nil, fault.New(fault.Invalid, "no item %d in the list at %q", step, p.String())
			}
			var err error
			if e, err = itemElement(at, list[step], step); err != nil {
				return nil, err
			}
			v = list[step]
		default:
			return nil, fault.New(fault.Internal, "a step of type %T", step)
		}
		p = append(p, e)
		if at != nil {
			at = at.find(path{e})
		}
	}
	return p, nil
}

// itemElement returns the tree's element of an item of a list; by index if the
// tree does not have it.
func itemElement(at *field, item any, index int) (element, error) {
	if at != nil {
		for _, c := range at.children {
			if c.kind != 'k' && c.kind != 'v' {
				continue
			}
			text, err := itemText(nil, c.keys, item)
			if err != nil {
				return element{}, fmt.Errorf("name item %s: %w", strconv.Itoa(index), err)
			}
			if string(text) == c.name {
				return c.element, nil
			}
		}
	}
	return element{kind: 'i', index: index}, nil
}
