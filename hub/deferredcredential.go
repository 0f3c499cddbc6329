package hub

import "time"

// A DeferredCredential is stored for writing to repositories, which this release
// does not, or for generators. No fetch ever uses it (CRED-03, CRED-04).
type DeferredCredential struct {
	ID        RepositoryID      `json:"id"`
	Kind      DeferredKind      `json:"kind"`
	Name      string            `json:"name,omitempty"` // of the Secret that declares it, for generators
	URL       string            `json:"url,omitempty"`  // or the beginning of it
	Project   string            `json:"project,omitempty"`
	Username  string            `json:"username,omitempty"`
	Keys      []string          `json:"keys"` // of the values that are stored
	CreatedAt time.Time         `json:"createdAt"`
	Values    map[string]string `json:"-"`
}

// A DeferredKind says what a credential is stored for. Its values are those of
// Argo CD's label.
type DeferredKind string

// The kinds.
const (
	WriteRepository DeferredKind = "repository-write"
	WriteTemplate   DeferredKind = "repo-write-creds"
	SCMCredential   DeferredKind = "scm-creds"
)

// Known reports whether there is such a kind.
func (k DeferredKind) Known() bool {
	return k == WriteRepository || k == WriteTemplate || k == SCMCredential
}

// Object is what policies call the credential.
func (d DeferredCredential) Object() string {
	switch {
	case d.Kind == SCMCredential:
		return d.Name
	case d.Project != "":
		return d.Project + "/" + d.URL
	}
	return d.URL
}
