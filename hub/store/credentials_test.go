package store_test

import (
	"context"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestCredentials(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	tenant := storetest.Tenant(t, db, "acme")
	credential := func(url string) (c hub.Credential) {
		t.Helper()
		var id hub.RepositoryID
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			r := must[hub.Repository](t)(tx.RepositoryByURL(ctx, url))
			c = must[hub.Credential](t)(tx.Credential(ctx, r.ID))
			id = r.ID
			return nil
		})
		due, _, err := db.DueRepositories(t.Context(), tenant, []hub.RepositoryID{id}, nil)
		if check(t, err); due[id].Credential != c || due[id].Err != nil {
			t.Errorf("%s: what is loaded with other repositories has another credential", url)
		}
		return c
	}
	storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
		for _, url := range []string{"https://h.test/org/own", "https://h.test/org/none", "https://h.test/org/team/deep", "https://h.test/organisation/x", "https://other.test/x"} {
			var c *hub.Credential
			if url == "https://h.test/org/own" {
				c = &hub.Credential{Username: "me", Password: "canary-own"}
			}
			r := must[hub.Repository](t)(tx.PutRepository(ctx, hub.Repository{URL: url, Registered: true}, c))
			if r.HasCredential != (c != nil) {
				t.Errorf("%s: has a credential %v", url, r.HasCredential)
			}
		}
		must[hub.RepositoryTemplate](t)(tx.PutRepositoryTemplate(ctx, hub.RepositoryTemplate{URL: "https://h.test/org"}, &hub.Credential{Username: "org", Password: "canary-org"}))
		must[hub.RepositoryTemplate](t)(tx.PutRepositoryTemplate(ctx, hub.RepositoryTemplate{URL: "https://h.test/org/team/"}, &hub.Credential{Password: "canary-team"}))
		return nil
	})
	t.Run("CRED-02 the longest matching prefix supplies what a repository does not have", func(t *testing.T) {
		for url, want := range map[string]string{
			"https://h.test/org/own": "canary-own", "https://h.test/org/none": "canary-org", "https://h.test/org/team/deep": "canary-team",
			"https://h.test/organisation/x": "", "https://other.test/x": "",
		} {
			if got := credential(url); got.Password != want {
				t.Errorf("the credential of %s is the wrong one", url)
			}
		}
	})
	t.Run("a credential is preserved by a change and removed when it is emptied", func(t *testing.T) {
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			r := must[hub.Repository](t)(tx.RepositoryByURL(ctx, "https://h.test/org/own"))
			r.Name = "named"
			r = must[hub.Repository](t)(tx.PutRepository(ctx, r, nil))
			if !r.HasCredential || r.Name != "named" || r.Version != 2 {
				t.Errorf("repository %+v", r)
			}
			return nil
		})
		if got := credential("https://h.test/org/own"); got.Username != "me" || got.Password != "canary-own" {
			t.Error("the credential changed")
		}
	})
	t.Run("CRED-02 CRED-12 a repository takes login and proxy of the template, and its own proxy before that", func(t *testing.T) {
		const url = "https://h.test/proxied/app"
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			must[hub.RepositoryTemplate](t)(tx.PutRepositoryTemplate(ctx, hub.RepositoryTemplate{URL: "https://h.test/proxied", Proxy: "http://a:canary-proxy@p.test:3128", NoProxy: "x.test"}, &hub.Credential{Password: "canary-t"}))
			r := must[hub.Repository](t)(tx.PutRepository(ctx, hub.Repository{URL: url, Registered: true}, nil))
			if r.HasCredential || r.Proxy != "" {
				t.Errorf("repository %+v", r)
			}
			return nil
		})
		if got := credential(url); got.Password != "canary-t" || got.Proxy != "http://a:canary-proxy@p.test:3128" || got.NoProxy != "x.test" {
			t.Error("login or proxy of the template are not used")
		}
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			r := must[hub.Repository](t)(tx.RepositoryByURL(ctx, url))
			r.Proxy = "http://q.test:3128"
			r = must[hub.Repository](t)(tx.PutRepository(ctx, r, nil))
			if r.HasCredential || r.Proxy != "http://q.test:3128" {
				t.Errorf("repository %+v", r)
			}
			return nil
		})
		if got := credential(url); got.Password != "canary-t" || got.Proxy != "http://q.test:3128" || got.NoProxy != "" {
			t.Error("the repository's own proxy is not used with the login of the template")
		}
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			r := must[hub.Repository](t)(tx.RepositoryByURL(ctx, url))
			return tx.DeleteRepository(ctx, r.ID)
		})
	})
	super := storetest.Connect(t, urls.Superuser)
	t.Run("SEC-C no table holds it in the clear", func(t *testing.T) {
		for _, table := range tenantTables(t, super) {
			if n := queryOne[int](t, super, `SELECT count(*) FROM `+table+` x WHERE x::text LIKE '%canary-%' OR x::text LIKE '%'||encode('canary-own', 'hex')||'%'`); n != 0 {
				t.Errorf("%s holds it %d times", table, n)
			}
		}
	})
	t.Run("SEC-C a ciphertext is worth nothing in another row", func(t *testing.T) {
		_, err := super.Exec(t.Context(), `UPDATE repository SET credential = (SELECT credential FROM repository WHERE url LIKE '%own') WHERE url LIKE '%none'`)
		check(t, err)
		err = inTenant(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			r := must[hub.Repository](t)(tx.RepositoryByURL(ctx, "https://h.test/org/none"))
			_, err := tx.Credential(ctx, r.ID)
			return err
		})
		if err == nil {
			t.Error("it opened")
		}
	})
	t.Run("a repository in use is only unregistered", func(t *testing.T) {
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			must[hub.Application](t)(tx.CreateApplication(ctx, newApp("uses", "https://h.test/org/own", "")))
			own := must[hub.Repository](t)(tx.RepositoryByURL(ctx, "https://h.test/org/own"))
			check(t, tx.DeleteRepository(ctx, own.ID))
			own = must[hub.Repository](t)(tx.Repository(ctx, own.ID))
			if own.Registered || own.HasCredential {
				t.Errorf("repository %+v", own)
			}
			free := must[hub.Repository](t)(tx.RepositoryByURL(ctx, "https://other.test/x"))
			check(t, tx.DeleteRepository(ctx, free.ID))
			_, err := tx.Repository(ctx, free.ID)
			wantKind(t, err, fault.Missing, "after its deletion")
			templates := must[[]hub.RepositoryTemplate](t)(tx.RepositoryTemplates(ctx))
			if len(templates) != 3 {
				t.Errorf("templates %+v", templates)
			}
			check(t, tx.DeleteRepositoryTemplate(ctx, templates[0].ID))
			wantKind(t, tx.DeleteRepositoryTemplate(ctx, templates[0].ID), fault.Missing, "twice")
			return nil
		})
	})
	t.Run("FT another master key decrypts nothing and is an error", func(t *testing.T) {
		other := storetest.OpenURLs(t, urls.Config())
		_, err := other.Keys(t.Context(), tenant)
		wantKind(t, err, fault.Invalid, "keys under another master key")
	})
}
