package hub

import (
	"cmp"
	"slices"
	"strings"
)

// A RepositoryKind says what a repository is, and so which source fetches it.
// None is GitRepository.
type RepositoryKind string

// The kinds that repositories can be registered with.
const (
	GitRepository  RepositoryKind = "git"
	HelmRepository RepositoryKind = "helm" // charts, with an index
	OCIRepository  RepositoryKind = "oci"  // artifacts of a registry
)

// ServedKinds are the kinds that this release fetches and renders. No other
// place says so: the registry of sources (hub/source) does not start with other
// ones, and what takes repositories and sources in asks Served.
func ServedKinds() []RepositoryKind { return []RepositoryKind{GitRepository} }

// Served reports whether repositories of the kind are fetched and rendered.
func (k RepositoryKind) Served() bool { return slices.Contains(ServedKinds(), k.OrDefault()) }

// Known reports whether repositories of the kind are kept, served or not.
func (k RepositoryKind) Known() bool {
	return k.OrDefault() == GitRepository || k == HelmRepository || k == OCIRepository
}

// Charts reports whether charts may depend on charts of such repositories.
func (k RepositoryKind) Charts() bool { return k == HelmRepository || k == OCIRepository }

// OrDefault is the kind, or that of repositories of which none is known.
func (k RepositoryKind) OrDefault() RepositoryKind { return cmp.Or(k, GitRepository) }

// Kind is that of the repository which a source names.
func (s Source) Kind() RepositoryKind {
	switch {
	case strings.HasPrefix(s.RepoURL, "oci://"):
		return OCIRepository
	case s.Chart != "":
		return HelmRepository
	}
	return GitRepository
}
