package kustomize

import (
	"maps"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/hub/source/charts/chartstest"
	"github.com/capstan-cd/capstan/shared/fault"
)

const chartTemplate = `apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-conf, namespace: {{ .Release.Namespace }}}
data:
  a: {{ .Values.a | quote }}
  b: {{ .Values.b | quote }}
  list: {{ toJson .Values.list | quote }}
  kube: {{ .Capabilities.KubeVersion.Version }}
  has: {{ .Capabilities.APIVersions.Has "z.example.com/v1" | quote }}
`

// chartFiles are the files of a chart with hooks, tests and a definition.
func chartFiles() map[string]string {
	return map[string]string{
		"values.yaml":         "a: own\nb: own\nlist: [own]\n",
		"templates/a.yaml":    chartTemplate,
		"templates/hook.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hook, annotations: {helm.sh/hook: pre-install}}\n",
		"templates/test.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: test, annotations: {helm.sh/hook: test}}\n",
		"crds/x.yaml":         "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: x.example.com}\n",
	}
}

// below puts files into a directory.
func below(dir string, files map[string]string) map[string]string {
	out := map[string]string{}
	for name, text := range files {
		out[dir+"/"+name] = text
	}
	return out
}

func withChart(kustomization string) map[string]string {
	files := below("k/charts/web", chartFiles())
	files["k/charts/web/Chart.yaml"] = "apiVersion: v2\nname: web\nversion: 1.0.0\n"
	files["k/kustomization.yaml"] = kustomization
	return files
}

// inflated builds a kustomization with charts switched on.
func inflated(t *testing.T, files map[string]string, k *hub.KustomizeSource, options string, change func(*render.Request)) (string, *render.Recorder, error) {
	t.Helper()
	req := rendertest.Request(hub.Source{Path: "k", Kustomize: k}, files)
	req.Settings = map[string]string{hub.KustomizeOptionsKey: "--enable-helm " + options}
	req.KubeVersion = "v1.30.0"
	if change != nil {
		change(&req)
	}
	job, rec := rendertest.Job(req, 0)
	out, err := Render(t.Context(), job)
	if err != nil {
		return "", rec, err
	}
	return rendertest.Text(t, out, "shop"), rec, nil
}

func TestHelmCharts(t *testing.T) {
	t.Parallel()
	one := func(more string) map[string]string { return withChart("helmCharts:\n- {name: web" + more + "}\n") }
	and := func(files, more map[string]string) map[string]string {
		maps.Copy(files, more)
		return files
	}
	for name, c := range map[string]struct {
		files   map[string]string
		k       *hub.KustomizeSource
		options string
		has     []string
		not     []string
	}{
		"KUST-08 as helm template would": {
			files: one(""), has: []string{`"name":"release-name-conf","namespace":"default"`, `"a":"own"`, `"name":"hook"`, `"kube":"v1.30.0"`, `"has":"false"`},
			not: []string{"CustomResourceDefinition", "helm-generated"},
		},
		"KUST-08 release and namespace": {files: one(", releaseName: r, namespace: ns"), has: []string{`"name":"r-conf","namespace":"ns"`}},
		"KUST-08 a template of the name": {
			files: one(", nameTemplate: '{{ \"x\" | repeat 3 }}'"), has: []string{`"name":"xxx-conf"`},
		},
		"KUST-08 definitions, hooks and tests as asked": {files: one(", includeCRDs: true, skipHooks: true"), has: []string{"CustomResourceDefinition"}, not: []string{`"hook"`, `"test"`}},
		"KUST-08 no tests":                              {files: one(", skipTests: true"), has: []string{`"hook"`}, not: []string{`"test"`}},
		"KUST-08 inline values override":                {files: one(", valuesInline: {a: inline, list: [inline]}"), has: []string{`"a":"inline"`, `"b":"own"`, `"list":"[\"inline\"]"`}},
		"KUST-08 inline values fill in":                 {files: one(", valuesInline: {a: inline, c: inline}, valuesMerge: merge"), has: []string{`"a":"own"`, `"b":"own"`}},
		"KUST-08 inline values alone, over the chart's": {files: one(", valuesInline: {a: inline}, valuesMerge: replace"), has: []string{`"a":"inline"`, `"b":"own"`}},
		"KUST-08 a value file, inline values, and more files": {
			files: and(one(", valuesFile: v.yaml, valuesInline: {b: inline}, additionalValuesFiles: [more.yaml]"), map[string]string{"k/v.yaml": "a: file\nb: file\n", "k/more.yaml": "list: [more]\n"}),
			has:   []string{`"a":"file"`, `"b":"inline"`, `"list":"[\"more\"]"`},
		},
		"KUST-08 another home of charts": {
			files: and(below("k/lib/web", and(chartFiles(), map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n"})), map[string]string{"k/kustomization.yaml": "helmGlobals: {chartHome: lib}\nhelmCharts: [{name: web}]\n"}),
			has:   []string{`"a":"own"`},
		},
		"KUST-08 the namespace of a kustomization leaves charts alone, and prefixes and patches do not": {
			files: withChart("namespace: prod\nnamePrefix: p-\nhelmCharts: [{name: web, skipHooks: true, namespace: ns}]\nresources: [own.yaml]\npatches:\n- target: {kind: ConfigMap, name: release-name-conf}\n  patch: '- {op: replace, path: /data/a, value: patched}'\n"),
			has:   []string{`"name":"p-release-name-conf","namespace":"ns"`, `"a":"patched"`, `"name":"p-own","namespace":"prod"`},
		},
		"KUST-08 a chart of a base": {
			files: and(below("base", map[string]string{}), and(and(below("k/base/charts/web", and(chartFiles(), map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n"})),
				map[string]string{"k/base/kustomization.yaml": "helmCharts: [{name: web}]\n"}), map[string]string{"k/kustomization.yaml": "resources: [base]\nnameSuffix: -x\n"})),
			has: []string{`"name":"release-name-conf-x"`},
		},
		"KUST-08 two charts, one of them twice": {
			files: withChart("helmCharts: [{name: web, releaseName: a, skipHooks: true}, {name: web, releaseName: b, skipHooks: true}]\n"), has: []string{`"a-conf"`, `"b-conf"`},
		},
		"KUST-09 the application's versions": {
			files: one(""), k: &hub.KustomizeSource{KubeVersion: "1.31.0", APIVersions: []string{"z.example.com/v1"}}, options: "--helm-kube-version 1.29.0", has: []string{`"kube":"v1.31.0"`, `"has":"true"`},
		},
		"KUST-09 without them those of the options": {
			files: one(""), options: "--helm-kube-version 1.29.0 --helm-api-versions z.example.com/v1", has: []string{`"kube":"v1.29.0"`, `"has":"true"`},
		},
		"KUST-09 each counts by itself": {
			files: one(""), k: &hub.KustomizeSource{KubeVersion: "1.31.0"}, options: "--helm-api-versions z.example.com/v1", has: []string{`"kube":"v1.31.0"`, `"has":"true"`},
		},
		"KUST-09 what the chart's entry says": {
			files: one(", kubeVersion: 1.28.0, apiVersions: [z.example.com/v1]"), k: &hub.KustomizeSource{KubeVersion: "1.31.0"}, has: []string{`"kube":"v1.28.0"`, `"has":"true"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.files["k/own.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\n"
			text, _, err := inflated(t, c.files, c.k, c.options, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range c.has {
				if !strings.Contains(text, s) {
					t.Errorf("%s is missing in\n%s", s, text)
				}
			}
			for _, s := range c.not {
				if strings.Contains(text, s) {
					t.Errorf("%s should not be in\n%s", s, text)
				}
			}
		})
	}
	for name, c := range map[string]struct {
		files map[string]string
		says  string
	}{
		"KUST-08 no chart and no repository":     {withChart("helmCharts: [{name: other}]\n"), "there is no chart in k/charts/other"},
		"KUST-08 an entry without a name":        {withChart("helmCharts: [{releaseName: x}]\n"), "names no chart"},
		"KUST-08 a way to merge that is unknown": {one(", valuesInline: {a: b}, valuesMerge: both"), "must be merge, override or replace"},
		"KUST-08 a field that is unknown":        {one(", values: {a: b}"), "helmCharts cannot be read"},
		"KUST-08 a value file that is not there": {one(", valuesFile: none.yaml"), `there is no file "none.yaml"`},
		"SEC-A3 a value file by its address":     {one(", valuesFile: 'https://me:s3cret@example.com/v.yaml'"), "read from the repository only"},
		"SEC-A2 a value file outside":            {one(", valuesFile: ../../v.yaml"), "leaves the repository"},
		"SEC-A2 a home outside":                  {withChart("helmGlobals: {chartHome: ../../charts}\nhelmCharts: [{name: web}]\n"), "leaves the repository"},
		"KUST-08 the old field":                  {withChart("helmChartInflationGenerator: [{chartName: web}]\n"), "write it as helmCharts"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := inflated(t, c.files, nil, "", nil)
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), c.says) || strings.Contains(fault.Sentence(err), "s3cret") {
				t.Errorf("%v; want %q", fault.Sentence(err), c.says)
			}
		})
	}
}

func TestChartsOfRepositories(t *testing.T) {
	t.Parallel()
	files := map[string]string{"k/kustomization.yaml": "helmCharts:\n- {name: web, repo: 'https://charts.example.com', version: 1.0.0, releaseName: r}\n"}
	archive := chartstest.Pack("web", "1.0.0", chartFiles())
	serve := func(asked *[]string, fail error) func(*render.Request) {
		return func(req *render.Request) {
			req.Chart = func(ref hub.ChartRef, _ string) (hub.ChartArchive, error) {
				*asked = append(*asked, ref.String())
				return hub.ChartArchive{Digest: chartstest.Digest(archive), Data: archive}, fail
			}
		}
	}
	t.Run("KUST-08 a chart from its repository, whose digest is an input", func(t *testing.T) {
		t.Parallel()
		var asked []string
		text, rec, err := inflated(t, files, nil, "", serve(&asked, nil))
		if err != nil || !strings.Contains(text, `"name":"r-conf"`) || !strings.Contains(text, `"a":"own"`) || len(asked) != 1 || asked[0] != "https://charts.example.com web 1.0.0" {
			t.Fatalf("asked for %q, %v:\n%s", asked, err, text)
		}
		found := false
		for _, in := range rec.Inputs() {
			found = found || in.Kind == hub.InputChart && in.Hash == chartstest.Digest(archive)
		}
		if !found {
			t.Errorf("inputs %+v", rec.Inputs())
		}
	})
	t.Run("KUST-08 a chart that is in the tree is not fetched", func(t *testing.T) {
		t.Parallel()
		var asked []string
		there := below("k/charts/web-1.0.0/web", chartFiles())
		there["k/charts/web-1.0.0/web/Chart.yaml"] = "apiVersion: v2\nname: web\nversion: 1.0.0\n"
		maps.Copy(there, files)
		text, _, err := inflated(t, there, nil, "", serve(&asked, nil))
		if err != nil || !strings.Contains(text, `"name":"r-conf"`) || len(asked) != 0 {
			t.Fatalf("asked for %q, %v:\n%s", asked, err, text)
		}
	})
	t.Run("KUST-08 a repository that the project does not permit", func(t *testing.T) {
		t.Parallel()
		var asked []string
		_, _, err := inflated(t, files, nil, "", serve(&asked, fault.New(fault.Invalid, "project %q does not permit the repository", "shop")))
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "k/kustomization.yaml, helmCharts web") || !strings.Contains(fault.Sentence(err), "does not permit") {
			t.Errorf("%v", fault.Sentence(err))
		}
	})
}
