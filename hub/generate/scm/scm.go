// Package scm lists repositories and pull requests of Git hosts for the
// generators scmProvider and pullRequest of ApplicationSets: GitHub, GitLab,
// Gitea, Bitbucket Cloud, Bitbucket Server and Azure DevOps.
//
// A list is complete or an error. A rate limit, a page that is missing, an
// answer that is no JSON of the host or a bound of this package is an error,
// because applications are deleted that a list lacks.
//
// The clients are our own, one file for each host, over net/http. The hub has to
// bound, cache and count each request, and to keep tokens at one host; libraries
// of the hosts allow only part of that. A token is sent to the address that the
// generator names, redirects are not followed, and no error contains a text of
// the host, which may repeat what it was sent.
//
// The package connects only through the client that Access returns. Answers are
// shared among the sets of a tenant (Cache). Package generate calls it.
package scm

import (
	"context"
	"net/http"
)

// The kinds of objects that generators refer to.
const (
	SecretKind    = "Secret"
	ConfigMapKind = "ConfigMap"
)

// Access is what a set may use: its credentials, its way to the hosts, and its
// tenant's part of the cache.
type Access interface {
	// Secret returns a value of a Secret, or of a ConfigMap for authorities.
	Secret(ctx context.Context, kind, name, key string) (string, error)
	// App returns a token of a GitHub App's installation.
	App(ctx context.Context, use AppUse) (string, error)
	// Client returns a client that connects to permitted addresses only. It is
	// asked for before Secret and App, and refuses what the tenant's settings do
	// not allow.
	Client(ctx context.Context, use ClientUse) (*http.Client, error)
	// Answers is where answers are shared; nil: they are not.
	Answers() *Answers
}

// A ClientUse says what a client is for.
type ClientUse struct {
	Kind     string   // github, gitlab, gitea, bitbucket, bitbucketServer or azureDevOps
	BaseURL  string   // of the API, as requests begin
	API      string   // as the generator has it; empty: the public host of the kind
	Secrets  []string // names of the Secrets whose values are sent
	Insecure bool     // accept every certificate
	CA       string   // authorities in PEM; empty: those of the tenant, or of the machine
}

// An AppUse says which token of a GitHub App is needed.
type AppUse struct {
	Secret  string // its name
	BaseURL string // of the API that the token is sent to
	Owner   string // the organisation or user
	Pulls   bool   // it reads pull requests
}
