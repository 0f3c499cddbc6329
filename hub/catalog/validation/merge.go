package validation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// MergeApplied writes what an application has rendered over an object that is there:
// what it wrote before and does not write now goes, what others wrote stays.
func MergeApplied(applied json.RawMessage, m *hub.Meta, spec *json.RawMessage, old hub.Meta, oldSpec json.RawMessage) error {
	var last struct {
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
		Finalizers  []string          `json:"finalizers"`
		Spec        json.RawMessage   `json:"spec"`
	}
	if len(applied) > 0 {
		if err := json.Unmarshal(applied, &last); err != nil {
			return fmt.Errorf("read what was applied before: %w", err)
		}
	}
	m.Labels, m.Annotations = mergeMap(last.Labels, m.Labels, old.Labels), mergeMap(last.Annotations, m.Annotations, old.Annotations)
	finalizers := slices.DeleteFunc(slices.Clone(old.Finalizers), func(f string) bool {
		return slices.Contains(last.Finalizers, f) && !slices.Contains(m.Finalizers, f)
	})
	for _, f := range m.Finalizers {
		if !slices.Contains(finalizers, f) {
			finalizers = append(finalizers, f)
		}
	}
	m.Finalizers = finalizers
	before, err := value(last.Spec)
	if err != nil {
		return err
	}
	want, err := value(*spec)
	if err != nil {
		return err
	}
	live, err := value(oldSpec)
	if err != nil {
		return err
	}
	text, err := json.Marshal(mergeValue(before, want, live))
	if err != nil {
		return fmt.Errorf("write the spec: %w", err)
	}
	*spec = text
	if sameValue(text, oldSpec) {
		*spec = oldSpec // in the order of fields that it has
	}
	return nil
}

func value(raw json.RawMessage) (any, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the spec cannot be read as JSON")
	}
	return v, nil
}

func sameValue(a, b json.RawMessage) bool {
	x, errX := value(a)
	y, errY := value(b)
	if errX != nil || errY != nil {
		return false
	}
	p, errP := json.Marshal(x)
	q, errQ := json.Marshal(y)
	return errP == nil && errQ == nil && bytes.Equal(p, q)
}

func mergeMap(last, want, live map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range live {
		if _, was := last[k]; !was {
			out[k] = v
		}
	}
	for k, v := range want {
		out[k] = v
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// mergeValue is mergeMap for any value; lists are replaced as a whole. Source
// and sources replace each other, and so do server and name.
func mergeValue(last, want, live any) any {
	w, ok := want.(map[string]any)
	if !ok {
		return want
	}
	l, ok := live.(map[string]any)
	if !ok {
		return want
	}
	was, _ := last.(map[string]any)
	out := map[string]any{}
	for k, v := range l {
		if _, ours := was[k]; !ours && !replaced(k, w) {
			out[k] = v
		}
	}
	for k, v := range w {
		out[k] = mergeValue(was[k], v, l[k])
	}
	return out
}

func replaced(field string, by map[string]any) bool {
	other := strings.NewReplacer("sources", "source", "source", "sources", "server", "name", "name", "server").Replace(field)
	if field != "source" && field != "sources" && field != "server" && field != "name" {
		return false
	}
	_, there := by[other]
	return there
}

// LastWritten keeps what an application wrote of an object.
func LastWritten(m hub.Meta, spec json.RawMessage) (json.RawMessage, error) {
	text, err := json.Marshal(Written(m, spec))
	if err != nil {
		return nil, fmt.Errorf("remember what was applied: %w", err)
	}
	return text, nil
}

// SameMeta reports whether a person wrote the same metadata twice.
func SameMeta(a, b hub.Meta) bool {
	return SameMap(a.Labels, b.Labels) && SameMap(a.Annotations, b.Annotations) && slices.Equal(a.Finalizers, b.Finalizers) && a.Namespace == b.Namespace
}

// Written is what the audit log keeps of an object: what a person wrote.
func Written(m hub.Meta, spec json.RawMessage) any {
	return struct {
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
		Finalizers  []string          `json:"finalizers,omitempty"`
		Spec        json.RawMessage   `json:"spec"`
	}{m.Labels, m.Annotations, m.Finalizers, spec}
}

// SameMap reports whether two maps of labels or annotations are equal; nil is
// empty.
func SameMap(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || w != v {
			return false
		}
	}
	return true
}
