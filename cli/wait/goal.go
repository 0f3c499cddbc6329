package wait

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A Goal says what is waited for. Without any of the states, it is synced,
// healthy and at rest. Of several healths any will do.
type Goal struct {
	Timeout                time.Duration
	Away                   time.Duration // how long a disconnected agent is waited for
	sync, health, finished bool
	Suspended, Degraded    bool
	Resources              []apimodel.ResourceSelector // of these objects alone; empty: of the application
	Operation              string                      // an operation whose end is waited for first
	Newest                 bool                        // the operation was to apply what the sources say now
	Elsewhere              bool                        // the operation applies another revision, so the application may not be as Git says afterwards
}

// AddFlags adds the flags that name states, and those of the times.
func (w *Goal) AddFlags(f *pflag.FlagSet) {
	w.AddTimeout(f)
	f.DurationVar(&w.Away, "agent-timeout", 30*time.Second, "how long to wait for a disconnected agent; then the exit code is 8")
	f.BoolVar(&w.sync, "sync", false, "wait for Synced")
	f.BoolVar(&w.health, "health", false, "wait for Healthy")
	f.BoolVar(&w.finished, "operation", false, "wait for the end of the operation")
}

// AddTimeout adds the flag of the timeout alone.
func (w *Goal) AddTimeout(f *pflag.FlagSet) {
	f.DurationVar(&w.Timeout, "timeout", 5*time.Minute, "how long to wait")
}

// Everything reports whether no state was asked for.
func (w Goal) Everything() bool {
	return !w.sync && !w.health && !w.finished && !w.Suspended && !w.Degraded
}

// healths are those that will do; empty: any.
func (w Goal) healths() []string {
	var out []string
	for health, wanted := range map[string]bool{"Healthy": w.health || w.Everything(), "Suspended": w.Suspended, "Degraded": w.Degraded} {
		if wanted {
			out = append(out, health)
		}
	}
	slices.Sort(out)
	return out
}

// decide reports whether the wait is over, and with which result; why is what is
// missing yet.
func (w Goal) decide(x apimodel.Application) (over bool, why string, err error) {
	st := x.Status
	if over, why, err := w.decideOperation(st.OperationState); over || why != "" {
		return over, why, err
	}
	if len(w.Resources) > 0 {
		return true, "", nil // their states are read one by one
	}
	if over, why, err := w.decideSync(x); over || why != "" {
		return over, why, err
	}
	if wanted := w.healths(); len(wanted) > 0 && !slices.Contains(wanted, string(st.Health.Status)) {
		return false, "not " + strings.ToLower(strings.Join(wanted, " or ")) + conditionText(st), nil
	}
	return true, "", nil
}

// decideOperation is decide for the newest operation alone. If it neither ends the
// wait nor is missing, why is empty.
func (w Goal) decideOperation(op apimodel.OperationState) (over bool, why string, err error) {
	if op.Phase == "" || w.Operation != "" && op.Id != w.Operation && op.RetryCount < 1 {
		if w.Operation != "" {
			return false, "the operation has not been seen yet", nil
		}
		return false, "", nil
	}
	switch {
	case op.Phase == "Pending" || op.Phase == "Running" || op.Phase == "Terminating":
		if w.Everything() || w.finished || w.Operation != "" {
			return false, fmt.Sprintf("operation %s: %s", op.Phase, output.Dash(op.Message)), nil
		}
	case !op.RetryAt.IsZero():
		return false, fmt.Sprintf("operation failed and is tried again at %s: %s", op.RetryAt.Format(time.TimeOnly), op.Message), nil
	case op.Phase != "Succeeded" && w.Operation != "":
		return true, "", fault.New(fault.Conflict, "operation %s: %s", op.Phase, op.Message)
	}
	return w.Operation != "" && op.Operation.Sync.DryRun, "", nil
}

// decideSync is decide for Synced alone. If it neither ends the wait nor is missing,
// why is empty.
func (w Goal) decideSync(x apimodel.Application) (over bool, why string, err error) {
	st := x.Status
	asked := w.sync || w.Everything()
	if p := st.Capstan.Paused; client.Given(p) && asked && !w.Elsewhere && st.Sync.Status == "OutOfSync" {
		// Nothing happens by itself, so there is nothing to wait for.
		return true, "", fault.With(fault.New(fault.Conflict, "%s, and not as Git says", p.Message), "application "+client.QualifiedName(x.Metadata),
			"`capstan app resume "+client.QualifiedName(x.Metadata)+"` follows Git again")
	}
	broken := unusable(st)
	switch {
	case !asked:
	case broken == "" && w.Elsewhere && !w.sync:
	case broken == "":
		if st.Sync.Status != "Synced" {
			return false, "not synced" + conditionText(st), nil
		}
	case w.Operation == "":
		return false, "what its sources say now cannot be deployed: " + broken, nil
	case w.Newest:
		return true, "", fault.New(fault.Conflict, "what was applied is what was rendered before, because what its sources say now cannot be deployed: %s", broken)
	}
	return false, "", nil
}

// definite reports whether the result that was waited for is that of an operation
// alone, which does not change any more.
func (w Goal) definite(x apimodel.Application) bool {
	if w.finished && !w.sync && len(w.healths()) == 0 {
		return true
	}
	op := x.Status.OperationState
	return w.Operation != "" && op.Operation.Sync.DryRun
}

// unusable is the reason why the newest revision cannot be deployed; empty if
// it can. The application may be Synced with an earlier one.
func unusable(st apimodel.ApplicationStatus) string {
	for _, c := range st.Conditions {
		if c.Type == "ComparisonError" || c.Type == "InvalidSpecError" {
			return c.Type + ": " + c.Message
		}
	}
	return ""
}

func conditionText(st apimodel.ApplicationStatus) string {
	var out []string
	if st.Health.Message != "" {
		out = append(out, st.Health.Message)
	}
	for _, c := range st.Conditions {
		out = append(out, c.Type+": "+c.Message)
	}
	if len(out) == 0 {
		return ""
	}
	return " (" + strings.Join(out, "; ") + ")"
}

// missing says which of the objects that are waited for is not where it should be;
// empty: none.
func (w Goal) missing(tree apimodel.Tree) string {
	for _, r := range w.Resources {
		found := false
		for _, n := range tree.Nodes {
			if !n.Managed || n.Kind != r.Kind || n.Name != r.Name || n.Group != r.Group || r.Namespace != "" && n.Namespace != r.Namespace {
				continue
			}
			found = true
			if why := w.missingOf(n); why != "" {
				return why
			}
		}
		if !found {
			return fmt.Sprintf("the application has no %s %s", r.Kind, r.Name)
		}
	}
	return ""
}

// missingOf says why one object is not where it should be; empty: it is.
func (w Goal) missingOf(n apimodel.Node) string {
	what := n.Kind + " " + n.Name
	if (w.sync || w.Everything()) && n.Status != "Synced" {
		return what + " is not synced"
	}
	wanted := w.healths()
	if health := string(n.Health); len(wanted) > 0 && health != "" && !slices.Contains(wanted, health) {
		return fmt.Sprintf("%s is %s, not %s %s", what, health, strings.Join(wanted, " or "), n.Message)
	}
	return ""
}
