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
			secret: installation, unsigned: unsigned, gate: make(chan struct{}, verifiers), rate: newEventRate(),
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
	t.Run("HOOKW-03 HOOKW-08 a pushed tag has the repository of its artifact fetched, for the tenant whose secret is with it", func(t *testing.T) {
		charts := map[string]hub.RepositoryID{}
		for name, url := range map[string]string{"acme": "oci://registry.example.com/team/app", "globex": "oci://registry.example.com:5000/team", "bare": "oci://registry.example.com/team/application"} {
			storetest.In(t, db, tenants[name], func(ctx context.Context, tx *store.Tenant) error {
				r, err := tx.PutRepository(ctx, hub.Repository{ID: hub.NewID[hub.RepositoryID](), URL: url, Type: hub.OCIRepository, Registered: true}, nil)
				charts[name] = r.ID
				return err
			})
		}
		put("acme", hub.WebhookHarbor, "harbor of acme")
		put("globex", hub.WebhookRegistry, "registry of globex")
		drain(t, db)
		harbor := []byte(`{"type":"PUSH_ARTIFACT","event_data":{"resources":[{"tag":"2","resource_url":"registry.example.com/team/app:2"}]}}`)
		notification := []byte(`{"events":[{"action":"push","target":{"repository":"team/app","tag":"2"},"request":{"host":"registry.example.com"}}]}`)
		by := func(value string) http.Header {
			return http.Header{"Content-Type": {"application/json"}, "Authorization": {value}}
		}
		for name, c := range map[string]struct {
			header http.Header
			body   []byte
			want   []string
		}{
			"Harbor":                           {by("harbor of acme"), harbor, []string{"acme"}},
			"another registry":                 {by("Bearer registry of globex"), notification, []string{"globex"}},
			"Harbor's value of another tenant": {by("registry of globex"), harbor, nil},
			"the value of another kind":        {by("harbor of acme"), notification, nil},
			"a guess":                          {by("guess"), harbor, nil},
			"GitHub's secret":                  {by("of acme"), harbor, nil},
		} {
			if err := receiver("of all", false).Receive(t.Context(), c.header, c.body); (err == nil) != (len(c.want) > 0) || err != nil && fault.KindOf(err) != fault.Denied {
				t.Errorf("%s: %v", name, err)
			}
			var got []string
			for _, item := range drain(t, db) {
				if who := names[item.Tenant]; hub.RepositoryID(item.Key) == charts[who] {
					got = append(got, who)
				} else {
					t.Errorf("%s: another repository of %s is fetched", name, who)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: %q fetch, want %q", name, got, c.want)
			}
		}
	})
	t.Run("HOOKW-03 a repository's own secret replaces all others of its tenant, whoever sends the event", func(t *testing.T) {
		var shared hub.RepositoryID
		storetest.In(t, db, tenants["acme"], func(ctx context.Context, tx *store.Tenant) error {
			r, err := tx.RepositoryByURL(ctx, "https://git.example.com/team/shared")
			shared = r.ID
			return err
		})
		put("acme", hub.WebhookRepository+string(shared), "of shared alone")
		gitlab := func(repo string) []byte {
			return fmt.Appendf(nil, `{"object_kind":"push","project":{"git_http_url":"https://git.example.com/team/%s.git"}}`, repo)
		}
		token := func(token string) http.Header {
			return http.Header{"X-Gitlab-Event": {"Push Hook"}, "X-Gitlab-Token": {token}, "Content-Type": {"application/json"}}
		}
		azure := func(user string) http.Header {
			r := &http.Request{Header: http.Header{"X-Vss-Activityid": {"1"}, "Content-Type": {"application/json"}}}
			r.SetBasicAuth(user, "of shared alone")
			return r.Header
		}
		pushed := []byte(`{"eventType":"git.push","resource":{"repository":{"remoteUrl":"https://git.example.com/team/shared"}}}`)
		for name, c := range map[string]struct {
			header http.Header
			body   []byte
			want   []string
		}{
			"its own, by GitHub":                          {signedBy("of shared alone", pushOf("shared")), pushOf("shared"), []string{"acme"}},
			"its own, by GitLab":                          {token("of shared alone"), gitlab("shared"), []string{"acme"}},
			"its own, by Azure DevOps":                    {azure("ada"), pushed, []string{"acme"}},
			"its own, by Azure DevOps with another user":  {azure("eve"), pushed, nil},
			"that of its tenant":                          {signedBy("of acme", pushOf("shared")), pushOf("shared"), nil},
			"its own, for another repository of acme":     {signedBy("of shared alone", pushOf("of-acme")), pushOf("of-acme"), nil},
			"that of the tenant for its other repository": {signedBy("of acme", pushOf("of-acme")), pushOf("of-acme"), []string{"acme"}},
			"an empty one":                                {signedBy("", pushOf("shared")), pushOf("shared"), nil},
		} {
			if err := receiver("", false).Receive(t.Context(), c.header, c.body); (err == nil) != (len(c.want) > 0) || err != nil && fault.KindOf(err) != fault.Denied {
				t.Errorf("%s: %v", name, err)
			}
			if got := fetched(t); !slices.Equal(got, c.want) {
				t.Errorf("%s: %q fetch, want %q", name, got, c.want)
			}
		}
		var own hub.RepositoryID
		storetest.In(t, db, tenants["bare"], func(ctx context.Context, tx *store.Tenant) error {
			r, err := tx.RepositoryByURL(ctx, "https://git.example.com/team/of-bare")
			own = r.ID
			return err
		})
		put("bare", hub.WebhookRepository+string(own), "of one repository")
		for repo, want := range map[string][]string{"of-bare": nil, "shared": {"bare"}} {
			if err := receiver("", true).Receive(t.Context(), signedBy("", pushOf(repo)), pushOf(repo)); err != nil {
				t.Error(err)
			}
			if got := fetched(t); !slices.Equal(got, want) {
				t.Errorf("unsigned events that the operator allows for %s: %q fetch, want %q", repo, got, want)
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

// A Git host that repeats an event, or a burst of pushes, costs few fetches.
func TestBurstOfEvents(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	tenant := storetest.Tenant(t, db, "acme")
	storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
		for _, name := range []string{"busy", "calm"} {
			if _, err := tx.PutRepository(ctx, hub.Repository{ID: hub.NewID[hub.RepositoryID](), URL: "https://git.example.com/team/" + name, Type: "git"}, nil); err != nil {
				return err
			}
		}
		return nil
	})
	drain(t, db)
	h := hooks{
		p:        &parts{db: db, queue: newQueue(db.System(), "replica"), replicas: replicas.New(replicas.Config{}), log: slog.New(slog.DiscardHandler)},
		unsigned: true, gate: make(chan struct{}, verifiers), rate: newEventRate(),
	}
	receive := func(name string) {
		t.Helper()
		body := pushOf(name)
		if err := h.Receive(t.Context(), signedBy("", body), body); err != nil {
			t.Fatal(err)
		}
	}
	const events = 10 * pushBurst
	t.Run("HOOKW-07 FT-G4 events that come before the fetch are one fetch", func(t *testing.T) {
		for range pushBurst / 2 {
			receive("busy")
		}
		if got := len(drain(t, db)); got != 1 {
			t.Errorf("%d fetches, want 1", got)
		}
	})
	t.Run("HOOKW-07 FT-G4 events that come as fast as fetches end cost a bounded number of fetches", func(t *testing.T) {
		begin, fetches := time.Now(), 0
		for range events {
			receive("busy")
			fetches += len(drain(t, db))
		}
		// Each gap adds one to the burst, and what waits for its gap one more.
		if most := pushBurst + 2*(int(time.Since(begin)/pushGap)+1); fetches == 0 || fetches > most {
			t.Errorf("%d events cost %d fetches, want at most %d", events, fetches, most)
		}
	})
	t.Run("HOOKW-07 other repositories do not wait for them", func(t *testing.T) {
		receive("calm")
		if got := len(drain(t, db)); got != 1 {
			t.Errorf("%d fetches, want 1", got)
		}
	})
	t.Run("FT-G4 the last event of a burst is not lost", func(t *testing.T) {
		receive("busy")
		for deadline := time.Now().Add(time.Minute); len(drain(t, db)) == 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the repository is not fetched any more")
			}
		}
	})
	t.Run("an unlimited number of repositories is not remembered", func(t *testing.T) {
		p := newEventRate()
		for range maxPaced + 1 {
			p.wait(hub.NewID[hub.RepositoryID](), time.Now())
		}
		if len(p.each) > maxPaced {
			t.Errorf("%d are remembered", len(p.each))
		}
	})
}
