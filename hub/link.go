package hub

import "time"

// An Invitation is an enrolment as the agent's side needs it: with its cluster,
// and who redeemed it.
type Invitation struct {
	Enrolment
	ClusterName string
	AgentID     string // set once it was used
	Key         []byte // SHA-256 of the public key that used it; only that key may ask again
}

// A Certificate is what the hub remembers of one that it issued to an agent.
type Certificate struct {
	Tenant    TenantID
	Cluster   ClusterID
	AgentID   string
	Serial    string // lower-case hexadecimal
	NotBefore time.Time
	NotAfter  time.Time
}

// A Redemption turns an invitation into an agent. It is stored whole or not
// at all: the invitation is used, the agent becomes the cluster's, and the
// agent that it replaces is revoked.
type Redemption struct {
	Enrolment    EnrolmentID
	Key          []byte // SHA-256 of the agent's public key
	Fingerprint  string // UID of the namespace kube-system
	AgentVersion string
	Certificate  Certificate
	Address      string
	At           time.Time
}

// A Revocation ends an agent with all its certificates, or one certificate.
// It matters until the last certificate that it covers has expired.
type Revocation struct {
	AgentID string // empty: Serial alone
	Serial  string // empty: every certificate of the agent
	Tenant  TenantID
	Until   time.Time
	// Cluster is set, and all else but Tenant empty, for a quarantine: no agent
	// of the cluster is admitted.
	Cluster ClusterID
}

// A Member is what the hub knows of the agent of a cluster before it lets it in.
type Member struct {
	ClusterName string
	AgentID     string   // the agent that enrolled last; an older one is refused
	Fingerprint string   // empty: not known yet
	Suspended   bool     // the tenant or the cluster may not connect
	Quarantined bool     // two clusters use the identity
	Rejected    []string // fingerprints of clusters that may not use this identity
}

// An Attachment is one live connection of an agent to a replica of the hub,
// with what the agent said of its cluster.
type Attachment struct {
	Tenant       TenantID
	Cluster      ClusterID
	AgentID      string
	Session      string
	Replica      string
	Epoch        string // of the agent process
	Instance     string // of its state directory; empty: not known
	Leader       bool   // it holds the Lease of its cluster
	AgentVersion string
	Fingerprint  string
	Upgradable   bool     // the agent lets the hub upgrade it
	Features     []string // that the agent names
	KubeVersion  string
	APIVersions  []string
	Readyz       string // "ok", or what the cluster's API server said
	Address      string
	At           time.Time
	Lease        time.Duration // how long it counts unless it is seen again; zero: 30 s
}

// An AgentHome is the replica that has the agent of a cluster. Of two for one
// cluster, that with the higher fence is the newer one.
type AgentHome struct {
	Tenant  TenantID
	Cluster ClusterID
	Replica string
	Session string // empty: the agent has detached
	Fence   int64
}

// A Replica is one process of the hub.
type Replica struct {
	ID       string // of this process; never used again
	Name     string // from the configuration, or the machine's
	Address  string // host:port at which other replicas reach it; empty: none
	Draining bool   // it is about to stop and accepts no new work
}

// A Heartbeat says that an attachment was alive at a time.
type Heartbeat struct {
	Tenant  TenantID
	Cluster ClusterID
	Session string
	At      time.Time
	Backlog uint32        // records that the agent has not sent yet
	Lag     time.Duration // age of the oldest change that is not stored yet
	Leader  bool
	// Incomplete says that the hub lacks a part of what the agent has seen since
	// it started: what is known of its cluster stays as old as it was.
	Incomplete bool
	Seq        uint64 // newest row of the desired log that the agent has stored
}
