package template

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	sigs "sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// refused are functions of Argo CD's that templates may not call, with why.
var refused = map[string]string{
	"genPrivateKey":            "it would make another key each time",
	"genCA":                    "it would make another key each time",
	"genCAWithKey":             "it would make another certificate each time",
	"genSelfSignedCert":        "it would make another key each time",
	"genSelfSignedCertWithKey": "it would make another certificate each time",
	"genSignedCert":            "it would make another key each time",
	"genSignedCertWithKey":     "it would make another certificate each time",
	"derivePassword":           "it takes too long",
	"bcrypt":                   "it takes too long, and returns another text each time",
	"htpasswd":                 "it takes too long, and returns another text each time",
}

// functions are those that Argo CD has (ASET-04): sprig's without the
// environment and the network, and its own. Each is bounded.
func (b *budget) functions() template.FuncMap {
	out := template.FuncMap{stepFunction: func() (string, error) { return "", b.step() }}
	for name, f := range unbounded() {
		out[name] = b.bounded(f, work[name])
	}
	for name, why := range refused {
		out[name] = func(...any) (string, error) {
			return "", fault.New(fault.Invalid, "templates of application sets may not call %s: %s", name, why)
		}
	}
	return out
}

// unbounded are the functions by their names, among them those of text/template
// that make long texts.
func unbounded() map[string]any {
	out := sprig.GenericFuncMap()
	for _, name := range []string{"env", "expandenv", "getHostByName"} {
		delete(out, name)
	}
	out["print"], out["println"], out["printf"] = fmt.Sprint, fmt.Sprintln, fmt.Sprintf
	out["html"], out["js"], out["urlquery"] = template.HTMLEscaper, template.JSEscaper, template.URLQueryEscaper
	out["keys"], out["values"] = keys, values
	out["normalize"], out["slugify"] = Normalize, slugify
	out["toYaml"], out["fromYaml"], out["fromYamlArray"] = toYAML, fromYAML, fromYAMLArray
	return out
}

// bounded wraps a function: before a call its work is estimated, and after it
// the result is measured.
func (b *budget) bounded(f any, estimate func(args []reflect.Value) int) any {
	v := reflect.ValueOf(f)
	t := v.Type()
	in, out := make([]reflect.Type, t.NumIn()), []reflect.Type{t.Out(0), reflect.TypeFor[error]()}
	for i := range in {
		in[i] = t.In(i)
	}
	return reflect.MakeFunc(reflect.FuncOf(in, out, t.IsVariadic()), func(args []reflect.Value) []reflect.Value {
		if err := b.before(args, estimate); err != nil {
			return []reflect.Value{reflect.Zero(out[0]), reflect.ValueOf(&err).Elem()}
		}
		call := v.Call
		if t.IsVariadic() {
			call = v.CallSlice
		}
		results := call(args)
		err := b.admit(results[0])
		if len(results) == 2 && !results[1].IsNil() {
			return results
		}
		return []reflect.Value{results[0], reflect.ValueOf(&err).Elem()}
	}).Interface()
}

func (b *budget) before(args []reflect.Value, estimate func(args []reflect.Value) int) error {
	if err := b.step(); err != nil {
		return err
	}
	if estimate == nil {
		return nil
	}
	if n := estimate(args); n < 0 || n > maxWork {
		return b.exceed("a call of a function in a template would need more than %d steps or bytes", maxWork)
	}
	return nil
}

// keys and values are sprig's, in an order that is the same each time.
func keys(maps ...map[string]any) []string {
	out := []string{}
	for _, m := range maps {
		out = append(out, sortedKeys(m)...)
	}
	return out
}

func values(m map[string]any) []any {
	out := []any{}
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

func toYAML(v any) (string, error) {
	out, err := sigs.Marshal(v)
	return strings.TrimSuffix(string(out), "\n"), err
}

func fromYAML(text string) (map[string]any, error) {
	v, err := YAML("fromYaml", []byte(text))
	if v == nil || err != nil {
		return map[string]any{}, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fault.New(fault.Invalid, "fromYaml needs a text with a map; for a list use fromYamlArray")
	}
	return m, nil
}

func fromYAMLArray(text string) ([]any, error) {
	v, err := YAML("fromYamlArray", []byte(text))
	if v == nil || err != nil {
		return []any{}, err
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fault.New(fault.Invalid, "fromYamlArray needs a text with a list; for a map use fromYaml")
	}
	return list, nil
}

// YAML reads one document as Argo CD's generators do: all numbers are float64.
// The name is that of the text in errors.
func YAML(name string, text []byte) (any, error) {
	v, err := manifest.Value(name, text, manifest.Limits{MaxBytes: maxValue, MaxDepth: maxDepth, LastKeyWins: true})
	return floats(v), err
}

func floats(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			v[k] = floats(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = floats(inner)
		}
	case int64:
		return float64(v)
	}
	return v
}
