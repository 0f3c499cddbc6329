package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// What applications outside of the namespace argocd are called.
func TestNamesWithNamespaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, ann := w.Admin("acme"), w.User("acme", "ann")
	w.call(admin, http.MethodPatch, settingsPath, map[string]any{"values": map[string]any{"argocd-cmd-params-cm": map[string]any{"application.namespaces": "team-*"}}}).ok(200)
	w.call(admin, http.MethodPost, "/api/v1/projects", project("shop", open(map[string]any{"sourceNamespaces": []any{"team-a", "team-b"}}))).ok(201)
	for _, namespace := range []string{"argocd", "team-a", "team-b"} {
		app := application("web", of("shop"))
		app["metadata"].(map[string]any)["namespace"] = namespace
		w.call(admin, http.MethodPost, "/api/v1/applications", app).ok(201)
	}
	sees := func(t *testing.T, policy string, want ...string) {
		t.Helper()
		w.setPolicy(admin, map[string]any{"policy.csv": policy}).ok(200)
		var page struct {
			Items []struct {
				Metadata struct{ Namespace, Name string }
			}
		}
		w.call(ann, http.MethodGet, "/api/v1/applications", nil).into(&page)
		got := map[string]bool{}
		for _, i := range page.Items {
			got[i.Metadata.Namespace] = true
		}
		for _, namespace := range []string{"argocd", "team-a", "team-b"} {
			may := false
			for _, n := range want {
				may = may || n == namespace
			}
			if got[namespace] != may {
				t.Errorf("%q: the application of %s is seen: %v", policy, namespace, got[namespace])
			}
			status := w.call(ann, http.MethodGet, "/api/v1/applications/"+namespace+"/web", nil).status
			if (status == http.StatusOK) != may {
				t.Errorf("%q: %s/web answers %d", policy, namespace, status)
			}
		}
	}
	t.Run("ANY-03 the same name in three namespaces is three applications", func(t *testing.T) {
		w.call(admin, http.MethodDelete, "/api/v1/applications/team-b/none", nil).fails(404)
		for _, namespace := range []string{"argocd", "team-a", "team-b"} {
			var got struct{ Metadata struct{ Namespace string } }
			w.call(admin, http.MethodGet, "/api/v1/applications/"+namespace+"/web", nil).ok(200).into(&got)
			if got.Metadata.Namespace != namespace {
				t.Errorf("%s/web is that of %s", namespace, got.Metadata.Namespace)
			}
		}
	})
	t.Run("ANY-03 RBAC-05 a policy names an application by project, namespace and name", func(t *testing.T) {
		sees(t, "p, ann, applications, get, shop/team-a/web, allow\n", "team-a")
		sees(t, "p, ann, applications, get, shop/team-a/*, allow\n", "team-a")
		sees(t, "p, ann, applications, get, shop/*/web, allow\n", "team-a", "team-b")
		sees(t, "p, ann, applications, get, shop/*, allow\np, ann, applications, get, shop/team-b/*, deny\n", "argocd", "team-a")
	})
	t.Run("API-19 SEC-G2 an application that may not be seen is answered byte for byte like a missing one, for reads and writes", func(t *testing.T) {
		w.setPolicy(admin, map[string]any{"policy.csv": "p, ann, applications, *, other/*, allow\n"}).ok(200)
		body := func(namespace string) map[string]any {
			app := application("web", of("shop"))
			app["metadata"].(map[string]any)["namespace"] = namespace
			return app
		}
		for _, ask := range []struct {
			method, path string
			body         any
		}{
			{http.MethodGet, "", nil}, {http.MethodGet, "/tree", nil}, {http.MethodGet, "/history", nil}, {http.MethodPost, "/sync", map[string]any{}}, {http.MethodPost, "/refresh", nil},
			{http.MethodPut, "", nil}, {http.MethodDelete, "", nil}, {http.MethodPatch, "", map[string]any{"patch": "{}", "patchType": "merge"}},
		} {
			answers := [2]string{}
			for i, namespace := range []string{"team-a", "team-c"} {
				content := ask.body
				if ask.method == http.MethodPut {
					content = body(namespace)
				}
				p := w.call(ann, ask.method, "/api/v1/applications/"+namespace+"/web"+ask.path, content).fails(http.StatusNotFound)
				p.RequestID = ""
				answers[i] = strings.ReplaceAll(fmt.Sprintf("%+v", p), namespace, "NAMESPACE")
			}
			if answers[0] != answers[1] {
				t.Errorf("%s %s: %s, and of a missing one %s", ask.method, ask.path, answers[0], answers[1])
			}
		}
		var seen, none answer = w.call(ann, http.MethodPost, "/api/v1/applications", body("team-a")), w.call(ann, http.MethodPost, "/api/v1/applications", body("team-c"))
		if seen.status != http.StatusForbidden || none.status != http.StatusForbidden {
			t.Errorf("creating one that is there and one that is not: %d, %d", seen.status, none.status)
		}
	})
	t.Run("ANY-03 one of the namespace argocd has two segments", func(t *testing.T) {
		sees(t, "p, ann, applications, get, shop/web, allow\n", "argocd")
		sees(t, "p, ann, applications, get, shop/argocd/web, allow\n")
	})
}
