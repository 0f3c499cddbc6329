package worker

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
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
	t.Run("HELM-05 a server that is away is reported as such", func(t *testing.T) {
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
