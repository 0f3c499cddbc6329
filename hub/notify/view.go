package notify

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
)

// hidden are annotations that are not part of the view: what was sent, and
// manifests as they were applied.
func hidden(key string) bool {
	return key == NotifiedAnnotation || key == "kubectl.kubernetes.io/last-applied-configuration"
}

// View is an application in the shape of Argo CD's, without secrets. What a
// transition knows replaces what is known now.
func View(a hub.Application, s hub.NotifiedState, op *hub.Operation) map[string]any {
	metadata := map[string]any{
		"name": a.Name, "namespace": a.Namespace, "uid": string(a.ID), "creationTimestamp": stamp(a.CreatedAt), "labels": plain(a.Labels),
		"annotations": plain(a.Annotations),
	}
	if a.DeletingAt != nil {
		metadata["deletionTimestamp"] = stamp(*a.DeletingAt)
	}
	return map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
		"metadata": metadata, "spec": masked(a.Spec), "status": status(a, s, op),
	}
}

// ProjectView is a project in the shape of Argo CD's, without secrets.
func ProjectView(p *hub.Project) map[string]any {
	if p == nil {
		return nil
	}
	return map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "spec": masked(p.Spec),
		"metadata": map[string]any{"name": p.Name, "namespace": p.Namespace, "labels": plain(p.Labels), "annotations": plain(p.Annotations)},
	}
}

// masked reads a spec without user names and passwords in addresses.
func masked(spec json.RawMessage) map[string]any {
	out := map[string]any{}
	_ = json.Unmarshal(repourl.RedactJSON(spec), &out) // what cannot be read is not shown
	return out
}

func plain(in map[string]string) map[string]any {
	out := make(map[string]any, len(in))
	for k, v := range in {
		if !hidden(k) {
			out[k] = repourl.RedactText(v)
		}
	}
	return out
}

func status(a hub.Application, s hub.NotifiedState, op *hub.Operation) map[string]any {
	st := a.Status
	health := map[string]any{"status": string(s.Health)}
	if s.Health == st.Health && st.HealthCause != "" {
		health["message"] = repourl.RedactText(st.HealthCause)
	}
	since := s.Since
	if since == nil {
		since = st.HealthSince
	}
	if since != nil {
		health["lastTransitionTime"] = stamp(*since)
	}
	sync := map[string]any{"status": string(s.Sync), "revision": st.Revision}
	if len(st.Revisions) > 0 {
		sync["revisions"] = list(st.Revisions)
	}
	out := map[string]any{"health": health, "sync": sync, "sourceType": st.SourceType}
	if st.ComparedAt != nil {
		out["reconciledAt"] = stamp(*st.ComparedAt)
	}
	var conditions []any
	for _, c := range st.Conditions {
		conditions = append(conditions, map[string]any{"type": c.Type, "message": repourl.RedactText(c.Message), "lastTransitionTime": stamp(c.Since)})
	}
	if conditions != nil {
		out["conditions"] = conditions
	}
	if op != nil && op.Kind != hub.DeleteOperation {
		out["operationState"] = operation(*op, s.Phase)
	}
	return out
}

// operation is an operation in a phase that it had; Argo CD has no phase for
// operations that the agent has not begun.
func operation(op hub.Operation, phase hub.Phase) map[string]any {
	if phase == "" {
		phase = op.Phase
	}
	if phase == hub.Pending {
		phase = hub.Running
	}
	started := op.CreatedAt
	if op.StartedAt != nil {
		started = *op.StartedAt
	}
	requested := map[string]any{
		"initiatedBy": map[string]any{"username": op.Initiator.Username, "automated": op.Initiator.Automated},
		"sync":        map[string]any{"revision": op.Revision, "prune": op.Options.Prune, "dryRun": op.Options.DryRun, "syncOptions": list(op.Options.SyncOptions)},
	}
	var info []any
	for _, i := range op.Options.Infos {
		info = append(info, map[string]any{"name": i.Name, "value": i.Value})
	}
	if info != nil {
		requested["info"] = info
	}
	result := map[string]any{"revision": op.Revision}
	var resources []any
	for i, r := range op.Results {
		if i == maxList {
			break
		}
		resources = append(resources, map[string]any{
			"group": r.Group, "version": r.Version, "kind": r.Kind, "namespace": r.Namespace, "name": r.Name, "status": r.Status,
			"message": repourl.RedactText(r.Message), "hookType": r.HookType, "hookPhase": r.HookPhase, "syncPhase": r.SyncPhase,
		})
	}
	if resources != nil {
		result["resources"] = resources
	}
	if from := op.Options.From; from != nil && len(from.Revisions) > 0 {
		result["revisions"] = list(from.Revisions)
	}
	out := map[string]any{
		"phase": string(phase), "startedAt": stamp(started), "operation": requested, "syncResult": result, "retryCount": op.Attempt,
	}
	if phase == op.Phase || !phase.Over() && !op.Phase.Over() {
		out["message"] = repourl.RedactText(strings.TrimSpace(op.Message))
	}
	if phase.Over() && op.FinishedAt != nil {
		out["finishedAt"] = stamp(*op.FinishedAt)
	}
	return out
}

func list(in []string) []any {
	out := make([]any, len(in))
	for i, s := range in {
		out[i] = s
	}
	return out
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
