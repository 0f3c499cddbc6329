package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// Links that a tenant declares about projects, applications and objects.
func TestDeepLinks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, ann := w.Admin("acme"), w.User("acme", "ann")
	type links struct {
		Items []struct{ Title, URL, Description, IconClass string }
		// Problems are links that cannot be evaluated.
		Problems []string
	}
	get := func(t *testing.T, path string) (l links) {
		t.Helper()
		w.call(admin, http.MethodGet, path, nil).ok(200).into(&l)
		return l
	}
	set := func(key string, value any) answer {
		return w.call(admin, http.MethodPatch, settingsPath, map[string]any{"values": map[string]any{"argocd-cm": map[string]any{key: value}}})
	}
	w.call(admin, http.MethodPost, "/api/v1/projects", project("shop", open(map[string]any{"description": "The shop"}))).ok(201)
	w.call(admin, http.MethodPost, "/api/v1/clusters/enroll", map[string]any{"name": "prod", "server": "https://prod.example.com", "labels": map[string]string{"site": "oslo"}}).ok(201)
	app := application("web", of("shop"), func(s map[string]any) { s["destination"] = map[string]any{"name": "prod", "namespace": "web"} })
	app["metadata"].(map[string]any)["labels"] = map[string]string{"team": "blue"}
	w.call(admin, http.MethodPost, "/api/v1/applications", app).ok(201)
	const ofProject, ofApp = "/api/v1/projects/shop/links", "/api/v1/applications/argocd/web/links"
	const ofPod = "/api/v1/applications/argocd/web/resource/links?version=v1&kind=Pod&resourceNamespace=web&resourceName=web-1"
	t.Run("PROJ-23 without the setting there are none", func(t *testing.T) {
		if got := get(t, ofProject); len(got.Items) != 0 || got.Items == nil {
			t.Errorf("%+v", got)
		}
	})
	t.Run("PROJ-23 links of a project are templates over it, and conditions leave some out", func(t *testing.T) {
		set("project.links", "- {title: Wiki, url: 'https://wiki.example.com/{{.project.metadata.name}}?q={{urlquery .project.spec.description}}', description: Pages, icon.class: fa-book}\n"+
			"- {title: Other, url: 'https://other.example.com', if: 'project.metadata.name == \"other\"'}\n").ok(200)
		got := get(t, ofProject)
		if len(got.Items) != 1 || got.Items[0].URL != "https://wiki.example.com/shop?q=The+shop" || got.Items[0].Title != "Wiki" || got.Items[0].Description != "Pages" || got.Items[0].IconClass != "fa-book" {
			t.Errorf("%+v", got)
		}
		if got := get(t, ofApp); len(got.Items) != 0 {
			t.Errorf("an application has links of projects: %+v", got)
		}
	})
	t.Run("PROJ-23 API-10 links of an application read it, its project and its cluster", func(t *testing.T) {
		set("application.links", "- {title: Logs, url: 'https://logs.example.com/{{.cluster.labels.site}}/{{.app.spec.destination.namespace}}/{{.project.spec.description}}', if: 'application.metadata.labels.team == \"blue\" && cluster.name == \"prod\"'}\n").ok(200)
		if got := get(t, ofApp); len(got.Items) != 1 || got.Items[0].URL != "https://logs.example.com/oslo/web/The%20shop" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("API-10 links of an object ask its agent only if there are some, and never about one that is not the application's", func(t *testing.T) {
		w.call(admin, http.MethodGet, ofPod, nil).fails(404)
		storetest.In(t, w.DB, w.Tenant("acme"), func(ctx context.Context, tx *store.Tenant) error {
			a, err := tx.Application(ctx, "argocd", "web")
			if err != nil {
				return err
			}
			_, err = tx.PutObservation(ctx, a.Cluster, hub.Observation{Epoch: "e", Seq: 1, Resources: []hub.Resource{{Application: a.ID, UID: "pod-uid", Version: "v1", Kind: "Pod", Namespace: "web", Name: "web-1"}}})
			return err
		})
		if got := get(t, ofPod); len(got.Items) != 0 {
			t.Errorf("%+v", got)
		}
		set("resource.links", "- {title: Metrics, url: 'https://metrics.example.com/{{.resource.metadata.name}}'}\n").ok(200)
		w.call(admin, http.MethodGet, ofPod, nil).fails(503)
	})
	t.Run("PROJ-23 SEC-H2 a link that is none is named, and stops no other", func(t *testing.T) {
		set("project.links", "- {title: Bad, url: 'javascript:alert(1)'}\n- {title: Good, url: 'https://good.example.com'}\n").ok(200)
		if got := get(t, ofProject); len(got.Items) != 1 || got.Items[0].Title != "Good" || len(got.Problems) != 1 || !strings.Contains(got.Problems[0], "Bad") {
			t.Errorf("%+v", got)
		}
	})
	t.Run("PROJ-23(refused) templates and conditions that cannot be read, or that loop", func(t *testing.T) {
		for _, bad := range []string{"- {title: a}\n", "- {title: a, url: 'https://a/{{range .x}}{{end}}'}\n", "- {title: a, url: 'https://a', if: '('}\n", "- {title: a, url: 'https://a', if: 'any(a, {any(b, {true})})'}\n"} {
			set("project.links", bad).fails(400)
		}
	})
	t.Run("PROJ-23 SEC-G2 who may not see the thing gets its links as little", func(t *testing.T) {
		w.setPolicy(admin, map[string]any{"policy.csv": "p, ann, projects, get, other, allow\np, ann, applications, get, other/*, allow\n"}).ok(200)
		for _, path := range []string{ofProject, ofApp, ofPod} {
			w.call(ann, http.MethodGet, path, nil).fails(404)
		}
	})
}
