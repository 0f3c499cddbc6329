package catalog

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/listing"
)

// An ObjectQuery asks for managed objects of all applications.
type ObjectQuery struct {
	hub.ObjectFilter
	Projects     []string // empty: any
	ClusterNames []string // empty: any
	Facets       bool     // count values
}

// An ObjectPage is one page of managed objects.
type ObjectPage struct {
	Items        []hub.ListedObject
	Applications map[hub.ApplicationID]hub.ApplicationPlace
	Clusters     map[hub.ClusterID]hub.Cluster
	More         bool // there is a page after it
	Total        int  // with Facets: how many there are on all pages
	Facets       []listing.Facet
}

// Objects lists the managed objects of the applications that the caller may see.
func (c *Catalog) Objects(ctx context.Context, by hub.Caller, q ObjectQuery) (ObjectPage, error) {
	var out ObjectPage
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		out = ObjectPage{}
		if err := r.May(access.Applications, access.Get); err != nil {
			return err
		}
		f := q.ObjectFilter
		if err := c.objectScope(ctx, r, q, &f, &out); err != nil {
			return err
		}
		if q.Facets {
			counts, err := r.CountObjects(ctx, f)
			if err != nil {
				return err
			}
			out.count(counts)
		}
		f.Limit++ // one more says whether there is another page
		var err error
		if out.Items, err = r.ListedObjects(ctx, f); err != nil {
			return err
		}
		if out.More = len(out.Items) == f.Limit; out.More {
			out.Items = out.Items[:f.Limit-1]
		}
		return nil
	})
	return out, err
}

// objectScope sets applications and clusters of a filter: those that the caller
// may see and has asked for.
func (c *Catalog) objectScope(ctx context.Context, r *reader, q ObjectQuery, f *hub.ObjectFilter, out *ObjectPage) error {
	places, err := r.ApplicationPlaces(ctx)
	if err != nil {
		return err
	}
	out.Applications = make(map[hub.ApplicationID]hub.ApplicationPlace, len(places))
	f.Applications = nil
	for _, p := range places {
		if len(q.Projects) > 0 && !slices.Contains(q.Projects, p.Project) {
			continue
		}
		if r.Rights.Check(access.Applications, access.Get, object(p.Project, hub.ApplicationKey{Namespace: p.Namespace, Name: p.Name})) {
			out.Applications[p.ID] = p
			f.Applications = append(f.Applications, p.ID)
		}
	}
	clusters, err := r.ListedClusters(ctx)
	if err != nil {
		return err
	}
	out.Clusters = make(map[hub.ClusterID]hub.Cluster, len(clusters))
	if len(q.ClusterNames) > 0 {
		f.Clusters = []hub.ClusterID{} // an unknown name has no objects
	}
	now := c.parts.Service.Now()
	for _, l := range clusters {
		cl := l.Cluster()
		out.Clusters[cl.ID] = cl
		if stale := cl.Staleness(now); stale != nil && stale.Expired {
			f.Expired = append(f.Expired, cl.ID)
		}
		if slices.Contains(q.ClusterNames, cl.Name) {
			f.Clusters = append(f.Clusters, cl.ID)
		}
	}
	return nil
}

// maxObjectFacet bounds the values of a facet.
const maxObjectFacet = 100

// count makes facets of the counts, with names instead of ids.
func (p *ObjectPage) count(counts []hub.ObjectCount) {
	fields := []string{"kind", "namespace", "cluster", "project", "sync", "health"}
	n := map[string]map[string]int{}
	for _, field := range fields {
		n[field] = map[string]int{}
	}
	for _, c := range counts {
		switch c.Field {
		case "kind":
			p.Total += c.Count
		case "cluster":
			c.Value = p.Clusters[hub.ClusterID(c.Value)].Name
		case "application":
			c.Field, c.Value = "project", p.Applications[hub.ApplicationID(c.Value)].Project
		}
		n[c.Field][c.Value] += c.Count
	}
	for _, field := range fields {
		facet := listing.Facet{Field: field}
		for value, count := range n[field] {
			facet.Values = append(facet.Values, listing.FacetValue{Value: value, Count: count})
		}
		slices.SortFunc(facet.Values, func(a, b listing.FacetValue) int {
			return cmp.Or(b.Count-a.Count, strings.Compare(a.Value, b.Value))
		})
		if more := len(facet.Values) - maxObjectFacet; more > 0 {
			facet.Values, facet.More = facet.Values[:maxObjectFacet], more
		}
		p.Facets = append(p.Facets, facet)
	}
}
