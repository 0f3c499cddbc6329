package hub

import (
	"slices"

	"github.com/capstan-cd/capstan/shared/fault"
)

// An Override makes one operation apply something else than the target of its
// application. The application's specification stays as it is.
type Override struct {
	Revision  string   `json:"revision,omitempty"`        // of the one source, or of the first
	Revisions []string `json:"revisions,omitempty"`       // of the sources at Positions
	Positions []int    `json:"sourcePositions,omitempty"` // 1 is the first source; empty: in order
	Source    *Source  `json:"source,omitempty"`
	Sources   []Source `json:"sources,omitempty"`
	Local     bool     `json:"local,omitempty"` // the manifests came with the request
	// Fresh stands for the specification as it is: no target has been worked
	// out for it yet.
	Fresh bool `json:"fresh,omitempty"`
}

// Apply returns the specification that the operation is rendered by.
func (o Override) Apply(spec ApplicationSpec) (ApplicationSpec, error) {
	sources := slices.Clone(spec.EffectiveSources())
	switch {
	case o.Source != nil && len(o.Sources) > 0:
		return spec, fault.With(fault.New(fault.Invalid, "source and sources are both given"), "", "give one of them")
	case o.Source != nil:
		o.Sources = []Source{*o.Source}
	}
	if len(o.Sources) > 0 {
		if len(o.Sources) != len(sources) {
			return spec, fault.New(fault.Invalid, "%d sources are given for an application that has %d", len(o.Sources), len(sources))
		}
		for i, s := range o.Sources {
			if s.RepoURL != sources[i].RepoURL {
				return spec, fault.With(fault.New(fault.Invalid, "source %d names another repository than the application", i+1), "",
					"an operation may change path, revision and parameters of a source; change the application for another repository")
			}
		}
		sources = o.Sources
	}
	revisions, positions := o.Revisions, o.Positions
	if o.Revision != "" {
		if len(revisions) > 0 {
			return spec, fault.With(fault.New(fault.Invalid, "revision and revisions are both given"), "", "give one of them")
		}
		revisions = []string{o.Revision}
	}
	if len(positions) > 0 && len(positions) != len(revisions) {
		return spec, fault.New(fault.Invalid, "%d revisions are given for %d source positions", len(revisions), len(positions))
	}
	if len(revisions) > len(sources) {
		return spec, fault.New(fault.Invalid, "%d revisions are given for an application that has %d sources", len(revisions), len(sources))
	}
	for i, revision := range revisions {
		at := i
		if len(positions) > 0 {
			at = positions[i] - 1
		}
		if at < 0 || at >= len(sources) {
			return spec, fault.New(fault.Invalid, "source position %d is not between 1 and %d", at+1, len(sources))
		}
		if len(positions) > 0 && slices.Contains(positions[:i], positions[i]) {
			return spec, fault.With(fault.New(fault.Invalid, "source position %d is given twice", positions[i]), "", "give one revision for each source")
		}
		sources[at].TargetRevision = revision
	}
	if len(spec.Sources) > 0 {
		spec.Sources = sources
		return spec, nil
	}
	spec.Source = &sources[0]
	return spec, nil
}

// Awaited returns the newest operation of an application while it waits for
// manifests that must be rendered for it; nil otherwise.
func (a Application) Awaited() *Operation {
	op := a.Status.Operation
	if op == nil || op.Phase != Pending || op.Snapshot != "" || op.Options.Override == nil {
		return nil
	}
	return op
}

// Local manifests come with a request instead of from a repository.
type Local struct {
	Objects []ObjectRef
	Bodies  [][]byte // canonical JSON in the order of Objects
}

// A Deletion says how an application is deleted.
type Deletion struct {
	Cascade     bool   // its objects go too
	Propagation string // foreground (also if empty), background, orphan: how dependants of its objects go
}

// An ObjectDeletion says how one live object is deleted.
type ObjectDeletion struct {
	Force       bool   // it gets no time to end
	Propagation string // foreground (also if empty), background, orphan
}

// An ObjectPatch is a change of one live object.
type ObjectPatch struct {
	Type   string // merge, strategic or json
	Patch  string
	DryRun bool
}
