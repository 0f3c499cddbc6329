// Package listing answers lists of applications: filtered by a query, sorted,
// in pages, with numbers about all of them. The catalog calls it. It keeps in
// memory what lists need of the applications of a tenant, so that a page costs
// no statement for each condition, and counts are exact for every caller.
//
// What always holds: a list is never older than the transaction that reads it.
// What changed since the last list is read from the tenant's feed, by the same
// transaction, and those applications are read again. Nothing is counted that
// the caller may not see. Losing what is in memory costs the time of reading it.
package listing

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
)

// A Reader is a transaction of one tenant.
type Reader interface {
	ListChanges(ctx context.Context, since hub.ListMark) (hub.ListChanges, error)
	ListedApplications(ctx context.Context, ids []hub.ApplicationID) ([]hub.ListedApplication, error)
	AllListed(ctx context.Context) ([]hub.ListedApplication, error)
	ListedClusters(ctx context.Context) ([]hub.ListedCluster, error)
}

const (
	// maxRows is how many rows of all tenants are in memory, unless one tenant
	// alone has more.
	maxRows = 200_000
	// clusterAge is how old the heartbeats of more than fewClusters clusters may
	// be: they are not in the feed, as the end of a connection is.
	clusterAge  = time.Second
	fewClusters = 100
	// restoredAge is how old rows are that no transaction can be older than. A
	// database that was restored counts its transactions from an earlier number.
	restoredAge = time.Minute
	// maxViewers is for how many callers of a tenant it is known what they see.
	maxViewers = 1000
)

// Lists has the rows of tenants. Many goroutines may use it.
type Lists struct {
	object func(hub.Application) string

	mu      sync.Mutex
	tenants map[hub.TenantID]*fleet
	uses    int64
}

// New makes it. Object is what policies call an application.
func New(object func(hub.Application) string) *Lists {
	return &Lists{object: object, tenants: map[hub.TenantID]*fleet{}}
}

// A fleet has the rows of one tenant.
type fleet struct {
	loading sync.Mutex // of all rows

	mu      sync.Mutex
	now     *rows
	viewers map[*access.Index]viewed
	used    int64
}

// rows are the rows as of a mark, by name and namespace. They are never changed.
type rows struct {
	mark     hub.ListMark
	all      []*Row
	applied  map[hub.ListChange]bool // those after the mark that are in all
	clusters []hub.ListedCluster
	asOf     time.Time // of the clusters
	read     time.Time
}

// viewed are the rows that a caller sees.
type viewed struct {
	of   *rows
	rows []*Row
}

// Page answers a request of somebody with these rights. The cursor is the place
// of the transaction in the feed.
func (l *Lists) Page(ctx context.Context, tenant hub.TenantID, tx Reader, rights *access.Index, q Request, now time.Time) (Page, string, error) {
	f := l.fleet(tenant)
	r, cursor, err := f.read(ctx, tx, l.object, now)
	if err != nil {
		return Page{}, "", err
	}
	l.limit(tenant)
	p, err := page(f.visible(r, rights), clustersAt(r.clusters, now), q)
	return p, cursor, err
}

// Rows returns those of some applications that somebody with these rights may
// see, and which of them a request has. Its order, place and limit do not count.
func (l *Lists) Rows(ctx context.Context, tenant hub.TenantID, tx Reader, rights *access.Index, ids []hub.ApplicationID, q Request, now time.Time) (Page, error) {
	f := l.fleet(tenant)
	r, _, err := f.read(ctx, tx, l.object, now)
	if err != nil {
		return Page{}, err
	}
	want := make(map[hub.ApplicationID]bool, len(ids))
	for _, id := range ids {
		want[id] = true
	}
	var some []*Row
	for _, row := range r.all {
		if want[row.ID] && rights.Check(access.Applications, access.Get, row.Object) {
			some = append(some, row)
		}
	}
	q.Order, q.After, q.Limit = Order{By: "name"}, Place{}, len(some)
	return page(some, clustersAt(r.clusters, now), q)
}

func clustersAt(all []hub.ListedCluster, now time.Time) map[hub.ClusterID]*Cluster {
	out := make(map[hub.ClusterID]*Cluster, len(all))
	for _, c := range all {
		cl := &Cluster{Cluster: c.Cluster(), at: now}
		stale := cl.Staleness(now)
		cl.expired = stale != nil && stale.Expired
		out[c.ID] = cl
	}
	return out
}

func (l *Lists) fleet(tenant hub.TenantID) *fleet {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.tenants[tenant]
	if f == nil {
		f = &fleet{viewers: map[*access.Index]viewed{}}
		l.tenants[tenant] = f
	}
	l.uses++
	f.used = l.uses
	return f
}

// limit forgets the tenants that were used longest ago while there are too many
// rows in memory.
func (l *Lists) limit(but hub.TenantID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := 0
	for _, f := range l.tenants {
		total += f.size()
	}
	for total > maxRows && len(l.tenants) > 1 {
		var oldest hub.TenantID
		for id, f := range l.tenants {
			if id != but && (oldest == "" || f.used < l.tenants[oldest].used) {
				oldest = id
			}
		}
		total -= l.tenants[oldest].size()
		delete(l.tenants, oldest)
	}
}

func (f *fleet) size() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now == nil {
		return 0
	}
	return len(f.now.all)
}

func (f *fleet) current() *rows {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// read returns the rows as of a transaction, or of a later one.
func (f *fleet) read(ctx context.Context, tx Reader, object func(hub.Application) string, now time.Time) (*rows, string, error) {
	r := f.current()
	if r == nil { // one caller reads everything, and the others what has changed meanwhile
		f.loading.Lock()
		defer f.loading.Unlock()
		r = f.current()
	}
	if r == nil {
		r = &rows{}
	}
	changes, err := tx.ListChanges(ctx, r.mark)
	if err == nil && changes.Mark.Xmin < r.mark.Xmin {
		if now.Sub(r.read) < restoredAge { // r is of a later transaction
			return r, changes.Cursor, nil
		}
		r = &rows{}
		changes, err = tx.ListChanges(ctx, r.mark)
	}
	if err != nil {
		return nil, "", err
	}
	next, err := r.follow(ctx, tx, changes, object, now)
	if err != nil || next == r {
		return r, changes.Cursor, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// Another transaction may have been faster. What is published grows with each
	// step from its predecessor, and the snapshot of an older one adds nothing.
	if f.now == nil || f.now == r || changes.All {
		f.now = next
	}
	return next, changes.Cursor, nil
}

// follow returns the rows after changes: the same ones if there is nothing new.
func (r *rows) follow(ctx context.Context, tx Reader, c hub.ListChanges, object func(hub.Application) string, now time.Time) (*rows, error) {
	next := &rows{mark: c.Mark, all: r.all, applied: map[hub.ListChange]bool{}, clusters: r.clusters, asOf: r.asOf, read: now}
	var changed []hub.ApplicationID
	for _, one := range c.Applications {
		if !r.applied[one] {
			changed = append(changed, one.Application)
		}
	}
	stale := c.Clusters || len(r.clusters) > 0 && (len(r.clusters) <= fewClusters || now.Sub(r.asOf) > clusterAge)
	if !c.All && len(changed) == 0 && !stale && r.mark.Xmin == c.Mark.Xmin && maps.Equal(r.mark.Failing, c.Mark.Failing) {
		return r, nil
	}
	for _, one := range slices.Concat(c.Applications, slices.Collect(maps.Keys(r.applied))) {
		if one.Transaction >= next.mark.Xmin {
			next.applied[one] = true
		}
	}
	if stale {
		var err error
		if next.clusters, err = tx.ListedClusters(ctx); err != nil {
			return nil, err
		}
		next.asOf = now
	}
	if c.All {
		found, err := tx.AllListed(ctx)
		next.all = makeRows(found, object)
		return next, err
	}
	if len(changed) == 0 {
		return next, nil
	}
	slices.Sort(changed)
	changed = slices.Compact(changed)
	found, err := tx.ListedApplications(ctx, changed)
	next.all = replace(r.all, changed, makeRows(found, object))
	return next, err
}

func makeRows(found []hub.ListedApplication, object func(hub.Application) string) []*Row {
	out := make([]*Row, len(found))
	for i, a := range found {
		out[i] = newRow(a, object(a.Application))
	}
	return out
}

func byName(a, b *Row) int {
	if c := strings.Compare(a.Name, b.Name); c != 0 {
		return c
	}
	return strings.Compare(a.Namespace, b.Namespace)
}

// replace returns rows with those of some applications exchanged for others.
func replace(old []*Row, changed []hub.ApplicationID, by []*Row) []*Row {
	gone := make(map[hub.ApplicationID]bool, len(changed))
	for _, id := range changed {
		gone[id] = true
	}
	out := make([]*Row, 0, len(old)+len(by))
	for _, r := range old {
		if gone[r.ID] {
			continue
		}
		for len(by) > 0 && byName(by[0], r) < 0 {
			out, by = append(out, by[0]), by[1:]
		}
		out = append(out, r)
	}
	return append(out, by...)
}

// visible returns the rows that somebody with these rights may see. What was
// decided about rows that have not changed holds.
func (f *fleet) visible(r *rows, rights *access.Index) []*Row {
	f.mu.Lock()
	was, known := f.viewers[rights]
	f.mu.Unlock()
	if known && sameRows(was.of.all, r.all) {
		return was.rows
	}
	decided := map[*Row]bool{}
	if known {
		seen := was.rows
		for _, row := range was.of.all {
			visible := len(seen) > 0 && seen[0] == row
			if visible {
				seen = seen[1:]
			}
			decided[row] = visible
		}
	}
	out := make([]*Row, 0, len(was.rows))
	for _, row := range r.all {
		may, found := decided[row]
		if !found {
			may = rights.Check(access.Applications, access.Get, row.Object)
		}
		if may {
			out = append(out, row)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.viewers) >= maxViewers {
		clear(f.viewers)
	}
	f.viewers[rights] = viewed{r, out}
	return out
}

// sameRows reports whether two lists are one.
func sameRows(a, b []*Row) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
