package store_test

import (
	"context"
	"crypto/sha256"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// Rows that somebody else writes into the database, or that its disk damages,
// are not used: the application is rendered again.
func TestSnapshotsThatWereChanged(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	keys := storetest.Keys(t)
	db := storetest.OpenKeys(t, urls.Config(), keys)
	w, stranger := build(t, db, "acme", "x"), build(t, db, "other", "y")
	ref := func(name string) hub.ObjectRef {
		return hub.ObjectRef{Digest: sha256.Sum256([]byte(name)), Version: "v1", Kind: "ConfigMap", Namespace: "web", Name: name}
	}
	from := func(column string) string {
		return "UPDATE snapshot SET " + column + " = (SELECT x." + column + " FROM snapshot x WHERE x.id = $2) WHERE id = $1"
	}
	for name, sql := range map[string]string{
		"one bit of its objects":               "UPDATE snapshot SET objects = set_bit(objects, 13, 1 - get_bit(objects, 13)) WHERE id = $1 AND $2 <> ''",
		"one bit of a digest":                  "UPDATE snapshot SET digests[1] = set_bit(digests[1], 0, 1 - get_bit(digests[1], 0)) WHERE id = $1 AND $2 <> ''",
		"one bit of its inputs":                "UPDATE snapshot SET inputs = set_bit(inputs, 13, 1 - get_bit(inputs, 13)) WHERE id = $1 AND $2 <> ''",
		"one bit of its code":                  "UPDATE snapshot SET mac = set_bit(mac, 0, 1 - get_bit(mac, 0)) WHERE id = $1 AND $2 <> ''",
		"no code in it":                        "UPDATE snapshot SET mac = '' WHERE id = $1 AND $2 <> ''",
		"the objects of another application":   from("objects"),
		"the digests of another application":   from("digests"),
		"the code of another application":      from("mac"),
		"the inputs of another one":            from("inputs"),
		"another revision":                     "UPDATE snapshot SET revision = 'older' WHERE id = $1 AND $2 <> ''",
		"other revisions":                      "UPDATE snapshot SET revisions = '{older}' WHERE id = $1 AND $2 <> ''",
		"parameters of another renderer":       "UPDATE snapshot SET params_hash = sha256(params_hash) WHERE id = $1 AND $2 <> ''",
		"an object less":                       "UPDATE snapshot SET digests = digests[2:] WHERE id = $1 AND $2 <> ''",
		"a list that it does not have":         "UPDATE snapshot SET lists = digests WHERE id = $1 AND $2 <> ''",
		"impure, so that it is not reconciled": "UPDATE snapshot SET impure = NOT impure WHERE id = $1 AND $2 <> ''",
		"everything of another application":    "UPDATE snapshot s SET (objects, digests, inputs, lists, params_hash, revision, revisions, mac) = (SELECT objects, digests, inputs, lists, params_hash, revision, revisions, mac FROM snapshot x WHERE x.id = $2) WHERE id = $1",
	} {
		t.Run("FT-G10 SEC-J2 "+name, func(t *testing.T) {
			mine, other := newSnapshot(w.app, ref("a"), ref("b")), newSnapshot(w.app, ref("evil"))
			other.Inputs, other.Revisions = []hub.Input{{Kind: hub.InputFile, Path: "x/b.yaml", Hash: "def"}}, []string{"c0ffee"}
			mine.Revisions = []string{"c0ffee"}
			storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
				return tx.PutSnapshots(ctx, []hub.Snapshot{mine, other})
			})
			conn := must[*pgx.Conn](t)(pgx.Connect(t.Context(), urls.Superuser))
			defer func() { check(t, conn.Close(context.WithoutCancel(t.Context()))) }()
			if tag, err := conn.Exec(t.Context(), sql, mine.ID, string(other.ID)); err != nil || tag.RowsAffected() != 1 {
				t.Fatal(tag, err)
			}
			for where, replica := range map[string]*store.DB{"a replica that has nothing of it in memory": storetest.OpenKeys(t, urls.Config(), keys)} {
				storetest.In(t, replica, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
					found := must[map[hub.SnapshotID]hub.Snapshot](t)(tx.Snapshots(ctx, []hub.SnapshotID{mine.ID, other.ID}))
					if _, used := found[mine.ID]; used || len(found) != 1 {
						t.Errorf("%s: its objects are used: %+v", where, found)
					}
					recent := must[map[hub.ApplicationID][]hub.Snapshot](t)(tx.RecentSnapshots(ctx, []hub.ApplicationID{w.app.ID}, 2))
					for _, s := range recent[w.app.ID] {
						if s.ID == mine.ID {
							t.Errorf("%s: its inputs are used", where)
						}
					}
					return nil
				})
			}
		})
	}
	t.Run("FT-G10 SEC-J2 a row of another tenant", func(t *testing.T) {
		other := newSnapshot(stranger.app, ref("evil"))
		storetest.In(t, db, stranger.tenant, func(ctx context.Context, tx *store.Tenant) error {
			return tx.PutSnapshots(ctx, []hub.Snapshot{other})
		})
		conn := must[*pgx.Conn](t)(pgx.Connect(t.Context(), urls.Superuser))
		defer func() { check(t, conn.Close(context.WithoutCancel(t.Context()))) }()
		if _, err := conn.Exec(t.Context(), "UPDATE snapshot SET tenant_id = $2, application_id = $3 WHERE id = $1", other.ID, w.tenant, w.app.ID); err != nil {
			t.Fatal(err)
		}
		storetest.In(t, storetest.OpenKeys(t, urls.Config(), keys), w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			if found := must[map[hub.SnapshotID]hub.Snapshot](t)(tx.Snapshots(ctx, []hub.SnapshotID{other.ID})); len(found) != 0 {
				t.Errorf("it is used: %+v", found)
			}
			return nil
		})
	})
	t.Run("FT-U1 one of an earlier release is used as it is, and rendered again at the next refresh", func(t *testing.T) {
		old := newSnapshot(w.app, ref("a"))
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			return tx.PutSnapshots(ctx, []hub.Snapshot{old})
		})
		conn := must[*pgx.Conn](t)(pgx.Connect(t.Context(), urls.Superuser))
		defer func() { check(t, conn.Close(context.WithoutCancel(t.Context()))) }()
		if _, err := conn.Exec(t.Context(), "UPDATE snapshot SET mac = NULL WHERE id = $1", old.ID); err != nil {
			t.Fatal(err)
		}
		storetest.In(t, storetest.OpenKeys(t, urls.Config(), keys), w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			if found := must[map[hub.SnapshotID]hub.Snapshot](t)(tx.Snapshots(ctx, []hub.SnapshotID{old.ID})); len(found[old.ID].Objects) != 1 {
				t.Errorf("it is not used: %+v", found)
			}
			for _, s := range must[map[hub.ApplicationID][]hub.Snapshot](t)(tx.RecentSnapshots(ctx, []hub.ApplicationID{w.app.ID}, 1))[w.app.ID] {
				if s.ID == old.ID {
					t.Error("a render is answered by it")
				}
			}
			return nil
		})
	})
}
