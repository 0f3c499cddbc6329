package generate_test

import (
	"encoding/json"
	"testing"
	"testing/fstest"

	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/hub/generate"
	"github.com/capstan-cd/capstan/shared/fault"
)

// FuzzGitFiles has a repository with a hostile file. The file makes parameters
// or an error with a kind, and never a panic.
func FuzzGitFiles(f *testing.F) {
	for _, text := range []string{
		"name: a", "[{name: a}, {name: b}]", "", "null", "text", "a: &a [*a]", "a: &a {b: *a}", "? [a]\n: b", "{\"name\": \"\\ud83d\\ude00\"}", "name: !!binary xx", "- - a",
		"a: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\nname: &c [*b,*b,*b,*b]", "<<: {name: a}", "name: {{.path}}", "path: x", "values: x", "name: 1e400", "---\n---\na: b", "\xff\xfe",
	} {
		f.Add([]byte(text), true)
		f.Add([]byte(text), false)
	}
	specs := map[bool]string{
		true:  "goTemplate: true\ngenerators: [{git: {repoURL: r, files: [{path: f.yaml}], values: {v: '{{.name}}'}}, selector: {matchExpressions: [{key: none, operator: DoesNotExist}]}}]\n" + body("{{.name | toString | normalize}}"),
		false: "generators: [{git: {repoURL: r, files: [{path: f.yaml}], values: {v: '{{name}}'}}, selector: {matchExpressions: [{key: none, operator: DoesNotExist}]}}]\n" + body("{{name}}"),
	}
	sets := map[bool]*generate.Set{}
	for goTemplate, text := range specs {
		spec, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			f.Fatal(err)
		}
		if sets[goTemplate], err = generate.Parse("set", spec); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, goTemplate bool) {
		r, err := sets[goTemplate].Generate(t.Context(), &inputs{files: fstest.MapFS{"f.yaml": {Data: text}}}, generate.Limits{})
		if err != nil && fault.KindOf(err) == fault.Internal {
			t.Errorf("error without a kind: %v", err)
		}
		for _, g := range r.Applications {
			if _, err := json.Marshal(g.Params); err != nil {
				t.Errorf("parameters: %v", err)
			}
		}
	})
}

// FuzzParse reads hostile specs, and has those that are valid make applications.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"generators: [{list: {elements: [{name: a}]}}]\n" + body("{{name}}"),
		"goTemplate: true\ngenerators: [{matrix: {generators: [{list: {elements: [{a: b}]}}, {list: {elementsYaml: '[{c: {{.a}}}]'}}]}, selector: {matchLabels: {a: b}}}]\n" + body("{{.a}}{{.c}}"),
		"generators: [{merge: {mergeKeys: [a], generators: [{clusters: {}}, {list: {elements: [{a: b, values: {c: d}}]}}]}}]\ntemplatePatch: '{spec: {$patch: delete}}'\n" + body("x"),
		"generators: [{clusters: {selector: {matchLabels: {a: b}}, values: {a: b}, flatList: true}}]\n" + body("x"),
		"generators: [{git: {repoURL: a, files: [{path: '**/[a-'}], directories: [{path: '*'}]}}]\n" + body("x"), "generators: {}", "generators: [[]]", "[]", "null",
		"goTemplate: true\ngenerators: [{list: {elements: [{}, null, {a: null}]}}]\ntemplatePatch: 'metadata: {name: x, finalizers: [a]}'\n" + body("x"),
	} {
		spec, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(spec)
	}
	f.Fuzz(func(t *testing.T, spec []byte) {
		set, err := generate.Parse("set", spec)
		if err == nil {
			in := &inputs{files: fstest.MapFS{"a/b.yaml": {Data: []byte("a: b")}}, clusters: []generate.Cluster{{Name: "a", Server: "https://a"}}, plugin: func([]byte) ([]byte, error) { return []byte("{}"), nil }}
			_, err = set.Generate(t.Context(), in, generate.Limits{Applications: 20})
		}
		if err != nil && fault.KindOf(err) == fault.Internal {
			t.Errorf("error without a kind: %v", err)
		}
	})
}
