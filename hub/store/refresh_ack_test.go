package store_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

func TestAcknowledgeRefresh(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w := build(t, db, "acme", "acme")
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		a := must[hub.Application](t)(tx.ApplicationByID(ctx, w.app.ID))
		a.Annotations = map[string]string{"argocd.argoproj.io/refresh": "hard", "argocd.argoproj.io/refresh-timestamp": "2026-01-01T00:00:00.1Z", "team": "shop"}
		a = must[hub.Application](t)(tx.UpdateApplication(ctx, a, 0))
		check(t, tx.AcknowledgeRefresh(ctx, []hub.RefreshAck{{Application: a.ID, Version: a.Version - 1}, {Application: "no id", Version: 1}}))
		if now := must[hub.Application](t)(tx.ApplicationByID(ctx, a.ID)); now.Version != a.Version || len(now.Annotations) != 3 {
			t.Errorf("APP-22 a look at an older version took the annotation away: %v", now.Annotations)
		}
		check(t, tx.AcknowledgeRefresh(ctx, []hub.RefreshAck{{Application: a.ID, Version: a.Version}}))
		now := must[hub.Application](t)(tx.ApplicationByID(ctx, a.ID))
		if diff := cmp.Diff(map[string]string{"team": "shop"}, now.Annotations); diff != "" || now.Version != a.Version+1 || now.Generation != a.Generation {
			t.Errorf("APP-22 version %d, generation %d, annotations (-want +got):\n%s", now.Version-a.Version, now.Generation-a.Generation, diff)
		}
		return nil
	})
}

func TestUnreachableRepository(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w := build(t, db, "acme", "acme")
	gotText := func() string {
		var out []string
		for _, c := range status(t, db, w).Status.Conditions {
			if c.Type == hub.ComparisonError && strings.Contains(c.Message, "host is away") {
				out = append(out, c.Message)
			}
		}
		return strings.Join(out, "; ")
	}
	fail := func(at time.Time) {
		t.Helper()
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			must[bool](t)(tx.Fetched(ctx, w.repository.ID, nil, at, "the host is away", false))
			return nil
		})
	}
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		a := newApp("away", w.repository.URL, w.cluster.ID)
		w.app = must[hub.Application](t)(tx.CreateApplication(ctx, a))
		return nil
	})
	t.Run("CMPR-04 for a while only the repository shows it", func(t *testing.T) {
		fail(now().Add(-time.Minute))
		if got := gotText(); got != "" {
			t.Errorf("it says %q", got)
		}
	})
	t.Run("CMPR-04 after that its applications show it, and their objects stay", func(t *testing.T) {
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			must[bool](t)(tx.Fetched(ctx, w.repository.ID, []hub.Ref{{Name: "refs/heads/main", Commit: "c0ffee"}}, now(), "", false))
			return nil
		})
		before := status(t, db, w).Status
		fail(now().Add(-hub.ErrorGrace - time.Minute))
		fail(now())
		after := status(t, db, w).Status
		if gotText() != "the host is away" || after.Target != before.Target || after.Sync != before.Sync {
			t.Errorf("it says %q, status %+v", gotText(), after)
		}
		since := slices.IndexFunc(after.Conditions, func(c hub.Condition) bool { return c.Message == "the host is away" })
		if !after.Conditions[since].Since.Before(now().Add(-hub.ErrorGrace)) {
			t.Errorf("since %v", after.Conditions[since].Since)
		}
	})
	t.Run("CMPR-04 after recovery the condition is removed", func(t *testing.T) {
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			must[bool](t)(tx.Fetched(ctx, w.repository.ID, []hub.Ref{{Name: "refs/heads/main", Commit: "c0ffee"}}, now(), "", false))
			return nil
		})
		fail(now())
		if got := gotText(); got != "" {
			t.Errorf("it says %q", got)
		}
	})
}
