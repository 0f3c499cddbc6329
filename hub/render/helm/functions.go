package helm

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/Masterminds/sprig/v3"
	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v3"
)

// functions are those of Helm: sprig without the environment and the network,
// and Helm's own. Calls with results that differ each time are recorded.
func (e *evaluator) functions() template.FuncMap {
	f := sprig.TxtFuncMap()
	delete(f, "env")
	delete(f, "expandenv")
	f["getHostByName"] = func(string) string { return "" }
	for _, name := range [...]string{
		"now", "ago", "uuidv4", "shuffle", "randAlphaNum", "randAlpha", "randAscii", "randNumeric", "randBytes", "randInt",
		"bcrypt", "htpasswd", "encryptAES", "genPrivateKey", "genCA", "genCAWithKey",
		"genSelfSignedCert", "genSelfSignedCertWithKey", "genSignedCert", "genSignedCertWithKey",
	} {
		f[name] = e.noted(f[name], func([]reflect.Value) bool { return true })
	}
	for _, name := range [...]string{"date", "date_in_zone", "dateInZone", "htmlDate", "htmlDateInZone"} {
		f[name] = e.noted(f[name], noTime)
	}
	for name, fn := range helmFunctions() {
		f[name] = fn
	}
	return f
}

// noted wraps a function: a call marks the render impure if when returns true.
func (e *evaluator) noted(fn any, when func(args []reflect.Value) bool) any {
	v := reflect.ValueOf(fn)
	if !v.IsValid() {
		return func() string { return "" } // a later sprig without it; a test finds out
	}
	return reflect.MakeFunc(v.Type(), func(args []reflect.Value) []reflect.Value {
		if when(args) {
			e.impure = true
		}
		if v.Type().IsVariadic() {
			return v.CallSlice(args)
		}
		return v.Call(args)
	}).Interface()
}

// noTime reports whether no argument of a date function is a time: sprig then
// uses the current time.
func noTime(args []reflect.Value) bool {
	return !slices.ContainsFunc(args, func(a reflect.Value) bool {
		if !a.IsValid() || !a.CanInterface() {
			return false
		}
		switch a.Interface().(type) {
		case time.Time, *time.Time, int, int32, int64:
			return true
		}
		return false
	})
}

// helmFunctions are what Helm adds to sprig, and ordered forms of sprig's
// functions that return map entries without order.
func helmFunctions() template.FuncMap {
	return template.FuncMap{
		"toYaml":        toYAML,
		"toYamlPretty":  toYAMLPretty,
		"fromYaml":      fromYAML,
		"fromYamlArray": fromYAMLArray,
		"toJson":        toJSON,
		"fromJson":      fromJSON,
		"fromJsonArray": fromJSONArray,
		"toToml":        toTOML,
		"fromToml":      fromTOML,
		"keys":          keys,
		"values":        values,
		"required":      required,
		"fail":          func(words string) (string, error) { return "", scriptError{words} },
		// There is no cluster to read from.
		"lookup": func(_, _, _, _ string) (map[string]any, error) { return map[string]any{}, nil },
		// Replaced for each set of templates; parsing needs the names.
		"include": func(string, any) string { return "" },
		"tpl":     func(string, any) string { return "" },
	}
}

func required(words string, v any) (any, error) {
	if s, isText := v.(string); v == nil || isText && s == "" {
		return v, scriptError{words}
	}
	return v, nil
}

func keys(maps ...map[string]any) []string {
	var out []string
	for _, m := range maps {
		out = append(out, sortedKeys(m)...)
	}
	return out
}

func values(m map[string]any) []any {
	var out []any
	for _, k := range sortedKeys(m) {
		out = append(out, m[k])
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// The conversions never fail in a template: what cannot be written is empty,
// and what cannot be read has the reason under the key Error, as with Helm.

func toYAML(v any) string {
	out, err := yaml.Marshal(v)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(out), "\n")
}

func toYAMLPretty(v any) string {
	var out bytes.Buffer
	enc := goyaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(v); err != nil {
		return ""
	}
	return strings.TrimSuffix(out.String(), "\n")
}

func fromYAML(s string) map[string]any {
	out := map[string]any{}
	if err := yaml.Unmarshal([]byte(s), &out); err != nil {
		out["Error"] = err.Error()
	}
	return out
}

func fromYAMLArray(s string) []any {
	out := []any{}
	if err := yaml.Unmarshal([]byte(s), &out); err != nil {
		return []any{err.Error()}
	}
	return out
}

func toJSON(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(out)
}

func fromJSON(s string) map[string]any {
	out := map[string]any{}
	if err := json.Unmarshal([]byte(s), &out); err != nil {
		out["Error"] = err.Error()
	}
	return out
}

func fromJSONArray(s string) []any {
	out := []any{}
	if err := json.Unmarshal([]byte(s), &out); err != nil {
		return []any{err.Error()}
	}
	return out
}

func toTOML(v any) string {
	var out bytes.Buffer
	if err := toml.NewEncoder(&out).Encode(v); err != nil {
		return err.Error()
	}
	return out.String()
}

func fromTOML(s string) map[string]any {
	out := map[string]any{}
	if err := toml.Unmarshal([]byte(s), &out); err != nil {
		out["Error"] = err.Error()
	}
	return out
}
