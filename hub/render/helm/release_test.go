package helm

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
)

// namesOf returns "Kind name" of each object of the chart, in order.
func namesOf(t *testing.T, files map[string]string, source hub.HelmSource) []string {
	t.Helper()
	out, _, err := renderChart(t, rendertest.Request(hub.Source{Path: "charts/web", Helm: &source}, files))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range out.Objects {
		names = append(names, o.Object.GetKind()+" "+o.Object.GetName())
	}
	slices.Sort(names)
	return names
}

// A chart is a set of templates and no release: nothing is added that Helm
// would need to list or to roll back.
func TestNoRelease(t *testing.T) {
	t.Parallel()
	want := []string{"ConfigMap web-web"}
	for name, version := range map[string]string{
		"HELM-01 a chart renders its templates and no release object": "",
		"HELM-01 helm.version v2 is accepted and ignored":             "v2",
		"HELM-01 helm.version v3 is accepted and ignored":             "v3",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(want, namesOf(t, web(), hub.HelmSource{Version: version})); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSkipSchemaValidation(t *testing.T) {
	t.Parallel()
	files := with(web(), map[string]string{"charts/web/values.schema.json": `{"properties":{"a":{"type":"integer"}}}`})
	t.Run("HELM-13 skipSchemaValidation renders values that the schema refuses", func(t *testing.T) {
		t.Parallel()
		if diff := cmp.Diff([]string{"ConfigMap web-web"}, namesOf(t, files, hub.HelmSource{SkipSchemaValidation: true})); diff != "" {
			t.Errorf("objects (-want +got):\n%s", diff)
		}
	})
}
