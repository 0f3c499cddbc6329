package hub

import (
	"encoding/json"
	"time"
)

// A Generation is the complete result of the generators of an application set.
// A generator that failed leaves none.
type Generation struct {
	Applications []GeneratedApplication
	// Problems are parameter sets that gave no valid application.
	Problems []GenerationProblem
	// Uses are the repositories that Git generators have read.
	Uses []SetRepository
	// Watches are the places of Git hosts whose events change what generators list.
	Watches []string
	// Requeue is how long the result holds where nothing is known to change it;
	// 0: until something changes.
	Requeue time.Duration
	// Waits is what has to be there before there is a result; empty: nothing. Then
	// only Uses counts.
	Waits string
	// Truncated means that there would be more applications than the set may have.
	Truncated bool
}

// A GenerationLimit bounds what the generators of a set make.
type GenerationLimit struct {
	Applications int           // of the set; 0: any number
	Requeue      time.Duration // how long results hold of which a generator says nothing else; 0: the default
	Fresh        bool          // somebody waits for what hosts say now
}

// A GeneratedApplication is one application that a set wants to be there.
type GeneratedApplication struct {
	Meta

	Spec json.RawMessage
	// Params are what its template was filled with.
	Params map[string]any
}

// A GenerationProblem is why an application was not generated.
type GenerationProblem struct {
	Application string // empty: its name is not known
	Message     string
}

// Keys of ParamsMap about application sets. All of them begin with
// SetSettingsPrefix.
const (
	SetSettingsPrefix = "applicationsetcontroller."

	// Whether generators may ask Git hosts, and which.
	SetHostsKey        = "applicationsetcontroller.enable.scm.providers"
	SetAllowedHostsKey = "applicationsetcontroller.allowed.scm.providers"
	// SetGlobbingKey has * in patterns of Git files stop at slashes.
	SetGlobbingKey = "applicationsetcontroller.enable.new.git.file.globbing"

	SetPolicyKey               = "applicationsetcontroller.policy"
	SetPolicyOverrideKey       = "applicationsetcontroller.enable.policy.override"
	SetDryRunKey               = "applicationsetcontroller.dryrun"
	SetRequeueKey              = "applicationsetcontroller.requeue.after"
	SetProgressiveKey          = "applicationsetcontroller.enable.progressive.syncs"
	SetProgressiveOldKey       = "applicationsetcontroller.enable.progressive.rollouts"
	SetPreservedAnnotationsKey = "applicationsetcontroller.global.preserved.annotations"
	SetPreservedLabelsKey      = "applicationsetcontroller.global.preserved.labels"
	SetResourcesKey            = "applicationsetcontroller.status.max.resources.count"
	// SetDeletionLimitKey is how many applications a set deletes without consent:
	// a number, or a percentage of them. It is Capstan's own.
	SetDeletionLimitKey = "applicationsetcontroller.deletion.limit"
)

// DeletionLimitAnnotation of a set, under capstan.dev/, is SetDeletionLimitKey
// for that set.
const DeletionLimitAnnotation = "deletion-limit"
