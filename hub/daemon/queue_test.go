package daemon

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

func TestQueue(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	tenant := storetest.Tenant(t, db, "acme")
	q := newQueue(db.System(), "replica")
	enqueue := func(kind, key string) {
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			return tx.Enqueue(ctx, kind, key, time.Now(), false)
		})
	}
	t.Run("available work is claimed at once, only of its kind", func(t *testing.T) {
		key := string(hub.NewID[hub.OperationID]())
		enqueue(hub.WorkRetry, key)
		enqueue(hub.WorkOutcome, key)
		items, err := q.Claim(t.Context(), hub.WorkRetry, 10)
		if err != nil || len(items) != 1 || items[0].Kind != hub.WorkRetry || items[0].Key != key || items[0].Tenant != tenant {
			t.Fatalf("%+v, %v", items, err)
		}
		if err := q.Done(t.Context(), items); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a claim waits for work, and a notification ends the wait", func(t *testing.T) {
		got := make(chan []hub.WorkItem, 1)
		go func() {
			items, _ := q.Claim(t.Context(), hub.WorkRefresh, 10)
			got <- items
		}()
		enqueue(hub.WorkRefresh, string(hub.NewID[hub.ApplicationID]()))
		q.all()
		if items := <-got; len(items) != 1 {
			t.Errorf("%+v", items)
		}
	})
	t.Run("INV-1 work that is released for later is claimed again", func(t *testing.T) {
		key := string(hub.NewID[hub.OperationID]())
		enqueue(hub.WorkRetry, key)
		items, err := q.Claim(t.Context(), hub.WorkRetry, 10)
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Later(t.Context(), items, time.Now()); err != nil {
			t.Fatal(err)
		}
		if items, err = q.Claim(t.Context(), hub.WorkRetry, 10); err != nil || len(items) != 1 || items[0].Key != key || items[0].Attempts != 1 {
			t.Errorf("%+v, %v", items, err)
		}
	})
	t.Run("notifications never block, and a claim ends with its context", func(t *testing.T) {
		for range 100 {
			q.notify(hub.WorkFetch, "unknown kind")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if items, err := q.Claim(ctx, hub.WorkFetch, 1); len(items) != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v", items, err)
		}
	})
}

// drain takes all fetches that are due.
func drain(t *testing.T, db *store.DB) []hub.WorkItem {
	t.Helper()
	items, err := db.System().Claim(t.Context(), hub.WorkFetch, "test", 100, time.Minute)
	if err == nil && len(items) > 0 {
		err = db.System().Done(t.Context(), items)
	}
	if err != nil {
		t.Fatal(err)
	}
	return items
}

func TestPushed(t *testing.T) {
	t.Parallel()
	const acme = hub.TenantID("018f3c6e-0000-7000-8000-000000000001")
	const shop, web = hub.RepositoryID("018f3c6e-0000-7000-8000-000000000002"), hub.RepositoryID("018f3c6e-0000-7000-8000-000000000003")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	main := hub.Pushed{Ref: "refs/heads/main", Commit: "a", At: at}
	newer := hub.Pushed{Ref: "refs/heads/main", Commit: "b", At: at}
	tag := hub.Pushed{Ref: "refs/tags/v1", Commit: "c", At: at}
	take := func(q *queue, kind string, id hub.RepositoryID) hub.Pushed {
		items := []hub.WorkItem{{Kind: kind, Tenant: acme, Key: string(id), Token: 1}}
		q.noteLeased(items)
		return items[0].Pushed
	}
	cases := map[string]struct {
		reported []hub.Pushed
		among    []string
		want     hub.Pushed
	}{
		"nothing was pushed":                             {},
		"one branch":                                     {reported: []hub.Pushed{main}, want: main},
		"the same event twice":                           {reported: []hub.Pushed{main, main}, want: main},
		"one branch twice":                               {reported: []hub.Pushed{main, newer}, want: newer},
		"of several all is listed":                       {reported: []hub.Pushed{main, tag}, want: hub.Pushed{At: at}},
		"and also if the first one comes again":          {reported: []hub.Pushed{main, tag, main}, want: hub.Pushed{At: at}},
		"an event that names nothing has all listed":     {reported: []hub.Pushed{main, {At: at}}, want: hub.Pushed{At: at}},
		"this replica alone":                             {reported: []hub.Pushed{main}, among: []string{"a"}, want: main},
		"another replica may have heard of another push": {reported: []hub.Pushed{main}, among: []string{"a", "b"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(nil, "test")
			q.among = func() []string { return c.among }
			for _, p := range c.reported {
				q.pushed(acme, shop, p)
			}
			if got := take(q, hub.WorkFetch, web); got != (hub.Pushed{}) {
				t.Errorf("another repository has %+v", got)
			}
			if got := take(q, hub.WorkRefresh, shop); got != (hub.Pushed{}) {
				t.Errorf("other work has %+v", got)
			}
			if got := take(q, hub.WorkFetch, shop); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			if got := take(q, hub.WorkFetch, shop); got != (hub.Pushed{}) {
				t.Errorf("the next fetch has %+v", got)
			}
		})
	}
}
