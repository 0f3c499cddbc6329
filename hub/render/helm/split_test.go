package helm

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// helmSplit is what Helm makes of a rendered text, as helm template prints it:
// each document with a line break behind it.
func helmSplit(text string) []string {
	docs := releaseutil.SplitManifests(text)
	names := slices.Collect(maps.Keys(docs))
	slices.SortFunc(names, func(a, b string) int {
		if releaseutil.BySplitManifestsOrder.Less(releaseutil.BySplitManifestsOrder{a, b}, 0, 1) {
			return -1
		}
		return 1
	})
	out := []string{}
	for _, n := range names {
		if docs[n] != "" {
			out = append(out, docs[n]+"\n")
		}
	}
	return out
}

// rendered are texts that templates make.
var rendered = map[string]string{
	"two documents":                    "a: 1\n---\nb: 2\n",
	"a separator at the start":         "---\na: 1\n---\nb: 2\n---\n",
	"white space around separators":    "\n\n  \n---   \n\na: 1\n \t \n---\n\n\n b: 2\n\n",
	"a comment behind a separator":     "a: 1\n---# comment\nb: 2\n",
	"a comment after a blank":          "a: 1\n--- # comment\nb: 2\n",
	"an object behind a separator":     "a: 1\n---b: 2\n",
	"an object after a blank":          "a: 1\n--- b: 2\n",
	"a longer line":                    "a: 1\n-----\nb: 2\n",
	"separators after each other":      "---\n---\na: 1\n---\n---\n",
	"an indented one":                  "a: |\n  x\n  ---\n  y\n",
	"a block scalar without its break": "a: |\n  line",
	"a block scalar with breaks":       "a: |+\n  line\n\n\n---\nb: |-\n  line\n\n",
	"a block scalar before another":    "a: |\n  line\n\n\n---\nb: 1",
	"carriage returns":                 "a: 1\r\n---\r\nb: 2\r\n",
	"comments alone":                   "# nothing\n---\n# nothing\n",
	"nothing":                          "\n",
	"a separator alone":                "---",
}

func TestSplitEqualsHelm(t *testing.T) {
	t.Parallel()
	for name, text := range rendered {
		t.Run("HELM-01 "+name, func(t *testing.T) {
			t.Parallel()
			got, ok := split(text, 100)
			if !ok {
				t.Fatal("more documents than there are")
			}
			if d := cmp.Diff(helmSplit(text), got); d != "" {
				t.Errorf("documents (-Helm +ours):\n%s", d)
			}
		})
	}
	t.Run("SEC-B2 no more documents than objects are wanted", func(t *testing.T) {
		t.Parallel()
		text := strings.Repeat("---\na: 1\n", 100)
		if docs, ok := split(text, 100); !ok || len(docs) != 100 {
			t.Errorf("%d documents of 100, %t", len(docs), ok)
		}
		if docs, ok := split(text, 99); ok || len(docs) != 100 {
			t.Errorf("%d documents where 99 are permitted, %t", len(docs), ok)
		}
	})
}

func FuzzSplit(f *testing.F) {
	for _, text := range rendered {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := split(text, len(text)+1)
		if d := cmp.Diff(helmSplit(text), got); d != "" || !ok {
			t.Errorf("documents (-Helm +ours):\n%s", d)
		}
	})
}

// Charts whose text differs from its documents as YAML sees them. What Helm's
// own engine and splitting make of a chart is what we make of it.
func TestDocumentsEqualHelm(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "
	for name, c := range map[string]struct {
		template string
		want     []string // name and data of each ConfigMap
	}{
		"HELM-01 a separator with text behind it, after white-space control": {
			head + "one}\n---\n\n{{- if true }}\n\n{{- \"\" }}# a comment\n" + head + "two}\n{{- end }}\n",
			[]string{`{"name":"one"} null`, `{"name":"two"} null`},
		},
		"HELM-01 a separator with an object behind it": {
			head + "one}\n---\n{{- if true -}}\n" + head + "two}\n{{- end }}\n",
			[]string{`{"name":"one"} null`, `{"name":"two"} null`},
		},
		"HELM-01 the last line break of a block scalar": {
			head + "one}\ndata:\n  f: |\n    {{- if true }}\n    line\n    {{- end -}}\n",
			[]string{`{"name":"one"} {"f":"line\n"}`},
		},
		"HELM-01 the last line break before a separator": {
			head + "one}\ndata:\n  f: |\n    line\n\n\n---\n" + head + "two}\ndata:\n  f: |+\n    line\n\n\n",
			[]string{`{"name":"one"} {"f":"line\n"}`, `{"name":"two"} {"f":"line\n"}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{"c/Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\n", "c/templates/a.yaml": c.template}
			out, _, err := renderChart(t, rendertest.Request(hub.Source{Path: "c"}, files))
			if err != nil {
				t.Fatal(fault.Sentence(err))
			}
			var got []string
			for _, o := range out.Objects {
				got = append(got, shown(t, o.Object.Object))
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("objects (-want +ours):\n%s", d)
			}
			if d := cmp.Diff(helmObjects(t, files), got); d != "" {
				t.Errorf("objects (-Helm +ours):\n%s", d)
			}
		})
	}
}

// helmObjects are the objects that Helm makes of a chart.
func helmObjects(t *testing.T, files map[string]string) []string {
	t.Helper()
	var loaded []*loader.BufferedFile
	for name, text := range files {
		loaded = append(loaded, &loader.BufferedFile{Name: strings.TrimPrefix(name, "c/"), Data: []byte(text)})
	}
	ch, err := loader.LoadFiles(loaded)
	if err != nil {
		t.Fatal(err)
	}
	values, err := chartutil.ToRenderValues(ch, nil, chartutil.ReleaseOptions{Name: "web", Namespace: "shop", IsInstall: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := engine.Render(ch, values)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		for _, doc := range helmSplit(texts[name]) {
			var o map[string]any
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				t.Fatalf("%v in:\n%s", err, doc)
			}
			out = append(out, shown(t, o))
		}
	}
	return out
}

func shown(t *testing.T, o map[string]any) string {
	t.Helper()
	meta, err := json.Marshal(o["metadata"])
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(o["data"])
	if err != nil {
		t.Fatal(err)
	}
	return string(meta) + " " + string(data)
}
