package api_test

import (
	"context"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

func TestPreviewOfWhatIsNotSaved(t *testing.T) {
	t.Parallel()
	const path = "/api/v1/applications/preview"
	w := newWorld(t)
	admin, reader, editor := w.Admin("acme"), w.User("acme", "reader"), w.User("acme", "editor")
	storetest.In(t, w.DB, w.Tenant("acme"), func(ctx context.Context, tx *store.Tenant) error {
		return tx.SetPolicy(ctx, "p, role:reader, applications, get, */*, allow\np, role:editor, applications, *, default/stored, allow\n"+
			"g, reader, role:reader\ng, editor, role:editor\n")
	})
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
	onProd := func(spec map[string]any) { spec["destination"] = map[string]any{"name": "prod", "namespace": "web"} }
	w.call(admin, "POST", "/api/v1/applications", application("stored", onProd)).ok(201)
	t.Run("UI-04 a preview takes the right to create, and of what exists the right to update", func(t *testing.T) {
		w.call(reader, "POST", path, application("fresh", onProd)).fails(403)
		w.call(reader, "POST", path, application("stored", onProd)).fails(403)
		w.call(editor, "POST", path, application("fresh", onProd)).fails(403)
		// There is no repository to render, which is the next question.
		w.call(editor, "POST", path, application("stored", onProd)).fails(503)
		w.call(admin, "POST", path, application("fresh", onProd)).fails(503)
	})
	t.Run("UI-04 a preview is refused as its write would be, and says where", func(t *testing.T) {
		for name, c := range map[string]struct {
			change func(spec map[string]any)
			says   string
		}{
			"no destination":  {func(spec map[string]any) { spec["destination"] = map[string]any{} }, "spec.destination has neither server nor name"},
			"unknown cluster": {func(spec map[string]any) { spec["destination"] = map[string]any{"name": "mars"} }, `destination "mars" names no known cluster`},
			"unknown project": {func(spec map[string]any) { onProd(spec); spec["project"] = "venus" }, `project "venus" does not exist`},
			"absolute path":   {func(spec map[string]any) { onProd(spec); spec["source"].(map[string]any)["path"] = "/etc" }, "is absolute"},
		} {
			if p := w.call(admin, "POST", path, application("fresh", c.change)).fails(400); !strings.Contains(p.Message, c.says) {
				t.Errorf("%s: %+v", name, p)
			}
		}
	})
	t.Run("UI-04 a preview stores nothing, neither an application nor a repository", func(t *testing.T) {
		w.call(admin, "POST", path, application("fresh", func(spec map[string]any) {
			onProd(spec)
			spec["source"].(map[string]any)["repoURL"] = "https://git.example.com/never/seen.git"
		})).fails(503)
		w.call(admin, "GET", "/api/v1/applications/argocd/fresh", nil).fails(404)
		var repositories struct{ Items []struct{ URL string } }
		w.call(admin, "GET", "/api/v1/repositories", nil).ok(200).into(&repositories)
		for _, r := range repositories.Items {
			if strings.Contains(r.URL, "never") {
				t.Errorf("repository %s is stored", r.URL)
			}
		}
		var audit struct {
			Items []struct{ Object, Result string }
		}
		w.call(admin, "GET", "/api/v1/audit?limit=100", nil).ok(200).into(&audit)
		for _, a := range audit.Items {
			if strings.HasSuffix(a.Object, "/fresh") && a.Result != "denied" {
				t.Errorf("the audit log has %+v", a)
			}
		}
	})
}
