package api

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

const defaultPage = 100

// ListApplications answers one page of applications.
func (s *Server) ListApplications(ctx context.Context, r gen.ListApplicationsRequestObject) (gen.ListApplicationsResponseObject, error) {
	f, err := filter(r.Params)
	if err != nil {
		return nil, err
	}
	page, err := s.Catalog.Applications(ctx, callerOf(ctx), f, r.Params.Cluster)
	if err != nil {
		return nil, err
	}
	body := apimodel.ApplicationList{
		ApiVersion: validation.ArgoVersion, Kind: "ApplicationList", Cursor: page.Cursor,
		Items: collect(page.Items, func(v catalog.View) apimodel.Application { return presentListed(v, string(r.Params.View)) }),
	}
	if page.More {
		last := page.Items[len(page.Items)-1]
		body.Metadata.Continue = pageCursor(hub.ApplicationKey{Namespace: last.Namespace, Name: last.Name})
	}
	if r.Params.Fields != "" {
		return sparse(body, r.Params.Fields, r.Params.IfNoneMatch)
	}
	tag, err := listTag(body)
	if err != nil {
		return nil, err
	}
	if r.Params.IfNoneMatch == tag {
		return gen.ListApplications304Response{}, nil
	}
	return gen.ListApplications200JSONResponse{Body: body, Headers: gen.ListApplications200ResponseHeaders{ETag: tag}}, nil
}

// listTag is the version of a page. Where the stream stands is no part of it.
func listTag(l apimodel.ApplicationList) (string, error) {
	l.Cursor = ""
	b, err := json.Marshal(l)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return `"` + hex.EncodeToString(sum[:16]) + `"`, nil
}

func filter(p apimodel.ListApplicationsParams) (hub.ApplicationFilter, error) {
	f := hub.ApplicationFilter{Projects: append(p.Project, p.Projects...), Namespaces: p.Namespace, Query: p.Q, Name: p.Name, Limit: p.Limit}
	if p.AppNamespace != "" {
		f.Namespaces = append(f.Namespaces, p.AppNamespace)
	}
	for _, url := range p.Repo {
		if normal, err := repourl.Normalize(url); err == nil {
			url = normal
		}
		f.Repositories = append(f.Repositories, url)
	}
	if f.Limit == 0 {
		f.Limit = defaultPage
	}
	for _, v := range p.Sync {
		f.Sync = append(f.Sync, hub.SyncStatus(v))
	}
	for _, v := range p.Health {
		f.Health = append(f.Health, hub.HealthStatus(v))
	}
	var err error
	if f.Labels, err = parseLabels(p.Labels); err != nil {
		return f, err
	}
	selected, err := parseLabels(p.Selector)
	if err != nil {
		return f, err
	}
	f.Labels = append(f.Labels, selected...)
	f.After, err = parsePage(p.Cursor)
	return f, err
}

// pageCursor is where a list continues.
func pageCursor(k hub.ApplicationKey) string {
	return base64.RawURLEncoding.EncodeToString([]byte(k.Name + "/" + k.Namespace))
}

func parsePage(s string) (hub.ApplicationKey, error) {
	if s == "" {
		return hub.ApplicationKey{}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	name, namespace, found := strings.Cut(string(b), "/")
	if err != nil || !found || name == "" || strings.ContainsRune(string(b), 0) {
		return hub.ApplicationKey{}, fault.With(fault.New(fault.Invalid, "the cursor is not one of a list"), "", "start the list again, without a cursor")
	}
	return hub.ApplicationKey{Namespace: namespace, Name: name}, nil
}

// CreateApplication makes an application.
func (s *Server) CreateApplication(ctx context.Context, r gen.CreateApplicationRequestObject) (gen.CreateApplicationResponseObject, error) {
	answer, err := s.putApplication(ctx, *r.Body, catalog.PutOptions{Create: true})
	if err != nil {
		return nil, err
	}
	return gen.CreateApplication201JSONResponse{ApplicationAnswerJSONResponse: answer}, nil
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
	answer, err := s.putApplication(ctx, a, catalog.PutOptions{Update: true, Expect: expect})
	if err != nil {
		return nil, err
	}
	return gen.UpdateApplication200JSONResponse{ApplicationAnswerJSONResponse: answer}, nil
}

func (s *Server) putApplication(ctx context.Context, a apimodel.Application, o catalog.PutOptions) (gen.ApplicationAnswerJSONResponse, error) {
	if err := checkType(a.ApiVersion, a.Kind, validation.KindApplication); err != nil {
		return gen.ApplicationAnswerJSONResponse{}, err
	}
	o.Operation = a.Operation
	v, _, warnings, err := s.Catalog.PutApplication(ctx, callerOf(ctx), hub.Application{Meta: given(a.Metadata), Spec: a.Spec}, o)
	if err != nil {
		return gen.ApplicationAnswerJSONResponse{}, err
	}
	answer := applicationAnswer(v)
	answer.Body.Warnings = warnings
	return answer, nil
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
	v, err := s.application(ctx, r.Namespace, r.Name, r.Params.Confirm)
	if err != nil {
		return nil, err
	}
	shown := shownHistory
	if spec, err := hub.DecodeSpec(v.Spec); err == nil && spec.RevisionHistoryLimit != nil {
		shown = int(min(max(1, *spec.RevisionHistoryLimit), mostHistory))
	}
	history, err := s.Catalog.History(ctx, callerOf(ctx), r.Namespace, r.Name, 0, shown)
	if err != nil {
		return nil, err
	}
	tree, err := s.Catalog.Tree(ctx, callerOf(ctx), r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	answer := applicationAnswer(v)
	addResources(&answer.Body.Status, tree.Resources)
	for i := len(history) - 1; i >= 0; i-- {
		answer.Body.Status.History = append(answer.Body.Status.History, presentHistory(history[i]))
	}
	return gen.GetApplication200JSONResponse{ApplicationAnswerJSONResponse: answer}, nil
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
