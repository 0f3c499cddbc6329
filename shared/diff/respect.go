package diff

import (
	"slices"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// Respect returns the object to apply where ignored fields keep their live
// values (RespectIgnoreDifferences, DIFF-15). An ignored field is never simply
// left out: leaving out a field that only we own deletes it. If another manager
// also owns it in live, it is left out; if only we own it, it is sent with its
// live value, and guarded says that the apply must carry the resourceVersion of
// live. If live lacks the field, or there is no live object (nil), the desired
// value stays. live must still have its managedFields; manager is our own. The
// desired object is not changed, and has no status.
func Respect(desired, live *manifest.Object, ignore *Ignore, manager string) (apply *manifest.Object, guarded bool, err error) {
	rules := ignore.forObject(manifest.KeyOf(desired))
	if live == nil || rules.empty() {
		return desired, false, nil
	}
	others, err := trees(managed(live, func(m string) bool { return m != manager }))
	if err != nil {
		return nil, false, err
	}
	places, err := rules.ignoredPlaces(desired, live)
	if err != nil {
		return nil, false, err
	}
	ours, err := trees(managed(live, func(m string) bool { return m == manager }))
	if err != nil {
		return nil, false, err
	}
	var leaves [][]any
	for _, place := range places {
		if v, ok := valueAt(desired.Object, place); ok && !fixed(place) {
			leaves = singleValues(v, place, desired.Object, append(ours, others...), leaves)
		}
	}
	var omit [][]any
	out := clone(desired.Object)
	for _, place := range leaves {
		shared, value, has := foreignValue(place, desired, live, others)
		switch {
		case shared:
			omit = append(omit, place)
		case has:
			guarded = true
			if v, ok := replaceAt(out, place, value).(map[string]any); ok {
				out = v
			}
		}
	}
	return &manifest.Object{Object: remove(out, omit)}, guarded, nil
}

// ignoredPlaces returns the places of desired that the rules ignore, by their
// paths or because a manager that they name owns them in live.
func (s ruleSet) ignoredPlaces(desired, live *manifest.Object) ([][]any, error) {
	places, err := s.places(desired.Object)
	if err != nil {
		return nil, fault.With(err, manifest.KeyOf(desired).Describe(), "")
	}
	ignored, err := trees(ManagedBy(live, s.managers))
	if err != nil {
		return nil, err
	}
	for _, t := range ignored {
		places = append(places, placesOf(t, desired.Object)...)
	}
	return places, nil
}

// singleValues splits the value at a place into parts that have one owner each:
// single values, whole lists, and maps that some manager owns as a whole.
func singleValues(v any, place []any, object any, owners []*field, out [][]any) [][]any {
	whole, items := heldAs(place, object, owners)
	switch c := v.(type) {
	case map[string]any:
		if !whole && len(c) > 0 {
			for k, e := range c {
				out = singleValues(e, append(slices.Clone(place), k), object, owners, out)
			}
			return out
		}
	case []any:
		if !whole && items {
			for i, e := range c {
				out = singleValues(e, append(slices.Clone(place), i), object, owners, out)
			}
			return out
		}
	}
	return append(out, place)
}

// heldAs reports whether some manager owns the value at a place as a whole, and
// whether some manager owns items of it by key.
func heldAs(place []any, object any, owners []*field) (whole, items bool) {
	for _, tree := range owners {
		p, err := locate(tree, object, place)
		if err != nil {
			continue
		}
		n := tree.find(p)
		if n == nil {
			continue
		}
		whole = whole || len(n.children) == 0
		items = items || slices.ContainsFunc(n.children, func(c *field) bool { return c.kind == 'k' })
	}
	return whole, items
}

func valueAt(v any, place []any) (any, bool) {
	for _, step := range place {
		switch step := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			next, ok := m[step]
			if !ok {
				return nil, false
			}
			v = next
		case int:
			l, _ := v.([]any)
			if step < 0 || step >= len(l) {
				return nil, false
			}
			v = l[step]
		}
	}
	return v, true
}

// foreignValue reports whether another manager owns the field at a place of desired
// in live, and which value it has there.
func foreignValue(place []any, desired, live *manifest.Object, others []*field) (shared bool, value any, has bool) {
	for _, tree := range others {
		p, err := locate(tree, desired.Object, place)
		if err == nil && tree.covers(p) {
			shared = true
		}
	}
	at, ok := liveValue(place, desired.Object, live.Object)
	return shared, at, ok
}

// liveValue finds in live what stands at a place of desired. Items of lists
// are found by the names that they have in both, else by their place.
func liveValue(place []any, desired, live any) (any, bool) {
	for _, step := range place {
		var ok bool
		switch step := step.(type) {
		case string:
			desired, live, ok = bothFields(desired, live, step)
		case int:
			desired, live, ok = bothItems(desired, live, step)
		default:
			continue
		}
		if !ok {
			return nil, false
		}
	}
	return live, true
}

// bothFields returns a field of both; ok is false if live does not have it.
func bothFields(desired, live any, name string) (any, any, bool) {
	d, _ := desired.(map[string]any)
	l, _ := live.(map[string]any)
	next, ok := l[name]
	return d[name], next, ok
}

// bothItems returns an item of desired and its counterpart in live.
func bothItems(desired, live any, index int) (any, any, bool) {
	d, _ := desired.([]any)
	l, _ := live.([]any)
	if index < 0 || index >= len(d) {
		return nil, nil, false
	}
	next, ok := counterpart(d[index], l, index)
	return d[index], next, ok
}

func counterpart(item any, list []any, index int) (any, bool) {
	m, _ := item.(map[string]any)
	for _, key := range [...]string{"name", "containerPort", "port", "mountPath", "key", "type", "ip"} {
		want, ok := m[key]
		if !ok {
			continue
		}
		for _, candidate := range list {
			if c, ok := candidate.(map[string]any); ok && c[key] == want {
				return candidate, true
			}
		}
		return nil, false
	}
	if index < len(list) {
		return list[index], true
	}
	return nil, false
}

// fixed reports whether a place must not change: the fields that identify the
// object, and its status, which an apply does not write.
func fixed(place []any) bool {
	if len(place) == 0 {
		return true
	}
	switch place[0] {
	case "apiVersion", "kind", "status":
		return true
	case "metadata":
		return len(place) == 1 || place[1] == "name" || place[1] == "namespace"
	}
	return false
}

func trees(entries []Managed) ([]*field, error) {
	out := make([]*field, 0, len(entries))
	for _, m := range entries {
		t, err := parseFields(m.Fields)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// placesOf returns the places in an object of all leaves of a tree.
func placesOf(tree *field, object any) [][]any {
	var out [][]any
	var visit func(f *field, v any, place []any)
	visit = func(f *field, v any, place []any) {
		if len(f.children) == 0 {
			if len(place) > 0 {
				out = append(out, append([]any(nil), place...))
			}
			return
		}
		for _, c := range f.children {
			for _, step := range steps(c, v) {
				visit(c, step.value, append(place, step.at))
			}
		}
	}
	visit(tree, object, nil)
	return out
}

type step struct{ at, value any }

// steps returns where the child c stands in v.
func steps(c *field, v any) []step {
	if m, ok := v.(map[string]any); ok && c.kind == 'f' {
		if next, ok := m[c.name]; ok {
			return []step{{c.name, next}}
		}
		return nil
	}
	var out []step
	list, _ := v.([]any)
	for i, item := range list {
		text, err := itemText(nil, c.keys, item)
		if (c.kind == 'i' && c.index == i) || (err == nil && (c.kind == 'k' || c.kind == 'v') && string(text) == c.name) {
			out = append(out, step{i, item})
		}
	}
	return out
}

// replaceAt returns a value with another one at a place.
func replaceAt(v any, place []any, with any) any {
	if len(place) == 0 {
		return with
	}
	switch c := v.(type) {
	case map[string]any:
		key, ok := place[0].(string)
		if !ok {
			return v
		}
		out := clone(c)
		out[key] = replaceAt(c[key], place[1:], with)
		return out
	case []any:
		i, ok := place[0].(int)
		if !ok || i < 0 || i >= len(c) {
			return v
		}
		out := append([]any(nil), c...)
		out[i] = replaceAt(c[i], place[1:], with)
		return out
	default:
		return v
	}
}
