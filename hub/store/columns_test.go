package store_test

import (
	"context"
	"crypto/sha256"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

func TestSnapshotsTogether(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	keys := storetest.Keys(t)
	db := storetest.OpenKeys(t, urls.Config(), keys)
	w := build(t, db, "acme", "x")
	ref := func(name string) hub.ObjectRef {
		return hub.ObjectRef{Digest: sha256.Sum256([]byte(name)), Version: "v1", Kind: "ConfigMap", Namespace: "web", Name: name}
	}
	var all []hub.Snapshot
	add := func(change func(*hub.Snapshot)) {
		s := newSnapshot(w.app, ref("a"))
		change(&s)
		all = append(all, s)
	}
	add(func(*hub.Snapshot) {})
	add(func(s *hub.Snapshot) { s.Objects = nil })
	add(func(s *hub.Snapshot) { s.Objects = []hub.ObjectRef{ref("b"), ref("c"), ref("b")} })
	add(func(s *hub.Snapshot) { s.Objects = []hub.ObjectRef{ref("b"), ref("c"), ref("b")} })
	add(func(s *hub.Snapshot) { s.Lists = []hub.Digest{ref("list").Digest, ref("more").Digest} })
	add(func(s *hub.Snapshot) { s.Revision, s.Revisions = "", []string{`"one"`, `{two,\}`, ""} })
	add(func(s *hub.Snapshot) { s.Warnings, s.Impure = []string{"it's \"so\", {or} \\ not", "two\nlines"}, true })
	add(func(s *hub.Snapshot) { s.Inputs = []hub.Input{{Kind: hub.InputMissing, Path: "web/Chart.yaml"}} })
	add(func(s *hub.Snapshot) { s.Inputs = nil })
	add(func(s *hub.Snapshot) {
		s.Commit = hub.CommitInfo{Author: `"quoted" <a@example.com>`, Message: "with 'quotes'\nand lines"}
	})
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error { return tx.PutSnapshots(ctx, all) })

	// Another replica has nothing of it in memory.
	other := storetest.OpenKeys(t, urls.Config(), keys)
	storetest.In(t, other, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		recent := must[map[hub.ApplicationID][]hub.Snapshot](t)(tx.RecentSnapshots(ctx, []hub.ApplicationID{w.app.ID}, 100))
		inputs := map[hub.SnapshotID][]hub.Input{}
		commits := map[hub.SnapshotID]hub.CommitInfo{}
		for _, s := range recent[w.app.ID] {
			inputs[s.ID], commits[s.ID] = s.Inputs, s.Commit
		}
		for i, want := range all {
			got := must[hub.Snapshot](t)(tx.Snapshot(ctx, want.ID))
			if len(got.Objects) != len(want.Objects) || len(want.Objects) > 0 && !cmp.Equal(got.Objects, want.Objects) {
				t.Errorf("snapshot %d has objects %v, want %v", i, got.Objects, want.Objects)
			}
			type rest struct {
				Revision, Source    string
				Revisions, Warnings []string
				Lists               []hub.Digest
				Impure              bool
				Params              [32]byte
				Inputs              []hub.Input
				Commit              hub.CommitInfo
			}
			of := func(s hub.Snapshot, in []hub.Input, c hub.CommitInfo) rest {
				return rest{
					s.Revision, string(s.SourceType), append([]string{}, s.Revisions...), append([]string{}, s.Warnings...), append([]hub.Digest{}, s.Lists...), s.Impure,
					s.ParamsHash, append([]hub.Input{}, in...), c,
				}
			}
			if diff := cmp.Diff(of(want, want.Inputs, want.Commit), of(got, inputs[want.ID], commits[want.ID])); diff != "" {
				t.Errorf("snapshot %d (-want +got):\n%s", i, diff)
			}
		}
		return nil
	})
}

func TestOperationsOfOneChange(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	w := build(t, db, "acme", "x")
	asked := []hub.OperationOptions{
		{Prune: true, SyncOptions: []string{"Validate=false"}, Override: &hub.Override{}},
		{Prune: true, SyncOptions: []string{"Validate=false"}, Override: &hub.Override{}},
		{DryRun: true, Resources: []string{"apps:Deployment:web"}},
		{},
	}
	var want []hub.Operation
	var ids []hub.ApplicationID
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		want, ids = nil, nil
		for i, options := range asked {
			app := must[hub.Application](t)(tx.CreateApplication(ctx, newApp(string(rune('a'+i)), w.repository.URL, w.cluster.ID)))
			op := hub.Operation{
				ID: hub.NewID[hub.OperationID](), Application: app.ID, Kind: hub.SyncOperation, Phase: hub.Pending, OperationTimes: hub.OperationTimes{CreatedAt: now(), Deadline: now()},
				Options: options, Initiator: hub.Initiator{Username: string(rune('u' + i/2)), Automated: i == 3},
			}
			want, ids = append(want, op), append(ids, app.ID)
		}
		return tx.PutOperations(ctx, want)
	})
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		found := must[map[hub.ApplicationID]hub.Application](t)(tx.ApplicationsByID(ctx, ids))
		for i, id := range ids {
			got := found[id].Status.Operation
			if got == nil || got.ID != want[i].ID {
				t.Fatalf("application %d has operation %v", i, got)
			}
			if diff := cmp.Diff(want[i].Options, got.Options); diff != "" {
				t.Errorf("options of operation %d (-want +got):\n%s", i, diff)
			}
			if got.Initiator != want[i].Initiator {
				t.Errorf("operation %d was started by %+v, want %+v", i, got.Initiator, want[i].Initiator)
			}
			// Appending to a list changes only the caller's copy.
			_ = append(got.Options.SyncOptions, "Force=true")
		}
		return nil
	})
}
