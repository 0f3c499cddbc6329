package api_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/encryption"
	objects "github.com/capstan-cd/capstan/shared/manifest"
)

// rendered stores objects, canonical texts, as what was rendered for the
// application web and deployed.
func rendered(t *testing.T, w *world, revision string, texts ...string) {
	t.Helper()
	tenant := w.Tenant("acme")
	keys, err := w.DB.Keys(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	s := hub.Snapshot{ID: hub.NewID[hub.SnapshotID](), Tenant: tenant, Revision: revision, SourceType: "Directory", CreatedAt: time.Now()}
	var sealed []hub.SealedObject
	for _, text := range texts {
		o, err := objects.FromCanonical([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := objects.Canonical(o)
		if err != nil {
			t.Fatal(err)
		}
		digest := encryption.Digest(keys.Digest, plain)
		body, err := encryption.SealBlob(keys.Object, digest, plain)
		if err != nil {
			t.Fatal(err)
		}
		sealed = append(sealed, hub.SealedObject{Digest: digest, Sealed: body, Size: len(plain)})
		s.Objects = append(s.Objects, hub.ObjectRef{Digest: digest, Version: "v1", Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()})
	}
	storetest.In(t, w.DB, tenant, func(ctx context.Context, tx *store.Tenant) error {
		a, err := tx.Application(ctx, "argocd", "web")
		if err != nil {
			return err
		}
		s.Application = a.ID
		if err := tx.PutObjects(ctx, sealed); err != nil {
			return err
		}
		if err := tx.PutSnapshots(ctx, []hub.Snapshot{s}); err != nil {
			return err
		}
		if err := tx.SetTargets(ctx, []hub.TargetChange{{Application: a.ID, Target: s.ID, Accepted: s.ID, Revision: revision, Generation: a.Generation, Refreshed: true}}); err != nil {
			return err
		}
		return tx.AppendHistory(ctx, []hub.HistoryEntry{{Application: a.ID, Operation: hub.NewID[hub.OperationID](), Snapshot: s.ID, Revision: revision, StartedAt: time.Now(), DeployedAt: time.Now()}})
	})
}

func TestManifests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	const path = "/api/v1/applications/argocd/web/manifests"
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
	w.call(admin, "POST", "/api/v1/applications", application("web", func(spec map[string]any) {
		spec["destination"] = map[string]any{"name": "prod", "namespace": "web"}
	})).ok(201)
	t.Run("API-12 before anything is rendered there is nothing, and the answer says where to look", func(t *testing.T) {
		if p := w.call(admin, "GET", path, nil).fails(404); !strings.Contains(p.Message, "nothing has been rendered") {
			t.Errorf("%+v", p)
		}
	})
	const settings = `{"apiVersion":"v1","data":{"v":"one"},"kind":"ConfigMap","metadata":{"name":"settings","namespace":"web"}}`
	rendered(t, w, "aaaaaa", settings)
	rendered(t, w, "bbbbbb",
		`{"apiVersion":"v1","data":{"password":"Y2FuYXJ5LXNlY3JldA=="},"kind":"Secret","metadata":{"name":"password","namespace":"web"}}`,
		strings.Replace(settings, "one", "two", 1))
	type object struct {
		Kind     string
		Data     map[string]string
		Metadata struct{ Name string }
	}
	read := func(query string) (revision string, items []object, text string) {
		a := w.call(admin, "GET", path+query, nil).ok(200)
		var got struct {
			Revision string
			Items    []object
		}
		if err := json.Unmarshal(a.body, &got); err != nil {
			t.Fatal(err)
		}
		return got.Revision, got.Items, string(a.body)
	}
	t.Run("API-12 the objects of the target in their order, with its revision, and no value of a Secret", func(t *testing.T) {
		revision, items, text := read("")
		if revision != "bbbbbb" || len(items) != 2 || items[0].Kind != "Secret" || items[0].Data["password"] == "" || items[1].Data["v"] != "two" {
			t.Errorf("%s %+v", revision, items)
		}
		if strings.Contains(text, "Y2FuYXJ5LXNlY3JldA") || strings.Contains(text, "canary-secret") {
			t.Errorf("the value is in %s", text)
		}
	})
	t.Run("API-12 those of an entry of the history", func(t *testing.T) {
		if revision, items, _ := read("?history=1"); revision != "aaaaaa" || len(items) != 1 || items[0].Data["v"] != "one" {
			t.Errorf("%s %+v", revision, items)
		}
		w.call(admin, "GET", path+"?history=9", nil).fails(404)
		w.call(admin, "GET", path+"?history=0", nil).fails(400)
	})
	t.Run("API-12 DIFF-14 SEC-C1 an annotation of a Secret that the tenant names is masked, and of no other kind", func(t *testing.T) {
		const noted = `{"apiVersion":"v1","kind":"KIND","metadata":{"annotations":{"example.com/token":"canary-note"},"name":"noted","namespace":"web"}}`
		rendered(t, w, "cccccc", strings.Replace(noted, "KIND", "Secret", 1), strings.Replace(noted, "KIND", "ConfigMap", 1))
		for masked, shown := range map[string]int{"": 2, "example.com/other, example.com/token": 1} {
			w.call(admin, "PATCH", settingsPath, map[string]any{"values": map[string]any{"argocd-cm": map[string]any{"resource.sensitive.mask.annotations": masked}}}).ok(200)
			if _, _, text := read(""); strings.Count(text, "canary-note") != shown {
				t.Errorf("with %q masked: %s", masked, text)
			}
		}
	})
	t.Run("API-12 SEC-G2 another tenant does not find them", func(t *testing.T) {
		w.call(w.Admin("other"), "GET", path, nil).fails(404)
	})
	t.Run("API-12 REPO-12 files are sent to the application itself, and not across tenants", func(t *testing.T) {
		w.call(w.Admin("other"), "POST", path, map[string]any{}).fails(404)
		w.call(admin, "POST", path+"?sourcePosition=0", map[string]any{}).fails(400)
		w.call(admin, "POST", path, map[string]any{}).fails(503) // there is no renderer here
		w.call(admin, "POST", "/api/v1/applications/manifestsWithFiles", map[string]any{}).fails(404)
	})
}
