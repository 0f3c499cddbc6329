package api

import (
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/labels"
	"github.com/capstan-cd/capstan/hub/catalog/listing"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/appquery"
	"github.com/capstan-cd/capstan/shared/fault"
)

// rowView is the value of the parameter view for rows of lists.
const rowView = "row"

// listRequest reads the parameters of a list. Those of Argo CD are conditions
// beside the query.
func listRequest(p apimodel.ListApplicationsParams) (listing.Request, error) {
	q := listing.Request{Limit: p.Limit, Offset: p.Offset}
	if q.Limit == 0 {
		q.Limit = defaultPage
	}
	var err error
	if q.Order, err = listing.ParseOrder(p.Sort); err != nil {
		return q, err
	}
	if q.After, err = listing.ParsePlace(p.Cursor, q.Order); err != nil {
		return q, err
	}
	if p.ApplicationSet != "" {
		namespace, name, found := strings.Cut(p.ApplicationSet, "/")
		if !found {
			namespace, name = hub.ArgoNamespace, namespace
		}
		q.Set = hub.ApplicationKey{Namespace: namespace, Name: name}
	}
	if p.Facets != "" {
		q.Facets = strings.Split(p.Facets, ",")
	}
	query, err := parseQuery(p.Query)
	if err != nil {
		return q, err
	}
	selectors, err := labelTerms(p.Labels, p.Selector)
	if err != nil {
		return q, err
	}
	q.Queries = append(append(q.Queries, query, parameterTerms(p)), selectors...)
	return q, nil
}

func parseQuery(text string) (appquery.Query, error) {
	q, err := appquery.Parse(text)
	if err != nil {
		return nil, fault.With(err, "parameter query", "")
	}
	return q, nil
}

// parameterTerms are the parameters of a list as terms. Each has a field of its
// own, so that all of them must hold.
func parameterTerms(p apimodel.ListApplicationsParams) appquery.Query {
	var out appquery.Query
	add := func(f appquery.Field, values []string) {
		if len(values) > 0 {
			out = append(out, appquery.Term{Field: f, Values: values})
		}
	}
	one := func(s string) []string {
		if s == "" {
			return nil
		}
		return []string{s}
	}
	lower := func(s string) string { return strings.ToLower(s) }
	add(appquery.Project, append(p.Project, p.Projects...))
	add(appquery.AppNamespace, append(p.Namespace, one(p.AppNamespace)...))
	add(appquery.Cluster, p.Cluster)
	add(appquery.Sync, collect(p.Sync, func(v apimodel.SyncStatusCode) string { return lower(string(v)) }))
	add(appquery.Health, collect(p.Health, func(v apimodel.HealthStatusCode) string { return lower(string(v)) }))
	add(appquery.Text, one(lower(p.Q)))
	add(appquery.Name, one(p.Name))
	add(appquery.Repo, p.Repo)
	return out
}

// labelTerms are label selectors as queries of one term each: all must hold.
func labelTerms(selectors ...string) ([]appquery.Query, error) {
	var out []appquery.Query
	for _, text := range selectors {
		terms, err := labels.Parse(text)
		if err != nil {
			return nil, err
		}
		for _, t := range terms {
			out = append(out, appquery.Query{{Field: appquery.Label, Key: t.Key, Values: t.Values, Not: t.Not}})
		}
	}
	return out, nil
}

func presentFacets(in []listing.Facet) []apimodel.Facet {
	return collect(in, func(f listing.Facet) apimodel.Facet {
		return apimodel.Facet{Field: f.Field, More: f.More, Values: collect(f.Values, func(v listing.FacetValue) apimodel.FacetValue {
			return apimodel.FacetValue{Value: v.Value, Count: v.Count}
		})}
	})
}

func presentRows(p listing.Page) []apimodel.ApplicationRow {
	now := time.Now()
	out := make([]apimodel.ApplicationRow, len(p.Rows))
	for i, r := range p.Rows {
		var on *hub.Cluster
		if cl := p.Clusters[r.Cluster]; cl != nil {
			on = &cl.Cluster
		}
		out[i] = presentRow(r, on, now)
	}
	return out
}

const (
	maxSubject = 120
	maxCause   = 300
)

// presentRow is what a list shows of an application.
func presentRow(r *listing.Row, on *hub.Cluster, now time.Time) apimodel.ApplicationRow {
	shown := r.Status.Show(on, now)
	h := r.Headline(on, now)
	subject, _, _ := strings.Cut(r.Commit.Message, "\n")
	out := apimodel.ApplicationRow{
		Id: string(r.ID), Namespace: r.Namespace, Name: r.Name, Project: r.Project, Labels: r.Labels, DestinationNamespace: r.Destination,
		RepoURL: r.Source.RepoURL, Path: r.Source.Path, Chart: r.Source.Chart, TargetRevision: r.Source.TargetRevision,
		Revision: r.Status.Revision, Author: r.Commit.Author, Subject: truncate(subject, maxSubject),
		Sync: apimodel.SyncStatusCode(shown.Sync), Health: apimodel.HealthStatusCode(shown.Health),
		State: apimodel.HeadlineState(h.State), Cause: truncate(repourl.RedactText(h.Message), maxCause), Since: at(h.Since),
		Automation: apimodel.ApplicationRowAutomation(r.Automation()), Deleting: r.DeletingAt != nil,
		CreatedAt: r.CreatedAt.UTC(), ChangedAt: r.Changed,
	}
	if r.Sources > 1 {
		out.Sources = r.Sources
	}
	if on != nil {
		out.Cluster = on.Name
	}
	if shown.Stale != nil {
		out.Stale, out.AsOf = true, at(on.AsOf())
	}
	if r.Follows && r.Pin == nil && r.Status.Hold != "" {
		out.Automation = apimodel.RowAutomationWaiting
	}
	if op := r.Status.Operation; op != nil {
		out.Operation, out.OperationId, out.AwaitsApproval = apimodel.OperationPhase(op.Phase), string(op.ID), op.AwaitsApproval()
	}
	switch {
	case r.Parent != nil:
		out.Owner = r.Parent.Name
	case r.Set != nil:
		out.Owner = r.Set.Name
	}
	for key, value := range r.Annotations {
		if strings.HasPrefix(key, noticePrefix) {
			if out.Notice == nil {
				out.Notice = map[string]string{}
			}
			out.Notice[key] = truncate(value, maxCause)
		}
	}
	return out
}

// noticePrefix begins the annotations by which people put a notice on an application.
const noticePrefix = "notice."

// truncate cuts a text to so many characters.
func truncate(s string, most int) string {
	if len(s) <= most {
		return s
	}
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
