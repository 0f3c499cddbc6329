// Package why finds the causes for which an application is not healthy or not
// synced: the class of each, the object that has it, and what to do next. It is
// pure: the API reads what it needs, and console and command line show the same.
package why

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

// Input is what is known of an application.
type Input struct {
	Application hub.Application
	Cluster     *hub.Cluster // nil: its destination stands for no cluster
	Operation   *hub.Operation
	Resources   []hub.Resource
	Details     map[hub.ObjectRef]Detail // of objects that Ask has named
}

// A Detail is what the cluster says of one object.
type Detail struct {
	Live   map[string]any
	Events []hub.Event
	Lines  map[string][]string // last lines of its containers
}

// A Cause is one reason.
type Cause struct {
	Class, Title, Message, Advice, Command string

	Object    *hub.ObjectRef // nil: the application itself
	Path      []hub.ObjectRef
	Container string
	Since     time.Time // zero: not known
	Lines     []string
	order     int
}

const (
	mostCauses  = 20
	mostAsked   = 3 // objects that the cluster is asked about
	mostMessage = 1 << 10
)

// Ask returns the objects about which the cluster is to be asked: hooks that have
// failed, and the deepest of the objects that are worst.
func Ask(in Input) []hub.ObjectRef {
	var out []hub.ObjectRef
	if op := in.Operation; op != nil && (op.Phase == hub.Failed || op.Phase == hub.Errored) {
		for _, r := range op.Results {
			if failedHook(r) && len(out) < mostAsked-1 {
				out = append(out, resultRef(r))
			}
		}
	}
	for _, n := range in.leaves() {
		if len(out) < mostAsked {
			out = append(out, refOf(n))
		}
	}
	return out
}

// Explain returns the causes, the worst first.
func Explain(in Input) []Cause {
	var out []Cause
	out = append(out, in.offline()...)
	out = append(out, in.conditions()...)
	out = append(out, in.operation()...)
	for _, n := range in.leaves() {
		if c, ok := in.object(n); ok {
			out = append(out, c)
		}
	}
	out = in.withoutRepetitions(out)
	if len(out) == 0 {
		out = in.waiting()
	}
	return out[:min(len(out), mostCauses)]
}

// offline is the cause that nothing is known of the cluster.
func (in Input) offline() []Cause {
	if in.Cluster == nil || in.Cluster.Connected {
		return nil
	}
	c := Cause{
		Class: "cluster-offline", Title: "The cluster's agent is not connected", Message: "what is shown is as old as the agent's last report",
		Advice: "Check the agent's pod and its way to the hub; `capstan-agent doctor` in the cluster finds out what is in its way.", Command: "capstan cluster get " + in.Cluster.Name,
	}
	if in.Cluster.LastSeen != nil {
		c.Since = *in.Cluster.LastSeen
	}
	return []Cause{c}
}

// conditions are causes that the hub has found itself.
func (in Input) conditions() (out []Cause) {
	for _, c := range in.Application.Status.Conditions {
		if !strings.HasSuffix(c.Type, "Error") {
			continue
		}
		if r, ok := classify(evidence{reason: c.Type, message: c.Message}); ok {
			cause := in.cause(r, c.Message, nil)
			cause.Since = c.Since
			out = append(out, cause)
		}
	}
	return out
}

// operation are causes for which the last operation has failed.
func (in Input) operation() (out []Cause) {
	op := in.Operation
	if op == nil || op.Phase != hub.Failed && op.Phase != hub.Errored {
		return nil
	}
	for _, r := range op.Results {
		reason := ""
		switch {
		case failedHook(r):
			reason = "HookFailed"
		case r.Status == "SyncFailed":
			reason = "SyncFailed"
		default:
			continue
		}
		rule, ok := classify(evidence{reason: reason, message: r.Message})
		if !ok {
			continue
		}
		ref := resultRef(r)
		c := in.cause(rule, r.Message, &ref)
		c.Path = []hub.ObjectRef{ref}
		if op.FinishedAt != nil {
			c.Since = *op.FinishedAt
		}
		for _, container := range sortedKeys(in.Details[ref].Lines) {
			c.Lines, c.Container = in.Details[ref].Lines[container], container
		}
		out = append(out, c)
	}
	if len(out) > 0 {
		return out
	}
	rule, _ := classify(evidence{reason: "OperationFailed", message: op.Message})
	return []Cause{in.cause(rule, op.Message, nil)}
}

func failedHook(r hub.ObjectResult) bool { return r.HookPhase == "Failed" || r.HookPhase == "Error" }

func resultRef(r hub.ObjectResult) hub.ObjectRef {
	return hub.ObjectRef{Group: r.Group, Version: r.Version, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

// waiting is why an application without a fault is not yet where it should be.
func (in Input) waiting() []Cause {
	a := in.Application
	switch {
	case a.Pin != nil:
		return []Cause{{
			Class: "paused", Title: "Automation is paused after a rollback", Message: "new revisions are rendered, and not synced",
			Advice: "Resume it when the cause of the rollback is corrected.", Command: in.fill("capstan app resume $APP", nil, ""),
		}}
	case a.Status.Health == hub.Progressing:
		return []Cause{{
			Class: "progressing", Title: "It is still starting", Message: a.Status.HealthCause, Advice: "Wait; if it takes too long, ask again.", Command: in.fill("capstan app wait $APP --health", nil, ""), Since: since(a.Status.HealthSince),
		}}
	case a.Status.Sync == hub.OutOfSync:
		return []Cause{{
			Class: "out-of-sync", Title: "What Git has is not synced yet", Message: "the target differs from the cluster, and nothing has tried to sync it",
			Advice: "Look at the difference, and sync.", Command: in.fill(showDiff, nil, ""),
		}}
	}
	return nil
}

// leaves are the objects that are not well and own none that is not, the worst
// first.
func (in Input) leaves() (out []hub.Resource) {
	sick := map[string]bool{} // uids of owners
	for _, n := range in.Resources {
		if unwell(n) && n.Parent != "" {
			sick[n.Parent] = true
		}
	}
	for _, n := range in.Resources {
		if unwell(n) && (n.UID == "" || !sick[n.UID]) {
			out = append(out, n)
		}
	}
	slices.SortStableFunc(out, func(a, b hub.Resource) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return out
}

func unwell(n hub.Resource) bool {
	return !n.Orphan && (n.Health == hub.Degraded || n.Health == hub.Progressing || n.Health == hub.MissingHealth && n.Managed)
}

func rank(n hub.Resource) int {
	switch n.Health {
	case hub.Degraded:
		return 0
	case hub.MissingHealth:
		return 1
	}
	return 2
}

// object is the cause that an object has; false: it only takes its time.
func (in Input) object(n hub.Resource) (Cause, bool) {
	ref := refOf(n)
	d := in.Details[ref]
	best := Cause{order: len(allRules)}
	for _, e := range evidenceOf(n, d) {
		r, ok := classify(e)
		if !ok || r.order >= best.order {
			continue
		}
		best = in.cause(r, e.message, &ref)
		best.order, best.Container, best.Since = r.order, e.container, e.since
		best.Command = in.fill(r.command, &ref, e.container)
		if r.logs {
			best.Lines = d.Lines[cmp.Or(e.container, onlyKey(d.Lines))]
		}
	}
	if best.Class == "" {
		if n.Health != hub.Degraded {
			return Cause{}, false
		}
		best = Cause{
			Class: "unhealthy", Title: n.Kind + " is not healthy", Message: cut(n.Message), Object: &ref,
			Advice: "Look at its events and its state.", Command: in.fill(showEvents, &ref, ""),
		}
	}
	if best.Since.IsZero() {
		best.Since = n.UpdatedAt
	}
	best.Path = in.path(n)
	return best, true
}

// path is the way from the managed object to one that it owns.
func (in Input) path(n hub.Resource) []hub.ObjectRef {
	byUID := map[string]hub.Resource{}
	for _, r := range in.Resources {
		if r.UID != "" {
			byUID[r.UID] = r
		}
	}
	out := []hub.ObjectRef{refOf(n)}
	for len(out) < 16 {
		parent, ok := byUID[n.Parent]
		if n.Parent == "" || !ok {
			break
		}
		n = parent
		out = append(out, refOf(n))
	}
	slices.Reverse(out)
	return out
}

func (in Input) cause(r ruleAt, message string, ref *hub.ObjectRef) Cause {
	return Cause{Class: r.class, Title: r.title, Message: cut(message), Advice: r.advice, Command: in.fill(r.command, ref, ""), Object: ref, order: r.order}
}

// fill completes a command.
func (in Input) fill(command string, ref *hub.ObjectRef, container string) string {
	a := in.Application
	app := a.Name
	if a.Namespace != hub.ArgoNamespace && a.Namespace != "" {
		app = a.Namespace + "/" + a.Name
	}
	pairs := []string{"$APP", app, "$PROJECT", a.Project}
	if in.Cluster != nil {
		pairs = append(pairs, "$CLUSTER", in.Cluster.Name)
	}
	if ref != nil {
		pairs = append(pairs, "$NAMESPACE", ref.Namespace, "$NAME", ref.Name, "$KIND", ref.Kind)
	}
	if container == "" {
		command = strings.Replace(command, " --container $CONTAINER", "", 1)
	}
	filled := strings.NewReplacer(append(pairs, "$CONTAINER", container)...).Replace(command)
	if strings.Contains(filled, "$") {
		return "capstan app get " + app
	}
	return filled
}

// withoutRepetitions keeps one cause of each class below the same managed
// object, and one of each text.
func (in Input) withoutRepetitions(causes []Cause) []Cause {
	slices.SortStableFunc(causes, func(a, b Cause) int { return cmp.Compare(weight(a), weight(b)) })
	seen := map[string]bool{}
	return slices.DeleteFunc(causes, func(c Cause) bool {
		key := c.Class + "\x00" + c.Message
		if len(c.Path) > 0 {
			key = c.Class + "\x00" + c.Path[0].Kind + "\x00" + c.Path[0].Namespace + "\x00" + c.Path[0].Name
		}
		again := seen[key]
		seen[key] = true
		return again
	})
}

// weight orders causes of different origin: what names an object and a class is
// of more use than that something has failed.
func weight(c Cause) int {
	switch c.Class {
	case "cluster-offline":
		return -1
	case "sync-failed", "hook-failed", "unhealthy", "rollout-stalled", "container-failed":
		return 1
	}
	return 0
}

func refOf(n hub.Resource) hub.ObjectRef {
	return hub.ObjectRef{Group: n.Group, Version: n.Version, Kind: n.Kind, Namespace: n.Namespace, Name: n.Name}
}

func cut(s string) string {
	if len(s) <= mostMessage {
		return s
	}
	return strings.ToValidUTF8(s[:mostMessage], "") + "…"
}
