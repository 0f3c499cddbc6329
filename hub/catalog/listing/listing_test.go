package listing

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/shared/appquery"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/rbac"
)

func nameOf(a hub.Application) string { return a.Project + "/" + a.Name }

// began is the time of the applications of these tests.
func began() time.Time { return time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC) }

// newListed is the application i of a fleet in which every state occurs.
func newListed(i int) hub.ListedApplication {
	healths := []hub.HealthStatus{hub.Healthy, hub.Degraded, hub.Progressing, hub.MissingHealth, hub.Suspended, hub.HealthUnknown}
	syncs := []hub.SyncStatus{hub.Synced, hub.OutOfSync, hub.SyncUnknown}
	spec := fmt.Sprintf(`{"project": "p", "source": {"repoURL": "https://git.test/r%d.git", "path": "x", "targetRevision": "v%d"}, "destination": {"namespace": "ns-%d"}%s}`,
		i%4, i%3, i%5, []string{"", `, "syncPolicy": {"automated": {}}`}[i%2])
	l := hub.ListedApplication{
		Application: hub.Application{
			ID: hub.ApplicationID(fmt.Sprintf("id-%04d", i)), Project: fmt.Sprintf("p-%d", i%3), Spec: json.RawMessage(spec),
			Meta: hub.Meta{
				Namespace: "argocd", Name: fmt.Sprintf("app-%03d", i*37%1000), CreatedAt: began().Add(time.Duration(i*53%97) * time.Hour), UpdatedAt: began().Add(time.Duration(i*31%89) * time.Hour),
				Labels: map[string]string{"tier": []string{"front", "back"}[i%2]},
			},
			Cluster: hub.ClusterID([]string{"", "c1", "c2"}[i%3]),
			Status:  hub.ApplicationStatus{Sync: syncs[i%3], Health: healths[i%6], Revision: fmt.Sprintf("c0ffee%034d", i)},
		},
		Commit: hub.CommitInfo{Author: []string{"Ann <ann@corp.test>", "Bob"}[i%2]},
	}
	if i%7 == 0 {
		l.Labels["odd"] = ""
	}
	if i%5 == 0 {
		l.Status.Operation = &hub.Operation{Phase: hub.Failed, Initiator: hub.Initiator{Username: "ann"}, OperationTimes: hub.OperationTimes{CreatedAt: began().Add(time.Duration(i) * time.Hour)}}
	}
	if i%11 == 0 {
		l.Pin = &hub.Pin{At: began(), Behind: true}
	}
	return l
}

func testClusters() []hub.ListedCluster {
	seen := began().Add(-time.Hour)
	return []hub.ListedCluster{{ID: "c1", Name: "prod", Connected: true, LastSeen: &seen}, {ID: "c2", Name: "away", LastSeen: &seen}}
}

// newRows are n rows in the order of lists.
func newRows(n int) []*Row {
	out := make([]*Row, n)
	for i := range out {
		a := newListed(i)
		out[i] = newRow(a, nameOf(a.Application))
	}
	slices.SortFunc(out, byName)
	return out
}

func parse(t *testing.T, text string) appquery.Query {
	t.Helper()
	q, err := appquery.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestQueries(t *testing.T) {
	t.Parallel()
	rows, clusters := newRows(60), clustersAt(testClusters(), began())
	away := func(r *Row) bool { return r.Cluster == "c2" }
	cases := map[string]func(r *Row) bool{
		"":                         func(*Row) bool { return true },
		"APP-01 -app-011":          func(r *Row) bool { return strings.Contains(r.Name, "app-01") && r.Name != "app-011" },
		"name:app-037":             func(r *Row) bool { return r.Name == "app-037" },
		"name:app-0*,app-111":      func(r *Row) bool { return strings.HasPrefix(r.Name, "app-0") || r.Name == "app-111" },
		"name~[05]$":               func(r *Row) bool { return strings.HasSuffix(r.Name, "0") || strings.HasSuffix(r.Name, "5") },
		"project:p-1 project:p-2":  func(r *Row) bool { return r.Project == "p-1" || r.Project == "p-2" },
		"project:p-1 -project:p-1": func(*Row) bool { return false },
		"cluster:prod":             func(r *Row) bool { return r.Cluster == "c1" },
		`cluster:""`:               func(r *Row) bool { return r.Cluster == "" },
		"namespace:ns-2":           func(r *Row) bool { return r.Destination == "ns-2" },
		"app-namespace:argocd":     func(*Row) bool { return true },
		"health:degraded":          func(r *Row) bool { return r.Status.Health == hub.Degraded && !away(r) },
		"-health:degraded sync:synced": func(r *Row) bool {
			return r.Status.Health != hub.Degraded && r.Status.Sync == hub.Synced && !away(r) && r.Pin == nil
		},
		"sync:unknown":     func(r *Row) bool { return r.Status.Sync == hub.SyncUnknown || away(r) },
		"operation:failed": func(r *Row) bool { return r.Status.Operation != nil },
		"auto:paused":      func(r *Row) bool { return r.Pin != nil },
		"state:paused,stale": func(r *Row) bool {
			on := clusters[r.Cluster]
			var cl *hub.Cluster
			if on != nil {
				cl = &on.Cluster
			}
			state := r.Headline(cl, began()).State
			return state == hub.StatePaused || state == hub.StateStale
		},
		"auto:auto":                     func(r *Row) bool { return r.Pin == nil && r.Follows },
		"auto:manual,paused":            func(r *Row) bool { return r.Pin != nil || !r.Follows },
		"repo:https://GIT.test/r2":      func(r *Row) bool { return r.Source.RepoURL == "https://git.test/r2.git" },
		"revision:v1":                   func(r *Row) bool { return r.Source.TargetRevision == "v1" },
		"label:tier=back":               func(r *Row) bool { return r.Labels["tier"] == "back" },
		"label:tier=back label:odd":     func(r *Row) bool { _, odd := r.Labels["odd"]; return r.Labels["tier"] == "back" && odd },
		"-label:odd":                    func(r *Row) bool { _, odd := r.Labels["odd"]; return !odd },
		"label:odd=":                    func(r *Row) bool { _, odd := r.Labels["odd"]; return odd },
		"label:none=":                   func(*Row) bool { return false },
		"label~tier=^b":                 func(r *Row) bool { return r.Labels["tier"] == "back" },
		"author:me":                     func(r *Row) bool { return strings.HasPrefix(r.Commit.Author, "Ann") },
		"author:ann@corp.test":          func(r *Row) bool { return strings.HasPrefix(r.Commit.Author, "Ann") },
		"by:me":                         func(r *Row) bool { return r.Status.Operation != nil },
		"owner:x":                       func(*Row) bool { return false },
		"label:tier=back,front label:x": func(*Row) bool { return false },
		"health:healthy,missing name~^a": func(r *Row) bool {
			return (r.Status.Health == hub.Healthy || r.Status.Health == hub.MissingHealth) && !away(r)
		},
	}
	for text, holds := range cases {
		t.Run("UX-NAV-3(part) "+text, func(t *testing.T) {
			t.Parallel()
			p, err := page(rows, clusters, Request{Queries: []appquery.Query{parse(t, text)}, Me: []string{"ann"}, Order: Order{By: "name"}, Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, r := range rows {
				if holds(r) {
					want = append(want, r.Name)
				}
			}
			if diff := cmp.Diff(want, namesOf(p.Rows)); diff != "" || p.Total != len(want) {
				t.Errorf("total %d; rows (-want +got):\n%s", p.Total, diff)
			}
		})
	}
	t.Run("UX-NAV-3(part) the begin of a commit finds it", func(t *testing.T) {
		t.Parallel()
		p, err := page(rows, clusters, Request{Queries: []appquery.Query{parse(t, "revision:"+rows[3].Status.Revision)}, Limit: 10})
		if err != nil || p.Total != 1 || p.Rows[0] != rows[3] {
			t.Errorf("page: %+v, %v", p, err)
		}
		p, err = page(rows, clusters, Request{Queries: []appquery.Query{parse(t, "revision:c0ffee0")}, Limit: 10})
		if err != nil || p.Total != len(rows) {
			t.Errorf("total %d, %v", p.Total, err)
		}
	})
	t.Run("UX-NAV-3(part) conditions of two queries must both hold", func(t *testing.T) {
		t.Parallel()
		p, err := page(rows, clusters, Request{Queries: []appquery.Query{parse(t, "project:p-1"), parse(t, "project:p-2")}, Limit: 10})
		if err != nil || p.Total != 0 || p.Next.Name != "" {
			t.Errorf("page: %+v, %v", p, err)
		}
	})
}

func namesOf(rows []*Row) (out []string) {
	for _, r := range rows {
		out = append(out, r.Name)
	}
	return out
}

// readAll follows cursors to the end, through their text.
func readAll(t *testing.T, rows []*Row, clusters map[hub.ClusterID]*Cluster, o Order, limit int, between func()) []*Row {
	t.Helper()
	var out []*Row
	for after := (Place{}); ; {
		p, err := page(rows, clusters, Request{Order: o, After: after, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		if p.Total != len(rows) {
			t.Fatalf("total %d, want %d", p.Total, len(rows))
		}
		out = append(out, p.Rows...)
		if p.Next.Name == "" {
			return out
		}
		if len(p.Rows) != limit {
			t.Fatalf("a page of %d has %d rows and another one follows", limit, len(p.Rows))
		}
		if after, err = ParsePlace(p.Next.String(), o); err != nil {
			t.Fatal(err)
		}
		if between != nil {
			between()
		}
	}
}

func TestOrders(t *testing.T) {
	t.Parallel()
	rows, clusters := newRows(200), clustersAt(testClusters(), began())
	for _, by := range Orders() {
		for _, descending := range []bool{false, true} {
			o := Order{by, descending}
			t.Run("UX-NAV-1(part) pages sorted by "+o.String()+" have each row once, in order", func(t *testing.T) {
				t.Parallel()
				want := slices.Clone(rows)
				slices.SortStableFunc(want, func(a, b *Row) int {
					return o.compare(placeOf(a, clusters[a.Cluster], o), placeOf(b, clusters[b.Cluster], o))
				})
				for _, at := range []int{0, 1, 63, 199, 200, 5000} {
					p, err := page(rows, clusters, Request{Order: o, Offset: at, Limit: 20})
					from := min(at, len(want))
					if err != nil || p.Total != len(rows) || !slices.Equal(p.Rows, want[from:min(from+20, len(want))]) {
						t.Errorf("20 rows from %d on: %v, %v", at, namesOf(p.Rows), err)
					}
				}
				for _, limit := range []int{1, 7, 50, 199, 200, 500} {
					if got := readAll(t, rows, clusters, o, limit, nil); !slices.Equal(got, want) {
						t.Errorf("pages of %d: %v\nwant %v", limit, namesOf(got), namesOf(want))
					}
				}
			})
		}
	}
	t.Run("UX-NAV-1(part) health goes from the best to the worst, and the other way", func(t *testing.T) {
		t.Parallel()
		for o, want := range map[Order]string{{"health", false}: "healthy", {"health", true}: "unknown"} {
			p, err := page(rows, clusters, Request{Order: o, Limit: 1})
			if err != nil || p.Rows[0].state(appquery.Health, clusters[p.Rows[0].Cluster]) != want {
				t.Errorf("%s begins with %v, %v", o, namesOf(p.Rows), err)
			}
		}
	})
	t.Run("UX-NAV-1(refused) cursors of another list", func(t *testing.T) {
		t.Parallel()
		place := Place{Order: "-health", Number: 3, Name: "a", Namespace: "b"}
		for text, o := range map[string]Order{place.String(): {By: "name"}, "!": {By: "name"}, "YQ": {By: "name"}, Place{Order: "name", Name: "a", Namespace: "b"}.String(): {By: "health"}} {
			if _, err := ParsePlace(text, o); fault.KindOf(err) != fault.Invalid {
				t.Errorf("ParsePlace(%q, %s): %v", text, o, err)
			}
		}
		if _, err := ParseOrder("size"); fault.KindOf(err) != fault.Invalid {
			t.Errorf("ParseOrder: %v", err)
		}
	})
}

func FuzzParsePlace(f *testing.F) {
	f.Add(Place{Order: "name", Name: "web", Namespace: "argocd"}.String())
	f.Add(Place{Order: "-changed", Number: 5, Name: "web", Namespace: "argocd"}.String())
	f.Fuzz(func(t *testing.T, s string) {
		for _, o := range []Order{{By: "name"}, {"changed", true}} {
			if p, err := ParsePlace(s, o); err == nil && s != "" && p.Name == "" {
				t.Fatalf("ParsePlace(%q) = %+v", s, p)
			}
		}
	})
}

func TestFacets(t *testing.T) {
	t.Parallel()
	rows, clusters := newRows(120), clustersAt(testClusters(), began())
	queries := []string{"", "health:degraded", "health:degraded project:p-1", "-health:degraded label:tier=back", "app-00"}
	names := []string{"project", "cluster", "namespace", "app-namespace", "sync", "health", "operation", "auto", "state", "repo", "revision", "owner", "label", "label:tier"}
	for _, text := range queries {
		t.Run("UX-NAV-3(part) UX-NAV-5(part) counts equal the lists of their values: "+text, func(t *testing.T) {
			t.Parallel()
			q := parse(t, text)
			p, err := page(rows, clusters, Request{Queries: []appquery.Query{q}, Facets: names, Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range p.Facets {
				field, key, _ := strings.Cut(f.Field, ":")
				var rest appquery.Query // without the field's own terms
				for _, term := range q {
					if string(term.Field) != field || term.Key != key {
						rest = append(rest, term)
					}
				}
				if len(f.Values) == 0 {
					t.Errorf("facet %s is empty", f.Field)
				}
				for _, v := range f.Values {
					term := appquery.Term{Field: appquery.Field(field), Key: key, Values: []string{v.Value}}
					if f.Field == "label" {
						term = appquery.Term{Field: appquery.Label, Key: v.Value}
					}
					one, err := page(rows, clusters, Request{Queries: []appquery.Query{rest, {term}}, Limit: 1})
					if err != nil || one.Total != v.Count {
						t.Errorf("%s %q counts %d, and the list has %d, %v", f.Field, v.Value, v.Count, one.Total, err)
					}
				}
			}
		})
	}
	t.Run("UX-NAV-3(refused) a facet that there is not", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"size", "name", "project:x", ""} {
			if _, err := page(rows, clusters, Request{Facets: []string{name}, Limit: 1}); fault.KindOf(err) != fault.Invalid {
				t.Errorf("facet %q: %v", name, err)
			}
		}
	})
}

// A history is a feed of one tenant, read at the end of each of its steps.
type history struct {
	step     uint64
	apps     map[hub.ApplicationID]hub.ListedApplication
	changes  []hub.ListChange
	allReads int
}

// A moment is a transaction of a history.
type moment struct {
	h    *history
	xmin uint64 // the oldest step that is still going on
	apps map[hub.ApplicationID]hub.ListedApplication
	step uint64
}

func (h *history) at(xmin uint64) *moment { return &moment{h, xmin, maps.Clone(h.apps), h.step} }

func (h *history) write(id hub.ApplicationID, a *hub.ListedApplication) {
	h.step++
	if a == nil {
		delete(h.apps, id)
	} else {
		h.apps[id] = *a
	}
	h.changes = append(h.changes, hub.ListChange{Transaction: h.step, Application: id})
}

func (m *moment) ListChanges(_ context.Context, since hub.ListMark) (hub.ListChanges, error) {
	out := hub.ListChanges{Mark: hub.ListMark{Xmin: m.xmin}, All: since.Xmin == 0}
	for _, c := range m.h.changes {
		if c.Transaction >= since.Xmin && c.Transaction <= m.step {
			out.Applications = append(out.Applications, c)
		}
	}
	return out, nil
}

func (m *moment) ListedApplications(_ context.Context, ids []hub.ApplicationID) (out []hub.ListedApplication, _ error) {
	for _, id := range ids {
		if a, ok := m.apps[id]; ok {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b hub.ListedApplication) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (m *moment) AllListed(ctx context.Context) ([]hub.ListedApplication, error) {
	m.h.allReads++
	return m.ListedApplications(ctx, slices.Collect(maps.Keys(m.apps)))
}

func (m *moment) ListedClusters(context.Context) ([]hub.ListedCluster, error) {
	return testClusters(), nil
}

// TestFollows reads lists by several callers at moments of a random history, and
// compares each with what was there at that moment or later.
func TestFollows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		h := &history{apps: map[hub.ApplicationID]hub.ListedApplication{}, step: 1}
		lists := New(nameOf)
		policy := "p, role:r, applications, get, p-1/*, allow\np, role:r, applications, get, p-2/app-0*, allow\np, role:r, applications, get, */app-011, deny\ng, ann, role:r\np, bob, applications, get, *, allow\n"
		rights := access.Compile("tenant", access.Policy{Values: map[string]string{rbac.PolicyKey: policy}})
		callers := []*access.Index{rights.For(access.Subject{User: "ann"}), rights.For(access.Subject{User: "bob"})}
		now := began()
		var older *moment
		oldest := uint64(1)
		for range 60 {
			for range r.IntN(4) {
				i := r.IntN(40)
				a := newListed(i)
				a.Status.Health = []hub.HealthStatus{hub.Healthy, hub.Degraded}[r.IntN(2)]
				if r.IntN(4) == 0 {
					h.write(a.ID, nil)
				} else {
					h.write(a.ID, &a)
				}
			}
			oldest = max(oldest, h.step-uint64(min(r.IntN(3), int(h.step)))+1) // it never goes back
			m := h.at(oldest)
			who := callers[r.IntN(2)]
			p, _, err := lists.Page(t.Context(), "tenant", m, who, Request{Limit: 100, Facets: []string{"health"}}, now)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			for _, a := range m.apps {
				if who.Check(access.Applications, access.Get, nameOf(a.Application)) {
					want[a.Name] = string(a.Status.Health)
				}
			}
			got := map[string]string{}
			for _, row := range p.Rows {
				got[row.Name] = string(row.Status.Health)
			}
			if diff := cmp.Diff(want, got); diff != "" || p.Total != len(want) {
				t.Fatalf("total %d of %d (-want +got):\n%s", p.Total, len(want), diff)
			}
			if older != nil { // a transaction that began before the last list and reads now
				if _, _, err := lists.Page(t.Context(), "tenant", older, callers[0], Request{Limit: 100}, now); err != nil {
					t.Fatal(err)
				}
			}
			if older = nil; r.IntN(3) == 0 {
				older = m
			}
			now = now.Add(time.Duration(r.IntN(1500)) * time.Millisecond)
		}
		if h.allReads != 1 {
			t.Fatalf("everything was read %d times", h.allReads)
		}
	})
}

// TestRestored moves the database behind what is in memory.
func TestRestored(t *testing.T) {
	t.Parallel()
	h := &history{apps: map[hub.ApplicationID]hub.ListedApplication{}, step: 1}
	a, b := newListed(1), newListed(2)
	h.write(a.ID, &a)
	h.write(b.ID, &b)
	lists := New(nameOf)
	rights := access.Compile("tenant", access.Policy{Values: map[string]string{rbac.PolicyKey: "p, bob, applications, get, *, allow\n"}}).For(access.Subject{User: "bob"})
	total := func(m *moment, now time.Time) int {
		t.Helper()
		p, _, err := lists.Page(t.Context(), "tenant", m, rights, Request{Limit: 10}, now)
		if err != nil {
			t.Fatal(err)
		}
		return p.Total
	}
	if n := total(h.at(h.step+1), began()); n != 2 {
		t.Fatalf("%d rows, want 2", n)
	}
	restored := &history{apps: map[hub.ApplicationID]hub.ListedApplication{a.ID: a}, step: 2}
	if n := total(restored.at(2), began().Add(2*time.Minute)); n != 1 {
		t.Errorf("%d rows of the restored database, want 1", n)
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	lists := New(nameOf)
	rows := &rows{all: make([]*Row, maxRows/2)}
	for _, tenant := range []hub.TenantID{"a", "b", "c"} {
		lists.fleet(tenant).now = rows
		lists.limit(tenant)
	}
	if got := slices.Sorted(maps.Keys(lists.tenants)); !slices.Equal(got, []hub.TenantID{"b", "c"}) {
		t.Errorf("in memory are %v, want the two that were used last", got)
	}
}
