package validation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// maxUnknown bounds the warnings about unknown fields of one object.
const maxUnknown = 20

// decode reads a spec into the type that Capstan acts on. The error names the
// field whose type is wrong.
func decode(raw json.RawMessage, into any) error {
	if len(bytes.TrimSpace(raw)) == 0 || string(bytes.TrimSpace(raw)) == "null" {
		return fault.New(fault.Invalid, "it has no spec")
	}
	err := json.Unmarshal(raw, into)
	if err == nil {
		return nil
	}
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		where := "spec"
		if t.Field != "" {
			where += "." + t.Field
		}
		return fault.New(fault.Invalid, "%s is %s where %s is needed", where, given(t.Value), plain(t.Type))
	}
	return fault.Wrap(fault.Invalid, err, "spec cannot be read as JSON")
}

// given is how people call a kind of JSON value.
func given(kind string) string {
	switch kind {
	case "array":
		return "a list"
	case "object":
		return "an object"
	case "string":
		return "a text"
	case "bool":
		return "true or false"
	}
	return "a number"
}

// plain is how people call a Go type.
func plain(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Pointer:
		return plain(t.Elem())
	}
	return "a number"
}

// unknown returns the unknown fields of a spec: they are stored and returned,
// without effect.
func unknown(raw json.RawMessage, as any, known ...string) []string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return nil
	}
	var out []string
	walk(v, reflect.TypeOf(as), "spec", &out)
	out = slices.DeleteFunc(out, func(path string) bool { return slices.Contains(known, path) })
	slices.Sort(out)
	more := len(out) - maxUnknown
	for i := range out {
		out[i] = fmt.Sprintf("%s is stored without effect: this release does not know it", out[i])
	}
	if more > 0 {
		out = append(out[:maxUnknown], fmt.Sprintf("%d more fields are stored without effect", more))
	}
	return out
}

func walk(v any, t reflect.Type, path string, out *[]string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[json.RawMessage]() {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		if t.Kind() != reflect.Struct {
			return
		}
		fields := JSONFields(t)
		for k, inner := range v {
			if ft, ok := fields[k]; ok {
				walk(inner, ft, path+"."+k, out)
			} else {
				*out = append(*out, path+"."+k)
			}
		}
	case []any:
		if t.Kind() != reflect.Slice {
			return
		}
		for i, inner := range v {
			walk(inner, t.Elem(), fmt.Sprintf("%s[%d]", path, i), out)
		}
	}
}

// JSONFields returns the fields of a struct by their names in JSON.
func JSONFields(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for f := range fieldsOf(t) {
		if f.Anonymous {
			maps.Copy(out, JSONFields(f.Type))
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		out[name] = f.Type
	}
	return out
}

func fieldsOf(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}

// SameJSON reports whether two JSON texts mean the same.
func SameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	return reflect.DeepEqual(exact(a), exact(b))
}

func exact(raw json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return string(raw)
	}
	return v
}
