package dispatch_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// last is the newest entry of the history.
func (w *world) last() hub.HistoryEntry {
	w.T.Helper()
	var out hub.HistoryEntry
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		all, err := tx.History(ctx, w.App.ID)
		if err == nil && len(all) > 0 {
			out = all[0]
		}
		return err
	})
	return out
}

// Several commits may give the same manifests. What is deployed is called by
// the commit that the application stands at, in the history as everywhere.
func TestHistoryNamesTheListedRevision(t *testing.T) {
	t.Parallel()
	same := func(t *testing.T, w *world, want string) {
		t.Helper()
		h := w.last()
		if h.Revision != want || !cmp.Equal(h.Revisions, []string{want}) || w.Reload().Status.Revision != want {
			t.Errorf("history %s %v, application %s; want %s", h.Revision, h.Revisions, w.App.Status.Revision, want)
		}
	}
	t.Run("APP-12 a sync of a commit without new manifests", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, manual)
		w.Render("r1", "a")
		w.refreshTarget("r2", w.App.Status.Target)
		op, err := w.sync(hub.SyncRequest{})
		if err != nil || op.Revision != "r2" {
			t.Errorf("operation of revision %s, %v", op.Revision, err)
		}
		w.End(hub.Succeeded, "")
		same(t, w, "r2")
	})
	t.Run("APP-12 a commit that came while the sync of the one before was running", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, automated)
		w.Render("r1", "a")
		w.refreshTarget("r2", w.App.Status.Target)
		w.End(hub.Succeeded, "")
		same(t, w, "r2")
	})
	t.Run("ROLL-01 a rollback to an entry whose manifests another commit rendered before", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, manual)
		w.Render("r1", "a")
		w.refreshTarget("r2", w.App.Status.Target)
		for _, revision := range []string{"", "r3"} {
			if revision != "" {
				w.Render(revision, "a")
			}
			if _, err := w.sync(hub.SyncRequest{}); err != nil {
				t.Fatal(err)
			}
			w.End(hub.Succeeded, "")
		}
		if op := w.rollback(1); op.Revision != "r2" {
			t.Errorf("operation of revision %s", op.Revision)
		}
		w.End(hub.Succeeded, "")
		same(t, w, "r2")
		if p := w.App.Pin; p == nil || p.Skipped != "r3" {
			t.Errorf("pin %+v", p)
		}
		git, _, _ := w.App.Pin.Git()
		w.refreshTarget("r4", git)
		if got := w.App.Status.Revision; got != "r2" {
			t.Errorf("paused at %s after Git moved on", got)
		}
	})
}

// A rollback uses stored objects. What they were rendered from is forgotten once
// there are ten newer snapshots.
func TestRollbackToAnOldSnapshot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	for i := range 13 {
		r := w.RenderedOf(w.App.ID, fmt.Sprint("r", i), "a", fmt.Sprint("b", i))
		r.Snapshot.CreatedAt = time.Now().Add(-2 * time.Hour)
		for file := range 20 {
			sum := sha256.Sum256(fmt.Append(nil, i, file))
			r.Snapshot.Inputs = append(r.Snapshot.Inputs, hub.Input{Kind: hub.InputFile, Path: fmt.Sprint("a/", file), Hash: hex.EncodeToString(sum[:20])})
		}
		w.Submit(r)
		w.End(hub.Succeeded, "")
	}
	forgotten := func() (n int) {
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			recent, err := tx.RecentSnapshots(ctx, []hub.ApplicationID{w.App.ID}, 100)
			for _, s := range recent[w.App.ID] {
				if slices.Equal(s.Inputs, hub.ForgottenInputs()) {
					n++
				}
			}
			return err
		})
		return n
	}
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		_, err := tx.Collect(ctx, time.Now())
		return err
	})
	w.DB = storetest.OpenKeys(t, w.URLs.Config(), w.Keys) // it has nothing in memory
	t.Run("ROLL-01 B17 a rollback to a snapshot whose inputs were forgotten enforces its objects", func(t *testing.T) {
		if n := forgotten(); n != 3 {
			t.Fatalf("%d snapshots have forgotten their inputs, want 3", n)
		}
		if op := w.rollback(1); op.Revision != "r0" {
			t.Errorf("operation of revision %s", op.Revision)
		}
		var names []string
		for _, o := range w.State().GetAccepted().GetObjects() {
			names = append(names, o.GetName())
		}
		if !slices.Equal(names, []string{"a", "b0"}) {
			t.Errorf("enforced are %q", names)
		}
		w.End(hub.Succeeded, "")
		if h := w.last(); h.Revision != "r0" || w.App.Status.Revision != "r0" {
			t.Errorf("history %s, application %s", h.Revision, w.App.Status.Revision)
		}
	})
}

func TestHistoryOfSeveralSources(t *testing.T) {
	t.Parallel()
	const several = `{"project":"default","sources":[{"repoURL":"https://git.example.com/a.git","path":"a"},{"repoURL":"https://git.example.com/b.git","path":"b"}],
		"destination":{"name":"prod","namespace":"shop"}}`
	w := newWorld(t, several)
	w.Render("r1", "a")
	if _, err := w.sync(hub.SyncRequest{}); err != nil {
		t.Fatal(err)
	}
	w.End(hub.Succeeded, "")
	t.Run("SRC-13 APP-12 an entry has all sources", func(t *testing.T) {
		var got []hub.Source
		if err := json.Unmarshal(w.last().Source, &got); err != nil || len(got) != 2 || got[1].Path != "b" {
			t.Errorf("sources %s, %v", w.last().Source, err)
		}
	})
	t.Run("SRC-13 ROLL-05 ROLL-01 a rollback names the sources of its entry, in their order", func(t *testing.T) {
		op := w.rollback(1)
		if from := op.Options.From; from == nil || from.Source != nil || len(from.Sources) != 2 || from.Sources[0].Path != "a" || from.Sources[1].Path != "b" {
			t.Errorf("from %+v", op.Options.From)
		}
	})
}

// Whoever asks for a refresh waits for its time.
func TestRefreshThatFindsNothingNew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, manual)
	w.Render("r1", "a")
	super := storetest.Connect(t, w.URLs.Superuser)
	// Open transactions elsewhere hold back what the feed gives out, so its table is read.
	newest := func() (change string) {
		t.Helper()
		if err := super.QueryRow(t.Context(), `SELECT coalesce(max(xid::text::bigint), 0)::text FROM change WHERE kind = 'application' AND ref = $1`, string(w.App.ID)).Scan(&change); err != nil {
			t.Fatal(err)
		}
		return change
	}
	refreshAt := func(revision string, at time.Time) (event bool) {
		t.Helper()
		before := newest()
		if err := w.Dispatcher.Unchanged(t.Context(), w.Tenant, []hub.Unchanged{{Application: w.App.ID, Revision: revision, Revisions: []string{revision}, RefreshedAt: at}}); err != nil {
			t.Fatal(err)
		}
		if got := w.Reload().Status.RefreshedAt; got == nil || !got.Equal(at) {
			t.Errorf("refreshed at %v, want %v", got, at)
		}
		return newest() != before
	}
	at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	t.Run("APP-22 moves the time of the refresh, and is no event", func(t *testing.T) {
		if refreshAt("r1", at) {
			t.Error("it is an event")
		}
	})
	t.Run("APP-22 a new commit with the same manifests is an event", func(t *testing.T) {
		if !refreshAt("r2", at.Add(time.Second)) {
			t.Error("it is no event")
		}
	})
}
