package notify

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

// Input is what is known when transitions are decided about.
type Input struct {
	App         hub.Application
	Project     *hub.Project
	Known       *hub.NotifiedState // nil: nothing was decided about it yet
	Transitions []hub.Transition
	Operations  map[hub.OperationID]hub.Operation
	Secrets     map[string]string
	Lookups
}

// A Due is a message that has to be sent.
type Due struct {
	Trigger   string
	Templates []string
	To        Destination
	// Key is the same for the same message of the same transition.
	Key  []byte
	Vars Vars
}

// A Decision is what follows from transitions.
type Decision struct {
	State    hub.NotifiedState
	Messages []Due
	// Evaluated counts evaluations of triggers, by name and by whether one of
	// their conditions held.
	Evaluated map[Evaluation]int
	Problems  []string
}

// An Evaluation is of a trigger.
type Evaluation struct {
	Trigger   string
	Triggered bool
}

// mostSent bounds what is remembered of an application.
const mostSent = 1000

// Decide returns the messages of transitions in their order. A condition makes a
// message when it begins to hold, or, with oncePer, when its value is another
// one. What Argo CD has sent, by its annotation, is not sent again.
func (c *Config) Decide(in Input) Decision {
	out := Decision{Evaluated: map[Evaluation]int{}}
	if in.Known != nil {
		out.State = *in.Known
		out.State.Sent = maps.Clone(in.Known.Sent)
	} else {
		out.State = hub.NotifiedState{Sync: in.App.Status.Sync, Health: in.App.Status.Health, Sent: sentByArgo(in.App)}
		if op := in.App.Status.Operation; op != nil {
			out.State.Operation, out.State.Phase = op.ID, op.Phase
		}
	}
	if out.State.Sent == nil {
		out.State.Sent = map[string]int64{}
	}
	subscribers, problems := c.Subscribers(in.App, in.Project)
	out.Problems = problems
	for _, t := range settled(in.Transitions) {
		previous := previous(out.State)
		apply(&out.State, t)
		vars := c.vars(in, out.State, previous)
		if out.State.Health == hub.Healthy {
			out.State.Degraded = false
		}
		c.decideOne(t, subscribers, vars, &out)
	}
	trim(out.State.Sent)
	return out
}

// Hold is how long health has to stay what it is before anybody hears of it: a
// sync may make it change for a moment.
const (
	Hold    = 3 * time.Second
	maxHold = 15 * time.Second
)

// Unsettled returns when transitions can be decided about; zero: now. Health that
// changes again and again is decided about in the end.
func Unsettled(all []hub.Transition, now time.Time) time.Time {
	var last time.Time
	for _, t := range all {
		if t.Health != "" {
			last = t.At
		}
	}
	if len(all) == 0 || last.IsZero() || now.Sub(all[0].At) > maxHold {
		return time.Time{}
	}
	if due := last.Add(Hold); due.After(now) {
		return due
	}
	return time.Time{}
}

// settled leaves out health that did not stay.
func settled(all []hub.Transition) []hub.Transition {
	out := slices.Clone(all)
	next := -1
	for i := len(out) - 1; i >= 0; i-- {
		if out[i].Health == "" {
			continue
		}
		if next >= 0 && all[next].At.Sub(all[i].At) < Hold {
			out[i].Health, out[i].HealthSince = "", nil
		}
		next = i
	}
	return out
}

// previous is what conditions read of the state before a transition.
func previous(s hub.NotifiedState) map[string]any {
	return map[string]any{"sync": string(s.Sync), "health": string(s.Health), "phase": string(s.Phase), "degraded": s.Degraded}
}

// apply lets a transition change what is known.
func apply(s *hub.NotifiedState, t hub.Transition) {
	if t.Sync != "" {
		s.Sync = t.Sync
	}
	if t.Health != "" {
		s.Health, s.Since = t.Health, t.HealthSince
	}
	if t.Operation != "" {
		s.Operation, s.Phase = t.Operation, t.Phase
	}
	s.Degraded = s.Degraded || s.Health == hub.Degraded
}

func (c *Config) vars(in Input, s hub.NotifiedState, previous map[string]any) Vars {
	var op *hub.Operation
	if found, ok := in.Operations[s.Operation]; ok {
		op = &found
	} else if in.App.Status.Operation != nil && in.App.Status.Operation.ID == s.Operation {
		op = in.App.Status.Operation
	}
	return Vars{
		App: View(in.App, s, op), Project: ProjectView(in.Project), Context: c.Context, Secrets: in.Secrets, Previous: previous, Lookups: in.Lookups,
	}
}

// Present returns the variables for the present state of an application.
func (c *Config) Present(in Input) Vars {
	s := hub.NotifiedState{Sync: in.App.Status.Sync, Health: in.App.Status.Health, Since: in.App.Status.HealthSince}
	if op := in.App.Status.Operation; op != nil {
		s.Operation, s.Phase = op.ID, op.Phase
	}
	return c.vars(in, s, previous(s))
}

func (c *Config) decideOne(t hub.Transition, subscribers map[string][]Destination, vars Vars, out *Decision) {
	for _, name := range slices.Sorted(maps.Keys(subscribers)) {
		trigger, known := c.Triggers[name]
		if !known {
			out.problem(fmt.Sprintf("there is no trigger %s", cut(name, 80)))
			continue
		}
		held := false
		for _, r := range trigger.Run(vars.Conditions()) {
			held = held || r.Triggered
			for _, to := range subscribers[name] {
				if !remember(out.State.Sent, name, r, to, t.At.Unix()) {
					continue
				}
				sum := sha256.Sum256([]byte(fmt.Sprintf("%s\x00%d\x00%s", t.Application, t.ID, sentKey(name, r, to))))
				out.Messages = append(out.Messages, Due{Trigger: name, Templates: r.Templates, To: to, Key: sum[:], Vars: vars})
			}
		}
		out.Evaluated[Evaluation{name, held}]++
	}
}

func (d *Decision) problem(s string) {
	if !slices.Contains(d.Problems, s) {
		d.Problems = append(d.Problems, s)
	}
}

// remember notes whether a recipient knows that a condition holds, and reports
// whether that is news to them.
func remember(sent map[string]int64, trigger string, r Result, to Destination, now int64) bool {
	key := sentKey(trigger, r, to)
	if !r.Triggered {
		delete(sent, key) // with oncePer it has a value in front, and stays
		return false
	}
	if _, known := sent[key]; known {
		return false
	}
	sent[key] = now
	return true
}

// sentKey is how Argo CD's annotation names a message.
func sentKey(trigger string, r Result, to Destination) string {
	key := trigger + ":" + r.Key + ":" + to.Service + ":" + to.Recipient
	if r.OncePer != "" {
		return r.OncePer + ":" + key
	}
	return key
}

// sentByArgo is what Argo CD has sent of an application that was imported.
func sentByArgo(a hub.Application) map[string]int64 {
	out := map[string]int64{}
	_ = json.Unmarshal([]byte(a.Annotations[NotifiedAnnotation]), &out) // without it, nothing was sent
	return out
}

// trim forgets what was sent longest ago.
func trim(sent map[string]int64) {
	over := len(sent) - mostSent
	if over <= 0 {
		return
	}
	keys := slices.SortedFunc(maps.Keys(sent), func(a, b string) int { return int(sent[a] - sent[b]) })
	for _, k := range keys[:over] {
		delete(sent, k)
	}
}
