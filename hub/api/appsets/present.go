package appsets

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// mostHeld is how many applications of a deletion that is held an answer names.
const mostHeld = 1000

func at(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// Present returns a set in the shape of Argo CD's, with what Capstan knows
// beyond it, and without its applications.
func Present(s hub.ApplicationSet) apimodel.ApplicationSet {
	out := apimodel.ApplicationSet{
		ApiVersion: validation.ArgoVersion, Kind: validation.KindApplicationSet, Spec: repourl.RedactJSON(s.Spec),
		Metadata: apimodel.Metadata{
			Uid: string(s.ID), Name: s.Name, Namespace: s.Namespace, Labels: s.Labels, Annotations: s.Annotations, Finalizers: s.Finalizers,
			Generation: s.Generation, ResourceVersion: strconv.FormatInt(s.Version, 10), CreationTimestamp: s.CreatedAt.UTC().Format(time.RFC3339),
		},
	}
	if s.DeletingAt != nil {
		out.Metadata.DeletionTimestamp = s.DeletingAt.UTC().Format(time.RFC3339)
	}
	st := s.Status
	out.Status.ResourcesCount = int64(st.ResourcesCount)
	out.Status.Health.Status, out.Status.Health.Message = healthOf(s), repourl.RedactText(st.HealthMessage)
	for _, c := range st.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, apimodel.ApplicationSetCondition{
			Type: c.Type, Status: apimodel.ApplicationSetConditionStatus(c.Status), Reason: c.Reason, Message: repourl.RedactText(c.Message), LastTransitionTime: c.Since.UTC(),
		})
	}
	out.Status.Capstan = apimodel.SetHubStatus{
		Id: string(s.ID), Project: s.Project, Generation: s.Generation, ObservedGeneration: st.ObservedGeneration, GeneratedAt: at(st.GeneratedAt),
		Deleting: s.DeletingAt != nil,
	}
	if h := st.Held; h != nil {
		out.Status.Capstan.Held = apimodel.HeldDeletion{
			Digest: h.Digest, Since: h.Since.UTC(), Count: len(h.Applications), Of: h.Of, Limit: h.Limit, ConsentedBy: h.ConsentedBy, ConsentedAt: at(h.ConsentedAt),
			Applications: []string{},
		}
	}
	if s.Parent != nil {
		out.Status.Capstan.Parent = apimodel.ParentApplication{Namespace: s.Parent.Namespace, Name: s.Parent.Name}
	}
	return out
}

// healthOf is the health of a set; one that was never generated has none yet.
func healthOf(s hub.ApplicationSet) apimodel.HealthStatusCode {
	if s.Status.Health == "" {
		return apimodel.HealthStatusCodeUnknown
	}
	return apimodel.HealthStatusCode(s.Status.Health)
}

// addResources adds those applications to a status that the caller may see, and
// what is known of each.
func addResources(to *apimodel.ApplicationSetStatus, s hub.ApplicationSet, resources []hub.SetResource) {
	seen := map[string]bool{}
	counts := map[string]int{}
	for _, r := range resources {
		seen[r.Namespace+"/"+r.Name] = true
		counts[string(r.Health)]++
		node := apimodel.TopResource{
			Group: "argoproj.io", Version: "v1alpha1", Kind: validation.KindApplication, Namespace: r.Namespace, Name: r.Name, Status: apimodel.SyncStatusCode(r.Sync),
		}
		node.Health.Status = apimodel.HealthStatusCode(r.Health)
		to.Resources = append(to.Resources, node)
	}
	if len(counts) > 0 {
		to.Capstan.Counts = counts
	}
	for _, r := range s.Status.Rollout {
		if !seen[s.Namespace+"/"+r.Application] {
			continue
		}
		to.ApplicationStatus = append(to.ApplicationStatus, apimodel.RolloutState{
			Application: r.Application, Status: apimodel.RolloutStateStatus(r.Status), Step: r.Step, Message: repourl.RedactText(r.Message),
			TargetRevisions: r.Revisions, LastTransitionTime: r.Since.UTC(),
		})
	}
	if s.Status.Held == nil {
		return
	}
	for _, name := range s.Status.Held.Applications {
		if seen[name] && len(to.Capstan.Held.Applications) < mostHeld {
			to.Capstan.Held.Applications = append(to.Capstan.Held.Applications, name)
		}
	}
}

// nodes are a set and its applications as a tree.
func nodes(s hub.ApplicationSet, resources []hub.SetResource) []apimodel.Node {
	out := []apimodel.Node{{
		Uid: string(s.ID), Group: "argoproj.io", Version: "v1alpha1", Kind: validation.KindApplicationSet, Namespace: s.Namespace, Name: s.Name,
		Managed: true, Health: healthOf(s), Message: repourl.RedactText(s.Status.HealthMessage), CreatedAt: s.CreatedAt.UTC(),
	}}
	for _, r := range resources {
		n := apimodel.Node{
			Uid: string(s.ID) + "/" + r.Namespace + "/" + r.Name, Parent: string(s.ID), Group: "argoproj.io", Version: "v1alpha1", Kind: validation.KindApplication,
			Namespace: r.Namespace, Name: r.Name, Status: apimodel.SyncStatusCode(r.Sync), Health: apimodel.HealthStatusCode(r.Health),
		}
		if r.Deleting {
			n.Message = "it is being deleted"
		}
		out = append(out, n)
	}
	return out
}

// written is what a set writes of an application.
type written struct {
	Labels      apimodel.StringMap `json:"labels"`
	Annotations apimodel.StringMap `json:"annotations"`
	Finalizers  []string           `json:"finalizers"`
	Spec        json.RawMessage    `json:"spec"`
}

// preview presents what a set would do, with the numbers of it.
func preview(found []hub.PreviewedApplication) (apimodel.ApplicationSetPreview, error) {
	out := apimodel.ApplicationSetPreview{Items: make([]apimodel.PreviewedApplication, 0, len(found)), Applications: []apimodel.Application{}}
	for _, p := range found {
		item := apimodel.PreviewedApplication{
			Namespace: p.Namespace, Name: p.Name, Action: apimodel.PreviewedApplicationAction(p.Action), Problem: repourl.RedactText(p.Problem), Held: p.Held,
			Parameters: repourl.RedactJSON(p.Params),
		}
		var err error
		if item.Before, _, err = manifest(p, p.Before); err != nil {
			return out, err
		}
		var after apimodel.Application
		if item.After, after, err = manifest(p, p.After); err != nil {
			return out, err
		}
		if len(item.After) > 0 && p.Problem == "" && p.Action != hub.PreviewDelete {
			out.Applications = append(out.Applications, after)
		}
		count(&out, p)
		out.Items = append(out.Items, item)
	}
	return out, nil
}

func count(to *apimodel.ApplicationSetPreview, p hub.PreviewedApplication) {
	switch p.Action {
	case hub.PreviewCreate:
		to.Counts.Create++
	case hub.PreviewUpdate:
		to.Counts.Update++
	case hub.PreviewDelete:
		to.Counts.Delete++
	case hub.PreviewUnchanged:
		to.Counts.Unchanged++
	}
	if p.Problem != "" {
		to.Counts.Problems++
	}
	if p.Held {
		to.Counts.Held++
	}
}

// manifest is an application as a person would write it; empty: there is none.
func manifest(p hub.PreviewedApplication, text json.RawMessage) (apimodel.AnyObject, apimodel.Application, error) {
	if len(text) == 0 || string(text) == "null" {
		return nil, apimodel.Application{}, nil
	}
	var w written
	if err := json.Unmarshal(text, &w); err != nil {
		return nil, apimodel.Application{}, fmt.Errorf("preview of application %s/%s: %w", p.Namespace, p.Name, err)
	}
	app := apimodel.Application{
		ApiVersion: validation.ArgoVersion, Kind: validation.KindApplication, Spec: repourl.RedactJSON(w.Spec),
		Metadata: apimodel.Metadata{Namespace: p.Namespace, Name: p.Name, Labels: w.Labels, Annotations: w.Annotations, Finalizers: slices.Clone(w.Finalizers)},
	}
	out, err := json.Marshal(app)
	return out, app, err
}

// event presents a record of the audit log as clients of Argo CD read events.
func event(r hub.AuditRecord, namespace, name string) apimodel.KubernetesEvent {
	kind, message := "Normal", r.Actor+": "+r.Action
	if r.Reason != "" {
		message += " (" + r.Reason + ")"
	}
	if r.Result != "allowed" {
		kind, message = "Warning", message+": "+r.Result
	}
	return apimodel.KubernetesEvent{
		Type: kind, Reason: r.Action, Message: message, Count: 1, FirstSeen: r.At.UTC(), LastSeen: r.At.UTC(), Source: r.Actor,
		Group: "argoproj.io", Kind: validation.KindApplicationSet, Namespace: namespace, Name: name,
	}
}
