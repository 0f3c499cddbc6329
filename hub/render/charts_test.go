package render_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// TestChartsOfATree sends questions as a compromised worker would: the hub
// reads addresses only from the tree.
func TestChartsOfATree(t *testing.T) {
	t.Parallel()
	const digest = "sha256:aa"
	files := map[string]string{
		"c/Chart.yaml":          "name: c\ndependencies:\n- {name: redis, version: ^1, repository: 'https://charts.example.com'}\n- {name: mysql, version: ^2, repository: 'oci://registry.example.com/charts'}\n-\n",
		"c/Chart.lock":          "dependencies:\n- {name: redis, version: 1.4.0, repository: 'https://charts.example.com'}\n",
		"old/requirements.yaml": "dependencies:\n- {name: redis, version: ^1, repository: '@stable'}\n",
		"k/kustomization.yaml":  "helmCharts:\n- {name: redis, version: 1.0.0, repo: 'https://charts.example.com'}\n- {name: mysql, repo: 'https://charts.example.com', devel: true}\n",
		"bad/Chart.yaml":        "dependencies: {a: b}\n",
		"other.yaml":            "dependencies:\n- {name: redis, version: ^1, repository: 'https://evil.example.com'}\n",
	}
	type result struct {
		answer render.Answer
		asked  []hub.ChartRef
		rec    *render.Recorder
		err    error
	}
	ask := func(fail error, names ...string) (out result) {
		req := rendertest.Request(hub.Source{}, files)
		req.Chart = func(ref hub.ChartRef, _ string) (hub.ChartArchive, error) {
			out.asked = append(out.asked, ref)
			return hub.ChartArchive{Digest: digest, Data: []byte("packed")}, fail
		}
		out.rec = render.NewRecorder(req, render.Limits{})
		out.answer, out.err = out.rec.Ask(t.Context(), render.Question{Op: render.OpChart, Names: names})
		return out
	}
	for name, c := range map[string]struct {
		names []string
		want  hub.ChartRef
	}{
		"HELM-15 the lock file decides about the version":   {[]string{"c/Chart.yaml", "0"}, hub.ChartRef{Repository: "https://charts.example.com", Name: "redis", Version: "1.4.0"}},
		"HELM-15 without an entry there the range does":     {[]string{"c/Chart.yaml", "1"}, hub.ChartRef{Repository: "oci://registry.example.com/charts", Name: "mysql", Version: "^2"}},
		"HELM-15 the older file":                            {[]string{"old/requirements.yaml", "0"}, hub.ChartRef{Repository: "@stable", Name: "redis", Version: "^1"}},
		"KUST-08 a chart of a kustomization":                {[]string{"k/kustomization.yaml", "0"}, hub.ChartRef{Repository: "https://charts.example.com", Name: "redis", Version: "1.0.0"}},
		"KUST-08 the newest, pre-releases too, where asked": {[]string{"k/kustomization.yaml", "1"}, hub.ChartRef{Repository: "https://charts.example.com", Name: "mysql", Version: ">0.0.0-0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := ask(nil, c.names...)
			if out.err != nil || len(out.asked) != 1 || out.asked[0] != c.want || string(out.answer.Files[0].Data) != "packed" {
				t.Fatalf("asked for %+v: %+v, %v", out.asked, out.answer, out.err)
			}
			recorded := false
			for _, in := range out.rec.Inputs() {
				recorded = recorded || in.Kind == hub.InputChart && in.Path == c.want.String() && in.Hash == digest && hub.ParseChartRef(in.Path) == c.want
			}
			if !recorded {
				t.Errorf("inputs %+v", out.rec.Inputs())
			}
		})
	}
	for name, c := range map[string]struct {
		names []string
		says  string
	}{
		"SEC-A6 a place that is not in the list":         {[]string{"c/Chart.yaml", "3"}, "declares no chart at place"},
		"SEC-A6 a place that is none":                    {[]string{"c/Chart.yaml", "https://evil.example.com"}, "declares no chart at place"},
		"SEC-A6 a file that declares no charts":          {[]string{"other.yaml", "0"}, "declares no charts"},
		"SEC-A2 a file outside":                          {[]string{"../Chart.yaml", "0"}, "leaves the repository"},
		"SEC-A6 a file that is not there":                {[]string{"d/Chart.yaml", "0"}, "declares no chart at place"},
		"HELM-15 a list that is none":                    {[]string{"bad/Chart.yaml", "0"}, "cannot be read"},
		"SEC-B13 more charts than a render takes at all": {append([]string{"c/Chart.yaml"}, strings.Split(strings.Repeat("0 ", 65), " ")...), "more than 64 charts"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := ask(nil, c.names...)
			if kind := fault.KindOf(out.err); kind != fault.Invalid && kind != fault.Exceeded || !strings.Contains(fault.Sentence(out.err), c.says) {
				t.Errorf("%v; want %q", out.err, c.says)
			}
		})
	}
	t.Run("HELM-15 a forbidden chart is an answer, and an unreachable one is a transient failure", func(t *testing.T) {
		t.Parallel()
		out := ask(fmt.Errorf("chart: %w", fault.New(fault.Invalid, "the project does not permit it")), "c/Chart.yaml", "0")
		if out.err != nil || out.answer.Files[0].Refused == nil || out.answer.Files[0].Refused.Cause != "the project does not permit it" || out.rec.Trouble() != nil {
			t.Errorf("%+v, %v", out.answer, out.err)
		}
		out = ask(fault.New(fault.Offline, "the server is away"), "c/Chart.yaml", "0")
		if fault.KindOf(out.err) != fault.Offline || out.rec.Trouble() == nil {
			t.Errorf("%v, trouble %v", out.err, out.rec.Trouble())
		}
	})
	t.Run("HELM-15 a recorded chart holds while its archive is the same and permitted", func(t *testing.T) {
		t.Parallel()
		in := []hub.Input{{Kind: hub.InputChart, Path: "https://charts.example.com redis ^1", Hash: digest}}
		for now, want := range map[string]bool{digest: true, "sha256:bb": false, "": false} {
			req := rendertest.Request(hub.Source{}, files)
			req.Chart = func(ref hub.ChartRef, known string) (hub.ChartArchive, error) {
				if known != digest || ref.Version != "^1" {
					t.Errorf("asked for %+v, known %q", ref, known)
				}
				if now == "" {
					return hub.ChartArchive{}, fault.New(fault.Invalid, "it is no longer permitted")
				}
				return hub.ChartArchive{Digest: now}, nil
			}
			if fresh, err := render.Fresh(in, req.Trees, req); err != nil || fresh != want {
				t.Errorf("with the digest %q fresh is %v (%v), want %v", now, fresh, err, want)
			}
		}
	})
}
