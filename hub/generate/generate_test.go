package generate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate"
	"github.com/capstan-cd/capstan/shared/fault"
)

// body is a template that has what an application needs, by its name.
func body(name string) string {
	return "template: {metadata: {name: '" + name + "'}, spec: {project: default, source: {repoURL: 'https://example.com/r.git', path: p}, destination: {server: 'https://a.example.com'}}}\n"
}

func parse(t *testing.T, text string) (*generate.Set, error) {
	t.Helper()
	spec, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return generate.Parse("set", spec)
}

func made(t *testing.T, text string, in *inputs) (generate.Result, error) {
	t.Helper()
	set, err := parse(t, text)
	if err != nil {
		t.Fatal(err)
	}
	return set.Generate(t.Context(), in, generate.Limits{})
}

func names(r generate.Result) []string {
	out := []string{}
	for _, g := range r.Applications {
		out = append(out, g.Meta.Name)
	}
	return out
}

// keeps reports whether an application of the set must not be deleted because of
// a result.
func keeps(r generate.Result, name string) bool {
	return r.Truncated || slices.Contains(names(r), name) ||
		slices.ContainsFunc(r.Problems, func(p generate.Problem) bool { return p.Application == "" || p.Application == name })
}

func TestParse(t *testing.T) {
	t.Parallel()
	const list = "goTemplate: true\ngenerators: [{list: {elements: [{name: a}]}}]\n"
	t.Run("ASET-02 all fields of a spec are known", func(t *testing.T) {
		t.Parallel()
		set, err := parse(t, list+body("{{.name}}")+`
goTemplateOptions: ["missingkey=error"]
templatePatch: "metadata: {annotations: {a: b}}"
syncPolicy: {preserveResourcesOnDeletion: true, applicationsSync: create-only}
strategy: {type: RollingSync, deletionOrder: Reverse, rollingSync: {steps: [{matchExpressions: [{key: a, operator: In, values: [b]}], maxUpdate: 1}, {maxUpdate: "20%"}]}}
preservedFields: {annotations: [a], labels: [b]}
ignoreApplicationDifferences: [{name: a, jsonPointers: [/spec/source/targetRevision], jqPathExpressions: [.spec]}]
applyNestedSelectors: true
`)
		if err != nil || len(set.Warnings()) > 0 {
			t.Fatalf("Parse: %v, warnings %v", err, set.Warnings())
		}
	})
	t.Run("ASET-02 unknown fields are warnings", func(t *testing.T) {
		t.Parallel()
		set, err := parse(t, "generators: [{list: {elements: [], unknown: 1}}]\nother: 1\n"+body("a"))
		if err != nil || len(set.Warnings()) != 2 || !strings.Contains(strings.Join(set.Warnings(), " "), "spec.generators[0].list.unknown") {
			t.Errorf("Parse: %v, warnings %v", err, set.Warnings())
		}
	})
	for name, c := range map[string]struct{ spec, want string }{
		"ASET-05 a field that is no text takes no placeholder": {
			list + "template: {metadata: {name: a}, spec: {project: p, syncPolicy: {automated: {prune: '{{.a}}'}}}}", "spec.template.spec.syncPolicy.automated.prune is a text",
		},
		"ASET-04 a template that cannot be read":           {list + body("{{.name"), "spec.template.metadata.name"},
		"ASET-04 an unknown option":                        {list + "goTemplateOptions: [missingkey]\n" + body("a"), "spec.goTemplateOptions"},
		"ASET-05 a patch that cannot be read":              {list + "templatePatch: '{{if}}'\n" + body("a"), "spec.templatePatch"},
		"ASET-09 a template without a name":                {list + body(""), "spec.template.metadata.name is missing"},
		"ASET-14 an unknown policy":                        {list + "syncPolicy: {applicationsSync: never}\n" + body("a"), "spec.syncPolicy.applicationsSync"},
		"ASET-08 an unknown operator of a selector":        {"generators: [{list: {elements: []}, selector: {matchExpressions: [{key: a, operator: Is}]}}]\n" + body("a"), "spec.generators[0].selector"},
		"ASET-08 a selector by what is no key":             {"generators: [{list: {elements: []}, selector: {matchLabels: {'path[0]': a}}}]\n" + body("a"), "no key of a label"},
		"AGEN-02 a selector of what is no label":           {"generators: [{clusters: {selector: {matchLabels: {a: b/c}}}}]\n" + body("a"), "no value of a label"},
		"no generators":                                    {body("a"), "spec.generators is missing"},
		"an unknown generator":                             {"generators: [{other: {}}]\n" + body("a"), "spec.generators[0] has 0 generators"},
		"AGEN-02 a wrong type in a generator":              {"generators: [{clusters: {flatList: many}}]\n" + body("a"), "flatList"},
		"AGEN-03 a Git generator without a repository":     {"generators: [{git: {directories: [{path: a}]}}]\n" + body("a"), "spec.generators[0].git: repoURL is missing"},
		"AGEN-03 a Git generator without paths":            {"generators: [{git: {repoURL: a}}]\n" + body("a"), "directories or files"},
		"AGEN-04 a pattern that leaves the repository":     {"generators: [{git: {repoURL: a, files: [{path: ../a}]}}]\n" + body("a"), "leaves the repository"},
		"AGEN-07(part) an SCM provider without a host":     {"generators: [{scmProvider: {}}]\n" + body("a"), "spec.generators[0].scmProvider"},
		"AGEN-12(part) a decision without a ConfigMap":     {"generators: [{clusterDecisionResource: {}}]\n" + body("a"), "configMapRef is missing"},
		"AGEN-13(part) a plugin without a ConfigMap":       {"generators: [{plugin: {}}]\n" + body("a"), "configMapRef.name is missing"},
		"AGEN-14 a matrix of one generator":                {"generators: [{matrix: {generators: [{list: {}}]}}]\n" + body("a"), "exactly two"},
		"AGEN-14 a matrix of three generators":             {"generators: [{matrix: {generators: [{list: {}}, {list: {}}, {list: {}}]}}]\n" + body("a"), "exactly two"},
		"AGEN-14 a child with two generators":              {"generators: [{matrix: {generators: [{list: {}, clusters: {}}, {list: {}}]}}]\n" + body("a"), "has 2 generators"},
		"AGEN-14 combining generators nested three levels": {"generators: [{matrix: {generators: [{list: {}}, {merge: {mergeKeys: [a], generators: [{list: {}}, {matrix: {generators: [{list: {}}, {list: {}}]}}]}}]}}]\n" + body("a"), "nested too deep"},
		"AGEN-15 a merge of one generator":                 {"generators: [{merge: {mergeKeys: [a], generators: [{list: {}}]}}]\n" + body("a"), "two or more"},
		"AGEN-15 a merge without keys":                     {"generators: [{merge: {generators: [{list: {}}, {list: {}}]}}]\n" + body("a"), "mergeKeys is missing"},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			t.Parallel()
			_, err := parse(t, c.spec)
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Parse returned %v, want an error with %q", err, c.want)
			}
		})
	}
	t.Run("AGEN-15 a template of a child has no effect, and a warning says so", func(t *testing.T) {
		t.Parallel()
		set, err := parse(t, "generators: [{merge: {mergeKeys: [a], generators: [{list: {template: {metadata: {name: x}}}}, {list: {}}]}}]\n"+body("a"))
		if err != nil || len(set.Warnings()) != 1 {
			t.Errorf("Parse: %v, warnings %v", err, set.Warnings())
		}
	})
}

// TestProjectStays tries to have a set make applications in another project
// than its template names.
func TestProjectStays(t *testing.T) {
	t.Parallel()
	const elements = "goTemplate: true\ngenerators: [{list: {elements: [{id: a, key: project, text: admin, lines: \"x\\nproject: admin\"}]}}]\n"
	of := func(spec, patch string) string {
		return elements + patch + "template: {metadata: {name: '{{.id}}'}, spec: {" + spec + "destination: {}}}"
	}
	for name, text := range map[string]string{
		"a patch":                             of("project: shop, ", "templatePatch: '{spec: {project: admin}}'\n"),
		"a patch of parameters":               of("project: shop, ", "templatePatch: |\n  spec:\n    {{.key}}: {{.text}}\n"),
		"a patch that replaces the spec":      of("project: shop, ", "templatePatch: '{spec: {$patch: replace, project: admin}}'\n"),
		"a patch that removes the spec":       of("project: shop, ", "templatePatch: '{spec: null}'\n"),
		"a patch in capitals":                 of("project: shop, ", "templatePatch: '{spec: {Project: admin}}'\n"),
		"a patch in capitals, without any":    of("", "templatePatch: '{spec: {PROJECT: admin}}'\n"),
		"a key that becomes project":          of("project: shop, '{{.key}}': admin, ", ""),
		"a key that becomes project, alone":   of("'{{.key}}': admin, ", ""),
		"a key that becomes its capitals":     of("'{{.key | upper}}': admin, ", ""),
		"a text that looks like a field":      of("project: shop, source: {path: '{{.lines}}'}, ", ""),
		"a patch whose text breaks its lines": of("project: shop, ", "templatePatch: |\n  spec:\n    source: {path: b}\n    info: []\n    {{.lines}}\n"),
	} {
		t.Run("SEC-D11(part) "+name+" does not change the project", func(t *testing.T) {
			t.Parallel()
			set, err := parse(t, text)
			if err != nil {
				return // refused
			}
			r, err := set.Generate(t.Context(), &inputs{}, generate.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range r.Applications {
				spec, err := hub.DecodeSpec(g.Spec)
				if err != nil || spec.Project != "shop" && spec.Project != "" {
					t.Errorf("project %q, %v: %s", spec.Project, err, g.Spec)
				}
			}
		})
	}
	for _, spec := range []string{"Project: admin, ", "project: shop, PROJECT: admin, "} {
		if _, err := parse(t, of(spec, "")); err == nil {
			t.Errorf("a template with %s is valid", spec)
		}
	}
}

func TestRequeue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		generators string
		standard   time.Duration
		want       time.Duration
	}{
		"ASET-17 lists and clusters hold until something changes": {"[{list: {elements: []}}, {clusters: {}}]", 0, 0},
		"ASET-17 AGEN-05 Git holds three minutes":                 {"[{list: {elements: []}}, {git: {repoURL: a, directories: [{path: b}]}}]", 0, 3 * time.Minute},
		"ASET-17 or what the tenant has set":                      {"[{git: {repoURL: a, directories: [{path: b}]}}]", time.Hour, time.Hour},
		"ASET-17 or what the generator says":                      {"[{git: {repoURL: a, directories: [{path: b}], requeueAfterSeconds: 20}}]", time.Hour, 20 * time.Second},
		"AGEN-10 pull requests hold half an hour":                 {"[{pullRequest: {github: {owner: a, repo: b}}}]", 0, 30 * time.Minute},
		"AGEN-13(part) a plugin holds half an hour":               {"[{plugin: {configMapRef: {name: a}}}]", 0, 30 * time.Minute},
		"ASET-17 the shortest of nested ones counts": {
			"[{matrix: {generators: [{list: {}}, {merge: {mergeKeys: [a], generators: [{plugin: {configMapRef: {name: a}}}, {git: {repoURL: a, files: [{path: b}], requeueAfterSeconds: 60}}]}}]}}]", 0, time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := parse(t, "generators: "+c.generators+"\n"+body("a"))
			if err != nil {
				t.Fatal(err)
			}
			if got := set.Requeue(c.standard); got != c.want {
				t.Errorf("Requeue() = %v, want %v", got, c.want)
			}
		})
	}
}

func TestGuide(t *testing.T) {
	t.Parallel()
	spec := func(t *testing.T, file string) json.RawMessage {
		text, err := os.ReadFile("../../integration/testdata/guide/" + file)
		if err != nil {
			t.Fatal(err)
		}
		var o struct{ Spec json.RawMessage }
		if err := yaml.Unmarshal(text, &o); err != nil {
			t.Fatal(err)
		}
		return o.Spec
	}
	t.Run("the set of guide/12 makes its applications", func(t *testing.T) {
		t.Parallel()
		set, err := generate.Parse("my-appset", spec(t, "12-applicationset-rolling.yaml"))
		if err != nil || len(set.Warnings()) > 0 {
			t.Fatalf("Parse: %v, %v", err, set.Warnings())
		}
		r, err := set.Generate(t.Context(), &inputs{}, generate.Limits{})
		if err != nil || !slices.Equal(names(r), []string{"web-staging", "web-production"}) || r.Applications[1].Meta.Labels["environment"] != "production" {
			t.Errorf("Generate: %+v, %v", r, err)
		}
	})
	t.Run("the set of guide/24 makes an application for each directory and cluster", func(t *testing.T) {
		t.Parallel()
		set, err := generate.Parse("platform-apps", spec(t, "24-applicationset-matrix.yaml"))
		if err != nil || len(set.Warnings()) > 0 {
			t.Fatalf("Parse: %v, %v", err, set.Warnings())
		}
		in := &inputs{
			files:    fstest.MapFS{"platform/dns/a.yaml": {}, "platform/ingress/a.yaml": {}},
			clusters: []generate.Cluster{{Name: "s1", Server: "https://s1", Labels: map[string]string{"environment": "staging"}}, {Name: "in-cluster", Implicit: true}},
		}
		r, err := set.Generate(t.Context(), in, generate.Limits{})
		if err != nil || !slices.Equal(names(r), []string{"platform-dns-s1", "platform-ingress-s1"}) {
			t.Fatalf("Generate: %+v, %v", r, err)
		}
		var app hub.ApplicationSpec
		if err := json.Unmarshal(r.Applications[0].Spec, &app); err != nil || app.Source.Path != "platform/dns/overlays/staging" || !app.Prune() || !app.SelfHeal() {
			t.Errorf("spec %s: %v", r.Applications[0].Spec, err)
		}
		use := []hub.SetRepository{{URL: "https://github.com/my-org/gitops-repo.git", Revision: "main"}}
		if diff := cmp.Diff(use, r.Uses); diff != "" || len(in.reads) != 1 {
			t.Errorf("repositories (-want +got):\n%sreads %v", diff, in.reads)
		}
	})
}

func TestProblems(t *testing.T) {
	t.Parallel()
	const head = "goTemplate: true\ngoTemplateOptions: ['missingkey=error']\n"
	t.Run("ASET-10 invalid applications are problems, and others proceed", func(t *testing.T) {
		t.Parallel()
		r, err := made(t, head+"generators: [{list: {elements: [{name: a, path: x}, {name: b}, {name: c, path: z}]}}]\n"+
			"template: {metadata: {name: '{{.name}}'}, spec: {project: default, source: {repoURL: r, path: '{{.path}}'}, destination: {}}}", &inputs{})
		if err != nil || !slices.Equal(names(r), []string{"a", "c"}) || len(r.Problems) != 1 || r.Problems[0].Application != "b" || r.Problems[0].Generator != "spec.generators[0]" {
			t.Fatalf("Generate: %+v, %v", r, err)
		}
		for name, want := range map[string]bool{"a": true, "b": true, "c": true, "d": false} {
			if keeps(r, name) != want {
				t.Errorf("Keeps(%s) = %v", name, !want)
			}
		}
	})
	t.Run("ASET-10 ASET-11 a problem without a name keeps all applications", func(t *testing.T) {
		t.Parallel()
		r, err := made(t, head+"generators: [{list: {elements: [{name: a}, {other: b}]}}]\n"+body("{{.name}}"), &inputs{})
		if err != nil || !slices.Equal(names(r), []string{"a"}) || len(r.Problems) != 1 || r.Problems[0].Application != "" || !keeps(r, "d") {
			t.Errorf("Generate: %+v, %v", r, err)
		}
	})
	for name, element := range map[string]string{"an empty name": `""`, "capitals": "A", "a slash": "a/b", "a long name": strings.Repeat("a", 254)} {
		t.Run("ASET-09 "+name+" is no name", func(t *testing.T) {
			t.Parallel()
			r, err := made(t, head+"generators: [{list: {elements: [{name: "+element+"}, {name: b}]}}]\n"+body("{{.name}}"), &inputs{})
			if err != nil || !slices.Equal(names(r), []string{"b"}) || len(r.Problems) != 1 || !keeps(r, "anything") {
				t.Errorf("Generate: %+v, %v", r, err)
			}
		})
	}
	t.Run("ASET-09 of applications with the same name there is none, and a problem", func(t *testing.T) {
		t.Parallel()
		r, err := made(t, head+"generators: [{list: {elements: [{name: a}, {name: b}, {name: a}]}}, {list: {elements: [{name: a}]}}]\n"+body("{{.name}}"), &inputs{})
		if err != nil || !slices.Equal(names(r), []string{"b"}) || len(r.Problems) != 1 || r.Problems[0].Application != "a" || !strings.Contains(r.Problems[0].Message, "3 parameter sets") {
			t.Errorf("Generate: %+v, %v", r, err)
		}
	})
	t.Run("ASET-05 a patch that makes an invalid spec is a problem", func(t *testing.T) {
		t.Parallel()
		r, err := made(t, head+"generators: [{list: {elements: [{id: a, prune: maybe}, {id: b, prune: true}]}}]\n"+
			"templatePatch: '{spec: {syncPolicy: {automated: {prune: {{.prune}}}}}}'\n"+body("{{.id}}"), &inputs{})
		if err != nil || !slices.Equal(names(r), []string{"b"}) || len(r.Problems) != 1 || r.Problems[0].Application != "a" {
			t.Errorf("Generate: %+v, %v", r, err)
		}
	})
	for name, c := range map[string]struct {
		generators, want string
		in               *inputs
	}{
		"a host that fails":                 {"[{list: {elements: [{name: a}]}}, {clusters: {}}]", "spec.generators[1]: away", &inputs{err: errors.New("away")}},
		"a repository that fails":           {"[{git: {repoURL: a, files: [{path: b}]}}]", "spec.generators[0]: away", &inputs{err: errors.New("away")}},
		"a nested generator that fails":     {"[{matrix: {generators: [{list: {elements: [{name: a}]}}, {clusters: {}}]}}]", "matrix.generators[1]: away", &inputs{err: errors.New("away")}},
		"a value that cannot be filled":     {"[{clusters: {values: {a: '{{.b}}'}}}]", "values.a", &inputs{clusters: []generate.Cluster{{Name: "a"}}}},
		"merge keys that are not unique":    {"[{merge: {mergeKeys: [x], generators: [{list: {elements: [{name: a}, {name: b}]}}, {list: {}}]}}]", "same merge keys", &inputs{}},
		"a file that is no map":             {"[{git: {repoURL: a, files: [{path: a.yaml}]}}]", "a.yaml", &inputs{files: fstest.MapFS{"a.yaml": {Data: []byte("text")}}}},
		"a file that is no YAML":            {"[{git: {repoURL: a, files: [{path: a.yaml}]}}]", "a.yaml", &inputs{files: fstest.MapFS{"a.yaml": {Data: []byte("a: [")}}}},
		"a file that is too large":          {"[{git: {repoURL: a, files: [{path: a.yaml}]}}]", "bytes", &inputs{files: fstest.MapFS{"a.yaml": {Data: make([]byte, 2<<20)}}}},
		"a pattern that is invalid":         {"[{git: {repoURL: a, directories: [{path: 'a['}]}}]", "no pattern", &inputs{files: fstest.MapFS{"a/a.yaml": {}}}},
		"a selector of what is no label":    {"[{matrix: {generators: [{list: {elements: [{env: a/b/c}]}}, {clusters: {selector: {matchLabels: {x: '{{.env}}'}}}}]}}]", "no value of a label", &inputs{}},
		"a plugin that is not there":        {"[{plugin: {configMapRef: {name: other}}}]", "no plugin other", &inputs{}},
		"elementsYaml that is no list":      {"[{list: {elementsYaml: 'a: b'}}]", "elementsYaml is no list", &inputs{}},
		"elementsYaml with what is no map":  {"[{list: {elementsYaml: '[a]'}}]", "element 0", &inputs{}},
		"a decision that is not there":      {"[{clusterDecisionResource: {configMapRef: a, name: b}}]", "no object", &inputs{decisions: generate.Decisions{MatchKey: "name"}}},
		"a decision without a name":         {"[{clusterDecisionResource: {configMapRef: a}}]", "either name or labelSelector", &inputs{}},
		"a decision without a matchKey":     {"[{clusterDecisionResource: {configMapRef: a, name: b}}]", "matchKey", &inputs{}},
		"a decision without its list":       {"[{clusterDecisionResource: {configMapRef: a, name: b}}]", "status.clusters", &inputs{decisions: generate.Decisions{MatchKey: "name", Objects: []map[string]any{{"status": map[string]any{"x": 1.0}}}}}},
		"a decision with what is no object": {"[{clusterDecisionResource: {configMapRef: a, name: b}}]", "no map", &inputs{decisions: generate.Decisions{MatchKey: "name", Objects: []map[string]any{{"status": map[string]any{"clusters": []any{"a"}}}}}}},
	} {
		t.Run("ASET-11 "+name+" leaves no result", func(t *testing.T) {
			t.Parallel()
			r, err := made(t, head+"generators: "+c.generators+"\n"+body("a"), c.in)
			if err == nil || !strings.Contains(err.Error(), c.want) || len(r.Applications) > 0 {
				t.Errorf("Generate: %+v, %v, want an error with %q", r, err, c.want)
			}
		})
	}
	t.Run("AGEN-01 a legacy template takes texts only", func(t *testing.T) {
		t.Parallel()
		_, err := made(t, "generators: [{list: {elements: [{num: 3}]}}]\n"+body("a"), &inputs{})
		if err == nil || !strings.Contains(err.Error(), "elements[0]: num is no text") {
			t.Errorf("Generate: %v", err)
		}
	})
	t.Run("AGEN-14 legacy parameters of two generators must be equal", func(t *testing.T) {
		t.Parallel()
		_, err := made(t, "generators: [{matrix: {generators: [{list: {elements: [{a: x}]}}, {list: {elements: [{a: z}]}}]}}]\n"+body("a"), &inputs{})
		if err == nil || !strings.Contains(err.Error(), `"a", with different values`) {
			t.Errorf("Generate: %v", err)
		}
	})
}

func TestSpecialGenerators(t *testing.T) {
	t.Parallel()
	t.Run("AGEN-12(part) a decision joins the list of a status with clusters", func(t *testing.T) {
		t.Parallel()
		in := &inputs{
			clusters: []generate.Cluster{{Name: "a", Server: "https://a"}, {Name: "b", Server: "https://b"}},
			decisions: generate.Decisions{ListKey: "decisions", MatchKey: "clusterName", Objects: []map[string]any{
				{"status": map[string]any{"decisions": []any{map[string]any{"clusterName": "b", "weight": 3.0}, map[string]any{"clusterName": "other"}, map[string]any{"x": "y"}}}},
				{"metadata": map[string]any{"name": "without-status"}},
			}},
		}
		r, err := made(t, "goTemplate: true\ngenerators: [{clusterDecisionResource: {configMapRef: duck, labelSelector: {matchLabels: {x: z}}, values: {v: '{{.name}}'}}}]\n"+
			body(`{{.name}}-{{.weight}}-{{.clusterName}}-{{len .values.v}}`), in)
		if err != nil || !slices.Equal(names(r), []string{"b-3-b-9"}) {
			t.Fatalf("Generate: %+v, %v", r, err)
		}
		want := []generate.DecisionQuery{{ConfigMap: "duck", Selector: hub.LabelSelector{Labels: map[string]string{"x": "z"}}}}
		if diff := cmp.Diff(want, in.queries); diff != "" {
			t.Errorf("queries (-want +got):\n%s", diff)
		}
	})
	t.Run("AGEN-13(part) a plugin gets the name of the set and its parameters, and its reply has parameters", func(t *testing.T) {
		t.Parallel()
		var sent []byte
		in := &inputs{plugin: func(body []byte) ([]byte, error) {
			sent = body
			return []byte(`{"output": {"parameters": [{"key": {"deep": "one"}}, {"key": {"deep": "two"}}]}}`), nil
		}}
		const generator = "generators: [{plugin: {configMapRef: {name: my-plugin}, input: {parameters: {key1: v1, map1: {a: b}}}, values: {v: "
		r, err := made(t, "goTemplate: true\n"+generator+"'{{.key.deep}}-x'}}}]\n"+body("{{.values.v}}-{{.generator.input.parameters.map1.a}}"), in)
		if err != nil || !slices.Equal(names(r), []string{"one-x-b", "two-x-b"}) {
			t.Errorf("Generate: %+v, %v", r, err)
		}
		if want := `{"applicationSetName":"set","input":{"parameters":{"key1":"v1","map1":{"a":"b"}}}}`; string(sent) != want {
			t.Errorf("it sends %s, want %s", sent, want)
		}
		r, err = made(t, generator+"'{{key.deep}}-x'}}}]\n"+body("{{values.v}}-{{generator.input.parameters.key1}}"), in)
		if err != nil || !slices.Equal(names(r), []string{"one-x-v1", "two-x-v1"}) {
			t.Errorf("Generate: %+v, %v", r, err)
		}
	})
	for name, reply := range map[string]string{"an error page": "<html>", "an empty object": "{}", "no list": `{"output": {}}`, "null in the list": `{"output": {"parameters": [null]}}`} {
		t.Run("AGEN-13(part) FT-G2(part) "+name+" of a plugin is an error", func(t *testing.T) {
			t.Parallel()
			in := &inputs{plugin: func([]byte) ([]byte, error) { return []byte(reply), nil }}
			if r, err := made(t, "generators: [{plugin: {configMapRef: {name: my-plugin}}}]\n"+body("a"), in); err == nil {
				t.Errorf("Generate: %+v", r)
			}
		})
	}
	t.Run("AGEN-03 directories whose name begins with a dot are found where the tenant wants it", func(t *testing.T) {
		t.Parallel()
		set, err := parse(t, "goTemplate: true\ngenerators: [{git: {repoURL: a, directories: [{path: '*/*'}]}}]\n"+body("{{.path.basename}}"))
		if err != nil {
			t.Fatal(err)
		}
		in := &inputs{files: fstest.MapFS{".x/a/f": {}, "y/b/f": {}}}
		for hidden, want := range map[bool][]string{false: {"b"}, true: {"a", "b"}} {
			r, err := set.Generate(t.Context(), in, generate.Limits{HiddenDirectories: hidden})
			if err != nil || !slices.Equal(names(r), want) {
				t.Errorf("Generate: %v, %v", names(r), err)
			}
		}
	})
	t.Run("ASET-07 the namespace of a template has no effect", func(t *testing.T) {
		t.Parallel()
		r, err := made(t, "generators: [{list: {elements: [{a: b}]}}]\ntemplate: {metadata: {name: a, namespace: other}, spec: {project: p}}", &inputs{})
		if err != nil || r.Applications[0].Meta.Namespace != "" {
			t.Errorf("Generate: %+v, %v", r, err)
		}
	})
}

func TestLimits(t *testing.T) {
	t.Parallel()
	list := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "{id: a%d},", i)
		}
		return "{list: {elements: [" + b.String() + "]}}"
	}
	t.Run("SEC-B13(part) a set stops at its quota, and keeps all applications", func(t *testing.T) {
		t.Parallel()
		set, err := parse(t, "generators: ["+list(30)+"]\n"+body("{{id}}"))
		if err != nil {
			t.Fatal(err)
		}
		for most, truncated := range map[int]bool{29: true, 30: false} {
			r, err := set.Generate(t.Context(), &inputs{}, generate.Limits{Applications: most})
			if err != nil || len(r.Applications) != most || r.Truncated != truncated || keeps(r, "other") != truncated {
				t.Errorf("Generate: %d applications, truncated %v, %v", len(r.Applications), r.Truncated, err)
			}
		}
	})
	t.Run("SEC-B13(part) a product of generators stops, too", func(t *testing.T) {
		t.Parallel()
		set, err := parse(t, "goTemplate: true\ngenerators: [{matrix: {generators: ["+list(200)+", "+strings.ReplaceAll(list(200), "id:", "other:")+"]}, selector: {matchLabels: {id: none}}}]\n"+body("{{.id}}-{{.other}}"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := set.Generate(t.Context(), &inputs{}, generate.Limits{})
		if err != nil || !r.Truncated || len(r.Applications) != 0 || !keeps(r, "any") {
			t.Errorf("Generate: %d applications, truncated %v, %v", len(r.Applications), r.Truncated, err)
		}
	})
	t.Run("SEC-B10(part) the size of all parameters is bounded", func(t *testing.T) {
		t.Parallel()
		in := &inputs{files: fstest.MapFS{"a.yaml": {Data: []byte("x: " + strings.Repeat("a", 900<<10))}}}
		_, err := made(t, "goTemplate: true\ngenerators: [{matrix: {generators: [{git: {repoURL: a, files: [{path: a.yaml}]}}, "+list(200)+"]}}]\n"+body("{{.id}}"), in)
		if fault.KindOf(err) != fault.Exceeded {
			t.Errorf("Generate: %v", err)
		}
	})
	t.Run("SEC-B10(part) the time of templates is bounded, and nothing is deleted then", func(t *testing.T) {
		t.Parallel()
		set, err := parse(t, "goTemplate: true\ngenerators: ["+list(30)+"]\n"+body("{{range 1000000}}{{end}}{{.id}}"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := set.Generate(t.Context(), &inputs{}, generate.Limits{Time: time.Microsecond})
		if err == nil && !keeps(r, "any") {
			t.Errorf("Generate: %+v", r)
		}
	})
}
