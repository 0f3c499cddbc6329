package store_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// inputsOf are as many as those of a small chart, with hashes of their own.
func inputsOf(name string) (out []hub.Input) {
	for i := range 8 {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", name, i))
		out = append(out, hub.Input{Kind: hub.InputFile, Path: fmt.Sprintf("x/%d.yaml", i), Hash: hex.EncodeToString(sum[:20])})
	}
	return out
}

// An aged world has deployed one of its application's snapshots after the
// other, two hours ago; the target is the oldest of them.
type aged struct {
	*world
	db   *store.DB
	urls storetest.URLs
	keys store.Keys
	all  []hub.Snapshot // the newest first
}

func newAged(t *testing.T, n int) *aged {
	t.Helper()
	a := &aged{urls: storetest.Database(t), keys: storetest.Keys(t)}
	a.db = storetest.OpenKeys(t, a.urls.Config(), a.keys)
	a.world = build(t, a.db, "acme", "x")
	a.all = a.deploy(t, a.world, n)
	storetest.In(t, a.db, a.tenant, func(ctx context.Context, tx *store.Tenant) error {
		return tx.SetTargets(ctx, []hub.TargetChange{{Application: a.app.ID, Target: a.all[n-1].ID, Accepted: a.all[n-1].ID, Revision: "c0ffee", Generation: 3}})
	})
	return a
}

// deploy stores snapshots that were deployed, and returns them newest first.
func (a *aged) deploy(t *testing.T, w *world, n int) (all []hub.Snapshot) {
	t.Helper()
	begin := now().Add(-2 * time.Hour)
	storetest.In(t, a.db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		for i := range n {
			name := fmt.Sprint(i)
			s := newSnapshot(w.app, hub.ObjectRef{Digest: sha256.Sum256([]byte(name)), Version: "v1", Kind: "ConfigMap", Namespace: "web", Name: name})
			s.Inputs, s.CreatedAt, s.Revisions = inputsOf(name), begin.Add(time.Duration(i)*time.Second), []string{"c0ffee"}
			all = append([]hub.Snapshot{s}, all...)
		}
		if err := tx.PutSnapshots(ctx, all); err != nil {
			return err
		}
		for _, s := range all {
			op := newOperation(w.app, s.ID)
			op.Phase = hub.Succeeded
			check(t, tx.PutOperations(ctx, []hub.Operation{op}))
			check(t, tx.AppendHistory(ctx, []hub.HistoryEntry{{Application: w.app.ID, Operation: op.ID, Snapshot: s.ID, Revision: "c0ffee", StartedAt: now(), DeployedAt: now()}}))
		}
		return nil
	})
	return all
}

func (a *aged) collect(t *testing.T) (more bool) {
	t.Helper()
	storetest.In(t, a.db, a.tenant, func(ctx context.Context, tx *store.Tenant) (err error) {
		more, err = tx.Collect(ctx, time.Now())
		return err
	})
	return more
}

// read returns the inputs of all snapshots of an application, and how many
// objects each has, as a replica finds them that has nothing in memory.
func (a *aged) read(t *testing.T, w *world) (inputs map[hub.SnapshotID][]hub.Input, objects map[hub.SnapshotID]int) {
	t.Helper()
	inputs, objects = map[hub.SnapshotID][]hub.Input{}, map[hub.SnapshotID]int{}
	storetest.In(t, storetest.OpenKeys(t, a.urls.Config(), a.keys), w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		var ids []hub.SnapshotID
		for _, s := range must[map[hub.ApplicationID][]hub.Snapshot](t)(tx.RecentSnapshots(ctx, []hub.ApplicationID{w.app.ID}, 1000))[w.app.ID] {
			inputs[s.ID] = s.Inputs
		}
		for _, s := range append(slices.Clone(a.all), w.snapshot) {
			ids = append(ids, s.ID)
		}
		for id, s := range must[map[hub.SnapshotID]hub.Snapshot](t)(tx.Snapshots(ctx, ids)) {
			objects[id] = len(s.Objects)
		}
		return nil
	})
	return inputs, objects
}

func (a *aged) count(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	check(t, storetest.Connect(t, a.urls.Superuser).QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}

func TestInputsOfOldSnapshots(t *testing.T) {
	t.Parallel()
	const n = 16
	a := newAged(t, n)
	stranger := build(t, a.db, "other", "y")
	theirs := a.deploy(t, stranger, n)
	// The newest snapshot is that of the world: nine of ours are among ten.
	kept := append(slices.Clone(a.all[:9]), a.all[n-1])
	changed, earlier := a.all[n-2], a.all[n-3]
	super := storetest.Connect(t, a.urls.Superuser)
	_, err := super.Exec(t.Context(), `UPDATE snapshot SET objects = set_bit(objects, 13, 1 - get_bit(objects, 13)) WHERE id = $1`, changed.ID)
	check(t, err)
	_, err = super.Exec(t.Context(), `UPDATE snapshot SET mac = NULL WHERE id = $1`, earlier.ID)
	check(t, err)
	if a.collect(t) {
		t.Error("there is said to be more")
	}
	inputs, objects := a.read(t, a.world)
	t.Run("B17 the newest ten snapshots of an application and its target keep what they were rendered from", func(t *testing.T) {
		for _, s := range kept {
			if diff := cmp.Diff(s.Inputs, inputs[s.ID]); diff != "" {
				t.Errorf("snapshot of %s: %s", s.CreatedAt, diff)
			}
		}
		if diff := cmp.Diff(a.snapshot.Inputs, inputs[a.snapshot.ID]); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("B17 INV-6 older ones forget it, and none is left without any input: it would answer each render", func(t *testing.T) {
		for _, s := range a.all[9 : n-3] {
			if diff := cmp.Diff(hub.ForgottenInputs(), inputs[s.ID]); diff != "" {
				t.Errorf("snapshot of %s: %s", s.CreatedAt, diff)
			}
		}
	})
	t.Run("ROLL-01 FT-G10 their objects are there, and authentic", func(t *testing.T) {
		for _, s := range a.all {
			if s.ID != changed.ID && objects[s.ID] != 1 {
				t.Errorf("the snapshot of %s has %d objects", s.CreatedAt, objects[s.ID])
			}
		}
	})
	t.Run("FT-G10 SEC-J2 one that was changed outside of the hub does not become authentic", func(t *testing.T) {
		if _, used := objects[changed.ID]; used || inputs[changed.ID] != nil {
			t.Error("it is used")
		}
		_, err := super.Exec(t.Context(), `UPDATE snapshot SET objects = set_bit(objects, 13, 1 - get_bit(objects, 13)) WHERE id = $1`, changed.ID)
		check(t, err)
		if _, objects := a.read(t, a.world); objects[changed.ID] != 0 {
			t.Error("it has a code that the hub has made since")
		}
	})
	t.Run("FT-U1 one of an earlier release has no code, and is used as it is", func(t *testing.T) {
		if objects[earlier.ID] != 1 || inputs[earlier.ID] != nil {
			t.Errorf("it has %d objects and the inputs %v", objects[earlier.ID], inputs[earlier.ID])
		}
		if k := a.count(t, `SELECT count(*) FROM snapshot WHERE id = $1 AND mac IS NULL AND octet_length(inputs) < 128`, earlier.ID); k != 1 {
			t.Error("its inputs are there, or it has a code")
		}
	})
	t.Run("ISO-1 those of another tenant stay", func(t *testing.T) {
		inputs, _ := a.read(t, stranger)
		for _, s := range theirs {
			if diff := cmp.Diff(s.Inputs, inputs[s.ID]); diff != "" {
				t.Error(diff)
			}
		}
	})
	t.Run("B17 no row is written twice", func(t *testing.T) {
		const versions = `SELECT count(DISTINCT xmin::text) + sum(hashtext(ctid::text)::bigint) FROM snapshot`
		before := a.count(t, versions)
		if a.collect(t) || a.count(t, versions) != before {
			t.Error("a second round changes snapshots")
		}
	})
}

func TestInputsOfManySnapshots(t *testing.T) {
	t.Parallel()
	a := newAged(t, 1)
	super := storetest.Connect(t, a.urls.Superuser)
	_, err := super.Exec(t.Context(), `
		WITH s AS (
			INSERT INTO snapshot (tenant_id, id, application_id, revision, params_hash, objects, object_count, digests, inputs, source_type, created_at)
			SELECT $1, gen_random_uuid(), $2, 'r', sha256(''), '', 0, '{}', CASE WHEN n <= 200 THEN 'few bytes' ELSE decode(repeat('00', 200), 'hex') END, 'Directory',
			       now() - interval '30 days' + n * interval '1 second' FROM generate_series(1, 2700) n RETURNING tenant_id, id, application_id)
		INSERT INTO history (tenant_id, application_id, id, snapshot_id, revision, initiator, started_at, deployed_at)
		SELECT tenant_id, application_id, 100 + row_number() OVER (), id, 'r', '{}', now(), now() FROM s`, a.tenant, a.app.ID)
	check(t, err)
	t.Run("FT-D10 B17 inputs are forgotten in parts, each in a transaction of its own; few bytes stay", func(t *testing.T) {
		const few = `SELECT count(*) FROM snapshot WHERE inputs = 'few bytes'`
		for i, left := range []int{1500, 500, 8} { // with ours there are two newer ones
			if more := a.collect(t); more != (left > 8) {
				t.Errorf("part %d: more = %v", i, more)
			}
			if k := a.count(t, `SELECT count(*) FROM snapshot WHERE octet_length(inputs) = 200`); k != left {
				t.Errorf("part %d: %d have all inputs, want %d", i, k, left)
			}
		}
		if k := a.count(t, few); k != 200 {
			t.Errorf("%d with few bytes are left, want 200", k)
		}
	})
}
