// Package source fetches the repositories that manifests come from. A Source
// serves all repositories of one kind: it updates them, resolves revisions, and
// serves the files of a commit as a hub.Tree. A Registry finds the Source of a
// repository, and a Loop fetches repositories as they become due.
//
// It knows no kind itself: hub/source/git is the one for Git, and another one is
// a package beside it that passes hub/source/sourcetest. hub.ServedKinds lists
// the kinds. What a Source stores is a cache: losing it costs a fetch, never a
// state. Only the guard of hub/source/guard connects to servers.
//
// The daemon builds one Registry and one Loop per replica; the render stage
// calls Resolve and Tree.
package source

import (
	"context"
	"errors"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

// A Source serves the repositories of one kind. Any number of goroutines may
// use it, for any tenants; none ever gets what belongs to another one. Errors
// are a sentence for the repository's owner, unless the context has ended.
type Source interface {
	// Resolve finds the commit that a target revision names, among the refs
	// that the newest Fetch returned. The error is fault.Missing if there is
	// none.
	Resolve(ctx context.Context, tenant hub.TenantID, repo hub.Repository, refs []hub.Ref, revision, tagPrefix string) (commit string, err error)
	// Fetch updates a repository and returns its refs. An error
	// changes nothing of what is served.
	Fetch(ctx context.Context, tenant hub.TenantID, repo hub.Repository, cred hub.Credential) ([]hub.Ref, error)
	// Tree opens the files of a commit, which it fetches first if they are not
	// here. The error is fault.Missing if the repository has no such commit.
	Tree(ctx context.Context, tenant hub.TenantID, repo hub.Repository, commit string) (hub.Tree, error)
	// Remove deletes what is stored of a repository. An unknown one is no
	// error.
	Remove(ctx context.Context, tenant hub.TenantID, repo hub.RepositoryID) error
}

// A PushFetcher is a Source that can update the one branch that a push event
// names, at a lower cost than Fetch.
type PushFetcher interface {
	Source
	// FetchPushed is Fetch for a repository with a push event. Listed is when
	// everything was last listed; since is how old that may be.
	FetchPushed(ctx context.Context, tenant hub.TenantID, repo hub.Repository, cred hub.Credential, pushed hub.Pushed, since time.Time) (refs []hub.Ref, listed time.Time, err error)
}

// A Prober is a Source that can try to reach a repository.
type Prober interface {
	Source
	// Probe contacts the repository as Fetch would, and stores nothing.
	Probe(ctx context.Context, tenant hub.TenantID, repo hub.Repository, cred hub.Credential) error
}

// A Lister is a Source that lists what a repository publishes.
type Lister interface {
	Source
	// List returns the charts of an index, or the tags of a registry: those of
	// the chart of the repository's target, if it names one.
	List(ctx context.Context, tenant hub.TenantID, repo hub.Repository) (hub.Listing, error)
}

// ErrImpostor is in the chain of an error if a server did not prove its
// identity. The connection may be intercepted.
var ErrImpostor = errors.New("the server did not prove to be the one that is meant")
