package api

import (
	"context"
	"maps"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/appsets"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/catalog/listing"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/appquery"
	"github.com/capstan-cd/capstan/shared/fault"
)

// visibleChanges is what the caller may see of the things that a batch of changes
// names.
type visibleChanges struct {
	apps     map[hub.ApplicationID]catalog.View
	rows     map[hub.ApplicationID]apimodel.ApplicationRow // of those that the query of the stream has
	ops      map[hub.OperationID]hub.Operation
	clusters map[hub.ClusterID]hub.Cluster
	repos    map[hub.RepositoryID]hub.Repository
	projects map[hub.ProjectID]hub.Project
	sets     map[hub.ApplicationSetID]hub.ApplicationSet
}

// readChanged reads the things that changes name, a query for each kind.
func (l *listener) readChanged(ctx context.Context, changes []hub.Change) (visibleChanges, error) {
	var s visibleChanges
	var err error
	if s.ops, err = l.operations(ctx, changes); err != nil {
		return s, err
	}
	apps := idsOf[hub.ApplicationID](changes, "application", kindResources)
	for _, op := range s.ops {
		apps = append(apps, op.Application)
	}
	if len(apps) > 0 {
		if s.apps, err = l.s.Catalog.ApplicationsByID(ctx, l.who, apps); err != nil {
			return s, err
		}
	}
	if err := l.readRows(ctx, &s, changes); err != nil {
		return s, err
	}
	if ids := idsOf[hub.ClusterID](changes, "cluster"); len(ids) > 0 {
		if s.clusters, err = l.s.Catalog.ClustersByID(ctx, l.who, ids); err != nil {
			return s, err
		}
	}
	if len(idsOf[hub.RepositoryID](changes, "repository")) > 0 {
		if s.repos, err = l.repositories(ctx); err != nil {
			return s, err
		}
	}
	if len(idsOf[hub.ProjectID](changes, "project")) > 0 {
		if s.projects, err = l.projects(ctx); err != nil {
			return s, err
		}
	}
	if ids := idsOf[hub.ApplicationSetID](changes, kindApplicationSet); len(ids) > 0 {
		s.sets, err = l.s.Catalog.ApplicationSetsByID(ctx, l.who, ids)
	}
	return s, err
}

// readRows reads the rows of applications, where the stream has a query or shows
// rows.
func (l *listener) readRows(ctx context.Context, s *visibleChanges, changes []hub.Change) error {
	if l.query == nil && l.view != rowView {
		return nil
	}
	s.rows = map[hub.ApplicationID]apimodel.ApplicationRow{}
	ids := idsOf[hub.ApplicationID](changes, "application")
	if len(ids) == 0 {
		return nil
	}
	page, err := l.s.Catalog.ApplicationRows(ctx, l.who, ids, listing.Request{Queries: []appquery.Query{l.query}})
	for _, row := range presentRows(page) {
		s.rows[hub.ApplicationID(row.Id)] = row
	}
	return err
}

// operations reads operations; their rights are those of their applications.
func (l *listener) operations(ctx context.Context, changes []hub.Change) (map[hub.OperationID]hub.Operation, error) {
	ids := idsOf[hub.OperationID](changes, kindOperation)
	if len(ids) == 0 {
		return nil, nil
	}
	out := map[hub.OperationID]hub.Operation{}
	for _, id := range ids {
		op, _, err := l.s.Catalog.OperationByID(ctx, l.who, id)
		if fault.KindOf(err) == fault.Missing {
			continue
		}
		if err != nil {
			return nil, err
		}
		out[id] = op
	}
	return out, nil
}

func (l *listener) repositories(ctx context.Context) (map[hub.RepositoryID]hub.Repository, error) {
	all, _, err := l.s.Catalog.Repositories(ctx, l.who)
	if fault.KindOf(err) == fault.Denied {
		return nil, nil
	}
	out := make(map[hub.RepositoryID]hub.Repository, len(all))
	for _, r := range all {
		out[r.ID] = r
	}
	return out, err
}

func (l *listener) projects(ctx context.Context) (map[hub.ProjectID]hub.Project, error) {
	all, _, err := l.s.Catalog.Projects(ctx, l.who)
	if fault.KindOf(err) == fault.Denied {
		return nil, nil
	}
	out := make(map[hub.ProjectID]hub.Project, len(all))
	for _, p := range all {
		out[p.ID] = p
	}
	return out, err
}

// idsOf returns the ids of the changes of some kinds, without those gone.
func idsOf[T ~string](changes []hub.Change, kinds ...string) []T {
	set := map[T]bool{}
	for _, c := range changes {
		if !c.Gone && slices.Contains(kinds, c.Kind) {
			set[T(c.ID)] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// event is one change as the stream sends it; false if this stream does not
// send it.
func (s visibleChanges) event(c hub.Change, only hub.ApplicationID, view string) (apimodel.StreamEvent, bool) {
	e := apimodel.StreamEvent{Kind: apimodel.StreamEventKind(c.Kind), Id: c.ID, Gone: c.Gone}
	if c.Gone {
		return e, only == "" || string(only) == c.ID
	}
	switch c.Kind {
	case "application", kindResources:
		v, ok := s.apps[hub.ApplicationID(c.ID)]
		if !ok || (only != "" && v.ID != only) {
			return e, false
		}
		e.Namespace, e.Name = v.Namespace, v.Name
		if c.Kind == "application" {
			s.show(&e, v, view)
		}
		return e, true
	case kindOperation:
		op, ok := s.ops[hub.OperationID(c.ID)]
		v, there := s.apps[op.Application]
		if !ok || !there || (only != "" && v.ID != only) {
			return e, false
		}
		e.Namespace, e.Name, e.Operation = v.Namespace, v.Name, presentOperation(op, only == "")
		return e, true
	}
	return s.other(e, c, only)
}

// show adds an application to its event. One that the query does not have is
// gone from the result.
func (s visibleChanges) show(e *apimodel.StreamEvent, v catalog.View, view string) {
	row, has := s.rows[v.ID]
	switch {
	case s.rows != nil && !has:
		e.Gone = true
	case view == rowView:
		e.Row = row
	default:
		e.Application = presentListed(v, view)
	}
}

func (s visibleChanges) other(e apimodel.StreamEvent, c hub.Change, only hub.ApplicationID) (apimodel.StreamEvent, bool) {
	if only != "" {
		return e, false
	}
	switch c.Kind {
	case "cluster":
		cl, ok := s.clusters[hub.ClusterID(c.ID)]
		e.Name, e.Cluster = cl.Name, presentCluster(cl, nil)
		return e, ok
	case "repository":
		r, ok := s.repos[hub.RepositoryID(c.ID)]
		e.Name, e.Repository = r.URL, presentRepository(r)
		return e, ok
	case "project":
		p, ok := s.projects[hub.ProjectID(c.ID)]
		e.Name = p.Name
		return e, ok
	case kindApplicationSet:
		set, ok := s.sets[hub.ApplicationSetID(c.ID)]
		e.Namespace, e.Name = set.Namespace, set.Name
		if ok {
			e.ApplicationSet = appsets.Present(set)
		}
		return e, ok
	}
	return e, false
}
