package api_test

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An objectList is an answer of /api/v1/resources.
type objectList struct {
	Items []struct {
		Application             struct{ Namespace, Name string }
		Project, Cluster, Group string
		Kind, Namespace, Name   string
		Status, Health          string
		Stale                   bool
	}
	Continue string
	Total    int
	Facets   []struct {
		Field  string
		Values []struct {
			Value string
			Count int
		}
	}
}

func (l objectList) names() (out []string) {
	for _, o := range l.Items {
		out = append(out, o.Application.Name+" "+o.Kind+" "+o.Namespace+"/"+o.Name)
	}
	return out
}

func (l objectList) counts() map[string]map[string]int {
	out := map[string]map[string]int{}
	for _, f := range l.Facets {
		out[f.Field] = map[string]int{}
		for _, v := range f.Values {
			out[f.Field][v.Value] = v.Count
		}
	}
	return out
}

func (w *world) objects(secret string, params ...string) (l objectList) {
	w.t.Helper()
	v := url.Values{}
	for i := 0; i < len(params); i += 2 {
		v.Add(params[i], params[i+1])
	}
	w.call(secret, "GET", "/api/v1/resources?"+v.Encode(), nil).ok(200).into(&l)
	return l
}

// withObjects has three applications in two projects with two managed objects
// each, one of them in no namespace, and a pod that is not managed.
func withObjects(t *testing.T) (w *world, admin string) {
	w = newWorld(t)
	admin = w.Admin("acme")
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
	for _, p := range []string{"shop", "pay"} {
		w.call(admin, "POST", "/api/v1/projects", map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": p},
			"spec": map[string]any{"sourceRepos": []string{"*"}, "destinations": []any{map[string]any{"server": "*", "namespace": "*"}}}}).ok(201)
	}
	for i, project := range []string{"shop", "pay", "shop"} {
		w.call(admin, "POST", "/api/v1/applications", labelled(fmt.Sprintf("app-%d", i), project, "red")).ok(201)
	}
	insert := func(kind, namespace, name string, managed bool, health string) string {
		return fmt.Sprintf(`INSERT INTO resource (tenant_id, application_id, cluster_id, api_group, kind, namespace, name, version, uid, parent, managed, sync, health, message, requires_prune, hook, wave, diff, updated_at, hash, mark)
			SELECT a.tenant_id, a.id, c.id, '', '%s', '%s', '%s', 'v1', '', '', %t, 'Synced', '%s', '', false, false, 0, '', now(), '\x00', 1 FROM application a JOIN cluster c USING (tenant_id)`,
			kind, namespace, name, managed, health)
	}
	w.sql(t, insert("Service", "web", "front", true, "Healthy"), insert("Namespace", "", "web", true, ""), insert("Pod", "web", "front-1", false, "Healthy"))
	return w, admin
}

func TestListOfObjects(t *testing.T) {
	t.Parallel()
	w, admin := withObjects(t)
	w.call(admin, "PATCH", "/api/v1/settings", map[string]any{"values": map[string]any{"argocd-rbac-cm": map[string]any{
		"policy.csv": "p, dora, applications, get, shop/*, allow\np, dora, applications, get, shop/app-2, deny\n",
	}}}).ok(200)
	dora, nobody := w.User("acme", "dora"), w.User("acme", "nobody")

	t.Run("UI-15 managed objects of all applications are listed, by kind, namespace and name, and nothing else", func(t *testing.T) {
		want := []string{"app-0 Namespace /web", "app-1 Namespace /web", "app-2 Namespace /web", "app-0 Service web/front", "app-1 Service web/front", "app-2 Service web/front"}
		got := w.objects(admin).names()
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("UI-15 pages go on where they ended, and the last one says so", func(t *testing.T) {
		var got []string
		cursor := ""
		for range 10 {
			l := w.objects(admin, "limit", "2", "cursor", cursor)
			if got = append(got, l.names()...); len(l.Items) > 2 {
				t.Errorf("a page of %d", len(l.Items))
			}
			if cursor = l.Continue; cursor == "" {
				break
			}
		}
		if diff := cmp.Diff(w.objects(admin).names(), got); diff != "" || cursor != "" {
			t.Errorf("cursor %q (-want +got):\n%s", cursor, diff)
		}
	})
	t.Run("UI-15 conditions hold together, and counts stay within them", func(t *testing.T) {
		l := w.objects(admin, "project", "shop", "kind", "Service", "q", "RON", "facets", "true", "limit", "1")
		want := map[string]map[string]int{"kind": {"Service": 2}, "namespace": {"web": 2}, "cluster": {"prod": 2}, "project": {"shop": 2}, "sync": {"Unknown": 2}, "health": {"Unknown": 2}}
		if diff := cmp.Diff(want, l.counts()); diff != "" || l.Total != 2 || len(l.Items) != 1 {
			t.Errorf("total %d, %d items (-want +got):\n%s", l.Total, len(l.Items), diff)
		}
		for name, params := range map[string][]string{
			"another cluster": {"cluster", "dev"}, "another namespace": {"namespace", "api"}, "a state that no object has": {"sync", "OutOfSync"}, "a pattern is text": {"q", "%"},
			"its old health": {"health", "Healthy"},
		} {
			if l := w.objects(admin, params...); len(l.Items) != 0 {
				t.Errorf("%s: %v", name, l.names())
			}
		}
		if l := w.objects(admin, "namespace", "web", "cluster", "prod"); len(l.Items) != 3 {
			t.Errorf("of a namespace and a cluster: %v", l.names())
		}
	})
	t.Run("UI-15 UX-A11-6 objects of a cluster that the hub does not hear are Unknown", func(t *testing.T) {
		for _, o := range w.objects(admin, "kind", "Service").Items {
			if o.Status != "Unknown" || o.Health != "Unknown" || !o.Stale || o.Cluster != "prod" {
				t.Errorf("%+v", o)
			}
		}
	})
	t.Run("UI-15 SEC-G2 nothing is listed or counted that the caller may not see", func(t *testing.T) {
		l := w.objects(dora, "facets", "true")
		if diff := cmp.Diff([]string{"app-0 Namespace /web", "app-0 Service web/front"}, l.names()); diff != "" || l.Total != 2 {
			t.Errorf("total %d (-want +got):\n%s", l.Total, diff)
		}
		if got := slices.Collect(maps.Keys(l.counts()["project"])); !slices.Equal(got, []string{"shop"}) {
			t.Errorf("projects %v", got)
		}
		// The cursor of somebody else opens nothing.
		after := w.objects(admin, "limit", "1").Continue
		for _, o := range w.objects(dora, "cursor", after).Items {
			if o.Application.Name != "app-0" {
				t.Errorf("the cursor shows %+v", o)
			}
		}
		w.call(nobody, "GET", "/api/v1/resources", nil).fails(403)
		w.call("", "GET", "/api/v1/resources", nil).fails(401)
		if l := w.objects(w.Admin("other"), "facets", "true"); len(l.Items) != 0 || l.Total != 0 {
			t.Errorf("ISO-6 another tenant sees %v", l.names())
		}
	})
	t.Run("UI-15 what is no cursor, or no text, is refused", func(t *testing.T) {
		for _, query := range []string{"cursor=x", "cursor=bnVsbA", "cursor=e30", "cursor=eyJLaW5kIjoiXHUwMDAwIiwiQXBwbGljYXRpb24iOiIwMThmM2M2ZS0wMDAwLTcwMDAtODAwMC0wMDAwMDAwMDAwMDIifQ", "limit=501", "limit=0", "sync=Maybe", "q=%00", "kind=%00"} {
			if a := w.call(admin, "GET", "/api/v1/resources?"+query, nil); a.status != 400 {
				t.Errorf("%s: %d %s", query, a.status, a.body)
			}
		}
	})
}
