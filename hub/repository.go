package hub

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Repository is a source of manifests, with its credential sealed apart.
type Repository struct {
	ID            RepositoryID   `json:"id"`
	Tenant        TenantID       `json:"-"`
	URL           string         `json:"url"` // normalised by NormalizeRepoURL
	Type          RepositoryKind `json:"type"`
	Name          string         `json:"name,omitempty"` // optional display name
	Project       string         `json:"project,omitempty"`
	Username      string         `json:"username,omitempty"` // never the password
	HasCredential bool           `json:"hasCredential"`
	Insecure      bool           `json:"insecure,omitempty"` // do not verify the server: its TLS certificate, or its SSH host key
	GitOptions
	Registered bool       `json:"registered"` // false: known only because an application names it
	FetchedAt  *time.Time `json:"fetchedAt,omitempty"`
	Error      string     `json:"error,omitempty"` // the sentence of the last failed fetch; empty when well
	ErrorAt    *time.Time `json:"errorAt,omitempty"`
	ErrorSince *time.Time `json:"errorSince,omitempty"` // the first of the failures in a row
	Version    int64      `json:"version"`
	CreatedAt  time.Time  `json:"createdAt"`
	// PlainHTTP has a registry contacted without TLS (CRED-13).
	PlainHTTP bool `json:"insecureOCIForceHttp,omitempty"`
	// Use is what a call to a source is about. It is not stored.
	Use RepositoryUse `json:"-"`
}

// A RepositoryUse is what applications use of a repository of charts or
// artifacts.
type RepositoryUse struct {
	// Target is what one source names, for the calls that are about a source.
	Target Target
	// Targets are all that applications name, for a fetch.
	Targets []Target
	// Known are the refs of the newest fetch.
	Known []Ref
}

// A Target is a chart or artifact and the revision of it that a source names.
type Target struct {
	Chart    string // empty: the repository is the artifact
	Revision string // a version, a range, a tag or a digest; empty: the newest version
	// PassCredentials sends the credential to other hosts that the index names
	// (HELM-12).
	PassCredentials bool
}

// AcceptedContents stands in a ref in the place of a digest: the next fetch
// takes the contents that the version has then (FT-G7).
const AcceptedContents = "accepted"

// Ref is the name of the ref that stores what a target stands for.
func (t Target) Ref() string { return t.Chart + "@" + t.Revision }

// For returns the repository for calls about one source.
func (r Repository) For(s Source, known []Ref) Repository {
	if r.Type == HelmRepository || r.Type == OCIRepository {
		r.Use = RepositoryUse{Target: s.Target(), Known: known}
	}
	return r
}

// Registry reports whether a repository is one of an OCI registry.
func (r Repository) Registry() bool { return strings.HasPrefix(r.URL, "oci://") }

// GitOptions say how a repository is reached and what is fetched of it.
type GitOptions struct {
	// Proxy is the URL of the proxy, without its user name and password.
	Proxy   string `json:"proxy,omitempty"`
	NoProxy string `json:"noProxy,omitempty"` // hosts that are reached without it, separated by commas
	LFS     bool   `json:"enableLfs,omitempty"`
	Depth   int    `json:"depth,omitempty"` // commits of a branch that are fetched; 0: all
}

// MaxDepth is the largest depth of a shallow copy.
const MaxDepth = 1_000_000

// A Ref is a name in a repository and the commit that it stands for.
type Ref struct {
	Name   string `json:"name"`   // full: refs/heads/main, refs/tags/v1.0.0, HEAD; of charts and artifacts Target.Ref
	Commit string `json:"commit"` // of Git 40 hex digits, annotated tags are peeled; else what hub/source/archives writes
}

// RefsDigest distinguishes lists of refs. Order does not matter; of several with
// one name the last one counts. The store calculates the same from its rows.
func RefsDigest(refs []Ref) [sha256.Size]byte {
	commits := make(map[string]string, len(refs))
	for _, r := range refs {
		commits[r.Name] = r.Commit
	}
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(commits)) {
		fmt.Fprintf(h, "%d:%s%d:%s", len(name), name, len(commits[name]), commits[name])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// A DueRepository is a repository that is due, with what its fetch needs.
type DueRepository struct {
	Repository
	Credential Credential
	Err        error             // the credential cannot be used
	Refs       [sha256.Size]byte // RefsDigest of those that are stored
	Asked      bool              // the annotation of an application requests a refresh
}
