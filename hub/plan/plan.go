// Package plan decides what happens next to an application: whether a new
// snapshot is enforced, which operation follows, whether a failed one is tried
// again. It is a set of pure functions over values and a clock reading; it
// reads and writes nothing. Dispatch calls it inside the transaction that
// stores the decision. Equal inputs give equal decisions.
package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/syncwindow"
)

// DefaultDeadline is how long an operation may take unless its options say
// otherwise.
const DefaultDeadline = 30 * time.Minute

// An Input is all that a decision about one application depends on.
type Input struct {
	Application hub.Application
	Spec        hub.ApplicationSpec
	// Candidate is the newest snapshot that a complete, error-free render
	// produced for the application's sources.
	Candidate hub.Snapshot
	// RendersSkipped means that the candidate has the same objects as what a
	// rollback went back from, RendersPinned that it has those of the pin.
	RendersSkipped, RendersPinned bool
	// Renderers is what differs between the target, or the pin, and the candidate
	// only because other renderers made it; nil: nothing does.
	Renderers *hub.RendererChange
	// OnlyPrunes says that the candidate differs from the accepted snapshot in
	// objects that it no longer has, and in nothing else.
	OnlyPrunes bool
	// AcceptedObjects is the number of objects of the accepted snapshot.
	AcceptedObjects int
	// Running is the operation that is not over; nil if there is none.
	Running *hub.Operation
	// RunningHasHooks says whether that operation's snapshot contains hooks.
	RunningHasHooks bool
	// Failed is the newest operation if it failed; nil otherwise.
	Failed *hub.Operation
	// Changed says that the project was changed since the last decision.
	Changed bool
	// Served is when what the cluster serves was changed last.
	Served time.Time
	// Windows are the sync windows that concern the application.
	Windows syncwindow.Set
	Now     time.Time
}

// A Decision is what to do with the candidate.
type Decision struct {
	Target    hub.SnapshotID // what live state is compared with from now on
	Accept    bool           // the target is enforced as well
	Operation *hub.Operation // to be appended to the desired log; nil: none
	Supersede bool           // the running operation ends in favour of this one
	Unpin     bool           // a newer snapshot ends the pin
	Pin       *hub.Pin       // the application is paused now; nil: it stays as it is
	Hold      string         // why automation waits, as a sentence; empty: it does not
	Again     *time.Time     // when to decide again although nothing has changed; nil: never
}

// Next decides about a new candidate under the automation policy.
func Next(s Input) Decision {
	app, st := s.Application, s.Application.Status
	d := Decision{Target: s.Candidate.ID, Hold: ""}
	if app.DeletingAt != nil {
		return Decision{Target: st.Target, Hold: "the application is being deleted"}
	}
	if held := s.rendersOtherwise(); held != nil {
		return *held
	}
	if pin := app.Pin; pin != nil {
		if s.paused(*pin) {
			return Decision{Target: pin.Snapshot, Hold: Paused(*pin, st.Revision)}
		}
		d.Unpin = true
	}
	if d.Hold = s.observed(); d.Hold != "" || !s.Application.Follows(s.Spec) {
		return d
	}
	if imported, done := s.imported(d); done {
		return imported
	}
	if st.Accepted == s.Candidate.ID && !retriable(s) {
		return d
	}
	if d.Hold, d.Again = s.windowClosed(); d.Hold != "" {
		return d
	}
	if d.Hold = s.removesAll(); d.Hold != "" {
		return d
	}
	if s.Running != nil {
		if s.runsCandidate() {
			return d
		}
		if d.Hold = s.hooksRunning(); d.Hold != "" {
			return d
		}
		d.Supersede = true
	}
	d.Accept = true
	if !s.onlyPruning() {
		d.Operation = automatic(s)
	}
	return d
}

// rendersOtherwise pauses an application whose target differs from the candidate
// because of an upgrade of the renderers and nothing else: people look at that
// first, and let it go on where and when they like. Nil: it is not so. What is
// observed only is not applied anyway.
func (s Input) rendersOtherwise() *Decision {
	st, was := s.Application.Status, s.Application.Pin
	if s.Renderers == nil || was != nil && was.Renderers == nil || s.observed() != "" {
		return nil
	}
	pin := hub.Pin{Snapshot: st.Target, By: RendererUpgrade, At: s.Now}
	if was != nil {
		pin.Snapshot, pin.At = was.Snapshot, was.At
	}
	pin.Renderers, pin.Bad, pin.Newest, pin.Behind = s.Renderers, s.Candidate.ID, s.Candidate.ID, true
	pin.Skipped, pin.SkippedRevisions = s.Candidate.Revision, s.Candidate.Revisions
	pin.Revision, pin.Revisions = pin.Skipped, pin.SkippedRevisions
	return &Decision{Target: pin.Snapshot, Pin: &pin, Hold: Paused(pin, st.Revision)}
}

// RendererUpgrade is who pauses an application for an upgrade of the renderers.
const RendererUpgrade = "renderer upgrade"

// windowClosed returns why sync windows hold the candidate, and when they will
// not any more. The sentence is empty if they do not.
func (s Input) windowClosed() (hold string, again *time.Time) {
	why := s.Windows.Why(syncwindow.Automated, s.Now)
	if why == "" {
		return "", nil
	}
	if at, ok := s.Windows.Opening(syncwindow.Automated, s.Now); ok {
		again = &at
	}
	return fmt.Sprintf("revision %s waits: %s", short(s.Candidate.Revision), why), again
}

// removesAll returns why a candidate without objects is held. It is empty if
// the policy allows that, or if nothing would be removed.
func (s Input) removesAll() string {
	if len(s.Candidate.Objects) > 0 || s.AcceptedObjects == 0 || s.Spec.AllowEmpty() {
		return ""
	}
	return fmt.Sprintf("revision %s renders no objects and would remove all %d; set syncPolicy.automated.allowEmpty or sync by hand",
		short(s.Candidate.Revision), s.AcceptedObjects)
}

// runsCandidate reports whether the running operation enforces the candidate.
func (s Input) runsCandidate() bool {
	return !s.Running.Options.DryRun && s.Running.Snapshot == s.Candidate.ID && s.Running.Kind == hub.SyncOperation
}

// hooksRunning returns why the candidate waits for the running operation: it
// is not ended while it runs hooks. Nothing waits for a dry run, which changes
// nothing.
func (s Input) hooksRunning() string {
	if s.Running.Options.DryRun || !s.RunningHasHooks || s.Running.Phase == hub.Pending {
		return ""
	}
	return fmt.Sprintf("operation %s for revision %s is running hooks; revision %s follows when it ends",
		s.Running.ID, short(s.Running.Revision), short(s.Candidate.Revision))
}

// onlyPruning says that nothing is left to do but to prune, which the policy
// does not do by itself (AUTO-03). What drifted or failed is synced all the
// same.
func (s Input) onlyPruning() bool {
	return s.OnlyPrunes && !s.Spec.Prune() && s.Running == nil && s.Failed == nil && s.Application.Status.Sync == hub.Synced
}

// retriable reports whether an equal snapshot should be tried again: its last
// operation failed, no retry is planned, and a possible cause was changed
// since: the specification, the project, or what the cluster serves; or such a
// change waited. Without one a failed target is not retried (AUTO-04), however
// often it is refreshed. Free objects after a refusal are a certain cause: then
// neither a planned retry nor the initiator matters.
func retriable(s Input) bool {
	if s.Failed == nil || s.Running != nil || s.Failed.Snapshot != s.Candidate.ID {
		return false
	}
	if s.Failed.Unblocked {
		return true
	}
	if s.Failed.RetryAt != nil {
		return false
	}
	st := s.Application.Status
	return st.PlannedGeneration != s.Application.Generation || st.Hold != "" || s.Changed || s.Served.After(s.Failed.CreatedAt)
}

func automatic(s Input) *hub.Operation {
	op := &hub.Operation{
		ID:          hub.NewID[hub.OperationID](),
		Application: s.Application.ID,
		Cluster:     s.Application.Cluster,
		Kind:        hub.SyncOperation,
		Snapshot:    s.Candidate.ID,
		Revision:    s.Candidate.Revision,
		Options: hub.OperationOptions{
			Prune: s.Spec.Prune(),
			Retry: RetryOf(s.Spec, true),
		},
		Initiator:      hub.Initiator{Automated: true},
		Phase:          hub.Pending,
		OperationTimes: hub.OperationTimes{CreatedAt: s.Now},
	}
	if s.Spec.SyncPolicy != nil {
		op.Options.SyncOptions = s.Spec.SyncPolicy.SyncOptions
	}
	op.Deadline = s.Now.Add(Timeout(op.Options.SyncOptions))
	return op
}

// longest is what no operation is given more than.
const longest = 7 * 24 * time.Hour

// Timeout is how long an operation with these sync options may take.
func Timeout(options []string) time.Duration {
	text, found := hub.Option(options, hub.SyncTimeoutOption)
	if !found {
		return DefaultDeadline
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil || d < 0:
		return DefaultDeadline
	case d == 0 || d > longest: // 0 asks for no limit, and every operation has one
		return longest
	}
	return d
}

// RetryOf is the retry block of a specification. Automated operations are
// tried five times more where it says nothing (AUTO-05), others not.
func RetryOf(spec hub.ApplicationSpec, automated bool) *hub.Retry {
	if spec.SyncPolicy != nil && spec.SyncPolicy.Retry != nil {
		return spec.SyncPolicy.Retry
	}
	if automated {
		return &hub.Retry{Limit: 5}
	}
	return nil
}

// RetryAt says when a failed operation is tried again, which is not before the
// windows let it, unless it deletes the application; ok is false when it is
// not: no tries are left, or it was terminated by a person.
func RetryAt(op hub.Operation, windows syncwindow.Set, now time.Time) (at time.Time, ok bool) {
	r := op.Options.Retry
	if r == nil || op.Phase != hub.Failed && op.Phase != hub.Errored {
		return time.Time{}, false
	}
	if r.Limit >= 0 && int64(op.Attempt) >= r.Limit {
		return time.Time{}, false
	}
	if op.Kind == hub.DeleteOperation {
		windows = syncwindow.Set{}
	}
	return windows.Opening(syncwindow.Of(op.Initiator.Automated), now.Add(delay(r.Backoff, op.Attempt)))
}

// delay is duration × factor^attempt, at most maxDuration (SYNC-28: 5 s, 2, 3 m).
func delay(b *hub.Backoff, attempt int) time.Duration {
	d, limit, factor := 5*time.Second, 3*time.Minute, int64(2)
	if b != nil {
		d, limit = parsed(b.Duration, d), parsed(b.MaxDuration, limit)
		if b.Factor != nil && *b.Factor >= 1 {
			factor = *b.Factor
		}
	}
	for range attempt {
		// Compared before it is multiplied: a large factor would wrap around.
		if d >= limit || time.Duration(factor) > limit/d {
			return limit
		}
		d *= time.Duration(factor)
	}
	return min(d, limit)
}

func parsed(s string, fallback time.Duration) time.Duration {
	d, err := ParseDuration(s)
	if err != nil || d <= 0 {
		return fallback
	}
	return d
}

// ParseDuration reads "5s", "3m" or a bare number of seconds.
func ParseDuration(s string) (time.Duration, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return d, nil
	}
	d, err := time.ParseDuration(s + "s")
	if err != nil {
		return 0, fault.New(fault.Invalid, "%q is no duration; write it like 5s or 3m", s)
	}
	return d, nil
}

// Check reports whether a person, or a rollout, may start an operation now
// (SYNC-07, WIN-09).
func Check(app hub.Application, running *hub.Operation, windows syncwindow.Set, use syncwindow.Use, now time.Time) error {
	object := "application " + app.Name
	if app.DeletingAt != nil {
		return fault.With(fault.New(fault.Conflict, "the application is being deleted"), object, "wait for the deletion to end")
	}
	if app.Cluster == "" {
		return fault.With(fault.New(fault.Conflict, "its destination names no known cluster"), object, "set spec.destination to an enrolled cluster")
	}
	if running != nil {
		return fault.With(fault.New(fault.Conflict, "operation %s is in progress", running.ID), object,
			"wait for it, or end it with `capstan app terminate "+app.Name+"`")
	}
	if why := windows.Why(use, now); why != "" {
		return fault.With(fault.New(fault.Conflict, "sync is %s", why), object,
			"wait for the opening, or have the windows of project "+app.Project+" changed; `capstan project windows list "+app.Project+"` shows them")
	}
	return nil
}

// paused reports whether the candidate leaves the application where a rollback
// has put it: it is what was rolled back from, or renders no other objects than
// that or the pin.
func (s Input) paused(pin hub.Pin) bool {
	if pin.Renderers != nil { // the specification may have changed, or the upgrade was taken back
		return s.Candidate.ID == pin.Bad || s.RendersSkipped
	}
	skipped := s.Candidate.Revision == pin.Skipped
	if len(pin.SkippedRevisions) > 1 {
		skipped = slices.Equal(s.Candidate.Revisions, pin.SkippedRevisions)
	}
	return skipped || s.Candidate.ID == pin.Bad || s.Candidate.ID == pin.Snapshot || s.RendersSkipped || s.RendersPinned
}

// Paused is the message why automation does nothing while an application is
// paused at a revision, and when it resumes.
func Paused(p hub.Pin, revision string) string {
	if p.Renderers != nil {
		return p.Sentence(revision) + "; automation goes on when somebody resumes it or Git renders something else"
	}
	return p.Sentence(revision) + "; automation goes on when Git renders something else than revision " + short(p.Skipped)
}

func short(revision string) string {
	if len(revision) > 8 {
		return revision[:8]
	}
	return revision
}
