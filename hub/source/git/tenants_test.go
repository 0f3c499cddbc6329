package git_test

import (
	"context"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// perTenant is a password for each tenant.
type perTenant struct {
	mu sync.Mutex
	of map[hub.TenantID]string
}

func (p *perTenant) Credential(_ context.Context, tenant hub.TenantID, _ hub.RepositoryID) (hub.Credential, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return hub.Credential{Username: "bob", Password: p.of[tenant]}, nil
}

func (p *perTenant) Authorities(context.Context, hub.TenantID, string) (string, error) {
	return "", nil
}

func (p *perTenant) HostKeys(context.Context, hub.TenantID) ([]hub.HostKey, error) { return nil, nil }

// Two tenants name one URL, even under one id; the rights of one are no rights
// of the other.
func TestTenantsShareNoRepository(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	s.Set("right", nil)
	const a, b = tenant, hub.TenantID("018f3c6e-0000-7000-8000-000000000002")
	creds := &perTenant{of: map[hub.TenantID]string{a: "right", b: "right"}}
	m, err := git.New(git.Config{Dir: t.TempDir(), AllowedNetworks: gittest.Loopback()}, creds, lifecycle.System{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gittest.CloseMirrors(t, m) })
	origin := s.Repo("app")
	repo := origin.Hub()
	fetch := func(tenant hub.TenantID) (map[string]string, error) {
		cred, _ := creds.Credential(t.Context(), tenant, repo.ID)
		refs, err := m.Fetch(gittest.Context(t), tenant, repo, cred)
		return gittest.ByName(refs), err
	}
	first := origin.Commit("refs/heads/main", "first", gittest.Files{"f": "first"})
	for _, who := range []hub.TenantID{a, b} {
		if got, err := fetch(who); err != nil || got["HEAD"] != first {
			t.Fatalf("%s: %v, %v", who, got, err)
		}
	}
	creds.mu.Lock()
	creds.of[b] = "revoked"
	creds.mu.Unlock()
	second := origin.Commit("refs/heads/main", "second", gittest.Files{"f": "second"})
	if got, err := fetch(a); err != nil || got["HEAD"] != second {
		t.Fatalf("the tenant with a good credential: %v, %v", got, err)
	}
	t.Run("ISO-7 a tenant whose credential was revoked learns nothing new", func(t *testing.T) {
		if refs, err := fetch(b); fault.KindOf(err) != fault.Invalid || len(refs) > 0 {
			t.Errorf("Fetch() = %v, %v", refs, err)
		}
		if tree, err := m.Tree(gittest.Context(t), b, repo, second); err == nil {
			t.Errorf("ISO-6 it reads %v, which the other tenant has fetched", tree)
		}
		if commit, err := m.Resolve(gittest.Context(t), b, repo, nil, second, ""); err == nil {
			t.Errorf("ISO-6 it resolves %s, which the other tenant has fetched", commit)
		}
	})
	t.Run("ISO-6 removal of a repository does not affect the other tenant's", func(t *testing.T) {
		if err := m.Remove(gittest.Context(t), b, repo.ID); err != nil {
			t.Fatal(err)
		}
		packs := s.Packs.Load()
		tree, err := m.Tree(gittest.Context(t), a, repo, first)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := tree.ReadFile("f"); err != nil || string(data) != "first" || s.Packs.Load() != packs {
			t.Errorf("f = %q, %v, with %d transfers", data, err, s.Packs.Load()-packs)
		}
	})
}

// A tenant that is gone leaves nothing on the disk of a replica, whether the
// replica has its mirrors open or finds them from an earlier run.
func TestMirrorsOfATenantThatIsGone(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	s.Set("right", nil)
	const a, b = tenant, hub.TenantID("018f3c6e-0000-7000-8000-000000000002")
	creds := &perTenant{of: map[hub.TenantID]string{a: "right", b: "right"}}
	dir := t.TempDir()
	open := func() *git.Mirrors {
		m, err := git.New(git.Config{Dir: dir, AllowedNetworks: gittest.Loopback()}, creds, lifecycle.System{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { gittest.CloseMirrors(t, m) })
		return m
	}
	origin, other := s.Repo("app"), s.Repo("other")
	origin.Commit("refs/heads/main", "first", gittest.Files{"f": "first"})
	other.Commit("refs/heads/main", "first", gittest.Files{"f": "first"})
	fetch := func(m *git.Mirrors) {
		for _, who := range []hub.TenantID{a, b} {
			for _, repo := range []hub.Repository{origin.Hub(), other.Hub()} {
				if _, err := m.Fetch(gittest.Context(t), who, repo, hub.Credential{Username: "bob", Password: "right"}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	first := open()
	for _, c := range []struct {
		name string
		by   func() *git.Mirrors
	}{{"of this run", func() *git.Mirrors { return first }}, {"of an earlier run", open}} {
		t.Run("ISO-10 mirrors "+c.name+" are removed", func(t *testing.T) {
			fetch(first)
			m := c.by()
			if got, err := m.Tenants(); err != nil || len(got) != 2 {
				t.Fatalf("there are mirrors of %v, %v", got, err)
			}
			if err := m.RemoveTenant(gittest.Context(t), a); err != nil {
				t.Fatal(err)
			}
			err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
				if strings.Contains(path, string(a)) {
					t.Errorf("%s is left", path)
				}
				return err
			})
			if got, listed := m.Tenants(); err != nil || listed != nil || len(got) != 1 || got[0] != b {
				t.Errorf("mirrors are left of %v: %v, %v", got, err, listed)
			}
		})
	}
}
