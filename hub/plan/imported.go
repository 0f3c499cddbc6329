package plan

import (
	"time"

	"github.com/capstan-cd/capstan/hub"
)

// comparePause is how long the automation of an imported application waits
// before it looks again for the result of its first comparison.
const comparePause = 5 * time.Second

// observed returns why the automation of an imported application does nothing;
// empty: it is not one that waits for a confirmation, or has no automation.
func (s Input) observed() string {
	spec := s.Application
	spec.Meta.Annotations = nil
	if !s.Application.Observed() || !spec.Follows(s.Spec) {
		return ""
	}
	return "it was imported and is only observed; `capstan import confirm " + s.Application.Name + "` starts its automation"
}

// imported decides about an application that was imported, confirmed and never
// synced. What equals the candidate is accepted without an operation: nothing
// has to be written, and its hooks have run where it comes from. Until it was
// compared nothing happens. done is false if it differs, and is to be synced
// like any other.
func (s Input) imported(d Decision) (decision Decision, done bool) {
	st := s.Application.Status
	if !s.Application.ImportIsConfirmed() || st.Accepted != "" || s.Running != nil || s.Failed != nil {
		return d, false
	}
	switch {
	case st.Target != s.Candidate.ID, st.Sync != hub.Synced && st.Sync != hub.OutOfSync:
		again := s.Now.Add(comparePause)
		d.Hold, d.Again = "it was imported, and waits for the first comparison with its objects", &again
	case st.Sync == hub.Synced:
		d.Accept = true
	default:
		return d, false
	}
	return d, true
}
