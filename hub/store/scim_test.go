package store_test

import (
	"context"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestAdoptPerson(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	tenant, other := storetest.Tenant(t, db, "acme"), storetest.Tenant(t, db, "bolt")
	provision := func(tenant hub.TenantID, name, external string) (id hub.UserID) {
		t.Helper()
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			u, err := tx.CreateUser(ctx, hub.User{Name: name, Origin: hub.OriginSCIM}, "")
			check(t, err)
			id = u.ID
			_, err = tx.PutSCIMUser(ctx, hub.SCIMUser{ID: u.ID, UserName: name, ExternalID: external, Active: true, UpdatedAt: now()})
			return err
		})
		return id
	}
	adopt := func(tenant hub.TenantID, p hub.Person) (u hub.User, err error) {
		t.Helper()
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			u, err = tx.AdoptPerson(ctx, p)
			return nil
		})
		return u, err
	}
	jane := provision(tenant, "jane", "00u1")
	t.Run("SCIM an account is that of the person whose subject is its externalId, and of no other", func(t *testing.T) {
		for _, p := range []hub.Person{{Provider: "oidc", Realm: "https://idp", Subject: "jane", Label: "jane"}, {Provider: "oidc", Realm: "https://idp", Subject: "00U1"}} {
			if u, err := adopt(tenant, p); fault.KindOf(err) != fault.Missing {
				t.Errorf("%+v gets %+v, %v", p, u, err)
			}
		}
		if u, err := adopt(other, hub.Person{Provider: "oidc", Realm: "https://idp", Subject: "00u1"}); fault.KindOf(err) != fault.Missing {
			t.Errorf("ISO-8 another tenant gets %+v, %v", u, err)
		}
		u, err := adopt(tenant, hub.Person{Provider: "oidc", Realm: "https://idp", Subject: "00u1"})
		if err != nil || u.ID != jane || u.Provider != "oidc" {
			t.Fatalf("it is %+v, %v", u, err)
		}
		if u, err := adopt(tenant, hub.Person{Provider: "second", Realm: "https://evil", Subject: "00u1"}); fault.KindOf(err) != fault.Missing {
			t.Errorf("a second provider gets %+v, %v", u, err)
		}
	})
	t.Run("SCIM of two users with one externalId nobody gets either", func(t *testing.T) {
		provision(tenant, "one", "same")
		provision(tenant, "two", "same")
		if u, err := adopt(tenant, hub.Person{Provider: "oidc", Realm: "https://idp", Subject: "same"}); fault.KindOf(err) != fault.Missing {
			t.Errorf("it is %+v, %v", u, err)
		}
	})
}
