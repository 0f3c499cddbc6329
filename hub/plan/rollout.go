package plan

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

// A Rollout is what is known of the applications of a set that syncs them in
// steps (APRG-02).
type Rollout struct {
	Steps        []hub.RolloutStep
	Applications []RolloutApplication
	States       []hub.RolloutState // of the last decision
	Now          time.Time
}

// A RolloutApplication is an application that a set wants to be there.
type RolloutApplication struct {
	Name   string
	Labels map[string]string // as the set generates them
	// Missing means that it is not created yet.
	Missing bool
	// Changed means that its spec has just been changed by the set.
	Changed bool
	// Current means that Sync and Health are those of its spec and of Revisions.
	// If they are older, they decide nothing.
	Current   bool
	Revisions []string
	Sync      hub.SyncStatus
	Health    hub.HealthStatus
	// Operation is the newest one; nil: there was none.
	Operation *RolloutOperation
	// Broken is why it cannot be synced at all; empty: nothing prevents it.
	Broken string
}

// A RolloutOperation is what a rollout needs to know of an operation.
type RolloutOperation struct {
	Began time.Time
	Over  bool
	// Failure is why it failed; empty: it did not.
	Failure string
}

// A RolloutDecision is how a rollout goes on.
type RolloutDecision struct {
	States []hub.RolloutState
	// Sync are the applications whose sync is to begin now, in the order of the
	// set. One that is still there in the next decision was not begun.
	Sync []string
	// Step is the first that is not complete, from 1; 0: all are.
	Step int
	// Invalid is what is wrong with the steps; empty: nothing is (APRG-08).
	Invalid string
}

// Rolls reports whether a set syncs its applications in steps.
func Rolls(s *hub.ApplicationSetStrategy) bool {
	return s != nil && s.Type == hub.RollingSyncType && s.RollingSync != nil && len(s.RollingSync.Steps) > 0
}

// RollOut decides which applications of a set are synced now: those of the first
// step that is not complete, as many as its maxUpdate allows (APRG-05). A step
// is complete when all of its applications are healthy. One that fails, or stays
// unhealthy, holds all later steps (APRG-09).
func RollOut(r Rollout) RolloutDecision {
	steps, invalid, usable := assign(r.Steps, r.Applications)
	d := RolloutDecision{Invalid: invalid}
	former := make(map[string]hub.RolloutState, len(r.States))
	for _, s := range r.States {
		former[s.Application] = s
	}
	members := make([][]int, len(r.Steps)) // of each step, positions in d.States; -1: missing
	for i, a := range r.Applications {
		at := -1
		if !a.Missing {
			at = len(d.States)
			d.States = append(d.States, a.observe(former, steps[i], r.Now))
		}
		if steps[i] >= 0 {
			members[steps[i]] = append(members[steps[i]], at)
		}
	}
	for i, step := range r.Steps {
		if d.complete(members[i]) {
			continue
		}
		d.Step = i + 1
		if usable {
			d.begin(members[i], mostUpdates(step.MaxUpdate, len(members[i])), r)
		}
		break
	}
	return d
}

// complete reports whether all applications of a step are healthy.
func (d *RolloutDecision) complete(members []int) bool {
	return !slices.ContainsFunc(members, func(at int) bool { return at < 0 || d.States[at].Status != hub.RolloutHealthy })
}

// begin has applications of a step synced that wait.
func (d *RolloutDecision) begin(members []int, most int, r Rollout) {
	updating, broken := 0, map[string]bool{}
	for _, a := range r.Applications {
		broken[a.Name] = a.Broken != ""
	}
	for _, at := range members {
		if at >= 0 && (d.States[at].Status == hub.RolloutPending || d.States[at].Status == hub.RolloutProgressing) {
			updating++
		}
	}
	for _, at := range members {
		if at < 0 {
			continue
		}
		s := &d.States[at]
		if s.Status == hub.RolloutWaiting && updating < most {
			updating++
			move(s, hub.RolloutPending, "its sync begins", r.Now)
		}
		if s.Status == hub.RolloutPending && !broken[s.Application] {
			d.Sync = append(d.Sync, s.Application)
		}
	}
}

// observe is the state of an application before anything is begun. step is its
// position, or -1.
func (a RolloutApplication) observe(former map[string]hub.RolloutState, step int, now time.Time) hub.RolloutState {
	s, there := former[a.Name]
	if !there {
		s = hub.RolloutState{Application: a.Name, Status: hub.RolloutWaiting, Message: "it waits for its step", Since: now, Revisions: a.Revisions}
	}
	if s.Step = "-1"; step >= 0 {
		s.Step = strconv.Itoa(step + 1)
	}
	if revised := !slices.Equal(s.Revisions, a.Revisions); a.Changed || revised {
		s.Revisions = a.Revisions
		reason := "its spec has changed"
		if revised {
			reason = "it has a new revision"
		}
		move(&s, hub.RolloutWaiting, reason+": it waits for its step", now)
	}
	synced := a.Current && !a.Changed && a.Sync == hub.Synced && (a.Operation == nil || a.Operation.Over)
	switch s.Status {
	case hub.RolloutWaiting:
		a.fromWaiting(&s, synced, now)
	case hub.RolloutPending:
		a.fromPending(&s, synced, now)
	case hub.RolloutProgressing:
		a.fromProgressing(&s, synced, now)
	case hub.RolloutHealthy:
	default:
		move(&s, hub.RolloutWaiting, "it waits for its step", now)
	}
	return s
}

func (a RolloutApplication) fromWaiting(s *hub.RolloutState, synced bool, now time.Time) {
	switch {
	case synced && a.Health == hub.Healthy:
		move(s, hub.RolloutHealthy, "it is synced and healthy", now)
	case synced:
		move(s, hub.RolloutProgressing, "it is synced and not healthy yet", now)
	}
}

func (a RolloutApplication) fromPending(s *hub.RolloutState, synced bool, now time.Time) {
	switch {
	case a.Operation != nil && !a.Operation.Began.Before(s.Since):
		move(s, hub.RolloutProgressing, "its sync has begun", now)
		a.fromProgressing(s, synced, now)
	case synced && a.Health == hub.Healthy:
		move(s, hub.RolloutHealthy, "it is synced and healthy", now)
	case a.Broken != "":
		s.Message = "it cannot be synced, and later steps wait for it: " + a.Broken
	}
}

func (a RolloutApplication) fromProgressing(s *hub.RolloutState, synced bool, now time.Time) {
	switch {
	case synced && a.Health == hub.Healthy:
		move(s, hub.RolloutHealthy, "it is synced and healthy", now)
	case a.Operation != nil && a.Operation.Over && a.Operation.Failure != "":
		s.Message = "its sync failed, and later steps wait for it: " + a.Operation.Failure
	case synced:
		s.Message = "it is synced and not healthy yet"
	}
}

func move(s *hub.RolloutState, to hub.RolloutStatus, message string, now time.Time) {
	s.Status, s.Message, s.Since = to, message, now
}

// assign finds the step of each application: the first that selects it, or -1
// (APRG-03). It returns what is wrong with the steps, and whether anything may
// be synced nevertheless.
func assign(steps []hub.RolloutStep, apps []RolloutApplication) (of []int, invalid string, usable bool) {
	invalid = checkSteps(steps)
	usable = invalid == ""
	of = make([]int, len(apps))
	for i, a := range apps {
		of[i] = -1
		for n, step := range steps {
			switch {
			case !selects(step, a.Labels):
			case of[i] < 0:
				of[i] = n
			case invalid == "":
				invalid = fmt.Sprintf("steps %d and %d both select the application %s: it belongs to step %d", of[i]+1, n+1, a.Name, of[i]+1)
			}
		}
	}
	return of, invalid, usable
}

// checkSteps is what is wrong with steps; empty: nothing is.
func checkSteps(steps []hub.RolloutStep) string {
	for i, step := range steps {
		for _, e := range step.MatchExpressions {
			if e.Operator != "In" && e.Operator != "NotIn" {
				return fmt.Sprintf("step %d has the operator %q: it must be In or NotIn, and nothing is synced until it is", i+1, e.Operator)
			}
		}
		if !validUpdates(step.MaxUpdate) {
			return fmt.Sprintf("step %d has the maxUpdate %q: it must be a number or a percentage, and nothing is synced until it is", i+1, step.MaxUpdate)
		}
	}
	return ""
}

// selects reports whether a step selects labels. NotIn selects an application
// without the label, too.
func selects(step hub.RolloutStep, labels map[string]string) bool {
	return !slices.ContainsFunc(step.MatchExpressions, func(e hub.LabelSelectorMember) bool {
		value, there := labels[e.Key]
		listed := there && slices.Contains(e.Values, value)
		return e.Operator == "In" && !listed || e.Operator == "NotIn" && listed
	})
}

func validUpdates(m *hub.MaxUpdate) bool {
	if m == nil || m.Text == "" {
		return m == nil || m.Number >= 0
	}
	_, ok := percentage(m.Text)
	return ok
}

func percentage(text string) (int, bool) {
	digits, ok := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 0 && n <= math.MaxInt32
}

// mostUpdates is how many applications of a step may be updated at a time
// (APRG-04): of a percentage at least one, unless it is 0.
func mostUpdates(m *hub.MaxUpdate, of int) int {
	if m == nil {
		return of
	}
	if m.Text == "" {
		return m.Number
	}
	percent, _ := percentage(m.Text)
	if percent == 0 {
		return 0
	}
	return max(1, of*percent/100)
}

// NextDeleted are the applications of a deleted set that are deleted now: with
// the deletion order Reverse, those of the last step that still has some; those
// of no step are the last (APRG-07). Without it, all.
func NextDeleted(s *hub.ApplicationSetStrategy, apps []RolloutApplication) []string {
	names := func(step int, of []int) (out []string) {
		for i, a := range apps {
			if of == nil || of[i] == step {
				out = append(out, a.Name)
			}
		}
		return out
	}
	if !Rolls(s) || !strings.EqualFold(s.DeletionOrder, hub.ReverseDeletion) {
		return names(0, nil)
	}
	of, _, _ := assign(s.RollingSync.Steps, apps)
	for step := len(s.RollingSync.Steps) - 1; step >= -1; step-- {
		if out := names(step, of); len(out) > 0 {
			return out
		}
	}
	return nil
}
