// Package hub defines the nouns of Capstan and their invariants: tenants,
// projects, repositories, clusters, applications, snapshots, operations and
// their status. It does no I/O and imports no stage. Every stage and the store
// use these types, so that none of them needs to know another.
package hub

import "github.com/google/uuid"

// Identifiers are UUIDv7 in text form. They are distinct types so that
// arguments cannot be swapped.
type (
	TenantID      string
	UserID        string
	ProjectID     string
	ClusterID     string
	EnrolmentID   string
	RepositoryID  string
	ApplicationID string
	SnapshotID    string
	OperationID   string
	TokenID       string
	RequestID     string
	SessionID     string
)

// NewID makes a time-ordered identifier (UUIDv7, RFC 9562).
func NewID[T ~string]() T { return T(uuid.Must(uuid.NewV7()).String()) }

// ValidID reports whether s is the text form of a UUID; identifiers that come
// from outside are checked before they reach a query.
func ValidID(s string) bool { return uuid.Validate(s) == nil && len(s) == 36 }

// A Digest names one object or one list of objects of one tenant:
// HMAC-SHA-256 under the tenant's digest key, 32 bytes.
type Digest [32]byte
