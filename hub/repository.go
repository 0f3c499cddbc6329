package hub

import (
	"log/slog"
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
	Registered    bool           `json:"registered"`         // false: known only because an application names it
	FetchedAt     *time.Time     `json:"fetchedAt,omitempty"`
	Error         string         `json:"error,omitempty"` // the sentence of the last failed fetch; empty when well
	ErrorAt       *time.Time     `json:"errorAt,omitempty"`
	ErrorSince    *time.Time     `json:"errorSince,omitempty"` // the first of the failures in a row
	Version       int64          `json:"version"`
	CreatedAt     time.Time      `json:"createdAt"`
}

// A Credential opens a repository. It never leaves the hub and is never printed.
type Credential struct {
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"` // or a token
	// BearerToken is sent as "Authorization: Bearer" instead of the two
	// above, for hosts that ask for it (CRED-06).
	BearerToken string `json:"bearerToken,omitempty"`
	// SSHPrivateKey opens repositories over SSH (CRED-07).
	SSHPrivateKey string `json:"sshPrivateKey,omitempty"`
	// TLSClientCert and TLSClientKey, both PEM, are shown to a server over
	// HTTPS that asks who connects (CRED-08).
	TLSClientCert string `json:"tlsClientCert,omitempty"`
	TLSClientKey  string `json:"tlsClientKey,omitempty"`
}

// String hides the secret from every formatter.
func (Credential) String() string { return "(credential)" }

// GoString hides the secret from %#v too.
func (Credential) GoString() string { return "(credential)" }

// LogValue hides the secret from logs, those in JSON too.
func (Credential) LogValue() slog.Value { return slog.StringValue("(credential)") }

// A Ref is a name in a repository and the commit that it stands for.
type Ref struct {
	Name   string `json:"name"`   // full: refs/heads/main, refs/tags/v1.0.0, HEAD
	Commit string `json:"commit"` // 40 hex digits; annotated tags are peeled
}
