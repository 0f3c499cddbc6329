package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// TestShown compares the filters and counts of SQL with hub.ApplicationStatus.Show.
func TestShown(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	super := storetest.Connect(t, urls.Superuser)
	w := build(t, db, "acme", "acme")
	s := db.System()
	observe(t, db, w, hub.Observation{Epoch: "acme", Seq: 2, Applications: []hub.ApplicationObservation{
		{Application: w.app.ID, Target: w.snapshot.ID, Generation: 2, Sync: hub.Synced, Health: hub.Healthy, ComparedAt: now()}}})
	fail := func(kind string) {
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			var now []hub.RefreshFailure
			if kind != "" {
				now = []hub.RefreshFailure{{Application: w.app.ID, Condition: kind, Message: "no path x"}}
				return tx.SetFailures(ctx, now)
			}
			return tx.Unchanged(ctx, []hub.Unchanged{{Application: w.app.ID, Revision: "c0ffee", RefreshedAt: time.Now()}})
		})
	}
	fail("")
	shown := func(t *testing.T, sync hub.SyncStatus, health hub.HealthStatus) {
		t.Helper()
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			a := must[hub.Application](t)(tx.ApplicationByID(ctx, w.app.ID))
			on := must[hub.Cluster](t)(tx.ClusterByID(ctx, w.cluster.ID))
			if got := a.Status.Show(&on, time.Now()); got.Sync != sync || got.Health != health {
				t.Errorf("shown %s %s, want %s %s", got.Sync, got.Health, sync, health)
			}
			all := hub.ApplicationFilter{All: true, Limit: 10}
			for _, c := range must[[]store.StatusCount](t)(tx.CountApplications(ctx, all)) {
				if c.Sync != sync || c.Health != health || c.Count != 1 {
					t.Errorf("counted %+v, want %s %s", c, sync, health)
				}
			}
			for _, f := range must[[]hub.ApplicationFigures](t)(tx.ApplicationFigures(ctx, 10)) {
				if f.Sync != string(sync) || f.Health != string(health) {
					t.Errorf("metrics have %s %s, want %s %s", f.Sync, f.Health, sync, health)
				}
			}
			for _, other := range []hub.SyncStatus{hub.Synced, hub.OutOfSync, hub.SyncUnknown} {
				f := all
				f.Sync = []hub.SyncStatus{other}
				if n := len(must[[]hub.Application](t)(tx.Applications(ctx, f))); (n == 1) != (other == sync) {
					t.Errorf("the filter sync=%s finds %d", other, n)
				}
			}
			for _, other := range []hub.HealthStatus{hub.Healthy, hub.Degraded, hub.HealthUnknown} {
				f := all
				f.Health = []hub.HealthStatus{other}
				if n := len(must[[]hub.Application](t)(tx.Applications(ctx, f))); (n == 1) != (other == health) {
					t.Errorf("the filter health=%s finds %d", other, n)
				}
			}
			return nil
		})
	}
	see := func(session string, at time.Time, lag time.Duration, incomplete bool) {
		lost := must[[]string](t)(s.RenewAttachments(t.Context(), []hub.Heartbeat{
			{Tenant: w.tenant, Cluster: w.cluster.ID, Session: session, At: at, Lag: lag, Incomplete: incomplete},
		}))
		if len(lost) > 0 {
			t.Fatalf("session %s is not attached", session)
		}
	}
	attach := func(session string, at time.Time) {
		check(t, s.Connected(t.Context(), hub.Attachment{Tenant: w.tenant, Cluster: w.cluster.ID, Session: session, Replica: "r", Epoch: session, Instance: "one", Leader: true, At: at}))
	}
	asOf := func(t *testing.T) time.Time {
		t.Helper()
		var at time.Time
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			on := must[hub.Cluster](t)(tx.ClusterByID(ctx, w.cluster.ID))
			at = *on.AsOf()
			return nil
		})
		return at
	}
	begun := now().Add(-80 * time.Second)
	attach("s1", begun)
	see("s1", begun, 0, false)
	t.Run("INV-6 states of a connected agent are returned unchanged", func(t *testing.T) {
		see("s1", now(), 0, false)
		shown(t, hub.Synced, hub.Healthy)
	})
	t.Run("INV-6 a broken source makes sync unknown, in lists and counts too", func(t *testing.T) {
		for _, kind := range []string{hub.ComparisonError, hub.InvalidSpecError} {
			fail(kind)
			shown(t, hub.SyncUnknown, hub.Healthy)
		}
		fail("")
		shown(t, hub.Synced, hub.Healthy)
	})
	t.Run("CMPR-04 INV-6 a repository that is away makes sync unknown after 180 seconds", func(t *testing.T) {
		away := func(since time.Duration) {
			must[pgconn.CommandTag](t)(super.Exec(t.Context(), `UPDATE repository SET error = 'it is away', error_since = now() - $1::interval, fetched_at = coalesce(fetched_at, now())`, since))
		}
		away(170 * time.Second)
		shown(t, hub.Synced, hub.Healthy)
		away(190 * time.Second)
		shown(t, hub.SyncUnknown, hub.Healthy)
		must[pgconn.CommandTag](t)(super.Exec(t.Context(), `UPDATE repository SET error = ''`))
	})
	t.Run("INV-6 without reports for long every status is Unknown", func(t *testing.T) {
		see("s1", now(), 61*time.Second, false)
		shown(t, hub.SyncUnknown, hub.HealthUnknown)
		see("s1", now(), 0, false)
		shown(t, hub.Synced, hub.Healthy)
	})
	last := asOf(t)
	t.Run("INV-6 an agent that attaches again confirms nothing until it has sent a complete report", func(t *testing.T) {
		check(t, s.Disconnected(t.Context(), w.tenant, w.cluster.ID, "s1"))
		shown(t, hub.Synced, hub.Healthy) // for a minute
		attach("s2", last.Add(2*time.Minute))
		if got := asOf(t); got.Sub(last).Abs() > time.Millisecond {
			t.Errorf("attaching moved the age from %s to %s", last, got)
		}
		see("s2", last.Add(3*time.Minute), 0, true)
		if got := asOf(t); got.Sub(last).Abs() > 2*time.Millisecond {
			t.Errorf("an incomplete picture moved the age from %s to %s", last, got)
		}
		shown(t, hub.SyncUnknown, hub.HealthUnknown)
		see("s2", last.Add(4*time.Minute), 0, false)
		if got := asOf(t); !got.Equal(last.Add(4 * time.Minute)) {
			t.Errorf("the age is %s", got)
		}
		shown(t, hub.Synced, hub.Healthy)
	})
}
