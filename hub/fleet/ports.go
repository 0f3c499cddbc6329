package fleet

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

// Vault stores the private authority. Its content includes private keys: it
// encrypts them before they reach a disk.
type Vault interface {
	// Authority returns what was put. The error is fault.Missing when
	// nothing was put yet.
	Authority(ctx context.Context) ([]byte, error)
	// PutAuthority stores it once. The error is fault.Conflict if another
	// replica was first.
	PutAuthority(ctx context.Context, secret []byte) error
}

// Enrolments stores join tokens, by the hash of their secret.
type Enrolments interface {
	// EnrolmentByHash finds an invitation, used or expired ones too. The
	// error is fault.Missing if there is none.
	EnrolmentByHash(ctx context.Context, hash [32]byte) (hub.Invitation, error)
	// Redeem stores the redemption in one transaction, with an attempt of
	// the stage "issued". The error is fault.Conflict if another key used the invitation first. The same key
	// may redeem again: its first answer was lost.
	Redeem(ctx context.Context, r hub.Redemption) error
	// Attempted notes one failed use of a token and how far it came, on the
	// enrolments with that prefix.
	Attempted(ctx context.Context, prefix string, a hub.Attempt) error
	// Renewed notes a further certificate of an agent.
	Renewed(ctx context.Context, c hub.Certificate) error
}

// Revocations is the set of agents and certificates that are no longer good.
type Revocations interface {
	// RevocationVersion grows with every revocation. It is asked for every
	// two seconds and must be cheap.
	RevocationVersion(ctx context.Context) (int64, error)
	// Revocations returns all that still matter: those that may cover a
	// certificate which has not expired at that time.
	Revocations(ctx context.Context, at time.Time) ([]hub.Revocation, error)
	// MergeRevocations restores revocations of a tenant that the hub made and
	// has lost, because its database was restored. Known ones change nothing.
	MergeRevocations(ctx context.Context, tenant hub.TenantID, of []hub.Revocation) error
}

// Presence is who is connected. A Disconnected that comes late names its own
// session and must not touch a newer one.
type Presence interface {
	// Member returns what the hub knows of a cluster's agent. The error is
	// fault.Missing if the cluster is gone.
	Member(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID) (hub.Member, error)
	// Connected makes the attachment the cluster's. The error is
	// fault.Conflict while another process has the better right to be there.
	Connected(ctx context.Context, a hub.Attachment) error
	// RenewAttachments is called with all attachments that were alive since the last call.
	// It returns the sessions that another one has replaced, perhaps at
	// another replica.
	RenewAttachments(ctx context.Context, heartbeats []hub.Heartbeat) (lost []string, err error)
	Disconnected(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, session string) error
}

// Refusals keeps who is not let in, and why.
type Refusals interface {
	// Quarantine keeps both clusters out that use one identity, at every
	// replica, until an admin decides. It reports whether that is new.
	Quarantine(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, q hub.Quarantine) (fresh bool, err error)
	// Refused notes why an agent that has a certificate was not let in.
	Refused(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, r hub.Refusal) error
}

// Keys returns the keys for decrypting and masking. Both stay in the agent's
// memory.
type Keys interface {
	// LinkKeys returns the key that the tenant's blobs are sealed with, and
	// the cluster's own key for masking Secret values.
	LinkKeys(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID) (object, mask [32]byte, err error)
}
