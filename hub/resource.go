package hub

import "time"

// A Resource is one node of an application's tree as the agent last saw it.
type Resource struct {
	Cluster       ClusterID     `json:"-"`
	Application   ApplicationID `json:"-"`
	UID           string        `json:"uid,omitempty"`
	Parent        string        `json:"parent,omitempty"` // uid of the owner; empty: managed directly
	Group         string        `json:"group"`
	Version       string        `json:"version"`
	Kind          string        `json:"kind"`
	Namespace     string        `json:"namespace,omitempty"`
	Name          string        `json:"name"`
	Managed       bool          `json:"managed"` // in the target or a tombstone, as opposed to a child
	Sync          SyncStatus    `json:"status,omitempty"`
	Health        HealthStatus  `json:"health,omitempty"` // empty: the kind has no rule
	Message       string        `json:"message,omitempty"`
	RequiresPrune bool          `json:"requiresPruning,omitempty"`
	Hook          bool          `json:"hook,omitempty"`
	Wave          int32         `json:"syncWave,omitempty"`
	DiffSummary   string        `json:"diff,omitempty"`    // few words: which fields differ
	Links         []string      `json:"links,omitempty"`   // "title|URL" or URL, of http or https
	Confirm       bool          `json:"confirm,omitempty"` // its deletion waits until a person approves
	Info          []Info        `json:"info,omitempty"`    // columns: images, replicas, restarts …
	CreatedAt     *time.Time    `json:"createdAt,omitempty"`
	UpdatedAt     time.Time     `json:"updatedAt"`
	Orphan        bool          `json:"orphaned,omitempty"` // in the application's namespace, and orphaned: neither managed nor a child
	Stamp         []byte        `json:"-"`                  // the agent's own hash of it; empty: none
}
