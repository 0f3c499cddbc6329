package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
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

// pushOf is the event of a push to a repository.
func pushOf(name string) []byte {
	return fmt.Appendf(nil, `{"ref":"refs/heads/main","repository":{"clone_url":"https://git.example.com/team/%[1]s.git","html_url":"https://git.example.com/team/%[1]s","ssh_url":"git@git.example.com:team/%[1]s.git"}}`, name)
}

// signedBy are the headers of an event; no secret: it has no signature.
func signedBy(secret string, body []byte) http.Header {
	h := http.Header{"X-Github-Event": {"push"}, "Content-Type": {"application/json"}}
	if secret != "" {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write(body)
		h.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	}
	return h
}

func TestWebhookReceiver(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	names := map[hub.TenantID]string{}
	tenants := map[string]hub.TenantID{}
	for _, name := range []string{"first", "acme", "globex", "bare"} {
		tenant := storetest.Tenant(t, db, name)
		names[tenant], tenants[name] = name, tenant
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			for _, repo := range []string{"shared", "of-" + name} {
				if _, err := tx.PutRepository(ctx, hub.Repository{ID: hub.NewID[hub.RepositoryID](), URL: "https://git.example.com/team/" + repo, Type: "git"}, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	put := func(name, key, value string) {
		storetest.In(t, db, tenants[name], func(ctx context.Context, tx *store.Tenant) error {
			if err := tx.LockSettings(ctx); err != nil {
				return err
			}
			return tx.ChangeSettings(ctx, []hub.Setting{{
				Map: hub.SecretMap, Key: key, Value: value, Secret: true, UpdatedAt: time.Now(), UpdatedBy: "ada",
			}}, nil)
		})
	}
	secret := func(name, value string) { put(name, hub.WebhookGitHub, value) }
	secret("acme", "of acme")
	secret("globex", "of globex")
	drain(t, db)
	receiver := func(installation string, unsigned bool) hooks {
		return hooks{
			p:      &parts{db: db, queue: newQueue(db.System(), "replica"), replicas: replicas.New(replicas.Config{}), log: slog.New(slog.DiscardHandler)},
			secret: installation, unsigned: unsigned, gate: make(chan struct{}, verifiers),
		}
	}
	fetched := func(t *testing.T) (who []string) {
		t.Helper()
		for _, item := range drain(t, db) {
			who = append(who, names[item.Tenant])
		}
		slices.Sort(who)
		return who
	}
	for _, c := range []struct {
		name     string
		hub      hooks
		repo     string
		by       string
		want     []string
		accepted bool
	}{
		{"HOOKW-03 a tenant's secret counts for that tenant alone", receiver("of all", false), "shared", "of acme", []string{"acme"}, true},
		{"HOOKW-03 the installation's counts for the first tenant, which has none of its own", receiver("of all", false), "shared", "of all", []string{"first"}, true},
		{"SEC-G2 a secret of one tenant fetches nothing of another", receiver("of all", false), "of-globex", "of acme", nil, false},
		{"SEC-G2 and is answered as if nobody had the repository", receiver("of all", false), "nobody-has-this", "of acme", nil, false},
		{"SEC-I3 the installation's secret is accepted for what others have", receiver("of all", false), "of-globex", "of all", nil, true},
		{"SEC-I3 as for what nobody has", receiver("of all", false), "nobody-has-this", "of all", nil, true},
		{"HOOKW-03 an unsigned event is refused", receiver("of all", false), "shared", "", nil, false},
		{"HOOKW-03 also where the hub has no secret", receiver("", false), "shared", "", nil, false},
		{"HOOKW-03 a signature by no known secret is refused", receiver("of all", false), "shared", "guessed", nil, false},
		{"HOOKW-03 also where unsigned events are allowed, for those who have a secret", receiver("", true), "of-acme", "guessed", nil, true},
		{"HOOKW-03 unsigned events that the operator allows reach tenants without a secret", receiver("of all", true), "shared", "", []string{"bare"}, true},
		{"HOOKW-03 and the first tenant if there is none for it either", receiver("", true), "shared", "", []string{"bare", "first"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := pushOf(c.repo)
			err := c.hub.Receive(t.Context(), signedBy(c.by, body), body)
			if (err == nil) != c.accepted || err != nil && fault.KindOf(err) != fault.Denied {
				t.Errorf("error %v", err)
			}
			if got := fetched(t); !slices.Equal(got, c.want) {
				t.Errorf("%q fetch, want %q", got, c.want)
			}
		})
	}
	t.Run("SEC-I3 INV-7 a sender without a secret gets the same answer for every repository", func(t *testing.T) {
		h := receiver("of all", false)
		answers := map[string]bool{}
		for _, repo := range []string{"shared", "of-acme", "of-bare", "nobody-has-this"} {
			for _, by := range []string{"", "guessed"} {
				body := pushOf(repo)
				answers[fmt.Sprint(h.Receive(t.Context(), signedBy(by, body), body))] = true
			}
		}
		if len(answers) != 1 {
			t.Errorf("%d different answers: %v", len(answers), answers)
		}
	})
	t.Run("HOOKW-03 a secret of its own replaces that of the installation", func(t *testing.T) {
		secret("first", "of first")
		h := receiver("of all", false)
		for by, want := range map[string][]string{"of all": nil, "of first": {"first"}} {
			body := pushOf("shared")
			if err := h.Receive(t.Context(), signedBy(by, body), body); err != nil {
				t.Error(err)
			}
			if got := fetched(t); !slices.Equal(got, want) {
				t.Errorf("signed with %q: %q fetch, want %q", by, got, want)
			}
		}
	})
	t.Run("HOOKW-03 each kind of sender has a key of its own, and a tenant with one accepts no unsigned events of others", func(t *testing.T) {
		put("globex", hub.WebhookGitLab, "token of globex")
		put("acme", hub.WebhookAzureUser, "ada")
		put("acme", hub.WebhookAzurePassword, "pass of acme")
		gitlab := []byte(`{"object_kind":"push","project":{"git_http_url":"https://git.example.com/team/shared.git"}}`)
		azure := []byte(`{"eventType":"git.push","resource":{"repository":{"remoteUrl":"https://git.example.com/team/shared"}}}`)
		byToken := func(token string) http.Header {
			h := http.Header{"X-Gitlab-Event": {"Push Hook"}, "Content-Type": {"application/json"}}
			if token != "" {
				h.Set("X-Gitlab-Token", token)
			}
			return h
		}
		byPassword := func(user, password string) http.Header {
			r := &http.Request{Header: http.Header{"X-Vss-Activityid": {"1"}, "Content-Type": {"application/json"}}}
			r.SetBasicAuth(user, password)
			return r.Header
		}
		for name, c := range map[string]struct {
			header   http.Header
			body     []byte
			unsigned bool
			want     []string
		}{
			"GitLab's token":                          {byToken("token of globex"), gitlab, false, []string{"globex"}},
			"GitHub's secret as GitLab's token":       {byToken("of acme"), gitlab, false, nil},
			"Azure's password":                        {byPassword("ada", "pass of acme"), azure, false, []string{"acme"}},
			"Azure's password with another user":      {byPassword("eve", "pass of acme"), azure, false, nil},
			"the installation's, which is GitHub's":   {byToken("of all"), gitlab, false, nil},
			"none, which the operator has allowed":    {byToken(""), gitlab, true, []string{"bare"}},
			"a guess, which the operator has allowed": {byToken("guess"), gitlab, true, []string{"bare"}},
		} {
			if err := receiver("of all", c.unsigned).Receive(t.Context(), c.header, c.body); (err == nil) != (len(c.want) > 0) || err != nil && fault.KindOf(err) != fault.Denied {
				t.Errorf("%s: %v", name, err)
			}
			if got := fetched(t); !slices.Equal(got, c.want) {
				t.Errorf("%s: %q fetch, want %q", name, got, c.want)
			}
		}
	})
	t.Run("HOOKW-02 an event that cannot be read is refused", func(t *testing.T) {
		bad := []byte(`{`)
		if err := receiver("of all", false).Receive(t.Context(), signedBy("of all", bad), bad); fault.KindOf(err) != fault.Invalid {
			t.Error(err)
		}
	})
}
