package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// ListResources answers the managed objects of all applications (UI-15).
func (s *Server) ListResources(ctx context.Context, r gen.ListResourcesRequestObject) (gen.ListResourcesResponseObject, error) {
	p := r.Params
	q := catalog.ObjectQuery{Projects: p.Project, ClusterNames: p.Cluster, Facets: p.Facets, ObjectFilter: hub.ObjectFilter{
		Kinds: p.Kind, Namespaces: p.Namespace, Text: p.Q, Limit: p.Limit,
		Sync:   collect(p.Sync, func(v apimodel.SyncStatusCode) hub.SyncStatus { return hub.SyncStatus(v) }),
		Health: collect(p.Health, func(v apimodel.HealthStatusCode) hub.HealthStatus { return hub.HealthStatus(v) }),
	}}
	if q.Limit == 0 {
		q.Limit = defaultPage
	}
	if err := readPlace(p.Cursor, &q.After); err != nil {
		return nil, err
	}
	page, err := s.Catalog.Objects(ctx, callerOf(ctx), q)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	out := apimodel.ResourceList{Total: page.Total, Facets: presentFacets(page.Facets), Items: collect(page.Items, func(o hub.ListedObject) apimodel.ListedResource {
		return presentObject(o, page, now)
	})}
	if page.More {
		out.Continue, err = writePlace(page.Items[len(page.Items)-1].ObjectPlace)
	}
	return gen.ListResources200JSONResponse(out), err
}

func presentObject(o hub.ListedObject, page catalog.ObjectPage, now time.Time) apimodel.ListedResource {
	app, cl := page.Applications[o.Application], page.Clusters[o.Cluster]
	out := apimodel.ListedResource{
		Project: app.Project, Cluster: cl.Name, Group: o.Group, Version: o.Version, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name,
		Status: apimodel.SyncStatusCode(o.Sync), Health: apimodel.HealthStatusCode(o.Health), Message: o.Message,
		Stale: cl.Staleness(now) != nil, RequiresPruning: o.RequiresPrune, CreatedAt: at(o.CreatedAt),
	}
	if out.Status == "" {
		out.Status = apimodel.SyncStatusCode(hub.SyncUnknown)
	}
	out.Application.Namespace, out.Application.Name = app.Namespace, app.Name
	return out
}

func writePlace(p hub.ObjectPlace) (string, error) {
	text, err := json.Marshal(p)
	return base64.RawURLEncoding.EncodeToString(text), err
}

// readPlace reads what writePlace has written; nothing is the first page.
func readPlace(cursor string, p *hub.ObjectPlace) error {
	if cursor == "" {
		return nil
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(text, p)
	}
	texts := p.Kind + p.Namespace + p.Name + p.Group
	if err != nil || !hub.ValidID(string(p.Application)) || strings.ContainsRune(texts, 0) {
		return fault.With(fault.New(fault.Invalid, "the cursor is not one of this list"), "parameter cursor", "begin with the first page, without a cursor")
	}
	return nil
}
