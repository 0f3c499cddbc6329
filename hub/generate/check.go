package generate

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// templateTree reads a template whose strings may have placeholders.
func (s *Set) templateTree(path string, raw any) (map[string]any, error) {
	tree, err := exact(raw)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "%s is no object", path)
	}
	out := map[string]any{}
	for _, part := range []string{"metadata", "spec"} {
		if tree[part] == nil {
			continue
		}
		m, ok := tree[part].(map[string]any)
		if !ok {
			return nil, fault.New(fault.Invalid, "%s.%s is no object", path, part)
		}
		out[part] = m
	}
	spec, err := json.Marshal(out["spec"])
	if err != nil {
		return nil, err
	}
	if err := checkSpec(path+".spec", spec); err != nil {
		return nil, err
	}
	return out, s.checkTexts(path, out)
}

// checkSpec refuses fields of a wrong type. A field that is no text takes no
// placeholders (ASET-05).
func checkSpec(path string, spec json.RawMessage) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(spec, &fields); err != nil {
		return fault.New(fault.Invalid, "%s is no object", path)
	}
	for name := range fields {
		// Readers of JSON may take it for the project, which rights depend on.
		if name != "project" && strings.EqualFold(name, "project") {
			return fault.New(fault.Invalid, "%s.%s is not known: write project in lower case", path, name)
		}
	}
	var as hub.ApplicationSpec
	err := json.Unmarshal(spec, &as)
	t, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case err == nil:
		return nil
	case ok:
		return fault.With(fault.New(fault.Invalid, "%s.%s is %s, which it may not be", path, t.Field, article(t.Value)), "",
			"only fields that are texts may have placeholders; for others use spec.templatePatch")
	}
	return fault.Wrap(fault.Invalid, err, "%s cannot be read", path)
}

func article(kind string) string {
	switch kind {
	case "string":
		return "a text"
	case "array":
		return "a list"
	case "object":
		return "an object"
	case "bool":
		return "true or false"
	}
	return "a number"
}

// typeError names the field of the spec that has a wrong type.
func typeError(err error) error {
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && t.Field != "" {
		return fault.New(fault.Invalid, "%s is %s, which it may not be", t.Field, article(t.Value))
	}
	return fault.New(fault.Invalid, "it cannot be read: %w", err)
}

// checkTexts parses all texts of a value.
func (s *Set) checkTexts(path string, v any) error {
	switch v := v.(type) {
	case string:
		if err := s.checks.Check(v); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	case []any:
		for i, inner := range v {
			if err := s.checkTexts(fmt.Sprintf("%s[%d]", path, i), inner); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, k := range sortedKeys(v) {
			if err := s.checkTexts(path+"."+k, v[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// check checks what the parts of a spec do not know of each other.
func (s *Set) check() error {
	if p := s.spec.TemplatePatch; p != nil {
		if err := s.checks.Check(*p); err != nil {
			return fmt.Errorf("spec.templatePatch: %w", err)
		}
	}
	for _, t := range s.templates() {
		if name, _ := child(t, "metadata")["name"].(string); name == "" && s.spec.TemplatePatch == nil {
			return fault.New(fault.Invalid, "spec.template.metadata.name is missing")
		}
		if len(child(t, "spec")) == 0 {
			return fault.New(fault.Invalid, "spec.template.spec is missing")
		}
	}
	return s.checkPolicy()
}

// checkPolicy checks what is done with the applications.
func (s *Set) checkPolicy() error {
	if p := s.spec.SyncPolicy; p != nil && p.ApplicationsSync != nil {
		switch *p.ApplicationsSync {
		case hub.ApplicationsSync, hub.ApplicationsCreateOnly, hub.ApplicationsCreateUpdate, hub.ApplicationsCreateDelete:
		default:
			return fault.With(fault.New(fault.Invalid, "spec.syncPolicy.applicationsSync is %q", *p.ApplicationsSync), "", "use sync, create-only, create-update or create-delete")
		}
	}
	return nil
}

// unknownFields returns a sentence for each field that this release does not
// know.
func unknownFields(spec map[string]any) []string {
	var out []string
	unknown(spec, reflect.TypeFor[hub.ApplicationSetSpec](), "spec", &out)
	return out
}

func unknown(v any, t reflect.Type, path string, out *[]string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := v.(type) {
	case map[string]any:
		if t == reflect.TypeFor[hub.ApplicationTemplate]() {
			unknown(v["metadata"], reflect.TypeFor[hub.TemplateMeta](), path+".metadata", out)
			return
		}
		if t.Kind() != reflect.Struct {
			return
		}
		for k, inner := range v {
			if f, ok := fieldOf(t, k); ok {
				unknown(inner, f, path+"."+k, out)
			} else {
				*out = append(*out, path+"."+k+" is stored without effect: this release does not know it")
			}
		}
	case []any:
		if t.Kind() != reflect.Slice || t == reflect.TypeFor[json.RawMessage]() {
			return
		}
		for i, inner := range v {
			unknown(inner, t.Elem(), fmt.Sprintf("%s[%d]", path, i), out)
		}
	}
}

func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if tag == name {
			return t.Field(i).Type, true
		}
	}
	return nil, false
}
