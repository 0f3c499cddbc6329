package git

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A base is a repository that a kustomization names. It has a mirror of its
// own, beside that of the repository whose file names it, for one project: what
// one project may read is not there for another.
//
// It is opened with its own credential, by which it is registered or matches a
// template. Without one, that of the naming repository is sent to the same
// server, and to no other. Its submodules are empty and its files of LFS stay
// pointers: both would need the credential of yet another place.

// baseListing is under which name a failed listing is remembered.
const baseListing = "branches"

// Access finds what opens a repository by its address, for applications of a
// project. Nothing is an empty credential.
type Access func(ctx context.Context, tenant hub.TenantID, project, address string) (cred hub.Credential, insecure bool, err error)

// Opens lets bases have credentials of their own. It comes before the first use.
func (m *Mirrors) Opens(access Access) { m.access = access }

// Base opens the files of a base at a revision: a branch, a tag, a full commit,
// or nothing for the default branch. A listing of its branches that began before
// since is not used. With a demand, whose commit it fills in, a base that does not
// fulfil it is refused.
func (m *Mirrors) Base(
	ctx context.Context, tenant hub.TenantID, parent hub.Repository, project, address, revision string, since time.Time, demand *hub.SignatureDemand,
) (hub.Tree, error) {
	if !hub.ValidID(string(tenant)) || !hub.ValidID(string(parent.ID)) {
		return nil, fault.New(fault.Invalid, "%q of tenant %q is not the id of a repository", parent.ID, tenant)
	}
	user := repourl.SSHUser(address)
	address, err := moduleAddress(parent.URL, address)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the address of the base is none of a Git server over HTTPS or SSH")
	}
	repo := hub.Repository{ID: parent.ID, Tenant: parent.Tenant, URL: address, Type: hub.GitRepository, Username: user}
	if sameServer(parent.URL, address) {
		repo.GitOptions = hub.GitOptions{Proxy: parent.Proxy, NoProxy: parent.NoProxy}
	}
	mir, err := m.base(tenant, parent, project, address)
	if err != nil {
		return nil, about(repo, err)
	}
	if _, repo.Insecure, err = mir.own(ctx); err != nil {
		return nil, err
	}
	commit := revision
	if !isCommit(revision) {
		refs, err := mir.branches(ctx, repo, since)
		if err == nil {
			commit, _, err = Resolve(refs, revision, "")
		}
		if err != nil {
			return nil, about(repo, err)
		}
	}
	c, err := mir.have(ctx, repo, commit)
	if err != nil {
		return nil, about(repo, err)
	}
	if demand != nil {
		d := *demand
		d.Revision, d.Commit = revision, c.Hash.String()
		if err := m.verifyBase(ctx, mir, repo, d); err != nil {
			return nil, err
		}
	}
	return &tree{m: mir, repo: repo, commit: c, plain: true}, nil
}

// verifyBase checks what is demanded of a base, once for each commit and keys.
func (m *Mirrors) verifyBase(ctx context.Context, mir *mirror, repo hub.Repository, d hub.SignatureDemand) error {
	id := d.Identity()
	key := verifiedKey{mir.tenant, repo.ID, repo.URL + string(id[:])}
	if d.Policy.Mode == hub.SignatureNone || m.verified.has(key, m.clock.Now()) {
		return nil
	}
	return m.verify(ctx, mir, repo, d, key)
}

// base returns the mirror of a base.
func (m *Mirrors) base(tenant hub.TenantID, parent hub.Repository, project, address string) (*mirror, error) {
	sum := sha256.Sum256([]byte(project + "\x00" + address))
	key := mirrorKey{tenant, parent.ID, "base-" + hex.EncodeToString(sum[:16])}
	m.mu.Lock()
	defer m.mu.Unlock()
	got := m.all[key]
	if got == nil {
		if m.modulesOf(key) >= maxModules {
			return nil, fault.With(fault.New(fault.Exceeded, "the repository names more than %d others", maxModules), "", "use some of them as sources of their own")
		}
		got = newMirror(m, tenant, filepath.Join(m.modules(tenant, parent.ID), key.module))
		got.parent = parent.URL
		got.own = func(ctx context.Context) (hub.Credential, bool, error) {
			return m.baseAccess(ctx, tenant, parent, project, address)
		}
		m.all[key] = got
	}
	got.used.Store(m.clock.Now().UnixNano())
	return got, nil
}

// modulesOf counts the mirrors beside that of a repository.
func (m *Mirrors) modulesOf(key mirrorKey) (n int) {
	for k := range m.all {
		if k.tenant == key.tenant && k.repo == key.repo && k.module != "" {
			n++
		}
	}
	return n
}

// baseAccess is what opens a base.
func (m *Mirrors) baseAccess(ctx context.Context, tenant hub.TenantID, parent hub.Repository, project, address string) (cred hub.Credential, insecure bool, err error) {
	if m.access != nil {
		if cred, insecure, err = m.access(ctx, tenant, project, address); err != nil {
			return cred, insecure, fmt.Errorf("credential of a base: %w", err)
		}
	}
	if !cred.Empty() || !sameServer(parent.URL, address) {
		return cred, insecure, nil
	}
	if cred, err = m.creds.Credential(ctx, tenant, parent.ID); err != nil {
		return cred, false, fmt.Errorf("credential of repository %q: %w", parent.ID, err)
	}
	if cred.Username == "" && cred.Password != "" {
		cred.Username = parent.Username
	}
	return cred, insecure || parent.Insecure, nil
}

// branches returns the branches and tags of a base, as they were at since or later.
func (m *mirror) branches(ctx context.Context, repo hub.Repository, since time.Time) ([]hub.Ref, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.leave()
	if m.listed != nil && m.clock.Now().Sub(m.last.at) < hub.BaseFresh && !m.last.at.Before(since) {
		return m.listed, nil
	}
	if err := m.refused.find(baseListing, m.clock.Now()); err != nil {
		return nil, err
	}
	cred, err := m.credential(ctx, repo)
	if err != nil {
		return nil, err
	}
	found, err := m.fetch(ctx, repo, cred)
	if err == nil {
		m.listed = found
	} else if !errors.Is(err, context.Canceled) {
		m.refused.add(baseListing, m.clock.Now(), err)
	}
	return found, err
}

// credential is what a server is shown for a repository.
func (m *mirror) credential(ctx context.Context, repo hub.Repository) (hub.Credential, error) {
	if m.own != nil {
		cred, _, err := m.own(ctx)
		return cred, err
	}
	cred, err := m.creds.Credential(ctx, m.tenant, repo.ID)
	if err != nil {
		return cred, fmt.Errorf("credential of repository %q: %w", repo.ID, err)
	}
	return m.reaches(repo, cred), nil
}
