package api

import (
	"context"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/appquery"
	"github.com/capstan-cd/capstan/shared/fault"
)

// StartBulk does the same to many applications.
func (s *Server) StartBulk(ctx context.Context, r gen.StartBulkRequestObject) (gen.StartBulkResponseObject, error) {
	q, err := bulkRequest(*r.Body)
	if err != nil {
		return nil, err
	}
	b, items, err := s.Catalog.StartBulk(ctx, callerOf(ctx), q)
	if err != nil {
		return nil, err
	}
	answer := presentBulk(b)
	if q.DryRun {
		answer.Items = collect(items, presentBulkItem)
		return gen.StartBulk200JSONResponse(answer), nil
	}
	return gen.StartBulk202JSONResponse(answer), nil
}

// bulkRequest reads a request. The applications must be chosen in exactly one
// way, so that a query that was lost does not mean all of them.
func bulkRequest(r apimodel.BulkRequest) (catalog.BulkRequest, error) {
	q := catalog.BulkRequest{
		Action: hub.BulkAction(r.Action), Query: r.Query, DryRun: r.DryRun,
		Options: hub.BulkOptions{Prune: r.Prune, Hard: r.Hard, Cascade: r.Cascade, Propagation: string(r.Propagation), Reason: r.Reason},
	}
	ways := 0
	for _, given := range []bool{r.Query != "", len(r.Names) > 0, r.All} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return q, fault.With(fault.New(fault.Invalid, "the request chooses applications in %d ways", ways), "", "give one of query, names and all")
	}
	o := q.Options
	switch {
	case o.Prune && q.Action != hub.BulkSync:
		return q, notOf("prune", q.Action, hub.BulkSync)
	case o.Hard && q.Action != hub.BulkRefresh:
		return q, notOf("hard", q.Action, hub.BulkRefresh)
	case (o.Cascade != nil || o.Propagation != "") && q.Action != hub.BulkDelete:
		return q, notOf("cascade", q.Action, hub.BulkDelete)
	}
	if len(r.Names) == 0 {
		query, err := parseQuery(r.Query)
		q.Queries = []appquery.Query{query}
		return q, err
	}
	for _, name := range r.Names {
		key := hub.ApplicationKey{Namespace: validation.DefaultNamespace, Name: name}
		if namespace, bare, found := strings.Cut(name, "/"); found {
			key = hub.ApplicationKey{Namespace: namespace, Name: bare}
		}
		if key.Namespace == "" || key.Name == "" {
			return q, fault.With(fault.New(fault.Invalid, "%q is no name of an application", validation.Shorten(name)), "", "write it like argocd/web")
		}
		q.Names = append(q.Names, key)
	}
	return q, nil
}

func notOf(option string, is, of hub.BulkAction) error {
	return fault.With(fault.New(fault.Invalid, "%s is no option of the action %s", option, is), "", "leave it out; it belongs to "+string(of))
}

// ListBulks answers the caller's own requests.
func (s *Server) ListBulks(ctx context.Context, _ gen.ListBulksRequestObject) (gen.ListBulksResponseObject, error) {
	all, err := s.Catalog.Bulks(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	return gen.ListBulks200JSONResponse{Items: collect(all, presentBulk)}, nil
}

// GetBulk answers how far a request is, with a page of its applications.
func (s *Server) GetBulk(ctx context.Context, r gen.GetBulkRequestObject) (gen.GetBulkResponseObject, error) {
	limit := r.Params.Limit
	if limit == 0 {
		limit = defaultPage
	}
	b, items, err := s.Catalog.Bulk(ctx, callerOf(ctx), hub.BulkID(r.Id), hub.BulkState(r.Params.State), r.Params.After, limit)
	if err != nil {
		return nil, err
	}
	answer := presentBulk(b)
	if len(items) > limit {
		items = items[:limit]
		answer.Next = items[limit-1].Ordinal
	}
	answer.Items = collect(items, presentBulkItem)
	return gen.GetBulk200JSONResponse(answer), nil
}

// CancelBulk ends a request.
func (s *Server) CancelBulk(ctx context.Context, r gen.CancelBulkRequestObject) (gen.CancelBulkResponseObject, error) {
	b, err := s.Catalog.CancelBulk(ctx, callerOf(ctx), hub.BulkID(r.Id))
	if err != nil {
		return nil, err
	}
	return gen.CancelBulk200JSONResponse(presentBulk(b)), nil
}

func presentBulk(b hub.Bulk) apimodel.Bulk {
	out := apimodel.Bulk{
		Id: string(b.ID), Action: apimodel.BulkAction(b.Action), Query: b.Query, Reason: b.Options.Reason, Cancelled: b.Cancelled, Total: b.Total(),
		FinishedAt: at(b.FinishedAt),
	}
	if !b.CreatedAt.IsZero() {
		out.CreatedAt = b.CreatedAt.UTC()
	}
	c := &out.Counts
	c.Pending, c.Done, c.Refused = b.Counts[hub.BulkPending], b.Counts[hub.BulkDone], b.Counts[hub.BulkRefused]
	c.Failed, c.Cancelled = b.Counts[hub.BulkFailed], b.Counts[hub.BulkCancelled]
	return out
}

func presentBulkItem(i hub.BulkItem) apimodel.BulkItem {
	out := apimodel.BulkItem{
		Ordinal: i.Ordinal, Namespace: i.Namespace, Name: i.Name, State: apimodel.BulkState(i.State), Message: i.Message, Operation: string(i.Operation),
	}
	if !i.At.IsZero() {
		out.At = i.At.UTC()
	}
	return out
}
