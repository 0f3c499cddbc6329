// Package wave is the pure core of the sync engine. It decides in which order
// the objects of one operation are applied, pruned and awaited, runs hooks, and
// can be stopped and resumed at any point. It sends no requests and has no
// bodies of objects: a Target does that, agent/apply for objects of the cluster
// and of the hub. Phases, waves and kinds keep their order. A hook instance is
// created at most once in an operation. Only what the plan names is deleted,
// and no step follows a failed one.
package wave

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// A Phase is a part of an operation (ENG-01).
type Phase string

// The phases, in their order. SyncFail runs only after a failure. PreDelete,
// Delete and PostDelete are those of the deletion of a whole application.
const (
	PreSync    Phase = "PreSync"
	Sync       Phase = "Sync"
	PostSync   Phase = "PostSync"
	SyncFail   Phase = "SyncFail"
	PreDelete  Phase = "PreDelete"
	Delete     Phase = "Delete"
	PostDelete Phase = "PostDelete"
)

// An Object is what Build needs of one object. Describe makes it from a
// manifest; for an object to prune, key, version, wave and options are enough.
type Object struct {
	Index          int          // the caller's number for it; returned in Item.Index
	Key            manifest.Key // with the namespace that it will live in; no name if GenerateName is set
	Version        string
	GenerateName   string // of a hook; the machine makes a name from it (HOOK-05)
	Wave           int32
	Hooks          []string // as manifest.Hooks returns them
	DeletePolicies []string
	Options        []string // the object's own sync options
	NoWait         bool     // annotation capstan.dev/wait=false: its health is never waited for
	Defines        []Kind   // kinds that a CustomResourceDefinition serves
}

// A Kind is a group and kind without version.
type Kind struct{ Group, Kind string }

// An Item is one task of a plan.
type Item struct {
	Index          int          `json:"index"` // of the object it came from; -1 for a namespace of CreateNamespace
	Key            manifest.Key `json:"key"`   // hooks made from generateName have their final name here
	Version        string       `json:"version"`
	Phase          Phase        `json:"phase"`
	Wave           int32        `json:"wave"`
	Hook           bool         `json:"hook,omitempty"`
	HookTypes      []string     `json:"hookTypes,omitempty"` // all of the manifest; Phase is the one of this task
	DeletePolicies []string     `json:"deletePolicies,omitempty"`
	Prune          bool         `json:"prune,omitempty"`     // to be deleted, not applied
	Namespace      bool         `json:"namespace,omitempty"` // ensure that the namespace Key.Name exists (SYNC-26); there is no manifest
	MadeHere       bool         `json:"madeHere,omitempty"`  // this operation creates its namespace or kind, which may not exist yet
	NoWait         bool         `json:"noWait,omitempty"`
	Options        []string     `json:"options,omitempty"`  // of application and object together; the last one of a name is used (SYNC-14)
	Instance       string       `json:"instance,omitempty"` // of a hook: "<operation id>/<phase>"; the Target marks what it creates with it
	Keep           string       `json:"keep,omitempty"`     // why a prune is not done; empty: it is
	Confirm        bool         `json:"confirm,omitempty"`  // of a deletion: it waits until a person has approved it (SYNC-13)

	defines []Kind
	rank    int
}

// ID names an item within its plan.
func (it Item) ID() string {
	id := string(it.Phase) + "|" + it.Key.String()
	if it.Prune {
		id = "prune|" + id
	}
	return id
}

// Has reports whether a hook has a deletion policy.
func (it Item) Has(policy string) bool {
	for _, p := range it.DeletePolicies {
		if p == policy {
			return true
		}
	}
	return false
}

// A Target executes the machine's decisions on live objects. Apply and Delete
// are called for several items at once. All of them must end soon after their
// context does. Errors are classified with shared/fault: Offline and Internal
// mean that the system is at fault (the operation ends in Error), all others
// that the manifests are (Failed).
type Target interface {
	// Apply writes the object's desired content, or does nothing if it has that
	// already. A hook is created, never changed, under the item's name and
	// marked with the item's instance and a finalizer; that it exists with the
	// same instance is success. An older hook of the same name, which exists
	// only if the hook's policies retain it, is updated.
	Apply(ctx context.Context, it Item) (Outcome, error)
	// Delete prunes an object, or removes a hook together with its hook
	// finalizer. Deleting what is gone, or what is not ours, is success.
	Delete(ctx context.Context, it Item) (Outcome, error)
	// State returns the live state. It is never older than the last Apply or
	// Delete of the same item that returned.
	State(ctx context.Context, it Item) (State, error)
	// Changed returns a channel on which a receive succeeds once the state of
	// some object may have changed since the call. It is best closed then, with
	// a new one for each change, because several machines receive from it.
	// Notifications may be redundant, and a lost one costs only time.
	Changed() <-chan struct{}
}

// A Preflighter is a Target with a dry run. The machine calls it before
// operations with hooks, several waves, Replace or Force, on request, and for
// operations that are dry runs as a whole. It returns one Check per item, in
// the same order. An item with MadeHere whose namespace or kind does not exist
// yet passes; it is checked before it is applied.
type Preflighter interface {
	Preflight(ctx context.Context, items []Item) []Check
}

// A Check is the result of the dry run of one item.
type Check struct {
	Err     error
	Message string // such as "would be created"
}

// A Releaser is a Target that marks hooks with a finalizer, so that a hook
// cannot be removed before its result was read (HOOK-09). Release removes it
// from a finished hook that stays. A hook that is gone is success.
type Releaser interface {
	Release(ctx context.Context, it Item) error
}

// An Approver is a Target that knows whether a person has approved the plan's
// deletions. A plan that needs it waits and checks again after Changed; without
// an Approver it waits until it is terminated.
type Approver interface {
	Approved() bool
}

// An Outcome is the result of an Apply or Delete.
type Outcome struct {
	Changed bool   // a request changed something
	Message string // for people: "created", "configured", "unchanged", "pruned"
	Gone    bool   // Delete: the object does not exist any more
	Kept    bool   // Delete: the object was not deleted on purpose (not ours, protected); Message says why
	State   *State // live state from the response, if it had one; saves a State call
}

// A State is what the machine needs of a live object.
type State struct {
	Found    bool
	Deleting bool   // has a deletion timestamp
	Ours     bool   // of a hook: it was created for this item's instance
	Health   string // a state of agent/health; empty: the kind has no rule
	Message  string // why it is not healthy, or which finalizers delay its deletion
}

// A Ledger stores the open steps of an operation across restarts. Save returns
// only when the progress is durable. Plans that need no ledger never call it.
type Ledger interface {
	Load() (Progress, bool)
	Save(ctx context.Context, p Progress) error
}

// Progress is the progress of an operation. It is small, and saved before
// anything that must not be done twice.
type Progress struct {
	Operation string                `json:"operation"`
	Phase     Phase                 `json:"phase"` // the step being run; those before it are complete
	Wave      int32                 `json:"wave"`
	Checked   bool                  `json:"checked,omitempty"` // the pre-flight passed
	Hooks     map[string]HookRecord `json:"hooks,omitempty"`   // by Item.ID
	Failure   string                `json:"failure,omitempty"` // why SyncFail hooks run
	System    bool                  `json:"system,omitempty"`  // the system caused the failure, not the manifests
	Over      bool                  `json:"over,omitempty"`    // all steps are done; only hooks are left to clean up
	Started   time.Time             `json:"started"`
	// Asked and Granted are when the approval of deletions was requested, and
	// when it was found. The deadline is stopped in between.
	Asked   time.Time `json:"asked,omitzero"`
	Granted time.Time `json:"granted,omitzero"`
}

// A HookRecord is what is known of one hook instance.
type HookRecord struct {
	State   HookState `json:"state"`
	Message string    `json:"message,omitempty"`
}

// A HookState is the state of a hook instance.
type HookState string

// The states of a hook. HookIntended is written before the hook is created.
const (
	HookIntended  HookState = "Intended"
	HookRunning   HookState = "Running"
	HookSucceeded HookState = "Succeeded"
	HookFailed    HookState = "Failed"
)

// The results for one object (APP-16).
const (
	Synced       = "Synced"
	SyncFailed   = "SyncFailed"
	Pruned       = "Pruned"
	PruneSkipped = "PruneSkipped"
)

// An ItemResult is the outcome for one item so far.
type ItemResult struct {
	Item      Item
	Status    string // Synced, SyncFailed, Pruned, PruneSkipped; empty for a hook that only runs
	Message   string
	HookPhase string // of a hook: Running, Succeeded, Failed
	Changed   bool
}

// The ways in which an operation ends (APP-15).
const (
	Running   = "Running" // interrupted by a shutdown: run it again with the same ledger
	Succeeded = "Succeeded"
	Failed    = "Failed"
	Errored   = "Error"
)

// A Result is the result of an operation.
type Result struct {
	Phase      string // Succeeded, Failed, Error; Running if it was interrupted
	Message    string
	Terminated bool // by a person or the deadline
	Items      []ItemResult
}

// An Update reports progress while an operation runs.
type Update struct {
	Item    *ItemResult // set if an item has a new result
	Message string      // set if what is waited for has changed: "wave 2 of 4: waiting for Deployment shop/web to become healthy: …"
}
