package api_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// shownStatus is what tests of freshness read of an application.
type shownStatus struct {
	Metadata struct{ Name string }
	Status   struct {
		Sync, Health struct{ Status, Message string }
		Capstan      struct {
			Connection string
			AsOf       time.Time
			Stale      *struct {
				Reason, Message, Sync, Health string
				Since                         time.Time
			}
			Headline struct{ State, Message string }
		}
	}
}

func TestFreshness(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	tenant := w.Tenant("acme")
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
	w.call(admin, "POST", "/api/v1/applications", application("web", func(spec map[string]any) {
		spec["destination"] = map[string]any{"name": "prod", "namespace": "web"}
	})).ok(201)
	var cluster hub.ClusterID
	storetest.In(t, w.DB, tenant, func(ctx context.Context, tx *store.Tenant) error {
		a, err := tx.Application(ctx, "argocd", "web")
		if err != nil {
			return err
		}
		cluster = a.Cluster
		snap := hub.Snapshot{ID: hub.NewID[hub.SnapshotID](), Tenant: tenant, Application: a.ID, Revision: "c0ffee", SourceType: "Directory", CreatedAt: time.Now()}
		if err := tx.PutSnapshots(ctx, []hub.Snapshot{snap}); err != nil {
			return err
		}
		if err := tx.SetTargets(ctx, []hub.TargetChange{{Application: a.ID, Target: snap.ID, Accepted: snap.ID, Revision: "c0ffee", Generation: a.Generation, Refreshed: true}}); err != nil {
			return err
		}
		_, err = tx.PutObservation(ctx, cluster, hub.Observation{Epoch: "e", Seq: 1, Snapshot: 1, Sweep: 1, Applications: []hub.ApplicationObservation{
			{Application: a.ID, Target: snap.ID, Generation: a.Generation, Sync: hub.Synced, Health: hub.Healthy, ComparedAt: time.Now()}}})
		return err
	})
	s := w.DB.System()
	attach := func(session string, at time.Time) {
		err := s.Connected(t.Context(), hub.Attachment{Tenant: tenant, Cluster: cluster, Session: session, Replica: "r", Epoch: session, Instance: "one", Leader: true, At: at})
		if err == nil {
			_, err = s.RenewAttachments(t.Context(), []hub.Heartbeat{{Tenant: tenant, Cluster: cluster, Session: session, At: at}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	get := func() (x shownStatus) {
		t.Helper()
		w.call(admin, "GET", "/api/v1/applications/argocd/web", nil).ok(200).into(&x)
		return x
	}
	listed := func(query string) int {
		t.Helper()
		var list struct{ Items []shownStatus }
		w.call(admin, "GET", "/api/v1/applications"+query, nil).ok(200).into(&list)
		return len(list.Items)
	}
	t.Run("INV-6 without a connection so far every status is Unknown", func(t *testing.T) {
		x := get()
		if x.Status.Sync.Status != "Unknown" || x.Status.Capstan.Stale == nil || x.Status.Capstan.Stale.Reason != "AgentAway" || x.Status.Capstan.Headline.State != "Stale" {
			t.Errorf("it is %+v", x.Status)
		}
	})
	t.Run("INV-6 a status has an age", func(t *testing.T) {
		at := time.Now().Truncate(time.Microsecond)
		attach("s1", at)
		x := get()
		if x.Status.Sync.Status != "Synced" || x.Status.Health.Status != "Healthy" || x.Status.Capstan.Stale != nil || !x.Status.Capstan.AsOf.Equal(at) || x.Status.Capstan.Headline.State != "Healthy" {
			t.Errorf("it is %+v", x.Status)
		}
	})
	t.Run("INV-6 while the agent is disconnected the status is marked as stale, also in lists", func(t *testing.T) {
		if err := s.Disconnected(t.Context(), tenant, cluster, "s1"); err != nil {
			t.Fatal(err)
		}
		x := get()
		if st := x.Status.Capstan.Stale; x.Status.Sync.Status != "Synced" || st == nil || st.Reason != "AgentAway" || st.Sync != "Synced" || st.Since.IsZero() || x.Status.Capstan.Connection != "Disconnected" {
			t.Errorf("it is %+v with %+v", x.Status, st)
		}
		a := w.call(admin, "GET", "/api/v1/applications", nil).ok(200)
		if !strings.Contains(string(a.body), `"stale":{"`) {
			t.Errorf("the list has no mark: %s", a.body)
		}
	})
	t.Run("INV-6 after a minute nothing is Synced or Healthy any more, and filters follow", func(t *testing.T) {
		if _, err := storetest.Connect(t, w.Superuser).Exec(t.Context(), `UPDATE directory.presence SET seen_at = now() - interval '61 seconds', lag_ms = 0`); err != nil {
			t.Fatal(err)
		}
		x := get()
		if st := x.Status.Capstan.Stale; x.Status.Sync.Status != "Unknown" || x.Status.Health.Status != "Unknown" || st == nil || st.Sync != "Synced" || st.Health != "Healthy" ||
			!strings.Contains(x.Status.Health.Message, "prod") {
			t.Errorf("it is %+v with %+v", x.Status, st)
		}
		if listed("?sync=Synced") != 0 || listed("?health=Healthy") != 0 || listed("?sync=Unknown&health=Unknown") != 1 {
			t.Error("the filters find what is shown differently")
		}
	})
	t.Run("INV-6 nothing is confirmed that the agent does not confirm", func(t *testing.T) {
		attach("s2", time.Now())
		if x := get(); x.Status.Sync.Status != "Synced" {
			t.Fatalf("it is %+v", x.Status)
		}
		if p := w.call(admin, "GET", "/api/v1/applications/argocd/web?confirm=true", nil).fails(503); !strings.Contains(p.Message, "prod") {
			t.Errorf("it says %q", p.Message)
		}
	})
}
