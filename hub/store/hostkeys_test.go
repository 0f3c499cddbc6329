package store_test

import (
	"context"
	"slices"
	"testing"

	"github.com/capstan-cd/capstan/hub"
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

// A webhook names one address of a repository; it may be known under another.
func TestRepositoriesAt(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	tenant := storetest.Tenant(t, db, "acme")
	storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
		want := map[string]bool{}
		for _, url := range []string{"https://git.example.com/team/app", "ssh://git.example.com:2222/team/app", "http://git.example.com:8080/team/app"} {
			want[string(must[hub.Repository](t)(tx.PutRepository(ctx, hub.Repository{URL: url}, nil)).ID)] = true
		}
		six := must[hub.Repository](t)(tx.PutRepository(ctx, hub.Repository{URL: "ssh://[2001:db8::1]:2222/x"}, nil))
		for _, url := range []string{"https://git.example.com/team/app2", "https://git.example.com.evil.test/team/app", "https://other.test/git.example.com/team/app"} {
			must[hub.Repository](t)(tx.PutRepository(ctx, hub.Repository{URL: url}, nil))
		}
		got := must[[]hub.RepositoryID](t)(tx.RepositoriesAt(ctx, []string{hub.RepoPlace("https://git.example.com/team/app")}))
		for _, id := range got {
			if !want[string(id)] {
				t.Errorf("HOOKW-04 %s is another repository", id)
			}
		}
		if len(got) != len(want) {
			t.Errorf("HOOKW-04 %d repositories, want %d", len(got), len(want))
		}
		if got := must[[]hub.RepositoryID](t)(tx.RepositoriesAt(ctx, []string{hub.RepoPlace(six.URL)})); len(got) != 1 || got[0] != six.ID {
			t.Errorf("an IPv6 address finds %v", got)
		}
		return nil
	})
}

// The user name of an SSH address does not keep a template's key away.
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
