// Package appsets has the handlers of the API for application sets. They parse,
// call and present. The API embeds them; rights and writes belong to the
// catalogue. Nothing is shown of a set, or of an application of it, that the
// caller may not see.
package appsets

import (
	"context"
	"strconv"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Sets handle requests. Many goroutines may use them.
type Sets struct {
	catalog  *catalog.Catalog
	caller   func(ctx context.Context) hub.Caller
	expected func(ifMatch string) (int64, error)
}

// New makes them. The functions return who is calling, and the version that a
// header If-Match names.
func New(c *catalog.Catalog, caller func(ctx context.Context) hub.Caller, expected func(ifMatch string) (int64, error)) *Sets {
	return &Sets{c, caller, expected}
}

// mostResources is how many applications of a set an answer lists, as the
// setting for it has by default.
const mostResources = 5000

// ListApplicationSets answers one page of application sets.
func (s *Sets) ListApplicationSets(ctx context.Context, r gen.ListApplicationSetsRequestObject) (gen.ListApplicationSetsResponseObject, error) {
	l, err := listOf(r.Params)
	if err != nil {
		return nil, err
	}
	all, cursor, err := s.catalog.ApplicationSets(ctx, s.caller(ctx), l.filter)
	if err != nil {
		return nil, err
	}
	page, total, next := l.page(all)
	out := apimodel.ApplicationSetList{ApiVersion: validation.ArgoVersion, Kind: validation.KindApplicationSet + "List", Cursor: cursor, Total: total, Items: collect(page, Present)}
	out.Metadata.Continue = next
	return gen.ListApplicationSets200JSONResponse(out), nil
}

// CreateApplicationSet makes an application set.
func (s *Sets) CreateApplicationSet(ctx context.Context, r gen.CreateApplicationSetRequestObject) (gen.CreateApplicationSetResponseObject, error) {
	answer, out, err := s.put(ctx, *r.Body, catalog.PutOptions{Create: true, Update: r.Params.Upsert, DryRun: r.Params.DryRun})
	if err != nil {
		return nil, err
	}
	if out != transact.Created {
		return gen.CreateApplicationSet200JSONResponse{ApplicationSetAnswerJSONResponse: answer}, nil
	}
	return gen.CreateApplicationSet201JSONResponse{Body: answer.Body, Headers: gen.CreateApplicationSet201ResponseHeaders{ETag: answer.Headers.ETag}}, nil
}

// UpdateApplicationSet replaces what a person wrote of an application set.
func (s *Sets) UpdateApplicationSet(ctx context.Context, r gen.UpdateApplicationSetRequestObject) (gen.UpdateApplicationSetResponseObject, error) {
	a := *r.Body
	if a.Metadata.Namespace == "" {
		a.Metadata.Namespace = r.Namespace
	}
	if a.Metadata.Name != r.Name || a.Metadata.Namespace != r.Namespace {
		return nil, fault.With(fault.New(fault.Invalid, "the object and the address name different application sets"), "", "write the same metadata.namespace and metadata.name as in the address")
	}
	expect, err := s.expected(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	answer, _, err := s.put(ctx, a, catalog.PutOptions{Update: true, Expect: expect})
	if err != nil {
		return nil, err
	}
	return gen.UpdateApplicationSet200JSONResponse{ApplicationSetAnswerJSONResponse: answer}, nil
}

func (s *Sets) put(ctx context.Context, a apimodel.ApplicationSet, o catalog.PutOptions) (gen.ApplicationSetAnswerJSONResponse, transact.Outcome, error) {
	set, err := given(a)
	if err != nil {
		return gen.ApplicationSetAnswerJSONResponse{}, "", err
	}
	stored, out, warnings, err := s.catalog.PutApplicationSet(ctx, s.caller(ctx), set, o)
	if err != nil {
		return gen.ApplicationSetAnswerJSONResponse{}, "", err
	}
	answer := answerOf(stored, Present(stored))
	answer.Body.Warnings = warnings
	return answer, out, nil
}

// GetApplicationSet answers one application set with its applications.
func (s *Sets) GetApplicationSet(ctx context.Context, r gen.GetApplicationSetRequestObject) (gen.GetApplicationSetResponseObject, error) {
	answer, err := s.detailed(ctx, r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	return gen.GetApplicationSet200JSONResponse{ApplicationSetAnswerJSONResponse: answer}, nil
}

// detailed is a set with those of its applications that the caller may see.
func (s *Sets) detailed(ctx context.Context, namespace, name string) (gen.ApplicationSetAnswerJSONResponse, error) {
	set, err := s.catalog.ApplicationSet(ctx, s.caller(ctx), namespace, name)
	if err != nil {
		return gen.ApplicationSetAnswerJSONResponse{}, err
	}
	resources, err := s.catalog.ApplicationSetResources(ctx, s.caller(ctx), namespace, name, mostResources)
	if err != nil {
		return gen.ApplicationSetAnswerJSONResponse{}, err
	}
	out := Present(set)
	addResources(&out.Status, set, resources)
	return answerOf(set, out), nil
}

// DeleteApplicationSet deletes an application set.
func (s *Sets) DeleteApplicationSet(ctx context.Context, r gen.DeleteApplicationSetRequestObject) (gen.DeleteApplicationSetResponseObject, error) {
	how, err := deletionOf(r.Params)
	if err != nil {
		return nil, err
	}
	left, err := s.catalog.DeleteApplicationSet(ctx, s.caller(ctx), r.Namespace, r.Name, how)
	if err != nil {
		return nil, err
	}
	if left == nil {
		return gen.DeleteApplicationSet204Response{}, nil
	}
	return gen.DeleteApplicationSet202JSONResponse(Present(*left)), nil
}

// deletionOf reads what becomes of the applications, under either of its names.
func deletionOf(p apimodel.DeleteApplicationSetParams) (hub.SetDeletion, error) {
	orphan := p.PropagationPolicy == apimodel.SetDeletionOrphan
	if p.Cascade != nil && p.PropagationPolicy != "" && *p.Cascade == orphan {
		return "", fault.With(fault.New(fault.Invalid, "cascade is %t, and propagationPolicy is %s", *p.Cascade, p.PropagationPolicy), "", "give one of them")
	}
	if orphan || p.Cascade != nil && !*p.Cascade {
		return hub.DeleteSetAlone, nil
	}
	return hub.DeleteWithApplications, nil
}

// RefreshApplicationSet has the generators of a set run.
func (s *Sets) RefreshApplicationSet(ctx context.Context, r gen.RefreshApplicationSetRequestObject) (gen.RefreshApplicationSetResponseObject, error) {
	if _, err := s.catalog.RefreshApplicationSet(ctx, s.caller(ctx), r.Namespace, r.Name); err != nil {
		return nil, err
	}
	return gen.RefreshApplicationSet202Response{}, nil
}

// ApproveApplicationSet consents to a deletion that is held.
func (s *Sets) ApproveApplicationSet(ctx context.Context, r gen.ApproveApplicationSetRequestObject) (gen.ApproveApplicationSetResponseObject, error) {
	if _, err := s.catalog.ConsentApplicationSet(ctx, s.caller(ctx), r.Namespace, r.Name, r.Body.Digest); err != nil {
		return nil, err
	}
	answer, err := s.detailed(ctx, r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	return gen.ApproveApplicationSet202JSONResponse{ApplicationSetAnswerJSONResponse: answer}, nil
}

// GenerateApplicationSet answers what a set would make. Nothing is stored.
func (s *Sets) GenerateApplicationSet(ctx context.Context, r gen.GenerateApplicationSetRequestObject) (gen.GenerateApplicationSetResponseObject, error) {
	set, err := given(*r.Body)
	if err != nil {
		return nil, err
	}
	found, err := s.catalog.GenerateApplications(ctx, s.caller(ctx), set)
	if err != nil {
		return nil, err
	}
	out, err := preview(found)
	if err != nil {
		return nil, err
	}
	_, err = s.catalog.ApplicationSet(ctx, s.caller(ctx), orArgo(set.Namespace), set.Name)
	if err != nil && fault.KindOf(err) != fault.Missing {
		return nil, err
	}
	out.Exists = err == nil
	return gen.GenerateApplicationSet200JSONResponse(out), nil
}

func orArgo(namespace string) string {
	if namespace == "" {
		return hub.ArgoNamespace
	}
	return namespace
}

// GetApplicationSetTree answers the applications of a set as nodes.
func (s *Sets) GetApplicationSetTree(ctx context.Context, r gen.GetApplicationSetTreeRequestObject) (gen.GetApplicationSetTreeResponseObject, error) {
	by := s.caller(ctx)
	set, err := s.catalog.ApplicationSet(ctx, by, r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	_, cursor, err := s.catalog.ApplicationSets(ctx, by, catalog.SetFilter{Projects: []string{set.Project}, Namespace: set.Namespace})
	if err != nil {
		return nil, err
	}
	resources, err := s.catalog.ApplicationSetResources(ctx, by, r.Namespace, r.Name, mostResources)
	if err != nil {
		return nil, err
	}
	return gen.GetApplicationSetTree200JSONResponse{Cursor: cursor, Nodes: nodes(set, resources)}, nil
}

// GetApplicationSetEvents answers what happened to a set.
func (s *Sets) GetApplicationSetEvents(ctx context.Context, r gen.GetApplicationSetEventsRequestObject) (gen.GetApplicationSetEventsResponseObject, error) {
	records, err := s.catalog.ApplicationSetEvents(ctx, s.caller(ctx), r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	return gen.GetApplicationSetEvents200JSONResponse{Items: collect(records, func(e hub.AuditRecord) apimodel.KubernetesEvent { return event(e, r.Namespace, r.Name) })}, nil
}

func answerOf(set hub.ApplicationSet, body apimodel.ApplicationSet) gen.ApplicationSetAnswerJSONResponse {
	return gen.ApplicationSetAnswerJSONResponse{Body: body, Headers: gen.ApplicationSetAnswerResponseHeaders{ETag: `"` + strconv.FormatInt(set.Version, 10) + `"`}}
}

// given is the set of a request.
func given(a apimodel.ApplicationSet) (hub.ApplicationSet, error) {
	if a.ApiVersion != validation.ArgoVersion || a.Kind != validation.KindApplicationSet {
		return hub.ApplicationSet{}, fault.New(fault.Invalid, "the object is no %s of %s", validation.KindApplicationSet, validation.ArgoVersion)
	}
	m := a.Metadata
	return hub.ApplicationSet{Meta: hub.Meta{Namespace: m.Namespace, Name: m.Name, Labels: m.Labels, Annotations: m.Annotations, Finalizers: m.Finalizers}, Spec: a.Spec}, nil
}

func collect[In, Out any](in []In, present func(In) Out) []Out {
	out := make([]Out, len(in))
	for i, v := range in {
		out[i] = present(v)
	}
	return out
}
