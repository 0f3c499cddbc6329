package api_test

import (
	"strings"
	"testing"
)

func TestProjectsInUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	t.Run("PROJ-19 the default project cannot be deleted", func(t *testing.T) {
		w.call(admin, "DELETE", "/api/v1/projects/default", nil).fails(409)
		w.call(admin, "GET", "/api/v1/projects/default", nil).ok(200)
	})
	t.Run("PROJ-20 a project that applications use cannot be deleted, and can be once they are gone", func(t *testing.T) {
		w.call(admin, "POST", "/api/v1/apply", "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: shop}\nspec: {sourceRepos: ['*'], destinations: [{server: '*', namespace: '*'}]}\n").ok(200)
		w.call(admin, "POST", "/api/v1/applications", application("web", func(s map[string]any) { s["project"] = "shop" })).ok(201)
		a := w.call(admin, "DELETE", "/api/v1/projects/shop", nil)
		a.fails(409)
		if !strings.Contains(string(a.body), "1 applications use it") {
			t.Errorf("the refusal says %s", a.body)
		}
		w.call(admin, "DELETE", "/api/v1/applications/argocd/web?cascade=false", nil)
		w.call(admin, "DELETE", "/api/v1/projects/shop", nil).ok(204)
		w.call(admin, "GET", "/api/v1/projects/shop", nil).fails(404)
	})
}

func TestRemovedCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	t.Run("CLU-19 after a cluster is removed, its applications stay and name no cluster", func(t *testing.T) {
		w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
		w.call(admin, "POST", "/api/v1/applications", application("web")).ok(201)
		w.call(admin, "DELETE", "/api/v1/clusters/prod", nil).ok(204)
		var app struct {
			Status struct{ Capstan struct{ Cluster string } }
		}
		w.call(admin, "GET", "/api/v1/applications/argocd/web", nil).ok(200).into(&app)
		if app.Status.Capstan.Cluster != "" {
			t.Errorf("it is still on %q", app.Status.Capstan.Cluster)
		}
	})
}
