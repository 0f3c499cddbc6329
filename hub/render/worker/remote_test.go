package worker

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/source/charts/chartstest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// TestRemoteValueFiles renders in a real worker, which has no network: the hub
// reads the file for it.
func TestRemoteValueFiles(t *testing.T) {
	t.Parallel()
	const address = "https://example.com/values.yaml"
	p := newPool(t, nil)
	files := map[string]string{
		"c/Chart.yaml":       chartYAML,
		"c/templates/x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Values.name }}}\n",
	}
	renderWith := func(h hub.HelmSource, more map[string]string, fail error) (render.Result, []string, error) {
		all := map[string]string{}
		for _, m := range []map[string]string{files, more} {
			for k, v := range m {
				all[k] = v
			}
		}
		var asked []string
		req := request(hub.Source{Path: "c", Helm: &h}, all)
		req.Fetch = func(a string, _ []string, _ int64) ([]byte, error) {
			asked = append(asked, a)
			return []byte("name: far\n"), fail
		}
		res, err := p.Render(t.Context(), req)
		return res, asked, err
	}
	t.Run("HELM-05 the hub reads a value file for the worker once", func(t *testing.T) {
		t.Parallel()
		res, asked, err := renderWith(hub.HelmSource{ValueFiles: []string{address}}, nil, nil)
		if err != nil || len(asked) != 1 || len(res.Objects) != 1 || res.Objects[0].Ref.Name != "far" {
			t.Errorf("%v, asked for %q: %v", names(res), asked, err)
		}
	})
	t.Run("HELM-05 an unreachable server is reported as such", func(t *testing.T) {
		t.Parallel()
		_, _, err := renderWith(hub.HelmSource{ValueFiles: []string{address}}, nil, fault.New(fault.Offline, "the server cannot be reached"))
		if fault.KindOf(err) != fault.Offline {
			t.Errorf("error %v", err)
		}
	})
	t.Run("HELM-05 a file in the repository adds no address", func(t *testing.T) {
		t.Parallel()
		_, asked, err := renderWith(hub.HelmSource{}, map[string]string{"c/.argocd-source.yaml": "helm: {valueFiles: ['" + address + "']}\n"}, nil)
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "not one of the application's own") || len(asked) != 0 {
			t.Errorf("asked for %q: %v", asked, err)
		}
	})
}

// TestChartsFromRepositories renders in a real worker, which has no network: the
// hub fetches the charts that the tree declares for it.
func TestChartsFromRepositories(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	archive := chartstest.Pack("redis", "1.0.0", map[string]string{"templates/x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-redis}\n"})
	renderWith := func(files map[string]string, data []byte, fail error) (render.Result, []string, error) {
		var asked []string
		req := request(hub.Source{Path: "c"}, files)
		req.Settings = map[string]string{hub.KustomizeOptionsKey: "--enable-helm"}
		req.Chart = func(ref hub.ChartRef, _ string) (hub.ChartArchive, error) {
			asked = append(asked, ref.String())
			return hub.ChartArchive{Digest: chartstest.Digest(data), Data: data}, fail
		}
		res, err := p.Render(t.Context(), req)
		return res, asked, err
	}
	parent := map[string]string{"c/Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\ndependencies:\n- {name: redis, version: ^1, repository: 'https://charts.example.com'}\n"}
	overlay := map[string]string{"c/kustomization.yaml": "helmCharts:\n- {name: redis, version: 1.0.0, repo: 'oci://registry.example.com/charts', releaseName: k}\n"}
	t.Run("HELM-15 a dependency of a chart", func(t *testing.T) {
		t.Parallel()
		res, asked, err := renderWith(parent, archive, nil)
		if err != nil || len(asked) != 1 || asked[0] != "https://charts.example.com redis ^1" || len(res.Objects) != 1 || res.Objects[0].Ref.Name != "web-redis" {
			t.Errorf("%v, asked for %q: %v", names(res), asked, err)
		}
	})
	t.Run("KUST-08 a chart of a kustomization", func(t *testing.T) {
		t.Parallel()
		res, asked, err := renderWith(overlay, archive, nil)
		if err != nil || len(asked) != 1 || asked[0] != "oci://registry.example.com/charts redis 1.0.0" || len(res.Objects) != 1 || res.Objects[0].Ref.Name != "k-redis" {
			t.Errorf("%v, asked for %q: %v", names(res), asked, err)
		}
	})
	t.Run("HELM-15 an unreachable repository is reported as such", func(t *testing.T) {
		t.Parallel()
		for _, files := range []map[string]string{parent, overlay} {
			if _, _, err := renderWith(files, nil, fault.New(fault.Offline, "the server cannot be reached")); fault.KindOf(err) != fault.Offline {
				t.Errorf("error %v", err)
			}
		}
	})
	t.Run("HELM-15 a repository that is not permitted is named", func(t *testing.T) {
		t.Parallel()
		for _, files := range []map[string]string{parent, overlay} {
			_, _, err := renderWith(files, nil, fault.New(fault.Invalid, "project %q does not permit it", "shop"))
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), `project "shop" does not permit it`) {
				t.Errorf("error %v", err)
			}
		}
	})
	t.Run("SEC-B3 a bomb in an archive ends with its limit", func(t *testing.T) {
		t.Parallel()
		bomb := chartstest.Pack("redis", "1.0.0", map[string]string{"big.txt": strings.Repeat("\x00", 6<<20)})
		_, _, err := renderWith(parent, bomb, nil)
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "larger than the maximum file size") {
			t.Errorf("error %v", err)
		}
	})
}
