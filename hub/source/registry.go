package source

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A Registry has the Source of each kind of repositories that is served, and
// serves all of them.
type Registry struct {
	kinds map[hub.RepositoryKind]Source
}

var _ Source = (*Registry)(nil)

// NewRegistry makes a registry. It has a Source for each kind of
// hub.ServedKinds and for no other, so that what is accepted is what is fetched.
func NewRegistry(kinds map[hub.RepositoryKind]Source) (*Registry, error) {
	served, here := slices.Sorted(slices.Values(hub.ServedKinds())), slices.Sorted(maps.Keys(kinds))
	if !slices.Equal(served, here) {
		return nil, fmt.Errorf("sources for the kinds %q, and %q are served", here, served)
	}
	return &Registry{maps.Clone(kinds)}, nil
}

// Of returns the Source of a repository.
func (r *Registry) Of(repo hub.Repository) (Source, error) {
	s, ok := r.kinds[repo.Type.OrDefault()]
	if !ok {
		err := fault.New(fault.Invalid, "repositories of the type %q are not supported", repo.Type)
		return nil, fault.With(err, "repository "+repourl.Redact(repo.URL), "register it as one of git, helm or oci")
	}
	return s, nil
}

// Resolve finds a commit through the Source of the repository.
func (r *Registry) Resolve(ctx context.Context, tenant hub.TenantID, repo hub.Repository, refs []hub.Ref, revision, tagPrefix string) (string, error) {
	s, err := r.Of(repo)
	if err != nil {
		return "", err
	}
	return s.Resolve(ctx, tenant, repo, refs, revision, tagPrefix)
}

// Fetch updates the repository through the Source of the repository.
func (r *Registry) Fetch(ctx context.Context, tenant hub.TenantID, repo hub.Repository, cred hub.Credential) ([]hub.Ref, error) {
	s, err := r.Of(repo)
	if err != nil {
		return nil, err
	}
	return s.Fetch(ctx, tenant, repo, cred)
}

// Tree opens a commit through the Source of the repository.
func (r *Registry) Tree(ctx context.Context, tenant hub.TenantID, repo hub.Repository, commit string) (hub.Tree, error) {
	s, err := r.Of(repo)
	if err != nil {
		return nil, err
	}
	return s.Tree(ctx, tenant, repo, commit)
}

// Probe tries to reach a repository, and stores nothing.
func (r *Registry) Probe(ctx context.Context, tenant hub.TenantID, repo hub.Repository, cred hub.Credential) error {
	s, err := r.Of(repo)
	if err != nil {
		return err
	}
	p, ok := s.(Prober)
	if !ok {
		return fault.New(fault.Internal, "repositories of the type %q cannot be tested", repo.Type)
	}
	return p.Probe(ctx, tenant, repo, cred)
}

// List returns what a repository of charts or artifacts publishes.
func (r *Registry) List(ctx context.Context, tenant hub.TenantID, repo hub.Repository) (hub.Listing, error) {
	s, err := r.Of(repo)
	if err != nil {
		return hub.Listing{}, err
	}
	l, ok := s.(Lister)
	if !ok {
		return hub.Listing{}, fault.With(fault.New(fault.Invalid, "it is a Git repository, which publishes neither charts nor artifacts"), "repository "+repourl.Redact(repo.URL),
			"list its branches and tags")
	}
	return l.List(ctx, tenant, repo)
}

// Remove removes the repository from every Source. Its kind is unknown once it
// is deleted, and may have changed before.
func (r *Registry) Remove(ctx context.Context, tenant hub.TenantID, repo hub.RepositoryID) error {
	var errs []error
	for _, kind := range slices.Sorted(maps.Keys(r.kinds)) {
		if err := r.kinds[kind].Remove(ctx, tenant, repo); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", kind, err))
		}
	}
	return errors.Join(errs...)
}
