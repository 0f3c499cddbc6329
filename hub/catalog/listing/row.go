package listing

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/appquery"
)

// A Row is an application as lists show it. It is never changed.
type Row struct {
	hub.ListedApplication // without spec

	Object      string     // what policies call it
	Destination string     // its namespace
	Source      hub.Source // the first one: repository, path, chart and target revision alone
	Sources     int        // how many there are
	Follows     bool       // new revisions are applied without being asked
	Changed     time.Time  // when it changed last, or what is known of it

	lower     string   // the name
	repos     []string // normal forms
	revisions []string // targets, and what they were resolved to
	sync      hub.SyncStatus
	health    hub.HealthStatus
}

// lastApplied is the annotation in which kubectl stores a whole object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// newRow is the row of an application that policies call object.
func newRow(l hub.ListedApplication, object string) *Row {
	r := &Row{ListedApplication: l, Object: object, lower: strings.ToLower(l.Name)}
	if spec, err := hub.DecodeSpec(l.Spec); err == nil {
		r.Follows = l.Follows(spec)
		r.Destination = spec.Destination.Namespace
		r.repos = spec.RepoURLs()
		sources := spec.EffectiveSources()
		r.Sources = len(sources)
		for i, s := range sources {
			if i == 0 {
				r.Source = hub.Source{RepoURL: repourl.Redact(s.RepoURL), Path: s.Path, Chart: s.Chart, TargetRevision: s.TargetRevision}
			}
			r.revisions = append(r.revisions, cmp.Or(s.TargetRevision, "HEAD"))
		}
	}
	if l.Status.Revision != "" {
		r.revisions = append(r.revisions, l.Status.Revision)
	}
	r.revisions = append(r.revisions, l.Status.Revisions...)
	shown := l.Status.Show(nil, time.Time{})
	r.sync, r.health = shown.Sync, shown.Health
	if r.sync == hub.Synced && l.Pin != nil && l.Pin.Behind {
		r.sync = hub.OutOfSync
	}
	r.Changed = changed(l.Application)
	r.Spec, r.Finalizers, r.Status.DeletionHooks = nil, nil, nil
	if _, found := r.Annotations[lastApplied]; found {
		r.Annotations = without(r.Annotations, lastApplied)
	}
	return r
}

func without(in map[string]string, key string) map[string]string {
	out := make(map[string]string, len(in))
	for k, v := range in {
		if k != key {
			out[k] = v
		}
	}
	return out
}

// changed is the newest time of what people see change.
func changed(a hub.Application) time.Time {
	at := a.UpdatedAt
	times := []*time.Time{a.Status.HealthSince, a.DeletingAt}
	if op := a.Status.Operation; op != nil {
		times = append(times, &op.CreatedAt, op.StartedAt, op.FinishedAt)
	}
	if a.Pin != nil {
		times = append(times, &a.Pin.At)
	}
	for _, t := range times {
		if t != nil && t.After(at) {
			at = *t
		}
	}
	return at.UTC()
}

// Automation is what the field auto of a query says of the row.
func (r *Row) Automation() string {
	switch {
	case r.Pin != nil:
		return "paused"
	case r.Follows:
		return "auto"
	}
	return "manual"
}

// operation is what the field operation of a query says of the row.
func (r *Row) operation() string {
	op := r.Status.Operation
	switch {
	case op == nil:
		return "none"
	case op.AwaitsApproval():
		return "approval"
	}
	return strings.ToLower(string(op.Phase))
}

// initiator is who started the last operation; empty: nobody or the hub.
func (r *Row) initiator() string {
	if op := r.Status.Operation; op != nil {
		return op.Initiator.Username
	}
	return ""
}

// owner is the application that renders the row's, or the application set that
// generates it; empty: none.
func (r *Row) owner() string {
	switch {
	case r.Parent != nil:
		return r.Parent.Name
	case r.Set != nil:
		return r.Set.Name
	}
	return ""
}

// A Cluster is a cluster of rows as of the time of a list.
type Cluster struct {
	hub.Cluster

	expired bool      // what is known of it is too old to count
	at      time.Time // of the list
}

// values are what a row has in a field without keys.
func (r *Row) values(f appquery.Field, on *Cluster) []string {
	switch f {
	case appquery.Name:
		return []string{r.Name}
	case appquery.Project:
		return []string{r.Project}
	case appquery.Cluster:
		if on == nil {
			return []string{""}
		}
		return []string{on.Name}
	case appquery.Namespace:
		return []string{r.Destination}
	case appquery.AppNamespace:
		return []string{r.Namespace}
	case appquery.Repo:
		return r.repos
	case appquery.Revision:
		return r.revisions
	case appquery.Owner:
		return []string{r.owner()}
	case appquery.By:
		return []string{r.initiator()}
	}
	return []string{r.state(f, on)}
}

// state is what a row has in a field with few values.
func (r *Row) state(f appquery.Field, on *Cluster) string {
	switch f {
	case appquery.Sync:
		if on != nil && on.expired {
			return "unknown"
		}
		return strings.ToLower(string(r.sync))
	case appquery.Health:
		if on != nil && on.expired {
			return "unknown"
		}
		return strings.ToLower(string(r.health))
	case appquery.Operation:
		return r.operation()
	case appquery.Auto:
		return r.Automation()
	case appquery.State:
		if on == nil {
			return strings.ToLower(string(r.Headline(nil, time.Time{}).State))
		}
		return strings.ToLower(string(r.Headline(&on.Cluster, on.at).State))
	}
	return ""
}

// authored reports whether the commit of the target is by one of some people.
// They are named in full, by address, or by a part of either.
func (r *Row) authored(lower []string) bool {
	author := strings.ToLower(r.Commit.Author)
	return author != "" && slices.ContainsFunc(lower, func(n string) bool { return strings.Contains(author, n) })
}
