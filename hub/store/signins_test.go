package store_test

import (
	"context"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestSignIns(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	tenant := storetest.Tenant(t, db, "acme")
	hash, browser := sha256.Sum256([]byte("state")), sha256.Sum256([]byte("browser"))
	in := func(do func(ctx context.Context, tx *store.Tenant) error) {
		t.Helper()
		storetest.In(t, db, tenant, do)
	}
	absent := func(what string, err error) {
		t.Helper()
		if fault.KindOf(err) != fault.Missing {
			t.Errorf("%s: %v", what, err)
		}
	}
	t.Run("SEC-E4 a sign-in is taken once, in time, by its browser", func(t *testing.T) {
		in(func(ctx context.Context, tx *store.Tenant) error {
			check(t, tx.PutSignIn(ctx, hub.SignIn{Hash: hash, Browser: browser, Provider: "oidc", ReturnTo: "/x", ExpiresAt: now().Add(time.Minute)}))
			_, err := tx.TakeSignIn(ctx, hash, sha256.Sum256([]byte("other")), now())
			absent("another browser", err)
			_, err = tx.TakeSignIn(ctx, hash, browser, now().Add(2*time.Minute))
			absent("too late", err)
			got := must[hub.SignIn](t)(tx.TakeSignIn(ctx, hash, browser, now()))
			if got.Provider != "oidc" || got.ReturnTo != "/x" {
				t.Errorf("it is %+v", got)
			}
			_, err = tx.TakeSignIn(ctx, hash, browser, now())
			absent("a second time", err)
			return nil
		})
	})
	t.Run("RBAC-15 a person is found by provider, realm and subject together", func(t *testing.T) {
		in(func(ctx context.Context, tx *store.Tenant) error {
			u := must[hub.User](t)(tx.CreateUser(ctx, hub.User{Name: "oidc:a", Provider: "oidc", Realm: "https://one", Subject: "1"}, ""))
			must[hub.User](t)(tx.CreateUser(ctx, hub.User{Name: "oidc:b", Provider: "oidc", Realm: "https://two", Subject: "1"}, ""))
			must[hub.User](t)(tx.CreateUser(ctx, hub.User{Name: "local"}, "hash"))
			got := must[hub.User](t)(tx.UserBySubject(ctx, hub.Person{Provider: "oidc", Realm: "https://one", Subject: "1"}))
			if got.ID != u.ID || got.Provider != "oidc" {
				t.Errorf("it is %+v", got)
			}
			for _, p := range []hub.Person{{}, {Provider: "oidc", Realm: "https://three", Subject: "1"}, {Provider: "dex-x", Realm: "https://one", Subject: "1"}, {Provider: "oidc", Realm: "https://one", Subject: "2"}} {
				_, err := tx.UserBySubject(ctx, p)
				absent("another person", err)
			}
			names := must[[]string](t)(tx.LocalNames(ctx, []string{"oidc:a", "local", "nobody"}))
			if len(names) != 1 || names[0] != "local" {
				t.Errorf("the local names are %q", names)
			}
			return nil
		})
	})
	t.Run("AUTH-05 claims of a session are not those of a code", func(t *testing.T) {
		in(func(ctx context.Context, tx *store.Tenant) error {
			u, _, err := tx.UserByName(ctx, "oidc:a")
			check(t, err)
			code := sha256.Sum256([]byte("code"))
			c := hub.SessionClaims{Hash: hash, User: u.ID, Provider: "oidc", Groups: []string{"devs"}, Proof: "canary", ExpiresAt: now().Add(time.Minute)}
			check(t, tx.PutSessionClaims(ctx, c))
			c.Hash, c.Challenge = code, "challenge"
			check(t, tx.PutSessionClaims(ctx, c))
			if got := must[hub.SessionClaims](t)(tx.SessionClaims(ctx, hash, now())); got.Groups[0] != "devs" || got.Proof != "" {
				t.Errorf("they are %+v", got)
			}
			_, err = tx.SessionClaims(ctx, code, now())
			absent("a code as a session", err)
			_, err = tx.TakeSessionClaims(ctx, code, "", now())
			absent("a code without its challenge", err)
			_, err = tx.TakeSessionClaims(ctx, code, "challenge", now().Add(time.Hour))
			absent("a code that has expired", err)
			if got := must[hub.SessionClaims](t)(tx.TakeSessionClaims(ctx, code, "challenge", now())); got.Proof != "canary" || got.User != u.ID {
				t.Errorf("they are %+v", got)
			}
			_, err = tx.TakeSessionClaims(ctx, code, "challenge", now())
			absent("a code for the second time", err)
			return nil
		})
		conn := storetest.Connect(t, urls.Superuser)
		if n := queryOne[int64](t, conn, `SELECT count(*) FROM session_claims WHERE position('canary'::bytea IN sealed) > 0`); n != 0 {
			t.Error("the proof is stored in the clear")
		}
	})
}
