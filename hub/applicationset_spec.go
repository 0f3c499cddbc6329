package hub

import (
	"encoding/json"
	"strconv"

	"github.com/capstan-cd/capstan/shared/fault"
)

// The types of this file mirror the spec of argoproj.io/v1alpha1
// ApplicationSet. Sets are stored as they were given (json.RawMessage), so a
// field that is not listed here still comes back unchanged.

// An ApplicationSetSpec is the spec of an ApplicationSet as users write it.
type ApplicationSetSpec struct {
	GoTemplate                   bool                      `json:"goTemplate,omitempty"`
	GoTemplateOptions            []string                  `json:"goTemplateOptions,omitempty"`
	Generators                   []Generator               `json:"generators"`
	Template                     ApplicationTemplate       `json:"template"`
	TemplatePatch                *string                   `json:"templatePatch,omitempty"`
	SyncPolicy                   *ApplicationSetSyncPolicy `json:"syncPolicy,omitempty"`
	Strategy                     *ApplicationSetStrategy   `json:"strategy,omitempty"`
	PreservedFields              *PreservedFields          `json:"preservedFields,omitempty"`
	IgnoreApplicationDifferences []IgnoredDifference       `json:"ignoreApplicationDifferences,omitempty"`
	ApplyNestedSelectors         bool                      `json:"applyNestedSelectors,omitempty"` // without effect: selectors of nested generators always apply
}

// DecodeApplicationSet reads the spec of an ApplicationSet. Unknown fields are
// left alone.
func DecodeApplicationSet(raw json.RawMessage) (ApplicationSetSpec, error) {
	var s ApplicationSetSpec
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fault.New(fault.Invalid, "spec is no valid ApplicationSet spec: %w", err)
	}
	return s, nil
}

// An ApplicationTemplate is what the applications of a set are made of.
type ApplicationTemplate struct {
	Metadata TemplateMeta    `json:"metadata"`
	Spec     json.RawMessage `json:"spec,omitempty"` // an ApplicationSpec whose strings may be templates
}

// TemplateMeta is what a template says of the metadata of its applications.
type TemplateMeta struct {
	Name        string            `json:"name,omitempty"`
	Namespace   string            `json:"namespace,omitempty"` // without effect: applications are in the set's namespace
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Finalizers  []string          `json:"finalizers,omitempty"`
}

// ApplicationSetSyncPolicy says what a set does to its applications.
type ApplicationSetSyncPolicy struct {
	PreserveResourcesOnDeletion bool    `json:"preserveResourcesOnDeletion,omitempty"`
	ApplicationsSync            *string `json:"applicationsSync,omitempty"`
}

// The values of ApplicationsSync.
const (
	ApplicationsSync         = "sync"
	ApplicationsCreateOnly   = "create-only"
	ApplicationsCreateUpdate = "create-update"
	ApplicationsCreateDelete = "create-delete"
)

// PreservedFields are annotations and labels of applications that a set leaves
// as they are.
type PreservedFields struct {
	Annotations []string `json:"annotations,omitempty"`
	Labels      []string `json:"labels,omitempty"`
}

// An IgnoredDifference names fields of applications that a set leaves as they
// are. An empty name means all of its applications.
type IgnoredDifference struct {
	Name              string   `json:"name,omitempty"`
	JSONPointers      []string `json:"jsonPointers,omitempty"`
	JQPathExpressions []string `json:"jqPathExpressions,omitempty"`
}

// An ApplicationSetStrategy says in which order applications are synced and
// deleted.
type ApplicationSetStrategy struct {
	Type          string       `json:"type,omitempty"`
	RollingSync   *RollingSync `json:"rollingSync,omitempty"`
	DeletionOrder string       `json:"deletionOrder,omitempty"`
}

// The values of the type and the deletion order of a strategy.
const (
	AllAtOnce       = "AllAtOnce"
	RollingSyncType = "RollingSync"
	ReverseDeletion = "Reverse"
)

// RollingSync has the steps of a rollout.
type RollingSync struct {
	Steps []RolloutStep `json:"steps,omitempty"`
}

// A RolloutStep selects applications by their labels.
type RolloutStep struct {
	MatchExpressions []LabelSelectorMember `json:"matchExpressions,omitempty"`
	MaxUpdate        *MaxUpdate            `json:"maxUpdate,omitempty"` // nil: all at once
}

// MaxUpdate is how many applications of a step may be updated at a time: a
// number, or a text such as "25%".
type MaxUpdate struct {
	Number int
	Text   string // if not empty, instead of the number
}

// UnmarshalJSON reads a number or a text.
func (m *MaxUpdate) UnmarshalJSON(raw []byte) error {
	*m = MaxUpdate{}
	if len(raw) > 0 && raw[0] == '"' {
		return json.Unmarshal(raw, &m.Text)
	}
	return json.Unmarshal(raw, &m.Number)
}

// MarshalJSON returns what UnmarshalJSON has read.
func (m MaxUpdate) MarshalJSON() ([]byte, error) {
	if m.Text != "" {
		return json.Marshal(m.Text)
	}
	return json.Marshal(m.Number)
}

// String is the number or the text.
func (m MaxUpdate) String() string {
	if m.Text != "" {
		return m.Text
	}
	return strconv.Itoa(m.Number)
}
