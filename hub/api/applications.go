package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

const defaultPage = 100

// ListApplications answers one page of applications.
func (s *Server) ListApplications(ctx context.Context, r gen.ListApplicationsRequestObject) (gen.ListApplicationsResponseObject, error) {
	q, err := listRequest(r.Params)
	if err != nil {
		return nil, err
	}
	view := string(r.Params.View)
	page, err := s.Catalog.Applications(ctx, callerOf(ctx), q, view != rowView)
	if err != nil {
		return nil, err
	}
	body := apimodel.ApplicationList{
		ApiVersion: validation.ArgoVersion, Kind: "ApplicationList", Cursor: page.Cursor, Total: page.Total,
		Items:  collect(page.Items, func(v catalog.View) apimodel.Application { return presentListed(v, view) }),
		Facets: presentFacets(page.Facets),
	}
	if view == rowView {
		body.Rows = presentRows(page.Page)
	}
	if page.Next.Name != "" {
		body.Metadata.Continue = page.Next.String()
	}
	if r.Params.Fields != "" {
		return sparse(body, r.Params.Fields, r.Params.IfNoneMatch)
	}
	answer, err := writeList(body)
	if err != nil {
		return nil, err
	}
	if r.Params.IfNoneMatch == answer.tag {
		return gen.ListApplications304Response{}, nil
	}
	return answer, nil
}

// writeList writes a page once, for its version and its reader. Where the stream stands is no part of its version.
func writeList(l apimodel.ApplicationList) (writtenList, error) {
	text, err := json.Marshal(l)
	if err != nil {
		return writtenList{}, err
	}
	before, after, _ := bytes.Cut(text, []byte(`"cursor":"`+l.Cursor+`"`))
	sum := sha256.New()
	sum.Write(before)
	sum.Write(after)
	return writtenList{text, `"` + hex.EncodeToString(sum.Sum(nil)[:16]) + `"`}, nil
}

// CreateApplication makes an application.
func (s *Server) CreateApplication(ctx context.Context, r gen.CreateApplicationRequestObject) (gen.CreateApplicationResponseObject, error) {
	answer, out, err := s.putApplication(ctx, *r.Body, catalog.PutOptions{Create: true, Update: r.Params.Upsert, RefuseInvalid: r.Params.Validate})
	if err != nil {
		return nil, err
	}
	if out != transact.Created {
		return gen.CreateApplication200JSONResponse{ApplicationAnswerJSONResponse: answer}, nil
	}
	return gen.CreateApplication201JSONResponse{Body: answer.Body, Headers: gen.CreateApplication201ResponseHeaders{ETag: answer.Headers.ETag}}, nil
}

// UpdateApplication replaces what a person wrote of an application.
func (s *Server) UpdateApplication(ctx context.Context, r gen.UpdateApplicationRequestObject) (gen.UpdateApplicationResponseObject, error) {
	a := *r.Body
	if err := checkName("name", a.Metadata.Name, r.Name); err != nil {
		return nil, err
	}
	if a.Metadata.Namespace == "" {
		a.Metadata.Namespace = r.Namespace
	}
	if err := checkName("namespace", a.Metadata.Namespace, r.Namespace); err != nil {
		return nil, err
	}
	expect, err := expected(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	answer, _, err := s.putApplication(ctx, a, catalog.PutOptions{Update: true, Expect: expect})
	if err != nil {
		return nil, err
	}
	return gen.UpdateApplication200JSONResponse{ApplicationAnswerJSONResponse: answer}, nil
}

func (s *Server) putApplication(ctx context.Context, a apimodel.Application, o catalog.PutOptions) (gen.ApplicationAnswerJSONResponse, transact.Outcome, error) {
	if err := checkType(a.ApiVersion, a.Kind, validation.KindApplication); err != nil {
		return gen.ApplicationAnswerJSONResponse{}, "", err
	}
	o.Operation = a.Operation
	v, out, warnings, err := s.Catalog.PutApplication(ctx, callerOf(ctx), hub.Application{Meta: given(a.Metadata), Spec: a.Spec}, o)
	if err != nil {
		return gen.ApplicationAnswerJSONResponse{}, "", err
	}
	answer := applicationAnswer(v)
	answer.Body.Warnings = warnings
	return answer, out, nil
}

func applicationAnswer(v catalog.View) gen.ApplicationAnswerJSONResponse {
	return gen.ApplicationAnswerJSONResponse{
		Body: presentApplication(v, false), Headers: gen.ApplicationAnswerResponseHeaders{ETag: etag(v.Version)},
	}
}

// shownHistory is how much of the history an application carries itself where
// it does not say so, and mostHistory how much it may. Nothing else is limited
// by them.
const (
	shownHistory = 10
	mostHistory  = 100
)

// GetApplication answers one application with the end of its history.
func (s *Server) GetApplication(ctx context.Context, r gen.GetApplicationRequestObject) (gen.GetApplicationResponseObject, error) {
	if r.Params.Refresh != "" {
		if err := s.refreshed(ctx, r.Namespace, r.Name, r.Params.Refresh == apimodel.RefreshHard); err != nil {
			return nil, err
		}
	}
	v, err := s.application(ctx, r.Namespace, r.Name, r.Params.Confirm)
	if err != nil {
		return nil, err
	}
	tree, err := s.Catalog.Tree(ctx, callerOf(ctx), r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	answer := applicationAnswer(v)
	if err := s.addTree(ctx, callerOf(ctx), v, &answer.Body.Status, tree.Resources); err != nil {
		return nil, err
	}
	return gen.GetApplication200JSONResponse{ApplicationAnswerJSONResponse: answer}, nil
}

// addTree adds the end of the history to a status, and what is read from objects.
func (s *Server) addTree(ctx context.Context, who hub.Caller, v catalog.View, to *apimodel.ApplicationStatus, resources []hub.Resource) error {
	shown := shownHistory
	if spec, err := hub.DecodeSpec(v.Spec); err == nil && spec.RevisionHistoryLimit != nil {
		shown = int(min(max(1, *spec.RevisionHistoryLimit), mostHistory))
	}
	history, err := s.Catalog.History(ctx, who, v.Namespace, v.Name, 0, shown)
	if err != nil {
		return err
	}
	addResources(to, resources)
	for i := len(history) - 1; i >= 0; i-- {
		to.History = append(to.History, presentHistory(history[i]))
	}
	return nil
}

// application reads an application. With confirm its cluster's agent has been
// asked before, and the result is not older than the call.
func (s *Server) application(ctx context.Context, namespace, name string, confirm bool) (catalog.View, error) {
	v, err := s.Catalog.Application(ctx, callerOf(ctx), namespace, name)
	if err != nil || !confirm || v.On == nil || v.Status.Target == "" {
		return v, err
	}
	began := time.Now()
	confirmed, err := s.Relay.Confirm(ctx, *v.On, v.ID)
	if err != nil {
		return v, err
	}
	if v, err = s.Catalog.Application(ctx, callerOf(ctx), namespace, name); err != nil || v.On == nil {
		return v, err
	}
	if confirmed {
		if asOf := v.On.AsOf(); asOf == nil || asOf.Before(began) {
			v.On.LastSeen, v.On.Lag = &began, 0
		}
		return v, nil
	}
	return s.heardSince(ctx, v, began)
}

// An agent that is too old to be asked confirms by its heartbeats.
const (
	heartbeatWait = 20 * time.Second
	heartbeatPoll = 500 * time.Millisecond
)

// heardSince waits until everything that the agent had seen at a time is here.
func (s *Server) heardSince(ctx context.Context, v catalog.View, began time.Time) (catalog.View, error) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatWait)
	defer cancel()
	for v.On != nil {
		if asOf := v.On.AsOf(); v.On.Connected && asOf != nil && !asOf.Before(began) {
			return v, nil
		}
		if lifecycle.Sleep(ctx, lifecycle.System{}, heartbeatPoll) != nil {
			return v, fault.With(fault.New(fault.Offline, "its agent has not confirmed how the application is now"), "cluster "+v.On.Name, "try again")
		}
		var err error
		if v, err = s.Catalog.Application(ctx, callerOf(ctx), v.Namespace, v.Name); err != nil {
			return v, err
		}
	}
	return v, nil
}

// DeleteApplication deletes an application.
func (s *Server) DeleteApplication(ctx context.Context, r gen.DeleteApplicationRequestObject) (gen.DeleteApplicationResponseObject, error) {
	propagation, err := propagationOf(r.Params)
	if err != nil {
		return nil, err
	}
	left, err := s.Catalog.DeleteApplication(ctx, callerOf(ctx), r.Namespace, r.Name, r.Params.Cascade, string(propagation))
	if err != nil {
		return nil, err
	}
	if left == nil {
		return gen.DeleteApplication204Response{}, nil
	}
	return gen.DeleteApplication202JSONResponse(presentApplication(*left, true)), nil
}

// propagationOf reads the policy of a deletion under either of its names.
func propagationOf(p apimodel.DeleteApplicationParams) (apimodel.Propagation, error) {
	switch {
	case p.Propagation == "":
		return p.PropagationPolicy, nil
	case p.PropagationPolicy != "" && p.PropagationPolicy != p.Propagation:
		return "", fault.With(fault.New(fault.Invalid, "propagation is %s, and propagationPolicy is %s", p.Propagation, p.PropagationPolicy), "", "give one of them")
	}
	return p.Propagation, nil
}

// GetApplicationTree answers the managed objects and their children.
func (s *Server) GetApplicationTree(ctx context.Context, r gen.GetApplicationTreeRequestObject) (gen.GetApplicationTreeResponseObject, error) {
	out, err := s.treeOf(ctx, callerOf(ctx), r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	return gen.GetApplicationTree200JSONResponse(out), nil
}

// GetLiveResource answers one live object, from the cluster's agent.
func (s *Server) GetLiveResource(ctx context.Context, r gen.GetLiveResourceRequestObject) (gen.GetLiveResourceResponseObject, error) {
	p := r.Params
	ref := hub.ObjectRef{Group: p.Group, Version: p.Version, Kind: p.Kind, Namespace: p.ResourceNamespace, Name: p.ResourceName}
	v, err := s.Catalog.LiveTarget(ctx, callerOf(ctx), r.Namespace, r.Name, &ref)
	if err != nil {
		return nil, err
	}
	live, err := s.Relay.Get(ctx, *v.On, v.ID, ref)
	if err != nil {
		return nil, err
	}
	return gen.GetLiveResource200JSONResponse{Live: live}, nil
}

// DiffApplication answers what differs, from the cluster's agent.
func (s *Server) DiffApplication(ctx context.Context, r gen.DiffApplicationRequestObject) (gen.DiffApplicationResponseObject, error) {
	p := r.Params
	if (p.Kind == "") != (p.ResourceName == "") {
		return nil, fault.With(fault.New(fault.Invalid, "kind and resourceName go together"), "", "give both, or neither")
	}
	if p.Revision != "" || len(p.Revisions) > 0 || len(p.SourcePositions) > 0 {
		return s.previewApplication(ctx, r)
	}
	v, err := s.Catalog.LiveTarget(ctx, callerOf(ctx), r.Namespace, r.Name, nil)
	if err != nil {
		return nil, err
	}
	found, err := s.Relay.Diff(ctx, *v.On, v.ID, p.All, p.Predict, hub.ObjectRef{Group: p.Group, Kind: p.Kind, Namespace: p.ResourceNamespace, Name: p.ResourceName})
	if err != nil {
		return nil, err
	}
	return gen.DiffApplication200JSONResponse{Items: collect(found, presentDifference), Paused: presentPaused(v.Application)}, nil
}

// previewApplication answers what a sync to other revisions would change.
// Nothing is stored, in the hub or in the cluster.
func (s *Server) previewApplication(ctx context.Context, r gen.DiffApplicationRequestObject) (gen.DiffApplicationResponseObject, error) {
	p := r.Params
	if p.Kind != "" {
		return nil, fault.With(fault.New(fault.Invalid, "a preview is of all objects"), "", "leave out kind and resourceName")
	}
	o := hub.Override{Revision: p.Revision, Revisions: p.Revisions, Positions: p.SourcePositions}
	v, err := s.Catalog.PreviewTarget(ctx, callerOf(ctx), r.Namespace, r.Name, o)
	if err != nil {
		return nil, err
	}
	made, err := s.Previews.Preview(ctx, callerOf(ctx).Tenant, v.ID, o)
	if err != nil {
		return nil, fault.With(err, "application "+r.Name, "")
	}
	found, err := s.Relay.Preview(ctx, *v.On, v.ID, made)
	if err != nil {
		return nil, err
	}
	return gen.DiffApplication200JSONResponse{
		Items: collect(found, presentDifference), Paused: presentPaused(v.Application), Revisions: made.Revisions, Warnings: made.Warnings,
	}, nil
}

// GetManifests answers the desired objects.
func (s *Server) GetManifests(ctx context.Context, r gen.GetManifestsRequestObject) (gen.GetManifestsResponseObject, error) {
	m, err := s.Catalog.Manifests(ctx, callerOf(ctx), r.Namespace, r.Name, r.Params.History)
	if err != nil {
		return nil, err
	}
	return gen.GetManifests200JSONResponse{
		Revision: m.Revision, Items: collect(m.Objects, func(o json.RawMessage) apimodel.AnyObject { return o }), Paused: presentPaused(m.Application),
	}, nil
}

// GetHistory answers what was applied.
func (s *Server) GetHistory(ctx context.Context, r gen.GetHistoryRequestObject) (gen.GetHistoryResponseObject, error) {
	limit := r.Params.Limit
	if limit == 0 {
		limit = defaultPage
	}
	history, err := s.Catalog.History(ctx, callerOf(ctx), r.Namespace, r.Name, r.Params.Before, limit)
	if err != nil {
		return nil, err
	}
	return gen.GetHistory200JSONResponse{Items: collect(history, presentHistory)}, nil
}
