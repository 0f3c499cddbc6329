package scim

import (
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// MaxOperations is how many operations a patch has at most.
const MaxOperations = 1000

// Patch applies the operations of a PATCH to a document (RFC 7644, 3.5.2).
// Providers write op in any case.
func Patch(d Document, request Document) error {
	_, v, _ := request.lookup("Operations")
	operations, ok := v.([]any)
	if !ok || len(operations) == 0 {
		return fault.New(fault.Invalid, "Operations is no list, or empty")
	}
	if len(operations) > MaxOperations {
		return fault.New(fault.Exceeded, "a patch has at most %d operations", MaxOperations)
	}
	for _, item := range operations {
		m, ok := item.(map[string]any)
		if !ok {
			return fault.New(fault.Invalid, "an operation is no object")
		}
		if err := d.operate(Document(m)); err != nil {
			return err
		}
	}
	return nil
}

func (d Document) operate(o Document) error {
	op, err := o.text("op")
	if err != nil {
		return err
	}
	path, err := o.text("path")
	if err != nil {
		return err
	}
	_, value, given := o.lookup("value")
	op = strings.ToLower(op)
	switch {
	case op == "remove" && path == "":
		return fault.With(fault.New(fault.Invalid, "remove needs a path"), "noTarget", "")
	case op == "remove":
		return d.at(path, func(t target) error { return t.remove(value) })
	case op != "add" && op != "replace":
		return fault.New(fault.Invalid, "op is add, replace or remove")
	case !given:
		return fault.New(fault.Invalid, "%s needs a value", op)
	case path != "":
		return d.at(path, func(t target) error { return t.put(op, value) })
	}
	values, ok := value.(map[string]any)
	if !ok {
		return fault.New(fault.Invalid, "without a path the value is an object")
	}
	for name, v := range values {
		if err := d.at(name, func(t target) error { return t.put(op, v) }); err != nil {
			return err
		}
	}
	return nil
}

// A target is what a path names: an attribute, of it the items for which where
// holds, and of those a part.
type target struct {
	in    Document
	name  string
	where *term
	sub   string
}

// at reads a path such as active, name.givenName, members[value eq "x"] or
// emails[type eq "work"].value; the URN of a schema may stand in front.
func (d Document) at(path string, do func(target) error) error {
	t := target{in: d}
	for _, schema := range []string{UserSchema, GroupSchema} {
		if len(path) > len(schema) && strings.EqualFold(path[:len(schema)], schema) {
			path = strings.TrimPrefix(path[len(schema):], ":")
		}
	}
	if strings.HasPrefix(strings.ToLower(path), "urn:") {
		return d.atExtension(path, do)
	}
	if open := strings.IndexByte(path, '['); open >= 0 {
		closing := strings.LastIndexByte(path, ']')
		if closing < open {
			return badPath(path)
		}
		where, rest, err := readTerm(path[open+1 : closing])
		if err != nil || strings.TrimSpace(rest) != "" {
			return badPath(path)
		}
		t.name, t.where, t.sub = path[:open], &where, strings.TrimPrefix(path[closing+1:], ".")
	} else {
		t.name, t.sub, _ = strings.Cut(path, ".")
	}
	if t.name == "" || strings.ContainsAny(t.name+t.sub, " []\"") {
		return badPath(path)
	}
	t.name, _, _ = d.lookup(t.name)
	return do(t)
}

// atExtension is at for an attribute of an extension, as in urn:…:2.0:User:title,
// or for the extension as a whole.
func (d Document) atExtension(path string, do func(target) error) error {
	cut := strings.LastIndexByte(path, ':')
	name, attribute := path[:cut], path[cut+1:]
	if attribute == "User" || attribute == "Group" {
		key, _, _ := d.lookup(path)
		return do(target{in: d, name: key})
	}
	key, v, _ := d.lookup(name)
	inner, ok := v.(map[string]any)
	if !ok {
		inner = map[string]any{}
	}
	d[key] = inner
	return Document(inner).at(attribute, do)
}

func badPath(path string) error {
	return fault.With(fault.New(fault.Invalid, "the path %q cannot be read", short(path)), "invalidPath", "")
}

// items are those of a list that the condition holds for.
func (t target) items() (list []any, chosen []int) {
	list, _ = t.in[t.name].([]any)
	for i, item := range list {
		if t.where == nil || matches(item, *t.where) {
			chosen = append(chosen, i)
		}
	}
	return list, chosen
}

func matches(item any, w term) bool {
	m, ok := item.(map[string]any)
	if !ok {
		return false
	}
	_, v, _ := Document(m).lookup(w.attribute)
	switch v := v.(type) {
	case string:
		return strings.EqualFold(v, w.value)
	case bool:
		return v == (strings.EqualFold(w.value, "true"))
	}
	return false
}

func (t target) put(op string, value any) error {
	switch {
	case t.where != nil:
		return t.putItems(value)
	case t.sub != "":
		inner, ok := t.in[t.name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			t.in[t.name] = inner
		}
		key, _, _ := Document(inner).lookup(t.sub)
		inner[key] = value
		return nil
	}
	list, isList := t.in[t.name].([]any)
	if op == "add" && (isList || t.name == "members") {
		more, ok := value.([]any)
		if !ok {
			more = []any{value}
		}
		t.in[t.name] = append(slices.Clone(list), more...)
		return nil
	}
	if m, ok := value.(map[string]any); ok && op == "add" {
		if old, ok := t.in[t.name].(map[string]any); ok {
			for k, v := range m {
				key, _, _ := Document(old).lookup(k)
				old[key] = v
			}
			return nil
		}
	}
	t.in[t.name] = value
	return nil
}

// putItems changes items that a condition chooses. Where there is none, one is
// made that the condition holds for.
func (t target) putItems(value any) error {
	list, chosen := t.items()
	if len(chosen) == 0 {
		list, chosen = append(list, map[string]any{t.where.attribute: t.where.value}), []int{len(list)}
	}
	for _, i := range chosen {
		item, ok := list[i].(map[string]any)
		if !ok {
			continue
		}
		if t.sub != "" {
			item[t.sub] = value
			continue
		}
		values, ok := value.(map[string]any)
		if !ok {
			return fault.New(fault.Invalid, "an item of %s is an object", short(t.name))
		}
		for k, v := range values {
			item[k] = v
		}
	}
	t.in[t.name] = list
	return nil
}

// remove takes away an attribute, items of a list, or a part. Some providers
// name the items in the value.
func (t target) remove(value any) error {
	list, chosen := t.items()
	named, isList := value.([]any)
	switch {
	case t.where == nil && t.sub == "" && isList && len(named) > 0:
		t.in[t.name] = slices.DeleteFunc(slices.Clone(list), func(item any) bool {
			return slices.ContainsFunc(named, func(n any) bool { return sameValue(item, n) })
		})
	case t.where == nil && t.sub == "":
		delete(t.in, t.name)
	case t.where == nil:
		if inner, ok := t.in[t.name].(map[string]any); ok {
			key, _, _ := Document(inner).lookup(t.sub)
			delete(inner, key)
		}
	case t.sub != "":
		for _, i := range chosen {
			if item, ok := list[i].(map[string]any); ok {
				delete(item, t.sub)
			}
		}
	default:
		kept := []any{}
		for i, item := range list {
			if !slices.Contains(chosen, i) {
				kept = append(kept, item)
			}
		}
		t.in[t.name] = kept
	}
	return nil
}

func sameValue(a, b any) bool {
	value := func(v any) string {
		if m, ok := v.(map[string]any); ok {
			v = m["value"]
		}
		s, _ := v.(string)
		return s
	}
	return value(a) != "" && value(a) == value(b)
}
