package api

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// healthInTree means that the health of objects is read from the tree, as in
// Argo CD's API where it is not stored in the Application (APP-21).
const healthInTree = "appTree"

// addResources adds what an application consists of to its status (APP-09,
// APP-18).
func addResources(st *apimodel.ApplicationStatus, resources []hub.Resource) {
	st.ResourceHealthSource = healthInTree
	images, addresses := map[string]bool{}, map[string]bool{}
	for _, r := range resources {
		if r.Orphan {
			continue
		}
		if r.Managed {
			st.Resources = append(st.Resources, presentTop(r))
			st.Summary.IsAppOfApps = st.Summary.IsAppOfApps || r.Group == "argoproj.io" && r.Kind == validation.KindApplication
		}
		for _, l := range r.Links {
			addresses[l] = true
		}
		for _, image := range podImages(r) {
			images[image] = true
		}
	}
	st.Summary.Images = slices.Sorted(maps.Keys(images))
	st.Summary.ExternalURLs = slices.Sorted(maps.Keys(addresses))
}

// podImages are the images of a pod, and none of another object.
func podImages(r hub.Resource) []string {
	if r.Kind != "Pod" || r.Group != "" {
		return nil
	}
	var out []string
	for _, column := range r.Info {
		if column.Name == "images" {
			out = append(out, strings.Fields(column.Value)...)
		}
	}
	return out
}

func presentTop(r hub.Resource) apimodel.TopResource {
	out := apimodel.TopResource{
		Group: r.Group, Version: r.Version, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, Status: apimodel.SyncStatusCode(r.Sync),
		Hook: r.Hook, RequiresPruning: r.RequiresPrune, RequiresDeletionConfirmation: r.Confirm, SyncWave: int64(r.Wave),
	}
	if r.Health != "" {
		out.Health.Status, out.Health.Message = apimodel.HealthStatusCode(r.Health), r.Message
	}
	return out
}

func presentLinks(links []string) []apimodel.Link {
	var out []apimodel.Link
	for _, l := range links {
		if title, address, ok := hub.SplitLink(l); ok {
			out = append(out, apimodel.Link{Title: title, Url: address})
		}
	}
	return out
}

// applicationMetadata adds the finalizers that the hooks of its deletion stand
// for (APP-30).
func applicationMetadata(v catalog.View) apimodel.Metadata {
	m := v.Meta
	m.Finalizers = append(slices.Clone(m.Finalizers), hub.HookFinalizers(v.Status.DeletionHooks)...)
	out := metadata(string(v.ID), m, v.Generation, v.DeletingAt)
	if v.Set != nil {
		out.OwnerReferences = []apimodel.OwnerReference{{
			ApiVersion: validation.ArgoVersion, Kind: validation.KindApplicationSet, Name: v.Set.Name, Controller: true, BlockOwnerDeletion: true,
		}}
	}
	return out
}

// presentRequested is the field operation while an operation is in progress
// (APP-14). Its id distinguishes a read value from a request.
func presentRequested(v catalog.View) json.RawMessage {
	op := v.Status.Operation
	if op == nil || op.Phase.Over() || op.Kind == hub.DeleteOperation {
		return nil
	}
	lastSent := presentOperation(*op, true).Operation
	out := map[string]any{"id": op.ID, "initiatedBy": lastSent.InitiatedBy, "sync": lastSent.Sync}
	if len(lastSent.Info) > 0 {
		out["info"] = lastSent.Info
	}
	if op.Options.Retry != nil {
		out["retry"] = op.Options.Retry
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return nil // it has no part that JSON does not have
	}
	return raw
}

// presentFrom says what an operation applies, and how it is tried again.
func presentFrom(o hub.OperationOptions, out *apimodel.OperationState) {
	if o.Retry != nil {
		out.Operation.Retry = raw(o.Retry)
	}
	from := o.From
	if from == nil {
		return
	}
	out.SyncResult.Revisions = from.Revisions
	if from.Source != nil {
		out.SyncResult.Source = raw(from.Source)
	}
	out.SyncResult.Sources = collectOrNil(from.Sources)
	if from.Namespace != nil {
		out.SyncResult.ManagedNamespaceMetadata = raw(from.Namespace)
	}
}

func collectOrNil(sources []hub.Source) (out []apimodel.AnyObject) {
	for _, s := range sources {
		out = append(out, raw(s))
	}
	return out
}

// raw is a value of ours as JSON, which all of its parts have.
func raw(v any) apimodel.AnyObject {
	text, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return repourl.RedactJSON(text)
}
