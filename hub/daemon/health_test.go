package daemon

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/telemetry"
)

func TestStopping(t *testing.T) {
	t.Run("FT-H2 a replica that stops fails its probes and redirects clients", func(t *testing.T) {
		p := &parts{observers: observers{health: telemetry.NewHealth()}}
		p.health.Ready("replica", p.wanted)
		if err := p.health.Readiness(t.Context()); err != nil {
			t.Errorf("not ready: %v", err)
		}
		p.stopping.Store(true)
		if err := p.health.Readiness(t.Context()); err == nil || !strings.Contains(err.Error(), "about to stop") {
			t.Errorf("ready: %v", err)
		}
		w := httptest.NewRecorder()
		p.leaving(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/me", nil))
		if w.Header().Get("Connection") != "close" {
			t.Error("the connection is kept")
		}
	})
}

// longRenewals are those of a store, at first for so long that a replica which
// is slow to renew a lease again does not lose it. Each is told.
type longRenewals struct {
	renewer
	short    atomic.Bool
	reported chan renewal
}

type renewal struct {
	count int
	long  bool
}

func (r *longRenewals) Renew(ctx context.Context, items []hub.WorkItem, lease time.Duration) (int, error) {
	long := !r.short.Load()
	if long {
		lease = time.Hour
	}
	n, err := r.renewer.Renew(ctx, items, lease)
	r.reported <- renewal{n, long}
	return n, err
}

func TestSharedWork(t *testing.T) {
	t.Parallel()
	db := storetest.OpenPatient(t)
	tenant := storetest.Tenant(t, db, "acme")
	t.Run("INV-4 a lease lasts as long as the work, and ends with the replica", func(t *testing.T) {
		key := string(hub.NewID[hub.OperationID]())
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			return tx.Enqueue(ctx, hub.WorkRetry, key, time.Now(), false)
		})
		q, other := newQueue(db.System(), "a"), newQueue(db.System(), "b")
		q.leases.lease = 300 * time.Millisecond
		ctx, stop := context.WithCancel(t.Context())
		ended, renewals := make(chan struct{}), &longRenewals{renewer: db.System(), reported: make(chan renewal, 1000)}
		go func() {
			defer close(ended)
			_ = q.leases.renew(ctx, renewals, slog.New(slog.DiscardHandler))
		}()
		items, err := q.Claim(ctx, hub.WorkRetry, 1)
		if err != nil || len(items) != 1 {
			t.Fatal(items, err)
		}
		if r := <-renewals.reported; r.count != 1 {
			t.Fatalf("%d leases were renewed", r.count)
		}
		brief, cancel := context.WithTimeout(ctx, queuePoll*3/2) // it looks again when the lease would have ended
		defer cancel()
		if got, _ := other.Claim(brief, hub.WorkRetry, 1); len(got) != 0 {
			t.Errorf("another replica was given %v", got)
		}
		for renewals.short.Store(true); (<-renewals.reported).long; {
			continue
		}
		stop()
		<-ended
		got, err := other.Claim(t.Context(), hub.WorkRetry, 1)
		if err != nil || len(got) != 1 || got[0].Key != key {
			t.Errorf("after it ended: %v, %v", got, err)
		}
	})
	t.Run("FT-H2 a replica that stops claims nothing", func(t *testing.T) {
		q := newQueue(db.System(), "a")
		q.closed = func() bool { return true }
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			return tx.Enqueue(ctx, hub.WorkOutcome, string(hub.NewID[hub.OperationID]()), time.Now(), false)
		})
		if got, err := q.claim(t.Context(), hub.WorkOutcome, 1, nil); len(got) != 0 || err != nil {
			t.Errorf("%v, %v", got, err)
		}
	})
	t.Run("replicas share repositories", func(t *testing.T) {
		one, two := newQueue(db.System(), "one"), newQueue(db.System(), "two")
		one.among = func() []string { return []string{"one", "two"} }
		two.among = one.among
		for range 20 {
			if err := db.System().Enqueue(t.Context(), hub.WorkFetch, tenant, string(hub.NewID[hub.RepositoryID]()), time.Now(), false); err != nil {
				t.Fatal(err)
			}
		}
		a, err := one.claim(t.Context(), hub.WorkFetch, 100, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := two.claim(t.Context(), hub.WorkFetch, 100, nil)
		if err != nil || len(a)+len(b) != 20 || len(a) == 0 || len(b) == 0 {
			t.Errorf("%d and %d of 20, %v", len(a), len(b), err)
		}
	})
}
