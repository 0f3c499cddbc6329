package helm

import (
	"maps"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
)

// corpus are templates that use what charts use. Each is rendered by Helm's
// engine and by ours, and the texts must be equal.
var corpus = map[string]string{
	"plain":      `a: {{ .Values.s }}`,
	"missing":    `a: "{{ .Values.none }}" b: "{{ .Values.none | default "d" }}" c: {{ .Values.m.none }}.`,
	"nil":        `{{ with .Values.none }}x{{ else }}y{{ end }}{{ if not .Values.none }}z{{ end }}`,
	"trim":       "a:\n  {{- range $i, $x := .Values.l }}\n  - {{ $i }}{{ $x }}\n  {{- end }}\n",
	"include":    `{{ include "c.labels" . | nindent 4 }}{{ include "c.name" (dict "x" 1) }}`,
	"template":   `{{ template "c.name" . }}`,
	"tpl":        `{{ tpl .Values.t . }} {{ tpl "{{ include \"c.name\" . }}" . }} {{ tpl "{{ .Template.Name }}" . }}`,
	"tpl-define": `{{ tpl "{{ define \"local\" }}L{{ .Values.s }}{{ end }}{{ include \"local\" . }}" . }}`,
	"tpl-none":   `{{ tpl "{{ .Values.none }}" . }}|`,
	"yaml":       "a:{{ toYaml .Values.m | nindent 2 }}\nb:{{ .Values.l | toYaml | nindent 2 }}\nc: {{ .Values | toYamlPretty }}",
	"from":       `{{ (fromYaml "a: 1\nb: [x]").b | first }} {{ fromYaml "a: [" }} {{ fromYamlArray "[1, 2]" | last }} {{ fromJson "{\"a\": 1.5}" }} {{ fromJsonArray "[1" }}`,
	"json":       `{{ toJson .Values }} {{ toJson .Values.m }} {{ toPrettyJson .Values.m }} {{ toRawJson .Values.s }}`,
	"toml":       `{{ toToml .Values.m }} {{ fromToml "a = 1" }} {{ fromToml "=" }}`,
	"release":    `{{ .Release.Name }} {{ .Release.Namespace }} {{ .Release.Service }} {{ .Release.IsInstall }} {{ .Release.Revision }}`,
	"chart":      `{{ .Chart.Name }} {{ .Chart.Version }} {{ .Chart.IsRoot }} {{ .Chart.Type }} {{ .Chart.AppVersion }} {{ .Chart.Annotations }}`,
	"template2":  `{{ .Template.Name }} {{ .Template.BasePath }}`,
	"subcharts":  `{{ .Subcharts.sub.Chart.Name }} {{ .Subcharts.sub.Values.v }} {{ .Subcharts.sub.Release.Name }}`,
	"files":      `{{ .Files.Get "conf/a.txt" }} {{ range $n, $b := .Files.Glob "conf/*" }}{{ $n }}{{ $b | toString }}{{ end }} {{ (.Files.Glob "**").AsConfig }} {{ .Files.Lines "conf/a.txt" }}`,
	"caps":       `{{ .Capabilities.KubeVersion }} {{ .Capabilities.KubeVersion.Major }} {{ .Capabilities.APIVersions.Has "apps/v1" }} {{ .Capabilities.HelmVersion.Version }}`,
	"math":       `{{ add 1 2 }} {{ div 7 2 }} {{ .Values.n | int64 }} {{ .Values.big }} {{ .Values.f }} {{ mul .Values.f 2 }}`,
	"strings":    `{{ "a-b" | camelcase | title }} {{ trunc 3 "abcdef" }} {{ "x" | b64enc }} {{ regexReplaceAll "a+" "caaat" "o" }} {{ printf "%05d" 42 }} {{ "a,b" | splitList "," }}`,
	"dicts":      `{{ $d := dict "a" 1 }}{{ $_ := set $d "b" 2 }}{{ $d }} {{ merge (dict "a" 1) (dict "a" 2 "c" 3) }} {{ get $d "a" }} {{ hasKey $d "z" }} {{ dig "m" "k" "def" .Values.AsMap }} {{ keys (dict "z" 1) }}`,
	"lists":      `{{ list 1 2 3 | reverse }} {{ uniq (list 1 1 2) }} {{ sortAlpha (list "b" "a") }} {{ until 3 }} {{ first .Values.l }}`,
	"flow":       `{{ if and .Values.active (eq .Values.s "v") }}yes{{ else if .Values.active }}half{{ else }}no{{ end }}{{ range until 5 }}{{ if eq . 3 }}{{ break }}{{ end }}{{ . }}{{ end }}`,
	"ternary":    `{{ ternary "a" "b" .Values.active }} {{ coalesce .Values.none "c" }} {{ kindOf .Values.m }} {{ typeOf .Values.n }} {{ empty .Values.m }}`,
	"lookup":     `{{ lookup "v1" "Secret" "a" "b" }} {{ (lookup "v1" "Secret" "a" "").items }}`,
	"required":   `{{ required "no" .Values.s }}`,
	"semver":     `{{ semverCompare "^1.2" "1.3.0" }} {{ (semver "1.2.3").Minor }}`,
	"hash":       `{{ sha256sum "a" }} {{ include "c.labels" . | sha256sum }} {{ adler32sum "a" }}`,
	"date":       `{{ dateInZone "2006" (toDate "2006-01-02" "2020-05-05") "UTC" }} {{ duration 90 }}`,
	"quotes":     `{{ .Values.s | quote }} {{ .Values.s | squote }} {{ "a: b" | toYaml }} {{ 1 | quote }} {{ .Values.none | quote }}`,
	"comment":    `{{/* nothing */}}{{- /* less */ -}} x`,
	"html":       `{{ "<a&b>" }} {{ "<a>" | toJson }} {{ html "<a>" }} {{ urlquery "a b" }}`,
	"host":       `[{{ getHostByName "localhost" }}]`,
	"global":     `{{ .Values.global.x }} {{ .Values.sub.global }}`,
	"_partial":   `{{ fail "partials are not executed" }}`,
	"override":   `{{ include "shared" . }}`,
	"unicode":    `{{ "ä€😀" | upper }} {{ len "ä" }} {{ substr 0 1 "äb" }}`,
}

func corpusFiles() map[string]string {
	files := map[string]string{
		"c/Chart.yaml":  "apiVersion: v2\nname: c\nversion: 1.0.0\nappVersion: v9\nannotations: {k: v}\n",
		"c/values.yaml": "s: v\nactive: true\nn: 3\nbig: 12345678901\nf: 1.5\nl: [b, a]\nm: {k: v, deep: {x: [1, {y2: z}]}}\nt: '{{ .Values.s }}-{{ .Release.Name }}'\nglobal: {x: g}\nsub: {v: parent}\n",
		"c/templates/_h.tpl": `{{- define "c.name" -}}{{ .Chart | default (dict "Name" "none") | toJson | len | gt 3 | ternary "short" "long" }}{{- end }}
{{- define "c.labels" }}
app: {{ .Release.Name }}
chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}
{{ define "shared" }}parent{{ end }}`,
		"c/conf/a.txt":                    "one\ntwo\n",
		"c/conf/b.txt":                    "bee",
		"c/charts/sub/Chart.yaml":         "apiVersion: v2\nname: sub\nversion: 2.0.0\n",
		"c/charts/sub/values.yaml":        "v: own\nw: own\n",
		"c/charts/sub/conf/s.txt":         "ess",
		"c/charts/sub/templates/_h.tpl":   `{{ define "shared" }}child{{ end }}`,
		"c/charts/sub/templates/s.yaml":   `{{ .Values.v }} {{ .Values.w }} {{ .Values.global.x }} {{ .Chart.IsRoot }} {{ include "shared" . }} {{ .Template.Name }} {{ .Files.Get "conf/s.txt" }} {{ .Files.Get "conf/a.txt" }} {{ .Subcharts }} {{ range $n, $_ := .Files }}{{ $n }}{{ end }}`,
		"c/charts/lib/Chart.yaml":         "apiVersion: v2\nname: lib\nversion: 2.0.0\ntype: library\n",
		"c/charts/lib/templates/_l.tpl":   `{{ define "lib" }}library{{ end }}`,
		"c/charts/lib/templates/not.yaml": `{{ fail "a library is not rendered" }}`,
		"c/templates/lib.yaml":            `{{ include "lib" . }}`,
	}
	for name, text := range corpus {
		files["c/templates/"+name+".yaml"] = text
	}
	return files
}

func TestEngineAgreesWithHelm(t *testing.T) {
	t.Parallel()
	files := corpusFiles()
	var buffered []*loader.BufferedFile
	for name, text := range files {
		buffered = append(buffered, &loader.BufferedFile{Name: strings.TrimPrefix(name, "c/"), Data: []byte(text)})
	}
	ch, err := loader.LoadFiles(buffered)
	if err != nil {
		t.Fatal(err)
	}
	want, err := engine.Engine{}.Render(ch, topValues(t, ch))
	if err != nil {
		t.Fatal(err)
	}

	job, _ := rendertest.Job(rendertest.Request(hub.Source{Path: "c"}, files), 0)
	job.Limits.OutputBytes = 1 << 20
	root, err := (&loading{ctx: t.Context(), job: job}).chart("c")
	if err != nil {
		t.Fatal(err)
	}
	if !root.lazy {
		// One template ranges over .Files: the eager way is tested here, the
		// lazy one with the file-reading tests.
		t.Log("files of the chart were read ahead")
	}
	caps, err := newCapabilities(t.Context(), job.Files, hub.HelmSource{KubeVersion: "1.30.2"}, root)
	if err != nil {
		t.Fatal(err)
	}
	values := topValues(t, root.Chart)
	values["Capabilities"] = caps
	texts, err := newEvaluator(t.Context(), job, root).render(root.Chart, values)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, x := range texts {
		got[path.Join("c", strings.TrimPrefix(x.file, "c/"))] = string(x.data)
	}
	maps.DeleteFunc(want, func(_, v string) bool { return strings.TrimSpace(v) == "" })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("our engine differs from Helm's (-Helm +ours):\n%s", d)
	}
}

func newFunctions() map[string]any { return new(evaluator).functions() }

func topValues(t *testing.T, ch *chart.Chart) chartutil.Values {
	t.Helper()
	given := map[string]any{}
	if err := chartutil.ProcessDependenciesWithMerge(ch, given); err != nil {
		t.Fatal(err)
	}
	version, err := chartutil.ParseKubeVersion("1.30.2")
	if err != nil {
		t.Fatal(err)
	}
	caps := chartutil.DefaultCapabilities.Copy()
	caps.KubeVersion = *version
	values, err := chartutil.ToRenderValues(ch, given, chartutil.ReleaseOptions{Name: "rel", Namespace: "ns", Revision: 1, IsInstall: true}, caps)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// TestFunctionsAgreeWithHelm finds out whether a new version of Helm or sprig
// brought functions that ours does not have.
func TestFunctionsAgreeWithHelm(t *testing.T) {
	t.Parallel()
	ours := newFunctions()
	for name := range ours {
		if fn := ours[name]; fn == nil {
			t.Errorf("function %s is nil", name)
		}
		ch := &chart.Chart{Metadata: &chart.Metadata{Name: "c", APIVersion: "v2", Version: "1.0.0"},
			Templates: []*chart.File{{Name: "templates/a", Data: []byte("{{ if false }}{{ " + name + " }}{{ end }}")}}}
		if _, err := (engine.Engine{}).Render(ch, chartutil.Values{"Values": map[string]any{}}); err != nil {
			t.Errorf("Helm does not have %s: %v", name, err)
		}
	}
}
