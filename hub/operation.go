package hub

import (
	"strings"
	"time"
)

// An Operation is one run of the sync engine for one application.
type Operation struct {
	ID          OperationID      `json:"id"`
	Application ApplicationID    `json:"application"`
	Cluster     ClusterID        `json:"cluster"`
	Kind        OperationKind    `json:"kind"`
	Snapshot    SnapshotID       `json:"snapshot"`
	Revision    string           `json:"revision"`
	Fence       int64            `json:"fence"` // the application's generation when it was made
	Options     OperationOptions `json:"options"`
	Initiator   Initiator        `json:"initiator"`
	Reason      string           `json:"reason,omitempty"`
	Phase       Phase            `json:"phase"`
	Message     string           `json:"message,omitempty"`
	Results     []ObjectResult   `json:"results,omitempty"`
	Attempt     int              `json:"attempt"` // 0 for the first try
	RetryAt     *time.Time       `json:"retryAt,omitempty"`
	OperationTimes
	// Unblocked says that the operation failed because of who owned objects, and
	// that its agent has seen since that this is no longer in its way.
	Unblocked bool `json:"-"`
	// Trace is what the operation continues; it travels to the agent and is
	// not stored.
	Trace string `json:"-"`
}

// OperationTimes are the moments of an operation; nil: not yet.
type OperationTimes struct {
	CreatedAt  time.Time  `json:"createdAt"`
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	HealthyAt  *time.Time `json:"healthyAt,omitempty"`
	Deadline   time.Time  `json:"deadline"`
}

// AwaitsApproval reports whether the operation waits until a user approves what it
// deletes.
func (o *Operation) AwaitsApproval() bool {
	return !o.Phase.Over() && strings.Contains(o.Message, "waiting for approval")
}

// OperationKind says what an operation is for.
type OperationKind string

// The kinds of operation.
const (
	SyncOperation     OperationKind = "sync"
	RollbackOperation OperationKind = "rollback"
	DeleteOperation   OperationKind = "delete"
)

// OperationOptions are what a person or a policy asked for.
type OperationOptions struct {
	Prune       bool     `json:"prune,omitempty"`
	DryRun      bool     `json:"dryRun,omitempty"`
	SkipHooks   bool     `json:"skipHooks,omitempty"` // strategy "apply"
	Force       bool     `json:"force,omitempty"`
	SyncOptions []string `json:"syncOptions,omitempty"` // as in spec.syncPolicy.syncOptions
	Resources   []string `json:"resources,omitempty"`   // "group:kind:namespace/name" or "group:kind:name"; empty: all
	Retry       *Retry   `json:"retry,omitempty"`
	Infos       []Info   `json:"infos,omitempty"`
	// Override is set where the operation applies something else than the target.
	Override *Override `json:"override,omitempty"`
	// Asked is when the operation was first asked for, over all its attempts:
	// approvals of deletions count from then on. Zero: when it was made.
	Asked time.Time `json:"asked,omitzero"`
	// From is the origin of the operation's manifests; nil: not reported.
	From *SyncedFrom `json:"from,omitempty"`
}

// A SyncedFrom is what an operation applies, as it was specified when the
// operation was made (APP-13).
type SyncedFrom struct {
	Source    *Source            `json:"source,omitempty"`
	Sources   []Source           `json:"sources,omitempty"`
	Revisions []string           `json:"revisions,omitempty"` // one for each of several sources
	Namespace *NamespaceMetadata `json:"namespaceMetadata,omitempty"`
}

// From is the origin of an operation's manifests: revisions of the sources of a
// specification, or what the override replaces them with.
func (s ApplicationSpec) From(o *Override, revisions []string) *SyncedFrom {
	if o != nil {
		if other, err := o.Apply(s); err == nil {
			s = other
		}
	}
	out := &SyncedFrom{Source: s.Source}
	if len(s.Sources) > 0 {
		out.Source, out.Sources, out.Revisions = nil, s.Sources, revisions
	}
	if s.SyncPolicy != nil {
		out.Namespace = s.SyncPolicy.ManagedNamespaceMetadata
	}
	return out
}

// An Initiator is who started something.
type Initiator struct {
	Username  string `json:"username,omitempty"`
	Automated bool   `json:"automated,omitempty"`
}

// An ObjectResult is the outcome for one object in one operation (APP-16).
type ObjectResult struct {
	Group     string `json:"group"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Status    string `json:"status"` // Synced, SyncFailed, Pruned, PruneSkipped
	Message   string `json:"message,omitempty"`
	HookType  string `json:"hookType,omitempty"`
	HookPhase string `json:"hookPhase,omitempty"`
	SyncPhase string `json:"syncPhase,omitempty"`
	Wave      int32  `json:"wave,omitempty"`
}
