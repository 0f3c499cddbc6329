package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/replicas"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// pullOf is the event of a new pull request of a repository.
func pullOf(name string) []byte {
	return fmt.Appendf(nil, `{"action":"opened","number":3,"repository":{"clone_url":"https://git.example.com/%[1]s.git","html_url":"https://git.example.com/%[1]s"}}`, name)
}

// TestWebhooksOfSets has events wake sets that list what is there. No tenant has
// the repositories.
func TestWebhooksOfSets(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	names, tenants := map[string]string{}, map[string]hub.TenantID{} // names of sets by id
	for tenant, sets := range map[string]map[string][]string{
		"acme":   {"previews": {"git.example.com/team/shop"}, "fleet": {"git.example.com/team/"}, "elsewhere": {"git.example.com/other/"}},
		"globex": {"theirs": {"git.example.com/team/shop"}},
	} {
		id := storetest.Tenant(t, db, tenant)
		tenants[tenant] = id
		storetest.In(t, db, id, func(ctx context.Context, tx *store.Tenant) error {
			for name, places := range sets {
				s, err := tx.CreateApplicationSet(ctx, hub.ApplicationSet{Meta: hub.Meta{Name: name, Namespace: "argocd", CreatedAt: time.Now()}, Project: "default", Spec: json.RawMessage("{}")}, nil)
				if err != nil {
					return err
				}
				names[string(s.ID)] = name
				if err := tx.PutSetPlaces(ctx, s.ID, append(places, "git.example.com/former/")); err != nil {
					return err
				}
				if err := tx.PutSetPlaces(ctx, s.ID, places); err != nil {
					return err
				}
			}
			if err := tx.LockSettings(ctx); err != nil {
				return err
			}
			return tx.ChangeSettings(ctx, []hub.Setting{{Map: hub.SecretMap, Key: hub.WebhookGitHub, Value: "of " + tenant, Secret: true, UpdatedAt: time.Now(), UpdatedBy: "ada"}}, nil)
		})
	}
	woken := func(t *testing.T) (out []string) {
		t.Helper()
		items, err := db.System().Claim(t.Context(), hub.WorkApplicationSet, "test", 100, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			out = append(out, fmt.Sprintf("%s %t", names[item.Key], item.Forced))
		}
		if err := db.System().Done(t.Context(), items); err != nil {
			t.Fatal(err)
		}
		slices.Sort(out)
		return out
	}
	woken(t) // as new ones
	h := hooks{
		p:    &parts{db: db, queue: newQueue(db.System(), "replica"), replicas: replicas.New(replicas.Config{}), log: slog.New(slog.DiscardHandler)},
		gate: make(chan struct{}, verifiers), rate: newEventRate(),
	}
	pulled := func(secret string, body []byte) http.Header {
		header := signedBy(secret, body)
		header.Set("X-Github-Event", "pull_request")
		return header
	}
	for _, c := range []struct {
		name, repo, by string
		want           []string
		accepted       bool
	}{
		{"AGEN-17 an event about a pull request wakes the sets that list it or its organisation", "Team/Shop", "of acme", []string{"fleet true", "previews true"}, true},
		{"AGEN-17 also where only the organisation is listed", "Team/new", "of acme", []string{"fleet true"}, true},
		{"SEC-G2 a secret of one tenant wakes no set of another", "Team/Shop", "of globex", []string{"theirs true"}, true},
		{"HOOKW-03 a signature by no known secret wakes nothing", "Team/Shop", "guessed", nil, false},
		{"AGEN-17 a repository that no set lists wakes nothing", "Former/app", "of acme", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := pullOf(c.repo)
			err := h.Receive(t.Context(), pulled(c.by, body), body)
			if (err == nil) != c.accepted || err != nil && fault.KindOf(err) != fault.Denied {
				t.Errorf("error %v", err)
			}
			if got := woken(t); !slices.Equal(got, c.want) {
				t.Errorf("%q are woken, want %q", got, c.want)
			}
			if got := drain(t, db); len(got) > 0 {
				t.Errorf("%v is fetched", got)
			}
		})
	}
	t.Run("AGEN-17 a push wakes them after a minute, however many follow", func(t *testing.T) {
		for range 5 {
			body := pushOf("shop")
			if err := h.Receive(t.Context(), signedBy("of acme", body), body); err != nil {
				t.Fatal(err)
			}
		}
		if got := woken(t); len(got) > 0 {
			t.Errorf("%q are woken at once", got)
		}
	})
	t.Run("AGEN-17 a deleted set is not found any more", func(t *testing.T) {
		for id, name := range names {
			if name != "theirs" {
				continue
			}
			storetest.In(t, db, tenants["globex"], func(ctx context.Context, tx *store.Tenant) error {
				return tx.RemoveApplicationSet(ctx, hub.ApplicationSetID(id))
			})
		}
		body := pullOf("team/shop")
		if err := h.Receive(t.Context(), pulled("of globex", body), body); fault.KindOf(err) != fault.Denied {
			t.Error(err)
		}
	})
}
