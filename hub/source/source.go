// Package source keeps the repositories that manifests come from. A Source
// serves all repositories of one kind: it brings them up to date, resolves
// revisions, and gives the files of a commit as a hub.Tree. A Registry finds the
// Source of a repository, and a Loop fetches repositories as they become due.
//
// It knows no kind itself: hub/source/git is the one for Git, and another one is
// a package beside it that passes hub/source/sourcetest. Which kinds there are
// says hub.ServedKinds. A Source keeps caches: losing them costs a fetch, never
// a state. Only the guard of hub/source/guard connects to servers.
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
	// Resolve finds the commit that a target revision names, among the
	// refs that the newest Fetch gave. The error is fault.Missing if there is
	// none.
	Resolve(ctx context.Context, tenant hub.TenantID, repo hub.Repository, refs []hub.Ref, revision, tagPrefix string) (commit string, err error)
	// Fetch brings a repository up to date and gives what it offers. An error
	// changes nothing of what is served.
	Fetch(ctx context.Context, tenant hub.TenantID, repo hub.Repository, cred hub.Credential) ([]hub.Ref, error)
	// Tree opens the files of a commit, which it fetches first if they are not
	// here. The error is fault.Missing if the repository has no such commit.
	Tree(ctx context.Context, tenant hub.TenantID, repo hub.Repository, commit string) (hub.Tree, error)
	// Remove forgets a repository and deletes what is kept of it. One that it
	// does not keep is no error.
	Remove(ctx context.Context, tenant hub.TenantID, repo hub.RepositoryID) error
}

// A PushFetcher is a Source that can bring up to date, with less than a Fetch,
// the one branch that a host says was pushed.
type PushFetcher interface {
	Source
	// FetchPushed is Fetch for a repository of which a host has said what was
	// pushed. Listed is when everything was last listed; since is how old that
	// may be.
	FetchPushed(ctx context.Context, tenant hub.TenantID, repo hub.Repository, cred hub.Credential, pushed hub.Pushed, since time.Time) (refs []hub.Ref, listed time.Time, err error)
}

// ErrImpostor is in the chain of an error that says that a server did not prove
// to be the one that is meant. Somebody may be listening in.
var ErrImpostor = errors.New("the server did not prove to be the one that is meant")
