package store_test

import (
	"context"
	neturl "net/url"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

func TestHostKeys(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	tenant, other := storetest.Tenant(t, db, "acme"), storetest.Tenant(t, db, "bolt")
	storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
		check(t, tx.PutHostKeys(ctx, []hub.HostKey{{Host: "a", Type: "ssh-rsa", Key: "AAAA"}, {Host: "a", Type: "ssh-ed25519", Key: "BBBB"}}))
		check(t, tx.PutHostKeys(ctx, []hub.HostKey{{Host: "a", Type: "ssh-rsa", Key: "CCCC"}, {Host: "b", Type: "ssh-rsa", Key: "DDDD"}}))
		return nil
	})
	lines := func(tenant hub.TenantID) (out []string) {
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			for _, k := range must[[]hub.HostKey](t)(tx.HostKeys(ctx)) {
				out = append(out, k.Line())
			}
			return nil
		})
		return out
	}
	if got := lines(tenant); !slices.Equal(got, []string{"a ssh-ed25519 BBBB", "a ssh-rsa CCCC", "b ssh-rsa DDDD"}) {
		t.Errorf("CRED-18 a key takes the place of the one of its host and type: %q", got)
	}
	if got := lines(other); got != nil {
		t.Errorf("ISO-6 another tenant trusts %q", got)
	}
	storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
		check(t, tx.DeleteHostKeys(ctx, "a", "ssh-rsa"))
		check(t, tx.DeleteHostKeys(ctx, "b", ""))
		return nil
	})
	if got := lines(tenant); !slices.Equal(got, []string{"a ssh-ed25519 BBBB"}) {
		t.Errorf("after deletion: %q", got)
	}
}

// A webhook names one address of a repository; it may be known under another,
// and to several tenants.
func TestWebhookTargets(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	log := &queries{}
	check(t, store.TraceSystem(t.Context(), db, log))
	tenant, other := storetest.Tenant(t, db, "acme"), storetest.Tenant(t, db, "other")
	put := func(tenant hub.TenantID, url string) (id hub.RepositoryID) {
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			id = must[hub.Repository](t)(tx.PutRepository(ctx, hub.Repository{URL: url}, nil)).ID
			return nil
		})
		return id
	}
	at := func(url string) (found []string) {
		t.Helper()
		targets := must[[]store.WebhookTarget](t)(db.System().WebhookTargets(t.Context(), []string{repourl.Place(url), repourl.Place(url)}, nil))
		check(t, db.System().FetchTargets(t.Context(), targets, func(tenant hub.TenantID, id hub.RepositoryID) {
			found = append(found, string(tenant)+" "+string(id))
		}))
		slices.Sort(found)
		return found
	}
	drain := func() (keys []string) {
		t.Helper()
		items := must[[]hub.WorkItem](t)(db.System().Claim(t.Context(), hub.WorkFetch, "me", 100, time.Minute))
		for _, w := range items {
			keys = append(keys, string(w.Tenant)+" "+w.Key)
		}
		check(t, db.System().Done(t.Context(), items))
		slices.Sort(keys)
		return keys
	}
	var want []string
	for _, url := range []string{"https://git.example.com/team/app", "ssh://git.example.com:2222/team/app", "http://git.example.com:8080/team/app"} {
		want = append(want, string(tenant)+" "+string(put(tenant, url)))
	}
	want = append(want, string(other)+" "+string(put(other, "https://git.example.com/team/app")))
	slices.Sort(want)
	six := put(tenant, "ssh://[2001:db8::1]:2222/x")
	for _, url := range []string{"https://git.example.com/team/app2", "https://git.example.com.evil.test/team/app", "https://other.test/git.example.com/team/app"} {
		put(tenant, url)
	}
	drain() // what is new is fetched anyhow
	t.Run("HOOKW-04 the repositories of all tenants at an address are fetched, and no other", func(t *testing.T) {
		log.forget()
		if diff := cmp.Diff(want, at("https://git.example.com/team/app")); diff != "" {
			t.Error(diff)
		}
		if n := log.statements(); n != 6 {
			t.Errorf("%d statements, want begin, one statement and commit twice, however many tenants there are", n)
		}
		if diff := cmp.Diff(want, drain()); diff != "" {
			t.Errorf("work: %s", diff)
		}
		if got := at("ssh://[2001:db8::1]:2222/x"); len(got) != 1 || got[0] != string(tenant)+" "+string(six) {
			t.Errorf("an IPv6 address finds %v", got)
		}
	})
	t.Run("KUST-10 applications that use a base at an address are refreshed, and no other", func(t *testing.T) {
		const url = "https://git.example.com/lib/base"
		base := func(address string) []hub.Input {
			return []hub.Input{{Kind: hub.InputFile, Hash: "1", Path: hub.BasesDir + "/" + neturl.PathEscape(address+"?ref=main") + "/a.yaml"}}
		}
		of := func(url string) (found []string) {
			targets := must[[]store.WebhookTarget](t)(db.System().WebhookTargets(t.Context(), []string{repourl.Place(url)}, nil))
			for _, w := range targets {
				for _, app := range w.Applications {
					found = append(found, string(w.Tenant)+" "+string(app))
				}
			}
			check(t, db.System().FetchTargets(t.Context(), targets, func(hub.TenantID, hub.RepositoryID) { t.Error("a repository is fetched") }))
			return found
		}
		var app, without hub.Application
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			app = must[hub.Application](t)(tx.CreateApplication(ctx, newApp("with-base", "https://git.example.com/team/app", "")))
			without = must[hub.Application](t)(tx.CreateApplication(ctx, newApp("without", "https://git.example.com/team/app", "")))
			of := newSnapshot(app)
			of.Inputs = base("https://git.example.com/lib/base.git")
			return tx.PutSnapshots(ctx, []hub.Snapshot{of, newSnapshot(without)})
		})
		want := []string{string(tenant) + " " + string(app.ID)}
		if d := cmp.Diff(want, of(url)); d != "" {
			t.Error(d)
		}
		pushed := func() (at, none time.Time) {
			storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
				for _, r := range must[[]hub.Refresh](t)(tx.Refreshes(ctx, []hub.ApplicationID{app.ID, without.ID}, 5)) {
					if r.Application.ID == app.ID {
						at = r.BasesPushed
					} else {
						none = r.BasesPushed
					}
				}
				return nil
			})
			return at, none
		}
		first, none := pushed()
		if time.Since(first) > time.Hour || !none.IsZero() {
			t.Errorf("its bases were pushed to at %v, and those of another at %v", first, none)
		}
		of(url)
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error { // what was rendered meanwhile
			of := newSnapshot(app)
			of.Inputs = base(url)
			return tx.PutSnapshots(ctx, []hub.Snapshot{of})
		})
		if again, _ := pushed(); !again.After(first) {
			t.Errorf("after the next push it is %v, before %v", again, first)
		}
		if other := of("https://git.example.com/lib/other"); len(other) > 0 {
			t.Errorf("another address finds %v", other)
		}
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			of := newSnapshot(app)
			of.Inputs = base("https://git.example.com/lib/moved")
			return tx.PutSnapshots(ctx, []hub.Snapshot{of})
		})
		if d := cmp.Diff(want, of("https://git.example.com/lib/moved")); d != "" || len(of(url)) > 0 {
			t.Errorf("after the base has moved: %s, %v", d, of(url))
		}
	})
	t.Run("HOOKW-03 a target has the secret of its own tenant, which may change and be removed", func(t *testing.T) {
		secrets := func() map[hub.TenantID]map[string]string {
			out := map[hub.TenantID]map[string]string{}
			for _, w := range must[[]store.WebhookTarget](t)(db.System().WebhookTargets(t.Context(), []string{repourl.Place("https://git.example.com/team/app")}, nil)) {
				check(t, w.Err)
				if out[w.Tenant] = w.Secrets; w.First != (w.Tenant == tenant) {
					t.Errorf("tenant %s is the first: %v", w.Tenant, w.First)
				}
			}
			return out
		}
		set := func(tenant hub.TenantID, key, value string) {
			storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
				check(t, tx.LockSettings(ctx))
				s := hub.Setting{Map: hub.SecretMap, Key: key, Value: value, Secret: true, UpdatedAt: now(), UpdatedBy: "ada"}
				if value == "" {
					return tx.ChangeSettings(ctx, nil, []hub.Setting{s})
				}
				return tx.ChangeSettings(ctx, []hub.Setting{s}, nil)
			})
		}
		const github, gitlab = hub.WebhookGitHub, hub.WebhookGitLab
		want := map[hub.TenantID]map[string]string{tenant: {}, other: {}}
		for _, c := range []struct {
			tenant     hub.TenantID
			key, value string
		}{{tenant, github, "one"}, {other, github, "two"}, {tenant, gitlab, "four"}, {tenant, github, "three"}, {other, github, ""}, {other, "webhook.unknown", "five"}} {
			set(c.tenant, c.key, c.value)
			if want[c.tenant][c.key] = c.value; c.value == "" || c.key == "webhook.unknown" {
				delete(want[c.tenant], c.key)
			}
			if diff := cmp.Diff(want, secrets(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("after %s %q: %s", c.key, c.value, diff)
			}
		}
	})
	t.Run("HOOKW-04 a deleted repository is not found", func(t *testing.T) {
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error { return tx.DeleteRepository(ctx, six) })
		if got := at("ssh://[2001:db8::1]:2222/x"); len(got) != 0 {
			t.Errorf("found %v", got)
		}
	})
}

// queries counts what is sent to the database.
type queries struct{ n atomic.Int64 }

func (q *queries) forget()         { q.n.Store(0) }
func (q *queries) statements() int { return int(q.n.Load()) }

func (q *queries) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	q.n.Add(1)
	return ctx
}

func (q *queries) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// The user name of an SSH address does not exclude a template's key.
func TestTemplatesOverSSH(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	tenant := storetest.Tenant(t, db, "acme")
	storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
		must[hub.RepositoryTemplate](t)(tx.PutRepositoryTemplate(ctx, hub.RepositoryTemplate{URL: "ssh://h.test/org"}, &hub.Credential{SSHPrivateKey: "canary"}))
		r := must[hub.Repository](t)(tx.PutRepository(ctx, hub.Repository{URL: "ssh://h.test/org/a", Username: "deploy"}, nil))
		if c := must[hub.Credential](t)(tx.Credential(ctx, r.ID)); c.SSHPrivateKey != "canary" || c.Username != "deploy" {
			t.Errorf("CRED-02 the credential has user %q, a key: %v", c.Username, c.SSHPrivateKey != "")
		}
		if r.HasCredential {
			t.Error("it has a credential of its own")
		}
		return nil
	})
}
