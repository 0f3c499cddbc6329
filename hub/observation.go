package hub

import (
	"slices"
	"time"
)

// A ClusterObservation is a report of the agent of one cluster.
type ClusterObservation struct {
	Cluster ClusterID
	Observation
}

// An Observation is one report of an agent, as the store receives it.
type Observation struct {
	Epoch        string
	Seq          int64
	Applications []ApplicationObservation
	Resources    []Resource
	Gone         []ResourceGone
	Operations   []OperationObservation
	Closed       []Tombstone
	Snapshot     int64 // generation of the snapshot that this belongs to; 0: a delta
	Sweep        int64 // not 0: the snapshot of this generation is complete
	Bounded      bool  // only Buckets were compared, and only they are swept
	Buckets      []uint16
	Sums         *Sums // the agent's hashes; nil: it does not ask for a comparison
}

// Passing reports whether the report is about live state alone, which the agent
// can report again. Ended operations cannot be reported again.
func (o Observation) Passing() bool {
	return len(o.Operations) == 0 && len(o.Closed) == 0 &&
		!slices.ContainsFunc(o.Applications, func(a ApplicationObservation) bool { return a.Gone })
}

// An ApplicationObservation is what an agent says of a whole application.
type ApplicationObservation struct {
	Application ApplicationID
	Target      SnapshotID
	Generation  int64
	Sync        SyncStatus
	Health      HealthStatus
	HealthCause string
	ComparedAt  time.Time
	Warnings    []string
	Notes       []Note   // of types of their own
	Excluded    []string // sentences about kinds that the settings exclude
	Error       string
	Gone        bool
	Stamp       []byte      // the agent's own hash of it; empty: none
	Unblocked   OperationID // that failed because of who owned objects, which is no longer in its way; empty: there is none
}

// A Note is a condition that an agent reports.
type Note struct{ Type, Message string }

// A ResourceGone names a resource that an agent no longer sees.
type ResourceGone struct {
	Application ApplicationID
	UID         string
	Group       string
	Kind        string
	Namespace   string
	Name        string
}

// An OperationObservation is how far an operation came.
type OperationObservation struct {
	Operation   OperationID
	Application ApplicationID
	Phase       Phase
	Message     string
	Results     []ObjectResult
	StartedAt   *time.Time
	FinishedAt  *time.Time
	HealthyAt   *time.Time
	Trace       string // of the agent's span; empty: none
}
