package hub

import (
	"strings"
	"time"
)

// A KeyKind says what a key of the directory is for.
type KeyKind string

// The kinds of keys.
const (
	KeyRole     KeyKind = "role"     // a role of a project
	KeySCIM     KeyKind = "scim"     // an identity provider that provisions people
	KeyExchange KeyKind = "exchange" // a token for one of another issuer
)

// An APIKey finds the tenant of a token that belongs to no account.
type APIKey struct {
	ID        TokenID
	Tenant    TenantID
	Kind      KeyKind
	ExpiresAt time.Time
	UsedAt    *time.Time
}

// A RoleToken lets a program act with a role of a project (PROJ-13). Only the
// hash of its secret is stored.
type RoleToken struct {
	ID        TokenID
	ProjectID ProjectID
	Project   string // its name
	Role      string
	Name      string
	Prefix    string // first characters, to find it again
	Hash      [32]byte
	CreatedBy string
	CreatedAt time.Time
	ExpiresAt time.Time
	UsedAt    *time.Time
}

// RoleSubject is what policies call a role of a project.
func RoleSubject(project, role string) string { return RolePrefix + project + ":" + role }

// RolePrefix begins the subjects of projects' roles. No name of an account has
// a colon.
const RolePrefix = "proj:"

// OfRole reports whether a caller is a role of a project, and of which.
func (c Caller) OfRole() (project string, is bool) {
	rest, is := strings.CutPrefix(c.Username, RolePrefix)
	project, _, _ = strings.Cut(rest, ":")
	return project, is
}
