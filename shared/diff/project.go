package diff

import (
	"encoding/binary"
	"slices"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// A walker writes the values of owned fields one after another.
type walker struct {
	buf  []byte
	ends []int // where each leaf ends in buf
}

// walk writes what the children of f own in values. There may be none, or
// several: a list can contain items with equal keys, and all are written.
func (w *walker) walk(f *field, values []any) error {
	var lists itemIndex
	for _, c := range f.children {
		found, err := lists.match(c, values)
		if err != nil {
			return err
		}
		if len(c.children) == 0 {
			if err := w.leaf(c, found); err != nil {
				return err
			}
			continue
		}
		if c.owned {
			w.count(len(found))
		}
		if err := w.walk(c, found); err != nil {
			return err
		}
	}
	return nil
}

// count writes how often something exists.
func (w *walker) count(n int) {
	w.buf = binary.AppendUvarint(w.buf, uint64(n))
	w.ends = append(w.ends, len(w.buf))
}

// leaf writes whole values; for a set only how often it contains the value.
func (w *walker) leaf(c *field, found []any) error {
	w.buf = binary.AppendUvarint(w.buf, uint64(len(found)))
	if c.kind != 'v' {
		var err error
		for _, v := range found {
			if w.buf, err = manifest.AppendCanonical(w.buf, v); err != nil {
				return err
			}
		}
	}
	w.ends = append(w.ends, len(w.buf))
	return nil
}

// An itemIndex finds items of lists by key. Cached texts avoid reading a list
// with many owned items once for each.
type itemIndex struct {
	keys  []string
	items map[string][]any
}

// match returns everything in values that a child selects.
func (x *itemIndex) match(c *field, values []any) ([]any, error) {
	switch c.kind {
	case 'f':
		return fieldValues(c.name, values), nil
	case 'i':
		var out []any
		for _, v := range values {
			if l, ok := v.([]any); ok && c.index < len(l) {
				out = append(out, l[c.index])
			}
		}
		return out, nil
	default:
		if x.items == nil || !slices.Equal(x.keys, c.keys) {
			if err := x.read(c.keys, values); err != nil {
				return nil, err
			}
		}
		return x.items[c.name], nil
	}
}

func fieldValues(name string, values []any) []any {
	if len(values) == 1 { // the usual case
		if m, ok := values[0].(map[string]any); ok {
			if v, ok := m[name]; ok {
				return []any{v}
			}
		}
		return nil
	}
	var out []any
	for _, v := range values {
		if m, ok := v.(map[string]any); ok {
			if v, ok := m[name]; ok {
				out = append(out, v)
			}
		}
	}
	return out
}

// read indexes all items of the lists by the text of their keys, or by their
// own text if keys is empty (a set).
func (x *itemIndex) read(keys []string, values []any) error {
	x.keys, x.items = keys, make(map[string][]any)
	var buf []byte
	for _, v := range values {
		list, ok := v.([]any)
		if !ok {
			continue
		}
		for _, item := range list {
			var err error
			if buf, err = itemText(buf[:0], keys, item); err != nil {
				return err
			}
			if len(buf) > 0 {
				x.items[string(buf)] = append(x.items[string(buf)], item)
			}
		}
	}
	return nil
}

// itemText writes the index text of an item; nothing if it lacks the keys.
func itemText(buf []byte, keys []string, item any) ([]byte, error) {
	if len(keys) == 0 {
		return manifest.AppendCanonical(buf, item)
	}
	m, ok := item.(map[string]any)
	if !ok {
		return buf, nil
	}
	buf = append(buf, '{')
	for i, k := range keys {
		v, ok := m[k]
		if !ok {
			return buf[:0], nil
		}
		if i > 0 {
			buf = append(buf, ',')
		}
		var err error
		if buf, err = manifest.AppendCanonical(buf, k); err != nil {
			return nil, err
		}
		buf = append(buf, ':')
		if buf, err = manifest.AppendCanonical(buf, v); err != nil {
			return nil, err
		}
	}
	return append(buf, '}'), nil
}
