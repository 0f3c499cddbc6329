package helm

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// web is a small chart that shows what its templates see.
func web() map[string]string {
	return map[string]string{
		"charts/web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.2.3\nappVersion: \"9\"\n",
		"charts/web/values.yaml": "a: chart\nb: chart\nc: chart\nd: chart\ne: chart\nlist: [1, 2]\n" +
			"nested:\n  x: chart\n  z: chart\n",
		"charts/web/templates/_helpers.tpl": "{{- define \"web.name\" -}}{{ .Release.Name }}-web{{- end -}}\n",
		"charts/web/templates/show.yaml": `apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "web.name" . }}
  namespace: {{ .Release.Namespace }}
data:
  a: {{ .Values.a | quote }}
  b: {{ .Values.b | quote }}
  c: {{ .Values.c | quote }}
  d: {{ .Values.d | quote }}
  e: {{ .Values.e | toJson | quote }}
  nested: {{ .Values.nested | toJson | quote }}
  list: {{ .Values.list | toJson | quote }}
  more: {{ .Values.more | toJson | quote }}
  chart: {{ .Chart.Name }}-{{ .Chart.Version }}-{{ .Chart.AppVersion }}
  release: "{{ .Release.IsInstall }} {{ .Release.IsUpgrade }} {{ .Release.Service }} {{ .Release.Revision }}"
  template: {{ .Template.Name }} {{ .Template.BasePath }}
`,
		"charts/web/templates/NOTES.txt": "Thank you for {{ .Chart.Name }}",
		"env/a.yaml":                     "a: envA\nb: envA\nnested: {x: envA}\n",
		"env/b.yaml":                     "b: envB\n",
		"charts/web/extra.yaml":          "c: extra\n",
	}
}

func with(files map[string]string, more map[string]string) map[string]string {
	out := maps.Clone(files)
	maps.Copy(out, more)
	return out
}

func renderChart(t *testing.T, req render.Request) (render.Output, *render.Recorder, error) {
	t.Helper()
	job, rec := rendertest.Job(req, 0)
	out, err := Render(t.Context(), job)
	return out, rec, err
}

// data returns the data of the one ConfigMap that a chart makes.
func data(t *testing.T, out render.Output) map[string]string {
	t.Helper()
	if len(out.Objects) == 0 {
		t.Fatal("no object")
	}
	found := map[string]string{}
	m, _ := out.Objects[0].Object.Object["data"].(map[string]any)
	for k, v := range m {
		found[k], _ = v.(string)
	}
	return found
}

func TestGoldenChart(t *testing.T) {
	t.Parallel()
	out, _, err := renderChart(t, rendertest.Request(hub.Source{Path: "charts/web"}, web()))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"apiVersion":"v1","data":{"a":"chart","b":"chart","c":"chart","chart":"web-1.2.3-9","d":"chart","e":"\"chart\"","list":"[1,2]",` +
		`"more":"null","nested":"{\"x\":\"chart\",\"z\":\"chart\"}","release":"true false Helm 1","template":"web/templates/show.yaml web/templates"},` +
		`"kind":"ConfigMap","metadata":{"name":"web-web","namespace":"shop"}}` + "\n"
	if d := cmp.Diff(want, rendertest.Text(t, out, "shop")); d != "" {
		t.Errorf("objects (-want +got):\n%s", d)
	}
	if out.Impure {
		t.Error("a chart without random functions is marked impure")
	}
	if got := out.Objects[0].File; got != "charts/web/templates/show.yaml" {
		t.Errorf("file %q", got)
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		helm hub.HelmSource
		want map[string]string // of the ConfigMap's data, where given
	}{
		"HELM-05 value files, relative and absolute, later ones win": {
			hub.HelmSource{ValueFiles: []string{"/env/a.yaml", "../../env/b.yaml", "extra.yaml"}},
			map[string]string{"a": "envA", "b": "envB", "c": "extra", "d": "chart", "nested": `{"x":"envA","z":"chart"}`},
		},
		"HELM-06 a pattern is sorted": {
			hub.HelmSource{ValueFiles: []string{"/env/*.yaml"}},
			map[string]string{"a": "envA", "b": "envB"},
		},
		"HELM-06 a file that is also named keeps its place": {
			hub.HelmSource{ValueFiles: []string{"/env/b.yaml", "/env/*.yaml"}},
			map[string]string{"b": "envA"},
		},
		"HELM-06 a doublestar pattern": {
			hub.HelmSource{ValueFiles: []string{"/**/b.yaml"}},
			map[string]string{"b": "envB"},
		},
		"HELM-07 missing files are passed over if asked": {
			hub.HelmSource{ValueFiles: []string{"none.yaml", "/env/a.yaml", "/none/*.yaml"}, IgnoreMissingValueFiles: true},
			map[string]string{"a": "envA"},
		},
		"HELM-04 valuesObject stands in for values": {
			hub.HelmSource{Values: "a: text\nb: text\n", ValuesObject: []byte(`{"a":"object"}`)},
			map[string]string{"a": "object", "b": "chart"},
		},
		"HELM-11 parameters over values over files over the chart": {
			hub.HelmSource{
				ValueFiles: []string{"/env/a.yaml"}, Values: "b: text\nc: text\n",
				Parameters: []hub.HelmParameter{{Name: "c", Value: "param"}, {Name: "nested.x", Value: "param"}},
			},
			map[string]string{"a": "envA", "b": "text", "c": "param", "d": "chart", "nested": `{"x":"param","z":"chart"}`},
		},
		"HELM-09 types of parameters": {
			hub.HelmSource{Parameters: []hub.HelmParameter{{Name: "e", Value: "12"}, {Name: "more", Value: "true", ForceString: true}}},
			map[string]string{"e": "12", "more": `"true"`},
		},
		"HELM-09 a comma is part of the value": {
			hub.HelmSource{Parameters: []hub.HelmParameter{{Name: "a", Value: "x,y=z,w"}}},
			map[string]string{"a": "x,y=z,w"},
		},
		"HELM-09 a list": {
			hub.HelmSource{Parameters: []hub.HelmParameter{{Name: "list", Value: "{x,y}"}}},
			map[string]string{"list": `["x","y"]`},
		},
		"HELM-09 an index": {
			hub.HelmSource{Parameters: []hub.HelmParameter{{Name: "list[1]", Value: "5"}}},
			map[string]string{"list": `[null,5]`},
		},
		"HELM-10 a file as a value": {
			hub.HelmSource{FileParameters: []hub.HelmFile{{Name: "a", Path: "/env/b.yaml"}}},
			map[string]string{"a": "b: envB\n"},
		},
		"HELM-09 null removes a default": {
			hub.HelmSource{Values: "nested:\n  x: null\n"},
			map[string]string{"nested": `{"z":"chart"}`},
		},
		"HELM-02 release name": {
			hub.HelmSource{ReleaseName: "other"},
			map[string]string{"a": "chart"},
		},
		"SRC-18 the build environment in parameters and file names": {
			hub.HelmSource{
				ValueFiles: []string{"/env/${ARGOCD_APP_NAME}.yaml"}, IgnoreMissingValueFiles: true,
				Parameters: []hub.HelmParameter{{Name: "a", Value: "$ARGOCD_APP_NAME/$ARGOCD_APP_NAMESPACE/${ARGOCD_APP_PROJECT_NAME}/$$x/$NONE."}},
			},
			map[string]string{"a": "web/shop/default/$x/."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, _, err := renderChart(t, rendertest.Request(hub.Source{Path: "charts/web", Helm: &c.helm}, web()))
			if err != nil {
				t.Fatal(err)
			}
			got := data(t, out)
			for k, want := range c.want {
				if got[k] != want {
					t.Errorf("%s is %q, want %q", k, got[k], want)
				}
			}
		})
	}
	t.Run("HELM-02 HELM-03 names of release and namespace", func(t *testing.T) {
		t.Parallel()
		out, _, err := renderChart(t, rendertest.Request(hub.Source{Path: "charts/web", Helm: &hub.HelmSource{ReleaseName: "r", Namespace: "ns"}}, web()))
		if err != nil || out.Objects[0].Object.GetName() != "r-web" || out.Objects[0].Object.GetNamespace() != "ns" {
			t.Errorf("objects %v, %v", rendertest.Names(out), err)
		}
	})
}

func TestBadCharts(t *testing.T) {
	t.Parallel()
	template := func(text string) map[string]string {
		return map[string]string{"charts/web/templates/bad.yaml": text}
	}
	for name, c := range map[string]struct {
		more map[string]string
		helm hub.HelmSource
		kind fault.Kind
		says []string
	}{
		"HELM-07 a missing value file": {
			helm: hub.HelmSource{ValueFiles: []string{"none.yaml"}},
			says: []string{"helm.valueFiles", "charts/web/none.yaml"},
		},
		"HELM-06 a pattern without a match": {
			helm: hub.HelmSource{ValueFiles: []string{"/none/*.yaml"}}, says: []string{"/none/*.yaml"},
		},
		"HELM-05 a remote value file where nothing reads any": {
			helm: hub.HelmSource{ValueFiles: []string{"https://example.com/values.yaml"}}, says: []string{"cannot be read by their address here", "https://example.com/values.yaml"},
		},
		"SEC-A3 a value file with another scheme": {
			helm: hub.HelmSource{ValueFiles: []string{"file:///etc/passwd"}}, says: []string{"cannot be read by their address here"},
		},
		"SEC-A2 a value file outside": {
			helm: hub.HelmSource{ValueFiles: []string{"../../../etc/passwd"}}, says: []string{"leaves the repository"},
		},
		"SEC-A2 a value file behind an absolute path": {
			helm: hub.HelmSource{ValueFiles: []string{"/../../etc/passwd"}}, says: []string{"leaves the repository"},
		},
		"SEC-A1 a value file that is a link": {
			more: map[string]string{"link env/link.yaml": "/etc/passwd"},
			helm: hub.HelmSource{ValueFiles: []string{"/env/link.yaml"}}, says: []string{"env/link.yaml", "symbolic link"},
		},
		"SEC-A1 a template that is a link": {
			more: map[string]string{"link charts/web/templates/link.yaml": "../../../../etc/passwd"}, says: []string{"charts/web/templates/link.yaml"},
		},
		"values that are no map": {
			more: map[string]string{"env/list.yaml": "[1]"}, helm: hub.HelmSource{ValueFiles: []string{"/env/list.yaml"}}, says: []string{"env/list.yaml"},
		},
		"inline values that are no YAML":  {helm: hub.HelmSource{Values: "a: ["}, says: []string{"helm.values"}},
		"a parameter that cannot be set":  {helm: hub.HelmSource{Parameters: []hub.HelmParameter{{Name: "a[", Value: "x"}}}, says: []string{"helm.parameters", "a["}},
		"SEC-B5 a parameter far out":      {helm: hub.HelmSource{Parameters: []hub.HelmParameter{{Name: "list[999999999]", Value: "x"}}}, says: []string{"helm.parameters"}},
		"SRC-11 an unknown ref":           {helm: hub.HelmSource{ValueFiles: []string{"$nope/values.yaml"}}, says: []string{`ref "nope"`}},
		"a template that does not parse":  {more: template("a: b\nc: {{ if }}"), says: []string{"charts/web/templates/bad.yaml, line 2"}},
		"a function that does not exist":  {more: template("a: {{ nope 1 }}"), says: []string{"charts/web/templates/bad.yaml, line 1", "nope"}},
		"SEC-A10 env is not a function":   {more: template(`a: {{ env "PATH" }}`), says: []string{"bad.yaml, line 1", "env"}},
		"a template that fails":           {more: template("a: b\n\nc: {{ .Values.a.b.c }}"), says: []string{"charts/web/templates/bad.yaml, line 3", ".Values.a.b.c"}},
		"fail says its words":             {more: template("a: b\nc: {{ fail \"do this instead\" }}"), says: []string{"charts/web/templates/bad.yaml, line 2: do this instead"}},
		"required says its words":         {more: template(`c: {{ required "set .Values.zzz" .Values.zzz }}`), says: []string{"set .Values.zzz"}},
		"an error in a helper names it":   {more: template(`{{ define "h" }}{{ fail "inner" }}{{ end }}` + "\n\n" + `c: {{ include "h" . }}`), says: []string{"charts/web/templates/bad.yaml, line 1", "inner"}},
		"text that is no YAML":            {more: template("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a\n"), says: []string{"charts/web/templates/bad.yaml"}},
		"SRC-20 an object without a kind": {more: template("apiVersion: v1\nmetadata: {name: a}\n"), says: []string{"charts/web/templates/bad.yaml", "kind"}},
		"a document that is no object":    {more: template("replicas: 3\n"), says: []string{"charts/web/templates/bad.yaml"}},
		"SEC-B5 a template includes itself": {
			more: template(`{{ define "r" }}{{ include "r" . }}{{ end }}{{ include "r" . }}`), kind: fault.Exceeded, says: []string{"includes itself"},
		},
		"SEC-B5 two templates include each other": {
			more: template(`{{ define "p" }}{{ include "q" . }}{{ end }}{{ define "q" }}{{ include "p" . }}{{ end }}{{ include "p" . }}`), kind: fault.Exceeded, says: []string{"includes itself"},
		},
		"SEC-B5 tpl calls itself": {
			more: template(`{{ tpl .Values.t (dict "t" .Values.t "Values" .Values "Template" .Template) }}`), helm: hub.HelmSource{Values: "t: '{{ tpl .t . }}'"},
			kind: fault.Exceeded, says: []string{"tpl"},
		},
		"SEC-B2 templates that write without end": {
			more: template(`{{ range until 100000 }}{{ repeat 1000 "x" }}{{ end }}`), kind: fault.Exceeded, says: []string{"write more than"},
		},
		"HELM-15 a remote dependency": {
			more: map[string]string{"charts/web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\ndependencies:\n- {name: redis, version: ^18.0, repository: https://charts.example.com}\n"},
			says: []string{"redis", "^18.0", "https://charts.example.com", "charts cannot be fetched from repositories here"},
		},
		"HELM-15 a dependency outside": {
			more: map[string]string{"charts/web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\ndependencies:\n- {name: x, version: 1.0.0, repository: 'file://../../../x'}\n"},
			says: []string{"leaves the repository"},
		},
		"HELM-15 a local dependency that is not there": {
			more: map[string]string{"charts/web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\ndependencies:\n- {name: x, version: 1.0.0, repository: 'file://../x'}\n"},
			says: []string{"charts/x", "no Chart.yaml"},
		},
		"HELM-15 a chart that depends on itself": {
			more: map[string]string{"charts/web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\ndependencies:\n- {name: other, version: 1.0.0, repository: 'file://../web'}\n"},
			says: []string{"circle"},
		},
		"HELM-14 a chart for another Kubernetes": {
			more: map[string]string{"charts/web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\nkubeVersion: '>=9.0.0'\n"},
			says: []string{"wants Kubernetes >=9.0.0"},
		},
		"HELM-14 a version that is none": {
			more: map[string]string{"charts/web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\nkubeVersion: '>=1.0.0'\n"},
			helm: hub.HelmSource{KubeVersion: "latest"}, says: []string{"helm.kubeVersion", "latest"},
		},
		"a library chart": {
			more: map[string]string{"charts/web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\ntype: library\n"}, says: []string{"library"},
		},
		"a chart without a name":  {more: map[string]string{"charts/web/Chart.yaml": "apiVersion: v2\nversion: 1.0.0\n"}, says: []string{"charts/web", "name"}},
		"a chart that is no YAML": {more: map[string]string{"charts/web/Chart.yaml": "a: ["}, says: []string{"Chart.yaml"}},
		"HELM-13 values against the schema": {
			more: map[string]string{"charts/web/values.schema.json": `{"properties":{"a":{"type":"integer"}}}`}, says: []string{"values.schema.json", "a"},
		},
		"SEC-B6 a schema that is elsewhere": {
			more: map[string]string{"charts/web/values.schema.json": `{"$ref":"file:///etc/passwd"}`},
			says: []string{"charts/web/values.schema.json", `refers to "file:///etc/passwd"`, "only what is in the schema itself is read"},
		},
		"SEC-B6 a schema that is elsewhere, by a relative path": {
			more: map[string]string{"charts/web/values.schema.json": `{"$ref":"../../../etc/passwd"}`},
			says: []string{"charts/web/values.schema.json", `etc/passwd"`, "only what is in the schema itself is read"},
		},
		"SEC-B6 a schema whose own schema is elsewhere": {
			more: map[string]string{"charts/web/values.schema.json": `{"$schema":"https://127.0.0.1:1/meta.json"}`},
			says: []string{"charts/web/values.schema.json", `refers to "https://127.0.0.1:1/meta.json"`},
		},
		"SEC-B6 a subchart's schema that is elsewhere": {
			more: map[string]string{
				"charts/web/charts/sub/Chart.yaml": "apiVersion: v2\nname: sub\nversion: 1.0.0\n", "charts/web/charts/sub/values.yaml": "a: 1\n",
				"charts/web/charts/sub/values.schema.json": `{"properties":{"a":{"$ref":"http://127.0.0.1:1/latest"}}}`,
			},
			says: []string{"charts/web/charts/sub/values.schema.json", `refers to "http://127.0.0.1:1/latest"`},
		},
		"HELM-13 values of a subchart against its schema": {
			more: map[string]string{
				"charts/web/charts/sub/Chart.yaml": "apiVersion: v2\nname: sub\nversion: 1.0.0\n", "charts/web/charts/sub/values.yaml": "a: 1\n",
				"charts/web/charts/sub/values.schema.json": `{"$defs":{"text":{"type":"string"}},"properties":{"a":{"$ref":"#/$defs/text"}}}`,
			},
			says: []string{"charts/web/charts/sub/values.schema.json", "sub:", "at '/a'", "want string"},
		},
		"HELM-13 a schema that is no JSON": {
			more: map[string]string{"charts/web/values.schema.json": `{`}, says: []string{"charts/web/values.schema.json", "not JSON"},
		},
		"SEC-B3 a packed chart that is none": {
			more: map[string]string{"charts/web/charts/x-1.0.0.tgz": "not gzip"}, says: []string{"x-1.0.0.tgz"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := renderChart(t, rendertest.Request(hub.Source{Path: "charts/web", Helm: &c.helm}, with(web(), c.more)))
			want := c.kind
			if want == "" {
				want = fault.Invalid
			}
			if kind := fault.KindOf(err); kind != want {
				t.Fatalf("error kind %q, want %q: %v", kind, want, err)
			}
			for _, says := range c.says {
				if !strings.Contains(fault.Sentence(err), says) {
					t.Errorf("%q does not say %q", fault.Sentence(err), says)
				}
			}
			if strings.Contains(err.Error(), "root:") {
				t.Errorf("%q repeats a file of the hub", err)
			}
		})
	}
	t.Run("no chart", func(t *testing.T) {
		t.Parallel()
		_, _, err := renderChart(t, rendertest.Request(hub.Source{Path: "env", Helm: &hub.HelmSource{}}, web()))
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "there is no Chart.yaml") {
			t.Errorf("error %v", err)
		}
	})
}

// What a schema refers to is refused by the loader itself, so that it holds
// also where renderers are not caged: as here.
func TestASchemaOpensNothing(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(`{"properties":{"a":{"type":"integer"}}}`))
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(file, []byte(`{"properties":{"a":{"type":"integer"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, ref := range map[string]string{"SEC-B6 no file": "file://" + file, "SEC-B6 no address": server.URL + "/schema.json"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := renderChart(t, rendertest.Request(hub.Source{Path: "charts/web"}, with(web(), map[string]string{
				"charts/web/values.schema.json": `{"$ref":"` + ref + `"}`,
			})))
			says := fault.Sentence(err)
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(says, "charts/web/values.schema.json") || !strings.Contains(says, ref) || strings.Contains(says, "want integer") {
				t.Errorf("error %v", err)
			}
			if asked.Load() != 0 {
				t.Error("the address was asked")
			}
		})
	}
	t.Run("HELM-13 a URN fits everything, as with Helm", func(t *testing.T) {
		t.Parallel()
		if _, _, err := renderChart(t, rendertest.Request(hub.Source{Path: "charts/web"}, with(web(), map[string]string{
			"charts/web/values.schema.json": `{"properties":{"a":{"$ref":"urn:example:thing"}}}`,
		}))); err != nil {
			t.Error(err)
		}
	})
}

func TestValuesFromAnotherSource(t *testing.T) {
	t.Parallel()
	req := rendertest.Request(hub.Source{Path: "charts/web", Helm: &hub.HelmSource{
		ValueFiles: []string{"$values/prod/*.yaml", "$values/$ARGOCD_APP_NAME.yaml"}, FileParameters: []hub.HelmFile{{Name: "d", Path: "$values/d.txt"}},
	}}, web())
	req.Sources = append(req.Sources, hub.Source{RepoURL: "https://git.example/values.git", Ref: "values"})
	req.Trees = append(req.Trees, rendertest.NewTree(map[string]string{
		"prod/1.yaml": "a: one\nb: one\n", "prod/2.yaml": "b: two\n", "web.yaml": "c: web\n", "d.txt": "dee",
	}))
	out, rec, err := renderChart(t, req)
	if err != nil {
		t.Fatal(err)
	}
	got := data(t, out)
	for k, want := range map[string]string{"a": "one", "b": "two", "c": "web", "d": "dee"} {
		if got[k] != want {
			t.Errorf("SRC-11 %s is %q, want %q", k, got[k], want)
		}
	}
	recorded := slices.ContainsFunc(rec.Inputs(), func(in hub.Input) bool {
		return in.Source == 1 && in.Kind == hub.InputFile && in.Path == "prod/2.yaml"
	})
	if !recorded {
		t.Error("the value file of the other source is not recorded")
	}
}

func TestALabelPrintedTwiceIsTakenAsHelmTakesIt(t *testing.T) {
	t.Parallel()
	files := with(web(), map[string]string{"charts/web/templates/show.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: one\n  k: two\n"})
	out, _, err := renderChart(t, rendertest.Request(hub.Source{Path: "charts/web"}, files))
	if err != nil || data(t, out)["k"] != "two" {
		t.Errorf("data %v, %v", out, err)
	}
}

func TestCustomResourceDefinitionsAndHooks(t *testing.T) {
	t.Parallel()
	files := with(web(), map[string]string{
		"charts/web/crds/a.yaml":          "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: as.example.com\n",
		"charts/web/templates/hook.yaml":  "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: migrate\n  annotations:\n    helm.sh/hook: pre-install,pre-upgrade\n    helm.sh/hook-weight: \"5\"\n",
		"charts/web/templates/test.yaml":  "apiVersion: v1\nkind: Pod\nmetadata:\n  name: test\n  annotations:\n    helm.sh/hook: test\n",
		"charts/web/templates/both.yaml":  "apiVersion: v1\nkind: Pod\nmetadata:\n  name: both\n  annotations:\n    helm.sh/hook: post-install,test\n",
		"charts/web/templates/empty.yaml": "{{ if false }}a: b{{ end }}\n",
	})
	for name, c := range map[string]struct {
		helm hub.HelmSource
		want []string
	}{
		"HELM-22 definitions are there; HELM-18 tests are not": {hub.HelmSource{}, []string{"CustomResourceDefinition", "migrate", "both", "web-web"}},
		"HELM-13 skipCrds":  {hub.HelmSource{SkipCrds: true}, []string{"migrate", "both", "web-web"}},
		"HELM-13 skipTests": {hub.HelmSource{SkipTests: true}, []string{"CustomResourceDefinition", "migrate", "web-web"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, _, err := renderChart(t, rendertest.Request(hub.Source{Path: "charts/web", Helm: &c.helm}, files))
			if err != nil {
				t.Fatal(err)
			}
			text := rendertest.Text(t, out, "shop")
			if got := strings.Count(text, "\n"); got != len(c.want) {
				t.Errorf("%d objects, want %d:\n%s", got, len(c.want), text)
			}
			for _, n := range c.want {
				if !strings.Contains(text, n) {
					t.Errorf("%s is missing in\n%s", n, text)
				}
			}
		})
	}
}
