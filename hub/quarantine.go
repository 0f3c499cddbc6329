package hub

import "time"

// A Rewind means that a cluster's agent has another log than the hub: it
// accepts no change, and enforces what it has, until an admin decides.
type Rewind struct {
	Since            time.Time `json:"since"`
	SeenAt           time.Time `json:"seenAt"`
	Reason           string    `json:"reason"`
	Proven           bool      `json:"proven"` // the agent showed what this very hub had signed
	AgentIncarnation string    `json:"agentIncarnation,omitempty"`
	AgentSeq         int64     `json:"agentSeq"` // row that the agent has; 0: not known yet
	HubSeq           int64     `json:"hubSeq"`   // row where the hub's log ended
	Former           string    `json:"-"`        // the log's incarnation before the hub was marked as restored
}

// A Quarantine means that two Kubernetes clusters use one identity, as a clone
// or a restored backup does. Neither agent is admitted until an admin decides.
type Quarantine struct {
	Since   time.Time `json:"since"`
	Known   string    `json:"known"` // fingerprint of the cluster that enrolled
	Other   string    `json:"other"` // of the one that came later
	Address string    `json:"address"`
}

// Refused means that a second process with the same identity was refused while
// the present one is connected.
type Refused struct {
	Address string    `json:"address"`
	At      time.Time `json:"at"`
}

// Sums are hashes over what an agent sees, by bucket.
type Sums struct {
	First  []byte
	Second map[uint8]BucketSums // inside buckets of the first level
}

// BucketSums are the hashes inside one bucket of the first level.
type BucketSums struct {
	Index []byte
	Sums  []byte
}

// A Comparison says where an agent and the hub hold different things.
type Comparison struct {
	First  []uint8  // buckets of the first level of which the agent shall send details
	Second []uint16 // buckets that differ
}
