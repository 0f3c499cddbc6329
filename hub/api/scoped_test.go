package api_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// Repositories that belong to one project, and who may manage them.
func TestRepositoriesOfProjects(t *testing.T) {
	t.Parallel()
	const (
		path = "/api/v1/repositories"
		url  = "https://git.example.com/team/app"
	)
	w := newWorld(t)
	admin, keeper, reader := w.Admin("acme"), w.User("acme", "keeper"), w.User("acme", "reader", hub.RoleReadOnly)
	for _, name := range []string{"shop", "blog"} {
		w.call(admin, http.MethodPost, "/api/v1/apply", fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: %[1]s}
spec:
  sourceRepos: ["*"]
  destinations: [{name: "*", namespace: "*"}]
  roles:
  - name: repos
    policies: ["p, proj:%[1]s:repos, repositories, *, %[1]s/*, allow"]
`, name)).ok(200)
	}
	storetest.In(t, w.DB, w.Tenant("acme"), func(ctx context.Context, tx *store.Tenant) error {
		return tx.SetPolicy(ctx, "g, keeper, proj:shop:repos\n")
	})
	type repo struct{ ID, URL, Project, Username string }
	list := func(secret string) (out []repo) {
		var l struct{ Items []repo }
		w.call(secret, http.MethodGet, path, nil).ok(200).into(&l)
		return l.Items
	}
	of := func(all []repo) (projects []string) {
		for _, r := range all {
			if r.URL != url {
				t.Errorf("its URL is %q", r.URL)
			}
			projects = append(projects, r.Project)
		}
		return projects
	}
	body := func(project, username string) map[string]any {
		return map[string]any{"url": url + ".git", "project": project, "username": username, "password": "canary"}
	}
	t.Run("CRED-15 who has the project's right to repositories manages its own, and no other", func(t *testing.T) {
		w.call(keeper, http.MethodPost, path, body("shop", "one")).ok(200)
		w.call(keeper, http.MethodPost, path, body("shop", "two")).ok(200)
		for _, project := range []string{"blog", ""} {
			w.call(keeper, http.MethodPost, path, body(project, "x")).fails(403)
			w.call(admin, http.MethodPost, path, body(project, "of-"+project)).ok(200)
			w.call(keeper, http.MethodPost, path, body(project, "x")).fails(403)
		}
		if got := of(list(keeper)); !slices.Equal(got, []string{"shop"}) {
			t.Errorf("the role sees those of %q", got)
		}
		if got := of(list(reader)); len(got) != 0 && !slices.Equal(got, []string{"", "blog", "shop"}) {
			t.Errorf("a reader sees those of %q", got)
		}
		all := list(admin)
		if got := of(all); !slices.Equal(got, []string{"", "blog", "shop"}) {
			t.Fatalf("there are those of %q", got)
		}
		for _, r := range all[:2] {
			w.call(keeper, http.MethodGet, path+"/"+r.ID, nil).fails(404)
			w.call(keeper, http.MethodPost, path+"/"+r.ID+"/refresh", nil).fails(404)
			w.call(keeper, http.MethodDelete, path+"/"+r.ID, nil).fails(404)
		}
		if all[2].Username != "two" || all[1].Username != "of-blog" {
			t.Errorf("%+v", all)
		}
		w.call(keeper, http.MethodDelete, path+"/"+all[2].ID, nil).ok(204)
		if got := of(list(admin)); !slices.Equal(got, []string{"", "blog"}) {
			t.Errorf("there are those of %q", got)
		}
	})
	t.Run("CRED-15 a Secret of Argo CD with project", func(t *testing.T) {
		text := func(project string) string {
			return fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: r, namespace: argocd, labels: {argocd.argoproj.io/secret-type: repository}}
stringData: {type: git, url: %s, project: %q, username: bot, password: canary}
`, url, project)
		}
		for _, project := range []string{"shop", ""} {
			if a := w.call(admin, http.MethodPost, "/api/v1/apply", text(project)).ok(200); strings.Contains(string(a.body), "canary") || strings.Contains(string(a.body), `"failed":1`) {
				t.Errorf("%s", a.body)
			}
		}
		if got := of(list(admin)); !slices.Equal(got, []string{"", "blog", "shop"}) {
			t.Errorf("there are those of %q", got)
		}
		if a := w.call(keeper, http.MethodPost, "/api/v1/apply", text("blog")); !strings.Contains(string(a.body), "CAP-1403") {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}
