package api_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
)

func TestFlagsOfCreation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, ann := w.Admin("acme"), w.User("acme", "ann")
	w.call(admin, http.MethodPost, "/api/v1/projects", project("shop", map[string]any{"sourceRepos": []any{"https://git.example.com/shop/*"}})).ok(201)
	w.call(admin, http.MethodPost, "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
	onProd := func(s map[string]any) { s["destination"] = map[string]any{"name": "prod", "namespace": "web"} }
	revision := func(s map[string]any) { s["source"].(map[string]any)["targetRevision"] = "v2" }
	type stored struct {
		Metadata struct{ UID string }
		Spec     struct {
			Source struct{ TargetRevision string }
		}
		Warnings []string
	}
	create := func(secret, query string, body map[string]any) answer {
		return w.call(secret, http.MethodPost, "/api/v1/applications"+query, body)
	}
	t.Run("API-04 without upsert an application that exists stays as it is", func(t *testing.T) {
		create(admin, "", application("web")).ok(201)
		create(admin, "", application("web", revision)).fails(409)
		create(admin, "?upsert=false", application("web", revision)).fails(409)
	})
	t.Run("API-04 upsert changes it, and makes one that does not exist", func(t *testing.T) {
		var before, after stored
		w.call(admin, http.MethodGet, "/api/v1/applications/argocd/web", nil).ok(200).into(&before)
		create(admin, "?upsert=true", application("web", revision)).ok(200).into(&after)
		if after.Metadata.UID != before.Metadata.UID || after.Spec.Source.TargetRevision != "v2" {
			t.Errorf("before %+v, after %+v", before, after)
		}
		create(admin, "?upsert=true", application("web", revision)).ok(200)
		create(admin, "?upsert=true", application("api")).ok(201)
	})
	t.Run("API-04 RBAC-04 upsert needs the right to update what exists", func(t *testing.T) {
		w.setPolicy(admin, map[string]any{"policy.csv": "p, ann, applications, create, default/*, allow\np, ann, applications, get, default/*, allow\n"}).ok(200)
		create(ann, "?upsert=true", application("made")).ok(201)
		create(ann, "?upsert=true", application("web")).fails(403)
	})
	t.Run("API-04 an application that its project does not permit is stored with a warning, and with validate refused", func(t *testing.T) {
		var got stored
		create(admin, "?validate=false", application("loose", of("shop"), onProd)).ok(201).into(&got)
		if len(got.Warnings) == 0 || !strings.Contains(strings.Join(got.Warnings, " "), "does not permit") {
			t.Errorf("%+v", got)
		}
		p := create(admin, "?validate=true", application("strict", of("shop"), onProd)).fails(400)
		if !strings.Contains(p.Message, "cannot be delivered") || !strings.Contains(p.Message, "does not permit") {
			t.Errorf("%+v", p)
		}
		w.call(admin, http.MethodGet, "/api/v1/applications/argocd/strict", nil).fails(404)
		create(admin, "?validate=true&upsert=true", application("loose", of("shop"), onProd, revision)).fails(400)
		create(admin, "?validate=maybe", application("x")).fails(400)
	})
	t.Run("API-04 validate accepts one that can be delivered", func(t *testing.T) {
		create(admin, "?validate=true", application("good", onProd)).ok(201)
	})
}

var errNotYet = errors.New("the refresh was not asked for yet")

func TestReadsWithARefresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, ann := w.Admin("acme"), w.User("acme", "ann")
	const path = "/api/v1/applications/argocd/web"
	w.call(admin, http.MethodPost, "/api/v1/applications", application("web")).ok(201)
	tenant := w.Tenant("acme")
	var id hub.ApplicationID
	storetest.In(t, w.DB, tenant, func(ctx context.Context, tx *store.Tenant) error {
		a, err := tx.Application(ctx, "argocd", "web")
		id = a.ID
		return err
	})
	// render plays the part of the renderers: it finds the application unchanged.
	render := func(at time.Time) {
		storetest.In(t, w.DB, tenant, func(ctx context.Context, tx *store.Tenant) error {
			return tx.Unchanged(ctx, []hub.Unchanged{{Application: id, Revision: "r", Revisions: []string{"r"}, RefreshedAt: at}})
		})
	}
	audited := func() (n int) {
		var log struct {
			Items []struct{ Action, Reason string }
		}
		w.call(admin, http.MethodGet, "/api/v1/audit", nil).ok(200).into(&log)
		for _, r := range log.Items {
			if r.Action == "refresh" {
				n++
			}
		}
		return n
	}
	for _, how := range []string{"normal", "hard"} {
		t.Run("API-05 a read with refresh="+how+" answers once the refresh is done, and not before", func(t *testing.T) {
			before := audited()
			done := make(chan answer)
			go func() { done <- w.call(admin, http.MethodGet, path+"?refresh="+how, nil) }()
			if err := poll.Until(t.Context(), func(context.Context) error {
				if audited() == before {
					return errNotYet
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			select {
			case a := <-done:
				t.Fatalf("it answers %d before the refresh", a.status)
			default:
			}
			at := time.Now().Add(time.Hour)
			render(at)
			var got struct {
				Status struct {
					Capstan struct{ RefreshedAt time.Time }
				}
			}
			(<-done).ok(200).into(&got)
			if !got.Status.Capstan.RefreshedAt.Equal(at.Truncate(time.Microsecond)) {
				t.Errorf("refreshed at %s, want %s", got.Status.Capstan.RefreshedAt, at)
			}
		})
	}
	t.Run("API-05 APP-24 one that is left alone is answered at once", func(t *testing.T) {
		w.call(admin, http.MethodPatch, path, map[string]any{"patch": `{"metadata":{"annotations":{"argocd.argoproj.io/skip-reconcile":"true"}}}`, "patchType": "merge"}).ok(200)
		w.call(admin, http.MethodGet, path+"?refresh=normal", nil).ok(200)
	})
	t.Run("API-05(refused) another word, somebody who may not see it, and a page of another site", func(t *testing.T) {
		w.call(admin, http.MethodGet, path+"?refresh=true", nil).fails(400)
		w.call(ann, http.MethodGet, path+"?refresh=normal", nil).fails(404)
		before := audited()
		cookie := header("Cookie", "capstan_session="+admin)
		w.call("", http.MethodGet, path+"?refresh=hard", nil, cookie, header("Sec-Fetch-Site", "cross-site")).fails(403)
		w.call("", http.MethodGet, path+"?refresh=hard", nil, cookie).fails(403)
		if audited() != before {
			t.Error("something was refreshed")
		}
	})
}
