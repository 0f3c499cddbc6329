package apply

import (
	"github.com/capstan-cd/capstan/agent/inventory"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// A Happening is what Kubernetes events may report about an application.
type Happening struct {
	App, Name, Namespace string // id, name, and where it is deployed to
	Reason               string // reason, as in Argo CD
	Warning              bool
	Message              string
}

// happened reports a happening. The caller holds mu.
func (a *app) happened(reason, message string, warning bool) {
	if a.e.Happened == nil || a.state == nil {
		return
	}
	a.e.Happened(Happening{App: a.id, Name: a.state.GetName(), Namespace: a.state.GetNamespace(), Reason: reason, Warning: warning, Message: a.secretValues().Text(message)})
}

// eventStarted reports that an operation starts, and its initiator.
func (a *app) eventStarted(o inventory.Operation) {
	if len(o.Progress) > 0 || o.Order.GetOptions().GetDryRun() {
		return // it continues after a restart, or is a dry run
	}
	who := "initiated automated " + workOf(o)
	if name := o.Order.GetInitiator(); name != "" && !o.Order.GetAutomated() {
		who = name + " initiated " + workOf(o)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.happened("OperationStarted", who, false)
}

// eventEnded reports the result of an operation.
func (a *app) eventEnded(o inventory.Operation, out *linkv1.OperationReport) {
	if o.Order.GetOptions().GetDryRun() {
		return
	}
	message, failed := workOf(o)+" succeeded", out.GetPhase() != phaseSucceeded
	if failed {
		message = workOf(o) + " failed: " + out.GetMessage()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.happened("OperationCompleted", message, failed)
}

// workOf describes what an operation does.
func workOf(o inventory.Operation) string {
	kind := map[linkv1.OperationKind]string{
		linkv1.OperationKind_OPERATION_KIND_ROLLBACK: "rollback", linkv1.OperationKind_OPERATION_KIND_DELETE: "deletion",
	}[o.Order.GetKind()]
	if kind == "" {
		kind = "sync"
	}
	if revision := o.Order.GetSnapshot().GetRevision(); revision != "" {
		return kind + " to " + revision
	}
	return kind
}

// eventChanged reports a change of sync or health, with up to three causes of
// the latter (HLT-26). The state at the agent's start is no change. The caller
// holds mu.
func (a *app) eventChanged(r *linkv1.AppReport) {
	was := a.shown
	a.shown = [2]string{r.GetSync(), r.GetHealth()}
	if was == [2]string{} {
		return
	}
	if was[0] != a.shown[0] {
		a.happened("ResourceUpdated", "Updated sync status: "+was[0]+" -> "+a.shown[0], false)
	}
	if was[1] != a.shown[1] {
		text := "Updated health status: " + was[1] + " -> " + a.shown[1]
		if cause := r.GetHealthCause(); cause != "" {
			text += " (" + cause + ")"
		}
		a.happened("ResourceUpdated", text, a.shown[1] == "Degraded")
	}
}
