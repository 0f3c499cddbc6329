package store_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

func replicaIDs(replicas []hub.Replica) []string {
	var out []string
	for _, r := range replicas {
		out = append(out, r.ID)
	}
	return out
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	ctx := t.Context()

	t.Run("a replica counts as live while it renews its row", func(t *testing.T) {
		t.Parallel()
		s := storetest.Open(t).System()
		a := hub.Replica{ID: "a.1", Name: "a", Address: "10.0.0.1:9443"}
		must[[]hub.Replica](t)(s.Beat(ctx, a, time.Minute))
		must[[]hub.Replica](t)(s.Beat(ctx, hub.Replica{ID: "b.1", Name: "b"}, -time.Second))
		a.Draining = true
		got := must[[]hub.Replica](t)(s.Beat(ctx, a, time.Minute))
		if diff := cmp.Diff([]hub.Replica{a}, got); diff != "" {
			t.Errorf("replicas: %s", diff)
		}
		check(t, s.Leave(ctx, "a.1"))
		if got := must[[]hub.Replica](t)(s.Beat(ctx, hub.Replica{ID: "c.1"}, time.Minute)); len(got) != 1 {
			t.Errorf("after one left: %v", replicaIDs(got))
		}
	})

	t.Run("FT-H3 what a replica had leased is free once it is gone, and refused to it when it comes back", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		s, tenant, k := db.System(), storetest.Tenant(t, db, "acme"), key()
		put(t, db, tenant, k, time.Now().Add(-time.Minute), false)
		must[[]hub.Replica](t)(s.Beat(ctx, hub.Replica{ID: "sleeper"}, time.Minute))
		old := must[[]hub.WorkItem](t)(s.Claim(ctx, hub.WorkRefresh, "sleeper", 1, time.Hour))
		if again := claim(t, db, 1, time.Hour); len(old) != 1 || len(again) != 0 {
			t.Fatalf("claimed %v, then %v", old, again)
		}
		must[[]hub.Replica](t)(s.Beat(ctx, hub.Replica{ID: "sleeper"}, -time.Second))
		must[[]hub.Replica](t)(s.Beat(ctx, hub.Replica{ID: "other"}, time.Minute))
		if !held(t, db, tenant, old[0]) {
			t.Error("the lease of an item that nobody else took is not good any more")
		}
		taken := must[[]hub.WorkItem](t)(s.Claim(ctx, hub.WorkRefresh, "other", 1, time.Hour))
		if len(taken) != 1 {
			t.Fatal("the work of a replica that is gone was not free")
		}
		if held(t, db, tenant, old[0]) {
			t.Error("the sleeper still holds what another replica has taken over")
		}
		if !held(t, db, tenant, taken[0]) {
			t.Error("the new owner does not hold its item")
		}
	})

	t.Run("FT-H1 a replica that restarts under its name resumes its work at once", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		s, tenant := db.System(), storetest.Tenant(t, db, "acme")
		put(t, db, tenant, key(), time.Now().Add(-time.Minute), false)
		must[[]hub.Replica](t)(s.Beat(ctx, hub.Replica{ID: "a.1", Name: "a"}, time.Hour))
		old := must[[]hub.WorkItem](t)(s.Claim(ctx, hub.WorkRefresh, "a.1", 1, time.Hour))
		if n := must[int](t)(s.Succeed(ctx, "b", "b.1")); n != 0 {
			t.Errorf("another one took %d items", n)
		}
		if n := must[int](t)(s.Succeed(ctx, "a", "a.2")); n != 1 {
			t.Errorf("%d items were freed", n)
		}
		if again := claim(t, db, 1, time.Hour); len(again) != 1 || held(t, db, tenant, old[0]) {
			t.Errorf("claimed %v", again)
		}
	})

	t.Run("INV-4 a valid lease stays valid until the transaction ends", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		tenant, k := storetest.Tenant(t, db, "acme"), key()
		put(t, db, tenant, k, time.Now().Add(-time.Minute), false)
		item := must[[]hub.WorkItem](t)(db.System().Claim(ctx, hub.WorkRefresh, "slow", 1, -time.Second))[0]
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			good := must[map[string]bool](t)(tx.Held(ctx, hub.WorkRefresh, map[string]int64{k: item.Token, "no id": 1}))
			if !good[k] || len(good) != 1 {
				t.Errorf("held %v", good)
			}
			if got := claim(t, db, 1, time.Minute); len(got) != 0 {
				t.Error("it was claimed in the middle of a transaction that relies on it")
			}
			put(t, db, tenant, k, time.Now(), true) // must not wait for the transaction
			return nil
		})
		if got := claim(t, db, 1, time.Minute); len(got) != 1 {
			t.Error("it was not free after the transaction")
		}
	})

	t.Run("INV-4 replicas share repositories, and only those of a removed one move", func(t *testing.T) {
		t.Parallel()
		db := storetest.OpenPatient(t)
		tenant := storetest.Tenant(t, db, "acme")
		for range 60 {
			check(t, db.System().Enqueue(ctx, hub.WorkFetch, tenant, key(), time.Now(), false))
		}
		share := func(owner string, among ...string) []hub.WorkItem {
			return must[[]hub.WorkItem](t)(db.System().ClaimShare(ctx, hub.WorkFetch, owner, among, 100, time.Hour, nil))
		}
		home := map[string]string{}
		for _, r := range []string{"a", "b", "c"} {
			items := share(r, "a", "b", "c")
			if len(items) < 5 {
				t.Errorf("replica %s was given %d of 60 items", r, len(items))
			}
			for _, i := range items {
				home[i.Key] = r
			}
			check(t, db.System().Later(ctx, items, time.Now()))
		}
		if len(home) != 60 {
			t.Fatalf("%d of 60 items have a home", len(home))
		}
		for _, r := range []string{"a", "b"} {
			for _, i := range share(r, "b", "a") {
				if home[i.Key] != r && home[i.Key] != "c" {
					t.Errorf("item %s moved from %s to %s although neither is gone", i.Key, home[i.Key], r)
				}
			}
		}
	})

	t.Run("work that its replica does not claim can be claimed by any", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		tenant := storetest.Tenant(t, db, "acme")
		for range 20 {
			check(t, db.System().Enqueue(ctx, hub.WorkFetch, tenant, key(), time.Now().Add(-time.Minute), false))
		}
		if got := must[[]hub.WorkItem](t)(db.System().ClaimShare(ctx, hub.WorkFetch, "a", []string{"a", "stuck"}, 100, time.Hour, nil)); len(got) != 20 {
			t.Errorf("claimed %d of 20 items that wait for a minute", len(got))
		}
	})

	t.Run("a refresh belongs where the repository of its application does", func(t *testing.T) {
		t.Parallel()
		db := storetest.OpenPatient(t)
		w := build(t, db, "acme", "acme")
		among := []string{"a", "b", "c", "d", "e"}
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			check(t, tx.Fetch(ctx, w.repository.ID))
			return tx.Enqueue(ctx, hub.WorkRefresh, string(w.app.ID), time.Now(), false)
		})
		of := func(kind, key string) string {
			for _, r := range among {
				items := must[[]hub.WorkItem](t)(db.System().ClaimShare(ctx, kind, r, among, 100, time.Hour, nil))
				if slices.ContainsFunc(items, func(i hub.WorkItem) bool { return i.Key == key }) {
					return r
				}
			}
			t.Fatalf("no replica was given %s", kind)
			return ""
		}
		if f, r := of(hub.WorkFetch, string(w.repository.ID)), of(hub.WorkRefresh, string(w.app.ID)); f != r {
			t.Errorf("the fetch belongs to %s, the refresh to %s", f, r)
		}
	})
}

func held(t *testing.T, db *store.DB, tenant hub.TenantID, item hub.WorkItem) (good bool) {
	t.Helper()
	storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
		good = must[map[string]bool](t)(tx.Held(ctx, item.Kind, map[string]int64{item.Key: item.Token}))[item.Key]
		return nil
	})
	return good
}

func TestAttachments(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	w, s := build(t, db, "acme", "acme"), db.System()
	attach := func(session, replica, epoch string, lease time.Duration) error {
		return s.Connected(ctx, hub.Attachment{Tenant: w.tenant, Cluster: w.cluster.ID, Session: session, Replica: replica, Epoch: epoch, At: now(), Lease: lease})
	}
	heartbeat := func(session string) []string {
		return must[[]string](t)(s.RenewAttachments(ctx, []hub.Heartbeat{{Tenant: w.tenant, Cluster: w.cluster.ID, Session: session, At: now()}}))
	}

	t.Run("a late detach of an old session never removes the new one", func(t *testing.T) {
		check(t, attach("s1", "a", "e1", time.Minute))
		first := must[hub.AgentHome](t)(s.Attachment(ctx, w.tenant, w.cluster.ID))
		check(t, attach("s2", "b", "e1", time.Minute))
		check(t, s.Disconnected(ctx, w.tenant, w.cluster.ID, "s1"))
		got := must[hub.AgentHome](t)(s.Attachment(ctx, w.tenant, w.cluster.ID))
		if got.Session != "s2" || got.Replica != "b" || got.Fence <= first.Fence {
			t.Errorf("attachment %+v after %+v", got, first)
		}
		if lost := heartbeat("s1"); len(lost) != 1 {
			t.Errorf("the replica of the old session is not told that it lost it: %v", lost)
		}
		if lost := heartbeat("s2"); len(lost) != 0 {
			t.Errorf("the new session counts as lost: %v", lost)
		}
	})
	t.Run("followers read new rows, and that a replica left", func(t *testing.T) {
		all := must[[]hub.AgentHome](t)(s.Attachments(ctx, 0))
		last := all[len(all)-1]
		if more := must[[]hub.AgentHome](t)(s.Attachments(ctx, last.Fence)); len(more) != 0 {
			t.Errorf("news without a change: %v", more)
		}
		heartbeat("s2") // a renewal is no change
		check(t, s.Disconnected(ctx, w.tenant, w.cluster.ID, "s2"))
		more := must[[]hub.AgentHome](t)(s.Attachments(ctx, last.Fence))
		if len(more) != 1 || more[0].Session != "" || more[0].Cluster != w.cluster.ID {
			t.Errorf("after the agent left: %v", more)
		}
	})
	t.Run("FT-H5 an attachment without renewals counts as removed", func(t *testing.T) {
		check(t, attach("s3", "dead", "e1", time.Minute))
		super := storetest.Connect(t, urls.Superuser)
		must[pgconn.CommandTag](t)(super.Exec(ctx, `UPDATE directory.agent_attachment SET until = now() - interval '1 second'`))
		if p, err := s.Attachment(ctx, w.tenant, w.cluster.ID); fault.KindOf(err) != fault.Offline {
			t.Errorf("attachment %+v, %v", p, err)
		}
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			if c := must[hub.Cluster](t)(tx.ClusterByID(ctx, w.cluster.ID)); c.Connected {
				t.Error("the cluster counts as connected")
			}
			return nil
		})
		if lost := heartbeat("s3"); len(lost) != 0 {
			t.Error("its replica was only slow, and lost it")
		}
		must[hub.AgentHome](t)(s.Attachment(ctx, w.tenant, w.cluster.ID))
	})
	t.Run("FT-A6 of two processes with one identity the older one stays out, on every replica", func(t *testing.T) {
		check(t, attach("s4", "a", "e2", time.Minute))
		if err := attach("s5", "b", "e1", time.Minute); fault.KindOf(err) != fault.Conflict {
			t.Errorf("the older process was let in elsewhere: %v", err)
		}
		check(t, attach("s6", "b", "e2", time.Minute))
		check(t, s.Disconnected(ctx, w.tenant, w.cluster.ID, "s6"))
		check(t, attach("s7", "b", "e1", time.Minute)) // the newer one is gone
	})
	t.Run("a cluster that is removed leaves no attachment", func(t *testing.T) {
		other := storetest.Open(t)
		v := build(t, other, "acme", "acme")
		storetest.In(t, other, v.tenant, func(ctx context.Context, tx *store.Tenant) error {
			c := must[hub.Cluster](t)(tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: "brief"}}))
			v.cluster = c
			return nil
		})
		check(t, other.System().Connected(ctx, hub.Attachment{Tenant: v.tenant, Cluster: v.cluster.ID, Session: "s", Replica: "a", At: now()}))
		storetest.In(t, other, v.tenant, func(ctx context.Context, tx *store.Tenant) error {
			return tx.DeleteCluster(ctx, v.cluster.ID)
		})
		for _, p := range must[[]hub.AgentHome](t)(other.System().Attachments(ctx, 0)) {
			if p.Cluster == v.cluster.ID {
				t.Errorf("it left %+v", p)
			}
		}
	})
}
