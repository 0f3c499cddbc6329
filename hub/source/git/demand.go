package git

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/hub/source/git/packstore"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	refusedFor = 15 * time.Second // how long a failed fetch on demand is not repeated
	healedFor  = 5 * time.Minute  // how long a repaired mirror is not fetched from scratch again
	maxRefused = 256              // commits whose failure is remembered, per mirror
)

// Resolve finds the commit that a target revision names. The refs decide
// where they can (see the function Resolve); an abbreviated commit is looked up
// in the mirror. A full one without a ref must be in the mirror or on the
// server.
func (m *Mirrors) Resolve(ctx context.Context, tenant hub.TenantID, repo hub.Repository, refs []hub.Ref, targetRevision, tagPrefix string) (string, error) {
	found, name, err := Resolve(refs, targetRevision, tagPrefix)
	if err != nil && fault.KindOf(err) == fault.Missing && len(targetRevision) >= minShort && len(targetRevision) < 40 && isHex(targetRevision) {
		found, err = m.abbreviated(ctx, tenant, repo, refs, strings.ToLower(targetRevision), err)
	}
	if err != nil {
		return "", about(repo, err)
	}
	if name != "" || named(refs, found) {
		return found, nil
	}
	mir, err := m.mirror(tenant, repo.ID)
	if err != nil {
		return "", err
	}
	c, err := mir.have(ctx, repo, found)
	if err != nil {
		return "", about(repo, err)
	}
	return c.Hash.String(), nil
}

func about(repo hub.Repository, err error) error {
	return fault.With(err, "repository "+repourl.Redact(repo.URL), "")
}

func named(refs []hub.Ref, commit string) bool {
	for _, r := range refs {
		if r.Commit == commit {
			return true
		}
	}
	return false
}

// abbreviated finds the one commit whose name starts with some digits.
func (m *Mirrors) abbreviated(ctx context.Context, tenant hub.TenantID, repo hub.Repository, refs []hub.Ref, prefix string, unknown error) (string, error) {
	mir, err := m.mirror(tenant, repo.ID)
	if err != nil {
		return "", err
	}
	// A mirror that is not there yet is fetched for the first ref.
	if len(refs) > 0 {
		if _, err := mir.have(ctx, repo, refs[0].Commit); err != nil {
			return "", err
		}
	}
	hashes, err := mir.objects.Prefixed(prefix, 64)
	if err != nil {
		return "", mir.broken(err)
	}
	var commits []string
	for _, h := range hashes {
		switch c, err := mir.objects.Commit(h); {
		case err == nil && c.Hash == h:
			commits = append(commits, h.String())
		case err == nil, errors.Is(err, packstore.ErrNotCommit), errors.As(err, new(packstore.TooLargeError)): // a tag, or no commit
		default:
			return "", mir.broken(err)
		}
	}
	switch {
	case len(commits) == 1:
		return commits[0], nil
	case len(commits) > 1:
		return "", fault.With(fault.New(fault.Invalid, "the abbreviated commit %q stands for several commits", prefix), "", "write more digits, such as "+commits[0][:min(40, len(prefix)+5)])
	}
	return "", unknown
}

// Tree opens the files of a commit, which it fetches first if they are not
// here. The error is fault.Missing if the repository has no such commit.
func (m *Mirrors) Tree(ctx context.Context, tenant hub.TenantID, repo hub.Repository, commit string) (hub.Tree, error) {
	if !isCommit(commit) {
		return nil, fault.New(fault.Invalid, "%q is not the full name of a commit", cut(commit, 120))
	}
	mir, err := m.mirror(tenant, repo.ID)
	if err != nil {
		return nil, err
	}
	c, err := mir.have(ctx, repo, strings.ToLower(commit))
	if err != nil {
		return nil, about(repo, err)
	}
	return newTree(mir, repo, c), nil
}

// Commit returns what users see of a commit.
func (m *Mirrors) Commit(ctx context.Context, tenant hub.TenantID, repo hub.Repository, commit string) (hub.CommitInfo, error) {
	t, err := m.Tree(ctx, tenant, repo, commit)
	if err != nil {
		return hub.CommitInfo{}, err
	}
	return t.Info(), nil
}

// have reads a commit, and fetches it where it is not here yet.
func (m *mirror) have(ctx context.Context, repo hub.Repository, name string) (packstore.Commit, error) {
	h := plumbing.NewHash(name)
	c, err := m.here(h)
	if err == nil || !wanting(err) {
		return c, m.broken(err)
	}
	if err := m.refused.find(name, m.clock.Now()); err != nil {
		return packstore.Commit{}, err
	}
	if err := m.enter(ctx); err != nil {
		return packstore.Commit{}, err
	}
	defer m.leave()
	if c, err := m.here(h); err == nil || !wanting(err) {
		return c, m.broken(err) // somebody else was faster
	}
	c, err = m.demand(ctx, repo, h)
	if err != nil && ctx.Err() == nil {
		m.refused.add(name, m.clock.Now(), err)
	}
	return c, err
}

// here reads a commit and its uppermost tree, so that a mirror in which the
// commit lost its files counts as one without it.
func (m *mirror) here(h plumbing.Hash) (packstore.Commit, error) {
	if m.damaged.Load() {
		return packstore.Commit{}, packstore.ErrNoObject
	}
	c, err := m.objects.Commit(h)
	if err != nil {
		return packstore.Commit{}, err
	}
	if ok, err := m.objects.Has(c.Tree); err != nil || !ok {
		return packstore.Commit{}, errors.Join(err, fmt.Errorf("tree of %s: %w", h, packstore.ErrNoObject))
	}
	return c, nil
}

// wanting reports whether a fetch may help.
func wanting(err error) bool {
	return errors.Is(err, packstore.ErrNoObject) || errors.Is(err, packstore.ErrDamaged)
}

// demand fetches for a commit: what the refs lead to, and then, if the commit
// is not among it, the commit by its name.
func (m *mirror) demand(ctx context.Context, repo hub.Repository, h plumbing.Hash) (packstore.Commit, error) {
	cred, err := m.credential(ctx, repo)
	if err != nil {
		return packstore.Commit{}, err
	}
	if _, err := m.objects.Commit(h); err == nil || errors.Is(err, packstore.ErrDamaged) {
		m.damaged.Store(true) // it is here in part
	}
	m.last.digest = [32]byte{}
	if _, err := m.fetch(ctx, repo, cred); err != nil {
		return packstore.Commit{}, err
	}
	c, err := m.here(h)
	if err == nil || !wanting(err) {
		return c, m.broken(err)
	}
	v, err := m.visit(ctx, repo, cred)
	if err != nil {
		return packstore.Commit{}, err
	}
	defer v.close()
	known, err := m.load()
	if err != nil {
		return packstore.Commit{}, m.broken(err)
	}
	haves, err := v.haves(known)
	if err != nil {
		return packstore.Commit{}, m.broken(err)
	}
	if err := v.transfer(ctx, []plumbing.Hash{h}, haves); err != nil && !refusesName(err) {
		return packstore.Commit{}, err
	}
	if c, err = m.here(h); err != nil {
		if wanting(err) {
			return packstore.Commit{}, fault.With(fault.New(fault.Missing, "the commit %s is not in the repository", h), "", "check the revision; a commit that no branch or tag leads to cannot always be fetched")
		}
		return packstore.Commit{}, m.broken(err)
	}
	return c, nil
}

// refusesName reports whether the server does not hand out commits by name, or
// does not have this one.
func refusesName(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if text := err.Error(); strings.Contains(text, "not our ref") || strings.Contains(text, "no such") || errors.Is(err, errIncomplete) || breaksProtocol(err) {
			return true
		}
	}
	return false
}

// broken tells what a reader may be told of an error of the object database,
// and has a damaged mirror fetched anew.
func (m *mirror) broken(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, packstore.ErrNotCommit):
		return fault.With(fault.Wrap(fault.Missing, err, "the revision is not a commit"), "", "name a branch, a tag or a commit")
	case errors.As(err, new(packstore.TooLargeError)):
		return fault.With(fault.Wrap(fault.Exceeded, err, "a commit or tag of the repository is too large"), "", "name another revision")
	case isDamage(err):
		// What a fresh copy lacks too, the server lacks: no use in a storm.
		if m.clock.Now().Sub(time.Unix(0, m.healed.Load())) > healedFor {
			m.damaged.Store(true)
		}
		return fault.With(fault.Wrap(fault.Offline, err, "the hub's copy of the repository is damaged and is being fetched again"), "", "it is retried automatically")
	}
	return err
}
