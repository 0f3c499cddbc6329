package api

import (
	"encoding/json"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// compactView is the value of the parameter view for what lists need. Lists and
// the stream share it, so that an event replaces an item of a list.
const compactView = "compact"

// presentListed returns an application as a list or the stream has it.
func presentListed(v catalog.View, view string) apimodel.Application {
	if view == compactView {
		return presentCompact(v)
	}
	return presentApplication(v, true)
}

// presentCompact returns the fields of an application that a list shows.
func presentCompact(v catalog.View) apimodel.Application {
	full := presentStatus(v, true)
	out := apimodel.Application{
		ApiVersion: validation.ArgoVersion, Kind: validation.KindApplication, Spec: repourl.RedactJSON(compactSpec(v.Spec)),
		Metadata: apimodel.Metadata{Name: v.Name, Namespace: v.Namespace, ResourceVersion: resourceVersion(v.Version)},
	}
	if len(v.Labels) > 0 {
		out.Metadata.Labels = v.Labels
	}
	st := &out.Status
	st.Sync.Status, st.Sync.Revision = full.Sync.Status, full.Sync.Revision
	if len(full.Sync.Revisions) > 1 {
		st.Sync.Revisions = full.Sync.Revisions
	}
	st.Health.Status, st.Health.Message = full.Health.Status, full.Health.Message
	st.Conditions, st.Capstan = full.Conditions, full.Capstan
	st.Capstan.Target, st.Capstan.Accepted, st.Capstan.RefreshedAt = "", "", time.Time{}
	st.Capstan.FollowsRevision, st.Capstan.KeepsLive = false, false // automation says it
	if op := full.OperationState; op.Id != "" {
		st.OperationState = apimodel.OperationState{
			Id: op.Id, Kind: op.Kind, Phase: op.Phase, Message: op.Message, StartedAt: op.StartedAt, FinishedAt: op.FinishedAt, RetryAt: op.RetryAt,
		}
		st.OperationState.Operation.InitiatedBy = op.Operation.InitiatedBy
	}
	return out
}

// compactSpec is where an application comes from and goes to. A spec that cannot
// be read, which nothing stores, comes back as it is.
func compactSpec(spec json.RawMessage) json.RawMessage {
	type source struct {
		RepoURL        string `json:"repoURL,omitempty"`
		Path           string `json:"path,omitempty"`
		Chart          string `json:"chart,omitempty"`
		TargetRevision string `json:"targetRevision,omitempty"`
		Ref            string `json:"ref,omitempty"`
	}
	var out struct {
		Project     string          `json:"project,omitempty"`
		Source      *source         `json:"source,omitempty"`
		Sources     []source        `json:"sources,omitempty"`
		Destination hub.Destination `json:"destination"`
	}
	if json.Unmarshal(spec, &out) != nil {
		return spec
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return spec
	}
	return raw
}

// presentPaused is what answers say of an application that is paused; empty for
// any other.
func presentPaused(a hub.Application) apimodel.Paused {
	p := a.Pin
	if p == nil {
		return apimodel.Paused{}
	}
	name := a.Name
	if a.Namespace != validation.DefaultNamespace {
		name = a.Namespace + "/" + a.Name
	}
	out := apimodel.Paused{
		Since: p.At.UTC(), By: p.By, Reason: p.Reason, Revision: a.Status.Revision, HistoryId: p.History, Skipped: p.Skipped,
		Message: p.Sentence(a.Status.Revision), Resume: "capstan app resume " + name,
	}
	if r := p.Renderers; r != nil {
		out.Renderers = apimodel.RendererChange{From: r.From, To: r.To, Added: r.Added, Changed: r.Changed, Removed: r.Removed}
	}
	return out
}

// presentCompared is what the cluster of an application is compared with.
func presentCompared(v catalog.View) apimodel.ComparedTo {
	var spec struct {
		Source            json.RawMessage   `json:"source"`
		Sources           []json.RawMessage `json:"sources"`
		Destination       json.RawMessage   `json:"destination"`
		IgnoreDifferences []json.RawMessage `json:"ignoreDifferences"`
	}
	if v.Status.Target == "" || json.Unmarshal(repourl.RedactJSON(v.Spec), &spec) != nil {
		return apimodel.ComparedTo{}
	}
	return apimodel.ComparedTo{Source: spec.Source, Sources: spec.Sources, Destination: spec.Destination, IgnoreDifferences: spec.IgnoreDifferences}
}
