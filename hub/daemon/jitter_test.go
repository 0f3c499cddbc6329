package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// A change of a repository refreshes its applications at once, or spread over
// the time that the tenant has set.
func TestRefreshesOfOneChange(t *testing.T) {
	t.Parallel()
	const url = "https://git.example.com/team/mono"
	for name, c := range map[string]struct {
		apps   int
		jitter string
		asked  bool
		now    bool
	}{
		"HOOKW-07 without jitter all are refreshed at once":                       {12, "", false, true},
		"HOOKW-07 with jitter, those of a repository of many are spread":          {12, "1h", false, false},
		"HOOKW-07 those of a repository up to the threshold are not":              {10, "1h", false, true},
		"HOOKW-07 nor are those of a fetch that a person has asked for":           {12, "1h", true, true},
		"HOOKW-07 what cannot be understood, and an older release stored, is off": {12, "soon", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.Open(t)
			tenant := storetest.Tenant(t, db, "acme")
			storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
				for i := range c.apps {
					a := hub.Application{Meta: hub.Meta{Namespace: "argocd", Name: fmt.Sprintf("app-%d", i)}, Project: "default", Spec: fmt.Appendf(nil,
						`{"project":"default","source":{"repoURL":%q,"path":"x"},"destination":{"name":"prod","namespace":"shop"}}`, url)}
					if _, err := tx.CreateApplication(ctx, a); err != nil {
						return err
					}
				}
				if err := tx.LockSettings(ctx); err != nil {
					return err
				}
				return tx.ChangeSettings(ctx, []hub.Setting{{Map: hub.SettingsMap, Key: "webhook.refresh.jitter", Value: c.jitter, UpdatedAt: time.Now(), UpdatedBy: "ada"}}, nil)
			})
			q := newQueue(db.System(), "replica")
			claim := func(kind string) []hub.WorkItem {
				t.Helper()
				items, err := db.System().Claim(t.Context(), kind, "test", 100, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				return items
			}
			if err := db.System().Done(t.Context(), claim(hub.WorkRefresh)); err != nil { // what is new is refreshed anyhow
				t.Fatal(err)
			}
			fetch := claim(hub.WorkFetch)
			if len(fetch) != 1 {
				t.Fatalf("%d fetches are due", len(fetch))
			}
			fetch[0].Forced = c.asked
			refs := []hub.Ref{{Name: "refs/heads/main", Commit: "89abcdef0123456789abcdef0123456789abcdef"}}
			if err := newFetchWork(q, db, slog.New(slog.DiscardHandler)).Fetched(t.Context(), fetch[0], refs, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			switch due := len(claim(hub.WorkRefresh)); {
			case c.now && due != c.apps:
				t.Errorf("%d of %d are refreshed at once", due, c.apps)
			case !c.now && due > c.apps/3: // one in some thousand runs has even one
				t.Errorf("%d of %d are refreshed at once, and should be spread over an hour", due, c.apps)
			}
			all, err := db.System().Depth(t.Context(), hub.WorkRefresh)
			if err != nil || all != 0 {
				t.Errorf("%d are due besides, %v", all, err)
			}
		})
	}
}
