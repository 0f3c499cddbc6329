package listing

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/appquery"
	"github.com/capstan-cd/capstan/shared/fault"
)

// An Order is what rows are sorted by. Rows that are equal in it are sorted by
// name and namespace.
type Order struct {
	By         string // empty: name
	Descending bool
}

// Orders are what rows can be sorted by.
func Orders() []string {
	return []string{"name", "project", "health", "sync", "state", "changed", "created"}
}

// ParseOrder reads an order such as "-health"; "-" is from the end.
func ParseOrder(text string) (Order, error) {
	by, descending := strings.CutPrefix(text, "-")
	if by == "" && !descending {
		return Order{By: "name"}, nil
	}
	if !slices.Contains(Orders(), by) {
		return Order{}, fault.With(fault.New(fault.Invalid, "lists are not sorted by %q", text), "parameter sort", "use one of "+strings.Join(Orders(), ", ")+", with - before it for the other direction")
	}
	return Order{by, descending}, nil
}

func (o Order) String() string {
	if o.Descending {
		return "-" + o.By
	}
	return cmp.Or(o.By, "name")
}

// A Place is where in a sorted list a row is. Rows may come and go around it.
type Place struct {
	Order     string `json:"o"`
	Number    int64  `json:"k,omitempty"`
	Text      string `json:"t,omitempty"`
	Name      string `json:"n"`
	Namespace string `json:"s"`
}

// String is the place as the cursor of a page.
func (p Place) String() string {
	if p.Order == "name" {
		return base64.RawURLEncoding.EncodeToString([]byte(p.Name + "/" + p.Namespace))
	}
	text, err := json.Marshal(p)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// ParsePlace reads the cursor of a page of a list in that order. The error is
// fault.Invalid for one of something else. Empty: before the first row.
func ParsePlace(s string, o Order) (Place, error) {
	if s == "" {
		return Place{}, nil
	}
	bad := fault.With(fault.New(fault.Invalid, "the cursor is not one of a list"), "", "start the list again, without a cursor")
	text, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || slices.Contains(text, 0) {
		return Place{}, bad
	}
	p := Place{Order: "name"}
	if json.Unmarshal(text, &p) != nil {
		var found bool
		if p.Name, p.Namespace, found = strings.Cut(string(text), "/"); !found {
			return Place{}, bad
		}
	}
	if p.Name == "" {
		return Place{}, bad
	}
	if p.Order != o.String() {
		return Place{}, fault.With(fault.New(fault.Invalid, "the cursor is one of a list that is sorted by %s", p.Order), "", "start the list again, without a cursor")
	}
	return p, nil
}

// severities are the states from best to worst.
var (
	healthSeverity = []string{"healthy", "suspended", "progressing", "missing", "degraded", "unknown"}
	syncSeverity   = []string{"synced", "outofsync", "unknown"}
)

// placeOf is where a row is, without the name of the order.
func placeOf(r *Row, on *Cluster, o Order) Place {
	p := Place{Name: r.Name, Namespace: r.Namespace}
	switch o.By {
	case "project":
		p.Text = r.Project
	case "health":
		p.Number = int64(slices.Index(healthSeverity, r.state(appquery.Health, on)))
	case "sync":
		p.Number = int64(slices.Index(syncSeverity, r.state(appquery.Sync, on)))
	case "state": // the most urgent is the last
		p.Number = -int64(slices.Index(appquery.State.Values(), r.state(appquery.State, on)))
	case "changed":
		p.Number = r.Changed.UnixMicro()
	case "created":
		p.Number = r.CreatedAt.UnixMicro()
	}
	return p
}

// compare orders places. Only what a list is sorted by has a direction, except
// where that is the name.
func (o Order) compare(a, b Place) int {
	c := cmp.Or(cmp.Compare(a.Number, b.Number), strings.Compare(a.Text, b.Text))
	name := cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Namespace, b.Namespace))
	if o.Descending {
		c = -c
		if o.By == "name" {
			name = -name
		}
	}
	return cmp.Or(c, name)
}

// A Request is what a caller wants to have of a list.
type Request struct {
	Queries []appquery.Query   // all must hold
	Me      []string           // names of the caller
	Set     hub.ApplicationKey // that generates the applications; no name: any, or none
	Order   Order
	After   Place
	Offset  int // rows to skip after the place
	Limit   int
	Facets  []string
}

// A Page is a part of a list with numbers about all of it.
type Page struct {
	Rows     []*Row
	Clusters map[hub.ClusterID]*Cluster
	Total    int
	Next     Place // of the next page; no name: this is the last one
	Facets   []Facet
}

// A Facet has the values of a field, and how many rows have each of them. A
// condition on the field itself does not count.
type Facet struct {
	Field  string
	Values []FacetValue
	More   int // values that are left out
}

// A FacetValue is a value of a field and the number of rows with it.
type FacetValue struct {
	Value string
	Count int
}

// maxFacetValues is how many values of a facet are returned.
const maxFacetValues = 100

// maxGroups is how many conditions a request may have.
const maxGroups = 64

// page picks the rows of a request. Visible are those that the caller may see,
// by name and namespace.
func page(visible []*Row, clusters map[hub.ClusterID]*Cluster, q Request) (Page, error) {
	groups := compile(q.Queries, q.Me)
	if len(groups) > maxGroups {
		return Page{}, fault.New(fault.Exceeded, "the list has %d conditions, and %d are the limit", len(groups), maxGroups)
	}
	counts, err := facetCounts(q.Facets, groups)
	if err != nil {
		return Page{}, err
	}
	out := Page{Clusters: clusters}
	first := firstRows{order: q.Order, limit: q.Offset + q.Limit + 1, named: q.Order.By == "name" && !q.Order.Descending}
	for _, r := range visible {
		if q.Set.Name != "" && (r.Set == nil || *r.Set != q.Set) {
			continue
		}
		on := clusters[r.Cluster]
		var failed uint64
		for i := range groups {
			if !groups[i].holds(r, on) {
				failed |= 1 << i
			}
		}
		for i := range counts {
			if failed&^counts[i].own == 0 {
				counts[i].add(r, on)
			}
		}
		if failed != 0 {
			continue
		}
		out.Total++
		if first.full() {
			continue
		}
		if p := placeOf(r, on, q.Order); q.After.Name == "" || q.Order.compare(p, q.After) > 0 {
			first.add(r, p)
		}
	}
	first.sort()
	first.rows = first.rows[min(q.Offset, len(first.rows)):]
	if len(first.rows) > q.Limit {
		first.rows = first.rows[:q.Limit]
		out.Next = first.rows[q.Limit-1].place
		out.Next.Order = q.Order.String()
	}
	for _, r := range first.rows {
		out.Rows = append(out.Rows, r.row)
	}
	for i := range counts {
		out.Facets = append(out.Facets, counts[i].facet())
	}
	return out, nil
}

// firstRows are the first rows of an order, of those that were added.
type firstRows struct {
	order Order
	limit int
	named bool // rows are added in their order
	rows  []placed
}

type placed struct {
	row   *Row
	place Place
}

// full reports whether no further row can be one of the first.
func (f *firstRows) full() bool { return f.named && len(f.rows) == f.limit }

// add adds a row. When there are twice as many as needed, the last ones go.
func (f *firstRows) add(r *Row, p Place) {
	if len(f.rows) == 2*f.limit {
		f.sort()
	}
	f.rows = append(f.rows, placed{r, p})
}

func (f *firstRows) sort() {
	if !f.named {
		slices.SortFunc(f.rows, func(a, b placed) int { return f.order.compare(a.place, b.place) })
	}
	f.rows = f.rows[:min(len(f.rows), f.limit)]
}

// A counter counts the values of a facet.
type counter struct {
	name  string
	field appquery.Field
	key   string
	own   uint64 // the conditions on the field itself
	n     map[string]int
}

// facetFields are the fields that have facets. That of labels counts keys, and
// label:KEY the values of a key.
func facetFields() []appquery.Field {
	return []appquery.Field{
		appquery.Project, appquery.Cluster, appquery.Namespace, appquery.AppNamespace, appquery.Sync, appquery.Health, appquery.Operation,
		appquery.Auto, appquery.State, appquery.Repo, appquery.Revision, appquery.Owner, appquery.Label,
	}
}

const maxFacets = 20

func facetCounts(names []string, groups []group) ([]counter, error) {
	if len(names) > maxFacets {
		return nil, fault.New(fault.Exceeded, "the list has %d facets, and %d are the limit", len(names), maxFacets)
	}
	out := make([]counter, 0, len(names))
	for _, name := range names {
		field, key, _ := strings.Cut(name, ":")
		c := counter{name: name, field: appquery.Field(field), key: key, n: map[string]int{}}
		if !slices.Contains(facetFields(), c.field) || key != "" && !c.field.Keyed() {
			var known []string
			for _, f := range facetFields() {
				known = append(known, string(f))
			}
			return nil, fault.With(fault.New(fault.Invalid, "there is no facet %q", name), "parameter facets", "use some of "+strings.Join(known, ", ")+", label:KEY")
		}
		for i, g := range groups {
			if g.field == c.field && g.key == c.key {
				c.own |= 1 << i
			}
		}
		out = append(out, c)
	}
	return out, nil
}

func (c *counter) add(r *Row, on *Cluster) {
	switch {
	case c.field == appquery.Label && c.key == "":
		for k := range r.Labels {
			c.n[k]++
		}
	case c.field == appquery.Label:
		if v, found := r.Labels[c.key]; found {
			c.n[v]++
		}
	case c.field.Values() != nil:
		c.n[r.state(c.field, on)]++
	default:
		values := r.values(c.field, on)
		for i, v := range values {
			if !slices.Contains(values[:i], v) {
				c.n[v]++
			}
		}
	}
}

// facet are the counts, largest first.
func (c *counter) facet() Facet {
	out := Facet{Field: c.name}
	for v, n := range c.n {
		out.Values = append(out.Values, FacetValue{v, n})
	}
	slices.SortFunc(out.Values, func(a, b FacetValue) int { return cmp.Or(b.Count-a.Count, strings.Compare(a.Value, b.Value)) })
	if n := len(out.Values); n > maxFacetValues {
		out.Values, out.More = out.Values[:maxFacetValues], n-maxFacetValues
	}
	return out
}
