package hub

import (
	"encoding/json"
	"time"
)

// ApplicationSetID names one application set.
type ApplicationSetID string

// An ApplicationSet makes applications from a template and the parameters that
// its generators return (ASET-01).
type ApplicationSet struct {
	ID     ApplicationSetID `json:"id"`
	Tenant TenantID         `json:"-"`
	Meta
	// Project is that of its template; AnyProject: the template has
	// placeholders there.
	Project    string               `json:"project"`
	Spec       json.RawMessage      `json:"spec"`       // an ApplicationSetSpec as given
	Generation int64                `json:"generation"` // grows with each change of spec
	DeletingAt *time.Time           `json:"deletingAt,omitempty"`
	Deletion   SetDeletion          `json:"deletion,omitempty"` // with DeletingAt
	Parent     *ApplicationKey      `json:"parent,omitempty"`   // the application that renders it; nil: none does
	Status     ApplicationSetStatus `json:"status"`
}

// AnyProject stands for the project of a set whose template has placeholders
// in spec.project. Each of its applications is in an existing project.
const AnyProject = "*"

// A SetDeletion is what becomes of the applications of a set that is deleted.
type SetDeletion string

// The deletions. Without the applications, they stay and have no owner.
const (
	DeleteWithApplications SetDeletion = "cascade"
	DeleteSetAlone         SetDeletion = "orphan"
)

// An ApplicationSetStatus is what is known of a set (ASET-20).
type ApplicationSetStatus struct {
	Conditions []ApplicationSetCondition `json:"conditions,omitempty"`
	// Rollout has one state for each application of a set with RollingSync.
	Rollout        []RolloutState `json:"applicationStatus,omitempty"`
	ResourcesCount int            `json:"resourcesCount"`
	Health         HealthStatus   `json:"health,omitempty"`
	HealthMessage  string         `json:"healthMessage,omitempty"`
	// GeneratedAt is when all generators last returned a result, and
	// ObservedGeneration is the generation of the set that it was for.
	GeneratedAt        *time.Time `json:"generatedAt,omitempty"`
	ObservedGeneration int64      `json:"observedGeneration,omitempty"`
	// Held is a deletion of applications that waits for consent; nil: none does.
	Held *HeldDeletion `json:"held,omitempty"`
	// Uses are the repositories that the generators have read.
	Uses []SetRepository `json:"uses,omitempty"`
	// Watches are the places of Git hosts whose events change what the generators
	// list.
	Watches []string `json:"watches,omitempty"`
}

// A SetRepository is a repository that a Git generator reads, at a revision.
type SetRepository struct {
	URL      string `json:"url"`
	Revision string `json:"revision,omitempty"`
}

// An ApplicationSetCondition is one thing that a person should know about a set.
type ApplicationSetCondition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"` // True, False or Unknown
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"lastTransitionTime"`
}

// The types of conditions. All but DeletionHeld are Argo CD's.
const (
	SetErrorOccurred        = "ErrorOccurred"
	SetParametersGenerated  = "ParametersGenerated"
	SetResourcesUpToDate    = "ResourcesUpToDate"
	SetRolloutProgressing   = "RolloutProgressing"
	SetInvalidRolloutConfig = "InvalidRolloutConfig"
	SetDeletionHeld         = "DeletionHeld" // applications are only deleted with consent
)

// The values of a condition's status.
const (
	ConditionTrue    = "True"
	ConditionFalse   = "False"
	ConditionUnknown = "Unknown"
)

// A RolloutStatus is how far one application of a rollout is (APRG-05).
type RolloutStatus string

// The rollout states, in the order in which an application passes them.
const (
	RolloutWaiting     RolloutStatus = "Waiting"     // for earlier steps
	RolloutPending     RolloutStatus = "Pending"     // its sync is about to begin
	RolloutProgressing RolloutStatus = "Progressing" // it is being synced, or not yet healthy
	RolloutHealthy     RolloutStatus = "Healthy"
)

// A RolloutState is one application of a set with RollingSync.
type RolloutState struct {
	Application string        `json:"application"`
	Status      RolloutStatus `json:"status"`
	Step        string        `json:"step"` // from "1" on; "-1": no step selects it
	Message     string        `json:"message"`
	Since       time.Time     `json:"lastTransitionTime"`
	Revisions   []string      `json:"targetRevisions"`
	// Spec is a hash of the spec that the state is about.
	Spec string `json:"specHash,omitempty"`
}

// A HeldDeletion lists applications that a set no longer generates and that
// are not deleted without consent, because they are too many at once.
type HeldDeletion struct {
	// Digest names the list: consent is given to one list, and to no other.
	Digest       string    `json:"digest"`
	Applications []string  `json:"applications"` // namespace/name, sorted
	Of           int       `json:"of"`           // applications that the set has
	Limit        int       `json:"limit"`        // how many may be deleted without consent
	Since        time.Time `json:"since"`
	// ConsentedBy is who has agreed to it; empty: nobody has.
	ConsentedBy string     `json:"consentedBy,omitempty"`
	ConsentedAt *time.Time `json:"consentedAt,omitempty"`
}

// A SetMember is an application that a set has generated.
type SetMember struct {
	Application ApplicationID
	Set         ApplicationSetID
}

// A SetResource is an application of a set, as a status lists it.
type SetResource struct {
	ApplicationKey
	Project  string            `json:"project"`
	Labels   map[string]string `json:"labels,omitempty"`
	Sync     SyncStatus        `json:"sync"`
	Health   HealthStatus      `json:"health"`
	Deleting bool              `json:"deleting,omitempty"`
}

// Actions of a preview.
const (
	PreviewCreate    = "create"
	PreviewUpdate    = "update"
	PreviewDelete    = "delete"
	PreviewUnchanged = "unchanged"
)

// A PreviewedApplication is what a set would do to one application.
type PreviewedApplication struct {
	ApplicationKey
	Action  string          `json:"action"`
	Before  json.RawMessage `json:"before,omitempty"` // labels, annotations, finalizers, spec; empty: there is none
	After   json.RawMessage `json:"after,omitempty"`
	Problem string          `json:"problem,omitempty"` // why it would not happen
	Held    bool            `json:"held,omitempty"`    // a deletion that would wait for consent
	Params  json.RawMessage `json:"params,omitempty"`  // what its template was filled with
}

// WatchRollout has the state of its applications wake a set, too.
const WatchRollout = "rollout"

// SetNamespacesKey of ParamsMap lists the namespaces, besides Argo CD's, in which
// application sets may be.
const SetNamespacesKey = "applicationsetcontroller.namespaces"

// RefreshSetAnnotation asks for a set to be generated at once (ASET-18).
const RefreshSetAnnotation = "argocd.argoproj.io/application-set-refresh"
