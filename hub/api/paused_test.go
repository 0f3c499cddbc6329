package api_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// went gives an application a target and an entry of the history for each
// revision.
func went(t *testing.T, w *world, name string, source json.RawMessage, revisions ...[]string) {
	t.Helper()
	storetest.In(t, w.DB, w.Tenant("acme"), func(ctx context.Context, tx *store.Tenant) error {
		a, err := tx.Application(ctx, "argocd", name)
		if err != nil {
			return err
		}
		for _, r := range revisions {
			types := strings.Join(slices.Repeat([]string{"Directory"}, len(r)), ",")
			s := hub.Snapshot{ID: hub.NewID[hub.SnapshotID](), Tenant: a.Tenant, Application: a.ID, Revision: r[0], Revisions: r, SourceType: types, CreatedAt: time.Now()}
			if err := tx.PutSnapshots(ctx, []hub.Snapshot{s}); err != nil {
				return err
			}
			if err := tx.SetTargets(ctx, []hub.TargetChange{{Application: a.ID, Target: s.ID, Accepted: s.ID, Revision: r[0], Revisions: r, Generation: a.Generation, SourceType: types, Refreshed: true}}); err != nil {
				return err
			}
			entry := hub.HistoryEntry{Application: a.ID, Operation: hub.NewID[hub.OperationID](), Snapshot: s.ID, Revision: r[0], Revisions: r, Source: source, StartedAt: time.Now(), DeployedAt: time.Now()}
			if err := tx.AppendHistory(ctx, []hub.HistoryEntry{entry}); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestPausedIsShownEverywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
	w.call(admin, "POST", "/api/v1/applications", application("web", func(spec map[string]any) {
		spec["destination"] = map[string]any{"name": "prod", "namespace": "web"}
	})).ok(201)
	went(t, w, "web", nil, []string{"c0ffee"}, []string{"badbad"})
	paused := func(path string) (p struct{ By, Reason, Revision, Skipped, Message, Resume string }) {
		t.Helper()
		out := struct{ Paused any }{&p}
		w.call(admin, "GET", "/api/v1/applications/argocd/web/"+path, nil).ok(200).into(&out)
		return p
	}
	t.Run("ROLL-02 an application that is not paused shows no pause", func(t *testing.T) {
		if p := paused("tree"); p.Message != "" {
			t.Errorf("%+v", p)
		}
	})
	w.call(admin, "POST", "/api/v1/applications/argocd/web/rollback", map[string]any{"id": 1, "reason": "checkout broken"}).ok(202)
	for _, path := range []string{"tree", "manifests"} {
		t.Run("ROLL-02 "+path+" of a paused application says where, by whom, why, and what ends it", func(t *testing.T) {
			p := paused(path)
			if p.Revision != "c0ffee" || p.Skipped != "badbad" || p.Reason != "checkout broken" || p.Resume != "capstan app resume web" ||
				!strings.HasPrefix(p.Message, "paused at c0ffee since ") || !strings.HasSuffix(p.Message, "rolled back by "+p.By+" because checkout broken") {
				t.Errorf("%+v", p)
			}
		})
	}
}

func TestStatusHasComparedSources(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
	destination := map[string]any{"name": "prod", "namespace": "web"}
	ignored := []any{map[string]any{"kind": "ConfigMap", "jsonPointers": []any{"/data"}}}
	sources := []any{map[string]any{"repoURL": "https://git.example.com/a.git", "path": "a"}, map[string]any{"repoURL": "https://git.example.com/b.git", "path": "b"}}
	w.call(admin, "POST", "/api/v1/applications", application("one", func(spec map[string]any) {
		spec["destination"], spec["ignoreDifferences"] = destination, ignored
	})).ok(201)
	w.call(admin, "POST", "/api/v1/applications", application("several", func(spec map[string]any) {
		spec["destination"], spec["sources"] = destination, sources
		delete(spec, "source")
	})).ok(201)
	type answer struct {
		Spec   struct{ Source map[string]any }
		Status struct {
			Sync        struct{ ComparedTo map[string]any }
			SourceType  string
			SourceTypes []string
		}
	}
	get := func(name string) (x answer) {
		t.Helper()
		w.call(admin, "GET", "/api/v1/applications/argocd/"+name, nil).ok(200).into(&x)
		return x
	}
	t.Run("APP-10 nothing was compared before anything was rendered", func(t *testing.T) {
		if x := get("one"); x.Status.Sync.ComparedTo != nil {
			t.Errorf("%v", x.Status.Sync.ComparedTo)
		}
	})
	went(t, w, "one", nil, []string{"c0ffee"})
	text, err := json.Marshal(sources)
	if err != nil {
		t.Fatal(err)
	}
	went(t, w, "several", text, []string{"c0ffee", "f00d"})
	t.Run("APP-10 comparedTo has source, destination and ignored differences", func(t *testing.T) {
		x := get("one")
		want := map[string]any{"source": x.Spec.Source, "destination": destination, "ignoreDifferences": ignored}
		if diff := cmp.Diff(want, x.Status.Sync.ComparedTo); diff != "" || len(x.Spec.Source) == 0 {
			t.Error(diff)
		}
	})
	t.Run("APP-19 one source has a type, several have a list of types", func(t *testing.T) {
		if st := get("one").Status; st.SourceType != "Directory" || st.SourceTypes != nil {
			t.Errorf("%+v", st)
		}
		if st := get("several").Status; st.SourceType != "" || !slices.Equal(st.SourceTypes, []string{"Directory", "Directory"}) {
			t.Errorf("%+v", st)
		}
	})
	t.Run("APP-10 of several sources it has all", func(t *testing.T) {
		want := map[string]any{"sources": sources, "destination": destination}
		if diff := cmp.Diff(want, get("several").Status.Sync.ComparedTo); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("APP-12 an entry of the history of several sources has them and a revision for each", func(t *testing.T) {
		var h struct {
			Items []struct {
				Revision  string
				Revisions []string
				Source    any
				Sources   []any
			}
		}
		w.call(admin, "GET", "/api/v1/applications/argocd/several/history", nil).ok(200).into(&h)
		if len(h.Items) != 1 || h.Items[0].Source != nil || !cmp.Equal(h.Items[0].Sources, sources) || !cmp.Equal(h.Items[0].Revisions, []string{"c0ffee", "f00d"}) {
			t.Errorf("%+v", h.Items)
		}
	})
}
