package worker

import (
	"slices"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A failed render returns all that its error depends on, or nothing: an error
// that is cached too long would hide that the source is mended.
func TestInputsOfFailedRenders(t *testing.T) {
	t.Parallel()
	const address = "https://values.example.com/a.yaml"
	p := newPool(t, nil)
	small := newPool(t, func(c *render.Config) { c.Limits.FileBytes = 1000 })
	file := func(path string) func(in hub.Input) bool {
		return func(in hub.Input) bool { return in.Kind == hub.InputFile && in.Path == path }
	}
	for name, c := range map[string]struct {
		source hub.Source
		files  map[string]string
		kind   fault.Kind
		want   func(in hub.Input) bool // nil: no inputs at all
		pool   bool                    // the one with small files
	}{
		"REPO-05 a manifest that is no YAML": {hub.Source{Path: "."}, map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: [\n"}, fault.Invalid, file("a.yaml"), false},
		"REPO-05 a template that fails": {
			hub.Source{Path: "."}, map[string]string{"Chart.yaml": chartYAML, "templates/x.yaml": `{{ fail "no" }}`}, fault.Invalid, file("templates/x.yaml"), false,
		},
		"REPO-05 a template that grows without end": {
			hub.Source{Path: "."}, map[string]string{"Chart.yaml": chartYAML, "templates/x.yaml": `{{ range until 200 }}{{ repeat 1000000 "x" }}{{ end }}`}, fault.Exceeded, file("templates/x.yaml"), false,
		},
		"REPO-05 a path that is not there": {
			hub.Source{Path: "gone"}, map[string]string{"a.yaml": configMap}, fault.Invalid, func(in hub.Input) bool { return in.Kind == hub.InputMissing && in.Path == "gone" }, false,
		},
		"REPO-05 a file that is too large": {hub.Source{Path: "."}, map[string]string{"a.yaml": configMap + string(make([]byte, 2000))}, fault.Exceeded, nil, true},
		"REPO-05 a value file that cannot be fetched": {
			hub.Source{Path: ".", Helm: &hub.HelmSource{ValueFiles: []string{address}}}, map[string]string{"Chart.yaml": chartYAML, "templates/x.yaml": configMap}, fault.Invalid, nil, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := request(c.source, c.files)
			req.Fetch = func(string, []string, int64) ([]byte, error) {
				return nil, fault.New(fault.Invalid, "there is no such file")
			}
			with := p
			if c.pool {
				with = small
			}
			res, err := with.Render(t.Context(), req)
			if fault.KindOf(err) != c.kind || len(res.Objects) != 0 {
				t.Fatalf("error %v, %d objects", err, len(res.Objects))
			}
			if c.want == nil && len(res.Inputs) != 0 || c.want != nil && !slices.ContainsFunc(res.Inputs, c.want) {
				t.Errorf("inputs %+v of the error %v", res.Inputs, err)
			}
		})
	}
}
