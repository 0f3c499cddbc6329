package api_test

import (
	"strings"
	"testing"
)

// What a project has besides its own text.
func TestDetailedProjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, viewer := w.Admin("acme"), w.User("acme", "viewer")
	w.call(admin, "POST", "/api/v1/projects", project("base", map[string]any{"namespaceResourceBlacklist": []any{map[string]any{"group": "", "kind": "Secret"}}})).ok(201)
	w.call(admin, "POST", "/api/v1/projects", project("shop", open(nil))).ok(201)
	w.call(admin, "PATCH", settingsPath, map[string]any{"values": map[string]any{"argocd-cm": map[string]any{"globalProjects": "[{projectName: base}]"}}}).ok(200)
	for _, of := range []string{"shop", ""} {
		w.call(admin, "POST", "/api/v1/repositories", map[string]any{"url": "https://git.example.com/team/of-" + of, "project": of}).ok(200)
		w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "of-" + of + "x", "scope": map[string]any{"project": of}}).ok(201)
	}
	w.setPolicy(admin, map[string]any{"policy.csv": "p, viewer, projects, get, shop, allow\np, viewer, clusters, get, shop/of-shopx, allow\n"}).ok(200)
	type detailed struct {
		Project        struct{ Metadata struct{ Name string } }
		GlobalProjects []struct{ Metadata struct{ Name string } }
		Repositories   []struct{ URL string }
		Clusters       []struct{ Name string }
		EffectiveSpec  struct {
			SourceRepos                []string
			NamespaceResourceBlacklist []struct{ Kind string }
		}
	}
	t.Run("PROJ-22 a project comes with the projects that it inherits from, its own repositories and its own clusters", func(t *testing.T) {
		var got detailed
		w.call(admin, "GET", "/api/v1/projects/shop/detailed", nil).ok(200).into(&got)
		if got.Project.Metadata.Name != "shop" || len(got.GlobalProjects) != 1 || got.GlobalProjects[0].Metadata.Name != "base" ||
			len(got.Repositories) != 1 || got.Repositories[0].URL != "https://git.example.com/team/of-shop" || len(got.Clusters) != 1 || got.Clusters[0].Name != "of-shopx" {
			t.Errorf("%+v", got)
		}
		if e := got.EffectiveSpec; len(e.SourceRepos) != 1 || len(e.NamespaceResourceBlacklist) != 1 || e.NamespaceResourceBlacklist[0].Kind != "Secret" {
			t.Errorf("what counts is %+v", e)
		}
	})
	t.Run("PROJ-22 SEC-G2 repositories and clusters that the caller may not see are left out", func(t *testing.T) {
		var got detailed
		w.call(viewer, "GET", "/api/v1/projects/shop/detailed", nil).ok(200).into(&got)
		if len(got.Repositories) != 0 || len(got.Clusters) != 1 {
			t.Errorf("%+v", got)
		}
		w.call(viewer, "GET", "/api/v1/projects/base/detailed", nil).fails(404)
	})
}

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
