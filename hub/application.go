package hub

import (
	"encoding/json"
	"time"
)

// SyncStatus says whether live state equals the target.
type SyncStatus string

// The sync states.
const (
	Synced      SyncStatus = "Synced"
	OutOfSync   SyncStatus = "OutOfSync"
	SyncUnknown SyncStatus = "Unknown"
)

// HealthStatus is how well an object or application is; row HLT-01 has the order.
type HealthStatus string

// The health states, best to worst.
const (
	Healthy       HealthStatus = "Healthy"
	Suspended     HealthStatus = "Suspended"
	Progressing   HealthStatus = "Progressing"
	MissingHealth HealthStatus = "Missing"
	Degraded      HealthStatus = "Degraded"
	HealthUnknown HealthStatus = "Unknown"
)

// An Application is the unit of delivery: sources, a destination, a policy.
type Application struct {
	ID     ApplicationID `json:"id"`
	Tenant TenantID      `json:"-"`
	Meta
	Project    string            `json:"project"`
	Spec       json.RawMessage   `json:"spec"`              // an ApplicationSpec as given
	Cluster    ClusterID         `json:"cluster,omitempty"` // resolved destination; empty: unresolved, see conditions
	Generation int64             `json:"generation"`        // grows with each change of spec, target, policy or deletion; the fence of operations
	DeletingAt *time.Time        `json:"deletingAt,omitempty"`
	Cascade    bool              `json:"cascade,omitempty"`        // with DeletingAt: objects go too
	Parent     *ApplicationKey   `json:"parent,omitempty"`         // the application that renders it; nil: none does
	Set        *ApplicationKey   `json:"applicationSet,omitempty"` // the application set that generates it; nil: none does
	Pin        *Pin              `json:"pin,omitempty"`            // set by rollback: paused at an older snapshot
	Status     ApplicationStatus `json:"status"`
}

// A Pin pauses an application at an older snapshot until Git renders something
// else than what was rolled back from, or a person syncs or resumes. The hub
// itself pauses those for which other renderers make other objects of equal
// sources, so that nothing of an upgrade is applied unseen.
type Pin struct {
	Snapshot SnapshotID `json:"snapshot"`
	History  int64      `json:"history,omitempty"` // entry that was gone back to; 0: not known
	Skipped  string     `json:"skipped"`           // revision that was rolled back from
	// SkippedRevisions has one for each source when there are several.
	SkippedRevisions []string   `json:"skippedRevisions,omitempty"`
	Bad              SnapshotID `json:"bad"` // snapshot of Skipped: newer revisions that render the same are skipped too
	Reason           string     `json:"reason,omitempty"`
	By               string     `json:"by"`
	At               time.Time  `json:"at"`
	// Renderers is what other renderers would change; nil: somebody rolled back.
	Renderers *RendererChange `json:"renderers,omitempty"`
	// Newest is the newest rendered snapshot of Git, and Revision what it
	// stands for. Empty: Bad and Skipped are.
	Newest    SnapshotID `json:"newest,omitempty"`
	Revision  string     `json:"revision,omitempty"`
	Revisions []string   `json:"revisions,omitempty"`
	// Behind means that Newest has other objects than Snapshot: against Git the
	// application is OutOfSync.
	Behind bool `json:"behind"`
}

// Git is the newest rendered snapshot of Git, and its revisions.
func (p Pin) Git() (snapshot SnapshotID, revision string, revisions []string) {
	if p.Newest == "" {
		return p.Bad, p.Skipped, p.SkippedRevisions
	}
	return p.Newest, p.Revision, p.Revisions
}

// Sentence says that an application is paused at a revision, since when, by
// whom and why.
func (p Pin) Sentence(revision string) string {
	s := "paused at " + revision[:min(len(revision), 8)] + " since " + p.At.UTC().Format(time.RFC3339)
	if p.Renderers != nil {
		return s + " because " + p.Renderers.Sentence()
	}
	s += ", rolled back by " + p.By
	if p.Reason != "" {
		s += " because " + p.Reason
	}
	return s
}

// An ApplicationStatus is what is known of an application. Times say how old.
type ApplicationStatus struct {
	Revision    string       `json:"revision,omitempty"`  // commit that the target snapshot stands for now
	Revisions   []string     `json:"revisions,omitempty"` // one for each source when there are several
	SourceType  string       `json:"sourceType,omitempty"`
	Target      SnapshotID   `json:"target,omitempty"`   // compared with live
	Accepted    SnapshotID   `json:"accepted,omitempty"` // enforced
	Sync        SyncStatus   `json:"sync"`
	Health      HealthStatus `json:"health"`
	HealthCause string       `json:"healthCause,omitempty"` // the worst child and why
	HealthSince *time.Time   `json:"healthSince,omitempty"`
	Conditions  []Condition  `json:"conditions,omitempty"`
	Operation   *Operation   `json:"operation,omitempty"`   // the newest one
	Resources   int          `json:"resources"`             // managed objects in the target
	ComparedAt  *time.Time   `json:"comparedAt,omitempty"`  // by the agent, with the target above
	RefreshedAt *time.Time   `json:"refreshedAt,omitempty"` // sources last resolved and rendered or found unchanged
	Hold        string       `json:"hold,omitempty"`        // why auto-sync waits; empty: it does not
	// PlannedGeneration is the generation that the newest desired state was
	// planned for; behind Generation means that a change of spec waits.
	PlannedGeneration int64 `json:"plannedGeneration,omitempty"`
	// PlannedProject is the version of the project that it was planned for.
	PlannedProject int64 `json:"plannedProject,omitempty"`
	// DeletionHooks are the types of the target's hooks that run when the
	// application is deleted.
	DeletionHooks []string `json:"deletionHooks,omitempty"`
}

// A Condition is one thing that a person should know about an application.
type Condition struct {
	Type    string    `json:"type"` // row APP-17: ComparisonError, InvalidSpecError, SyncError, DeletionError …
	Message string    `json:"message"`
	Since   time.Time `json:"lastTransitionTime"`
}

// Condition types used by the stages.
const (
	InvalidSpecError = "InvalidSpecError" // destination, project or source do not fit
	ComparisonError  = "ComparisonError"  // sources could not be resolved or rendered
	SyncError        = "SyncError"        // automation stopped after a failed operation
	DeletionError    = "DeletionError"
	ImpureWarning    = "ImpureWarning"           // templates use random or time functions
	RenderWarning    = "RenderWarning"           // a renderer's warnings for users
	AgentWarning     = "AgentWarning"            // an agent's warnings for users, such as a field that is changed again and again
	SharedWarning    = "SharedResourceWarning"   // an object that others track or manage, too
	OrphanedWarning  = "OrphanedResourceWarning" // objects in its namespace that no application manages
	ExcludedWarning  = "ExcludedResourceWarning" // the settings exclude a kind of the application
)
