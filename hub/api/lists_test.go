package api_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
)

// A rowList is a list with view=row.
type rowList struct {
	Total    int
	Cursor   string
	Metadata struct{ Continue string }
	Items    []listed
	Rows     []struct {
		ID, Name, Project, Sync, Health, State, Automation, RepoURL, Path, DestinationNamespace string
		Labels                                                                                  map[string]string
	}
	Facets []struct {
		Field  string
		Values []struct {
			Value string
			Count int
		}
	}
}

func (l rowList) names() (out []string) {
	for _, r := range l.Rows {
		out = append(out, r.Name)
	}
	return out
}

// counts are the values of a facet.
func (l rowList) counts(field string) map[string]int {
	out := map[string]int{}
	for _, f := range l.Facets {
		if f.Field == field {
			for _, v := range f.Values {
				out[v.Value] = v.Count
			}
		}
	}
	return out
}

func (w *world) rows(secret string, params ...string) rowList {
	w.t.Helper()
	v := url.Values{"view": {"row"}}
	for i := 0; i < len(params); i += 2 {
		v.Add(params[i], params[i+1])
	}
	var out rowList
	w.call(secret, http.MethodGet, "/api/v1/applications?"+v.Encode(), nil).ok(200).into(&out)
	return out
}

// labelled is an application of a project with a label.
func labelled(name, project, team string) map[string]any {
	a := application(name, func(spec map[string]any) { spec["project"] = project })
	a["metadata"].(map[string]any)["labels"] = map[string]any{"team": team}
	return a
}

// inTeam is a patch that changes the label of labelled.
func inTeam(team string) map[string]any {
	return map[string]any{"patchType": "merge", "patch": `{"metadata": {"labels": {"team": "` + team + `"}}}`}
}

func TestListQueries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	for _, p := range []string{"shop", "pay"} {
		w.call(admin, "POST", "/api/v1/projects", map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": p},
			"spec": map[string]any{"sourceRepos": []string{"*"}, "destinations": []any{map[string]any{"server": "*", "namespace": "*"}}}}).ok(201)
	}
	for i := range 6 {
		w.call(admin, "POST", "/api/v1/applications", labelled(fmt.Sprintf("app-%d", i), []string{"shop", "pay"}[i%2], []string{"red", "blue", "green"}[i%3])).ok(201)
	}
	w.call(admin, "PATCH", "/api/v1/settings", map[string]any{"values": map[string]any{"argocd-rbac-cm": map[string]any{
		"policy.csv": "p, dora, applications, get, shop/*, allow\np, dora, applications, get, shop/app-4, deny\n",
	}}}).ok(200)
	dora := w.User("acme", "dora")

	t.Run("UX-NAV-3(part) a query filters, and counts stay within it", func(t *testing.T) {
		l := w.rows(admin, "query", "project:shop label:team=red,blue", "facets", "project,label:team", "sort", "-name")
		if diff := cmp.Diff([]string{"app-4", "app-0"}, l.names()); diff != "" || l.Total != 2 || len(l.Items) != 0 {
			t.Errorf("total %d, %d items, rows (-want +got):\n%s", l.Total, len(l.Items), diff)
		}
		if diff := cmp.Diff(map[string]int{"shop": 2, "pay": 2}, l.counts("project")); diff != "" {
			t.Errorf("projects (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]int{"red": 1, "blue": 1, "green": 1}, l.counts("label:team")); diff != "" {
			t.Errorf("teams (-want +got):\n%s", diff)
		}
	})
	t.Run("UX-NAV-3(part) parameters and query hold together, in every view", func(t *testing.T) {
		for _, view := range []string{"full", "compact"} {
			var l rowList
			w.call(admin, "GET", "/api/v1/applications?project=shop&query=label:team%3Dred&view="+view, nil).ok(200).into(&l)
			if l.Total != 1 || len(l.Items) != 1 || l.Items[0].Metadata.Name != "app-0" || len(l.Rows) != 0 {
				t.Errorf("view %s: total %d, items %+v", view, l.Total, l.Items)
			}
		}
		if l := w.rows(admin, "query", "project:pay", "project", "shop"); l.Total != 0 {
			t.Errorf("two projects at once have %v", l.names())
		}
	})
	t.Run("UX-NAV-3(part) nothing is counted that the caller may not see", func(t *testing.T) {
		l := w.rows(dora, "facets", "project,label:team,label")
		if diff := cmp.Diff([]string{"app-0", "app-2"}, l.names()); diff != "" || l.Total != 2 {
			t.Errorf("total %d, rows (-want +got):\n%s", l.Total, diff)
		}
		for field, want := range map[string]map[string]int{"project": {"shop": 2}, "label:team": {"red": 1, "green": 1}, "label": {"team": 2}} {
			if diff := cmp.Diff(want, l.counts(field)); diff != "" {
				t.Errorf("facet %s (-want +got):\n%s", field, diff)
			}
		}
		if l := w.rows(dora, "query", "name:app-4"); l.Total != 0 {
			t.Errorf("what is denied is found: %v", l.names())
		}
	})
	t.Run("UX-NAV-1(part) pages in another order go on where they ended", func(t *testing.T) {
		var got []string
		cursor := ""
		for {
			l := w.rows(admin, "sort", "-project", "limit", "2", "cursor", cursor)
			got = append(got, l.names()...)
			if cursor = l.Metadata.Continue; cursor == "" {
				break
			}
		}
		if diff := cmp.Diff([]string{"app-0", "app-2", "app-4", "app-1", "app-3", "app-5"}, got); diff != "" {
			t.Errorf("rows (-want +got):\n%s", diff)
		}
	})
	t.Run("UX-NAV-1(part) a list has what was written before it", func(t *testing.T) {
		for i := range 5 {
			name := fmt.Sprintf("fresh-%d", i)
			w.call(admin, "POST", "/api/v1/applications", labelled(name, "pay", "red")).ok(201)
			if l := w.rows(admin, "query", "name:"+name); l.Total != 1 {
				t.Fatalf("the new application %s is not in the list", name)
			}
			w.call(admin, "PATCH", "/api/v1/applications/argocd/"+name, inTeam("moved")).ok(200)
			if l := w.rows(admin, "query", "label:team=moved"); !slices.Contains(l.names(), name) {
				t.Fatalf("the new label of %s is not in the list: %v", name, l.names())
			}
		}
	})
	t.Run("UX-NAV-3(refused) errors say where a query is wrong", func(t *testing.T) {
		for params, want := range map[string]string{
			"query=project:shop+helth:x": `at character 14 of the query: there is no field "helth"`,
			"sort=size":                  `lists are not sorted by "size"`,
			"facets=size":                `there is no facet "size"`,
			"cursor=bad":                 "the cursor is not one of a list",
		} {
			if p := w.call(admin, "GET", "/api/v1/applications?"+params, nil).fails(400); !strings.Contains(p.Cause, want) {
				t.Errorf("%s: %q, want %q", params, p.Cause, want)
			}
		}
		w.call(admin, "GET", "/api/v1/stream?query=helth:x", nil).fails(400)
	})
	t.Run("UX-NAV-1(part) many lists and writes at once agree in the end", func(t *testing.T) {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for n := range 5 {
					name := fmt.Sprintf("many-%d-%d", i, n)
					w.call(admin, "POST", "/api/v1/applications", labelled(name, "shop", "many")).ok(201)
					if l := w.rows(admin, "query", "name:"+name); l.Total != 1 {
						t.Errorf("the new application %s is not in the list", name)
					}
				}
			})
		}
		all.Wait()
		if l := w.rows(admin, "query", "label:team=many", "facets", "label:team"); l.Total != 40 || l.counts("label:team")["many"] != 40 {
			t.Errorf("total %d, counts %v", l.Total, l.counts("label:team"))
		}
	})
}

func TestStreamQuery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.User("acme", "admin", hub.RoleTenantAdmin)
	w.call(admin, "POST", "/api/v1/applications", labelled("web", "default", "red")).ok(201)
	l := w.rows(admin)
	events := w.listen(t, admin, "?view=row&query=label:team%3Dred&cursor="+url.QueryEscape(l.Cursor))
	next := func() event {
		for e := range events {
			if e.Name == "application" && e.Data.Name == "web" {
				return e
			}
		}
		t.Fatal("the stream has ended")
		return event{}
	}
	label := func(team string) {
		w.call(admin, "PATCH", "/api/v1/applications/argocd/web", inTeam(team)).ok(200)
	}
	t.Run("UX-NAV-1(part) UX-NAV-3(part) an application that the query has no more is gone, and comes back as a row", func(t *testing.T) {
		label("blue")
		for e := next(); !e.Data.Gone; e = next() {
			if e.Data.Row.Labels["team"] != "red" {
				t.Fatalf("the stream has a row that the query does not have: %+v", e.Data.Row)
			}
		}
		label("red")
		for e := next(); e.Data.Gone; e = next() {
			continue
		}
	})
}
