package hub

import (
	"cmp"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub/repourl"
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
func ServedKinds() []RepositoryKind {
	return []RepositoryKind{GitRepository, HelmRepository, OCIRepository}
}

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

// Kind is that of the repository which a source names. A chart is one of a Helm
// repository, also of one in a registry (HELM-16).
func (s Source) Kind() RepositoryKind {
	switch {
	case s.Chart != "":
		return HelmRepository
	case strings.HasPrefix(s.RepoURL, "oci://"):
		return OCIRepository
	}
	return GitRepository
}

// Fits reports whether a source may be of a repository of a kind. A repository
// of a registry has charts below it, whichever kind it is registered as.
func (s Source) Fits(k RepositoryKind) bool {
	return s.Kind() == k.OrDefault() || s.Chart != "" && k == OCIRepository
}

// Repository is the normalised URL of the repository that a source names. That
// of a chart without a scheme is one of a registry (HELM-16).
func (s Source) Repository() (string, error) {
	if s.Chart != "" {
		return repourl.NormalizeCharts(s.RepoURL)
	}
	return repourl.Normalize(s.RepoURL)
}

// Target is what the source names of a repository of charts or artifacts.
func (s Source) Target() Target {
	return Target{Chart: s.Chart, Revision: s.TargetRevision, PassCredentials: s.Helm != nil && s.Helm.PassCredentials}
}
