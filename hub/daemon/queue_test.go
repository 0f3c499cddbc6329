package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/replicas"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
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
	t.Run("work that is there is given at once, of its kind alone", func(t *testing.T) {
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
	t.Run("a claim waits for work, and a hint ends the wait", func(t *testing.T) {
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
	t.Run("INV-1 work that is given back for later comes again", func(t *testing.T) {
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
	t.Run("hints never block, and a claim ends with its context", func(t *testing.T) {
		for range 100 {
			q.hint(hub.WorkFetch, "unknown kind")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if items, err := q.Claim(ctx, hub.WorkFetch, 1); len(items) != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v", items, err)
		}
	})
}

func TestWebhookReceiver(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	const url = "https://git.example.com/team/shop"
	for _, name := range []string{"acme", "globex", "initech"} {
		tenant := storetest.Tenant(t, db, name)
		if name == "initech" {
			continue // does not use the repository
		}
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.PutRepository(ctx, hub.Repository{ID: hub.NewID[hub.RepositoryID](), URL: url, Type: "git"}, nil)
			return err
		})
	}
	drain(t, db)
	h := hooks{&parts{db: db, queue: newQueue(db.System(), "replica"), replicas: replicas.New(replicas.Config{})}, "s3cret"}
	body := []byte(`{"ref":"refs/heads/main","repository":{"clone_url":"https://git.example.com/team/shop.git","html_url":"https://git.example.com/team/shop","ssh_url":"git@git.example.com:team/shop.git"}}`)
	header := func(secret string, body []byte) http.Header {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write(body)
		return http.Header{"X-Github-Event": {"push"}, "Content-Type": {"application/json"}, "X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(mac.Sum(nil))}}
	}
	t.Run("HOOKW-03 an event without the right signature fetches nothing", func(t *testing.T) {
		for _, bad := range []http.Header{header("other", body), header("s3cret", []byte("{}")), {"X-Github-Event": {"push"}, "Content-Type": {"application/json"}}} {
			if n, err := h.Receive(t.Context(), bad, body); n != 0 || fault.KindOf(err) != fault.Denied {
				t.Errorf("%d, %v", n, err)
			}
		}
		if items := drain(t, db); len(items) != 0 {
			t.Errorf("due: %v", items)
		}
	})
	t.Run("HOOKW-02 every tenant that uses the repository fetches it, once", func(t *testing.T) {
		n, err := h.Receive(t.Context(), header("s3cret", body), body)
		if items := drain(t, db); err != nil || n != 2 || len(items) != 2 || items[0].Tenant == items[1].Tenant {
			t.Errorf("%d, %v, due %v", n, err, items)
		}
	})
	t.Run("HOOKW-02 a repository that nobody uses is nobody's work", func(t *testing.T) {
		other := []byte(`{"repository":{"clone_url":"https://git.example.com/team/other.git"}}`)
		if n, err := h.Receive(t.Context(), header("s3cret", other), other); n != 0 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
	t.Run("HOOKW-02 an event that cannot be read is refused", func(t *testing.T) {
		bad := []byte(`{`)
		if n, err := h.Receive(t.Context(), header("s3cret", bad), bad); n != 0 || fault.KindOf(err) != fault.Invalid {
			t.Errorf("%d, %v", n, err)
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
