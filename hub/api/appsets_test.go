package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// applicationSet is a set with a list generator of one element for each name.
func applicationSet(name string, elements ...string) map[string]any {
	list := []any{}
	for _, e := range elements {
		list = append(list, map[string]any{"name": e})
	}
	return map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "metadata": map[string]any{"name": name, "namespace": "argocd"},
		"spec": map[string]any{
			"generators": []any{map[string]any{"list": map[string]any{"elements": list}}},
			"template":   map[string]any{"metadata": map[string]any{"name": name + "-{{name}}"}, "spec": application("x")["spec"]},
		},
	}
}

// inProject puts what a set makes into a project.
func inProject(set map[string]any, project string) map[string]any {
	spec, _ := set["spec"].(map[string]any)
	template, _ := spec["template"].(map[string]any)
	of, _ := template["spec"].(map[string]any)
	of["project"] = project
	return set
}

const setsPath = "/api/v1/applicationsets"

type storedSet struct {
	Metadata struct {
		Name, Namespace, ResourceVersion string
		Labels                           map[string]string
		Generation                       int64
	}
	Spec   map[string]any
	Status struct {
		Health  struct{ Status string }
		Capstan struct{ Project string }
	}
	Warnings []string
}

type setList struct {
	Metadata struct{ Continue string }
	Items    []storedSet
	Total    int
	Cursor   string
}

func (l setList) names() string {
	var out []string
	for _, s := range l.Items {
		out = append(out, s.Metadata.Namespace+"/"+s.Metadata.Name)
	}
	return strings.Join(out, " ")
}

func TestApplicationSets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.call(admin, "POST", "/api/v1/projects", project("shop", open(nil))).ok(201)
	t.Run("ASET-22 a set is created, read, replaced at the version that was read, and deleted", func(t *testing.T) {
		var made, got storedSet
		w.call(admin, "POST", setsPath+"?dryRun=true", applicationSet("fleet", "a")).ok(201)
		w.call(admin, "GET", setsPath+"/argocd/fleet", nil).fails(404)
		w.call(admin, "POST", setsPath, applicationSet("fleet", "a")).ok(201).into(&made)
		w.call(admin, "POST", setsPath, applicationSet("fleet", "a")).fails(409)
		a := w.call(admin, "GET", setsPath+"/argocd/fleet", nil).ok(200)
		a.into(&got)
		if got.Metadata.Name != "fleet" || got.Status.Capstan.Project != "default" || got.Status.Health.Status == "" {
			t.Errorf("%+v", got)
		}
		tag := a.header.Get("ETag")
		changed := applicationSet("fleet", "a", "b")
		w.call(admin, "PUT", setsPath+"/argocd/fleet", changed, header("If-Match", tag)).ok(200).into(&got)
		if got.Metadata.Generation <= made.Metadata.Generation {
			t.Errorf("generation %d after %d", got.Metadata.Generation, made.Metadata.Generation)
		}
		w.call(admin, "PUT", setsPath+"/argocd/fleet", applicationSet("fleet"), header("If-Match", tag)).fails(412)
		w.call(admin, "PUT", setsPath+"/argocd/other", changed).fails(400)
		w.call(admin, "POST", setsPath+"?upsert=true", applicationSet("fleet")).ok(200)
		w.call(admin, "POST", setsPath+"/argocd/fleet/refresh", nil).ok(202)
		w.call(admin, "POST", setsPath+"/argocd/fleet/approve", map[string]any{"digest": "x"}).fails(409)
		w.call(admin, "DELETE", setsPath+"/argocd/fleet?cascade=true&propagationPolicy=orphan", nil).fails(400)
		w.call(admin, "DELETE", setsPath+"/argocd/fleet", nil).ok(204)
		w.call(admin, "GET", setsPath+"/argocd/fleet", nil).fails(404)
	})
	t.Run("ASET-22 what happened to a set is listed, newest first", func(t *testing.T) {
		w.call(admin, "POST", setsPath, applicationSet("told")).ok(201)
		w.call(admin, "PUT", setsPath+"/argocd/told", applicationSet("told", "a")).ok(200)
		var events struct {
			Items []struct{ Reason, Kind, Name string }
		}
		w.call(admin, "GET", setsPath+"/argocd/told/events", nil).ok(200).into(&events)
		if len(events.Items) != 2 || events.Items[0].Reason != "update" || events.Items[1].Reason != "create" || events.Items[0].Name != "told" {
			t.Errorf("%+v", events)
		}
		var tree struct {
			Nodes  []struct{ Kind, Name, Parent string }
			Cursor string
		}
		w.call(admin, "GET", setsPath+"/argocd/told/tree", nil).ok(200).into(&tree)
		if len(tree.Nodes) != 1 || tree.Nodes[0].Kind != "ApplicationSet" || tree.Cursor == "" {
			t.Errorf("%+v", tree)
		}
		w.call(admin, "DELETE", setsPath+"/argocd/told", nil).ok(204)
	})
	t.Run("ASET-22 pages of a list have each set once, and conditions hold together", func(t *testing.T) {
		for i := range 7 {
			set := inProject(applicationSet(fmt.Sprintf("page-%d", i)), []string{"default", "shop"}[i%2])
			set["metadata"].(map[string]any)["labels"] = map[string]any{"parity": []string{"even", "odd"}[i%2]} //nolint:forcetypeassert // as it was made
			w.call(admin, "POST", setsPath, set).ok(201)
		}
		var seen []string
		cursor := ""
		for {
			var page setList
			w.call(admin, "GET", setsPath+"?limit=3&q=PAGE&cursor="+cursor, nil).ok(200).into(&page)
			if page.Total != 7 || page.Cursor == "" {
				t.Fatalf("%+v", page)
			}
			seen = append(seen, page.names())
			if cursor = page.Metadata.Continue; cursor == "" {
				break
			}
		}
		if got := strings.Join(seen, " | "); got != "argocd/page-0 argocd/page-1 argocd/page-2 | argocd/page-3 argocd/page-4 argocd/page-5 | argocd/page-6" {
			t.Error(got)
		}
		for query, want := range map[string]int{
			"project=shop": 3, "projects=shop&selector=parity%3Deven": 0, "labels=parity!%3Dodd": 4, "labels=parity+in+(odd,even)": 7, "namespace=elsewhere": 0, "appsetNamespace=argocd": 7, "health=Degraded": 0,
		} {
			var page setList
			w.call(admin, "GET", setsPath+"?"+query, nil).ok(200).into(&page)
			if page.Total != want || len(page.Items) != want {
				t.Errorf("%s: %d, want %d: %s", query, page.Total, want, page.names())
			}
		}
		w.call(admin, "GET", setsPath+"?cursor=!", nil).fails(400)
		w.call(admin, "GET", setsPath+"?labels=%3D", nil).fails(400)
	})
}

func TestWhoSeesApplicationSets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, dev := w.Admin("acme"), w.User("acme", "dev")
	w.call(admin, "POST", "/api/v1/projects", project("shop", open(nil))).ok(201)
	w.call(admin, "POST", setsPath, inProject(applicationSet("seen"), "shop")).ok(201)
	w.call(admin, "POST", setsPath, applicationSet("hidden")).ok(201)
	policy := "p, dev, applicationsets, get, shop/*, allow\np, dev, applicationsets, create, shop/*, allow\n"
	w.setPolicy(admin, map[string]any{"policy.csv": policy}).ok(200)
	t.Run("ASET-22 SEC-G2 who may not see a set learns nothing of it", func(t *testing.T) {
		var page setList
		w.call(dev, "GET", setsPath, nil).ok(200).into(&page)
		if page.names() != "argocd/seen" || page.Total != 1 {
			t.Errorf("%d: %s", page.Total, page.names())
		}
		absent := w.call(dev, "GET", setsPath+"/argocd/absent", nil).fails(404)
		for _, c := range []struct {
			method, path string
			body         any
		}{
			{"GET", "", nil}, {"GET", "/tree", nil}, {"GET", "/events", nil}, {"POST", "/refresh", nil}, {"DELETE", "", nil},
			{"POST", "/approve", map[string]any{"digest": "x"}}, {"PUT", "", applicationSet("hidden")},
		} {
			a := w.call(dev, c.method, setsPath+"/argocd/hidden"+c.path, c.body).fails(404)
			if a.Message != strings.ReplaceAll(absent.Message, "absent", "hidden") {
				t.Errorf("%s %s answers %q, and for an absent one %q", c.method, c.path, a.Message, absent.Message)
			}
		}
		w.call(dev, "POST", setsPath, applicationSet("hidden")).fails(403)
	})
	t.Run("ASET-22 SEC-D11 a set is written by who may make applications in its project, too", func(t *testing.T) {
		w.call(dev, "POST", setsPath, inProject(applicationSet("mine"), "shop")).fails(403)
		w.setPolicy(admin, map[string]any{"policy.csv": policy + "p, dev, applications, create, shop/*, allow\n"}).ok(200)
		w.call(dev, "POST", setsPath, inProject(applicationSet("mine"), "shop")).ok(201)
		w.call(dev, "POST", setsPath, inProject(applicationSet("moved"), "default")).fails(403)
		w.call(dev, "POST", setsPath, inProject(applicationSet("any"), "{{project}}")).fails(403)
		w.call(admin, "POST", setsPath, inProject(applicationSet("any"), "{{project}}")).ok(201)
	})
}

// Applications know the set that has made them.
func TestApplicationsOfASet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.call(admin, http.MethodPost, setsPath, applicationSet("fleet")).ok(201)
	for _, name := range []string{"fleet-a", "fleet-b", "alone"} {
		w.call(admin, "POST", "/api/v1/applications", application(name)).ok(201)
	}
	w.sql(t, `INSERT INTO application_set_member (tenant_id, application_id, set_id)
		SELECT a.tenant_id, a.id, s.id FROM application a JOIN application_set s ON s.tenant_id = a.tenant_id WHERE a.name LIKE 'fleet-%'`)
	t.Run("ASET-12 an application names its set, as its owner and in its status", func(t *testing.T) {
		var app struct {
			Metadata struct {
				OwnerReferences []struct{ APIVersion, Kind, Name string }
			}
			Status struct {
				Capstan struct {
					ApplicationSet struct{ Namespace, Name string }
				}
			}
		}
		w.call(admin, "GET", "/api/v1/applications/argocd/fleet-a", nil).ok(200).into(&app)
		if o := app.Metadata.OwnerReferences; len(o) != 1 || o[0].Kind != "ApplicationSet" || o[0].Name != "fleet" || app.Status.Capstan.ApplicationSet.Name != "fleet" {
			t.Errorf("%+v", app)
		}
	})
	t.Run("ASET-22 the applications of a set are listed, in its status, its tree and the list of applications", func(t *testing.T) {
		for _, query := range []string{"applicationSet=fleet", "applicationSet=argocd/fleet", "query=set:fleet", "query=owner:fleet"} {
			var page struct {
				Items []struct{ Metadata struct{ Name string } }
				Total int
			}
			w.call(admin, "GET", "/api/v1/applications?"+query, nil).ok(200).into(&page)
			if page.Total != 2 || page.Items[0].Metadata.Name != "fleet-a" {
				t.Errorf("%s: %+v", query, page)
			}
		}
		var none struct{ Total int }
		w.call(admin, "GET", "/api/v1/applications?applicationSet=elsewhere/fleet", nil).ok(200).into(&none)
		var set struct {
			Status struct {
				Resources []struct{ Kind, Name string }
				Capstan   struct{ Counts map[string]int }
			}
		}
		w.call(admin, "GET", setsPath+"/argocd/fleet", nil).ok(200).into(&set)
		var tree struct {
			Nodes []struct{ Parent, Name string }
		}
		w.call(admin, "GET", setsPath+"/argocd/fleet/tree", nil).ok(200).into(&tree)
		if none.Total != 0 || len(set.Status.Resources) != 2 || len(tree.Nodes) != 3 || tree.Nodes[1].Parent == "" {
			t.Errorf("%+v %+v %+v", none, set, tree)
		}
	})
	t.Run("ASET-22 SEC-G2 who may not see an application does not see it in its set", func(t *testing.T) {
		viewer := w.User("acme", "viewer")
		w.setPolicy(admin, map[string]any{"policy.csv": "p, viewer, applicationsets, get, */*, allow\np, viewer, applications, get, default/fleet-b, allow\n"}).ok(200)
		body := string(w.call(viewer, "GET", setsPath+"/argocd/fleet", nil).ok(200).body) + string(w.call(viewer, "GET", setsPath+"/argocd/fleet/tree", nil).ok(200).body)
		if strings.Contains(body, "fleet-a") || !strings.Contains(body, "fleet-b") {
			t.Error(body)
		}
	})
}

func TestNamespacesOfApplicationSets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	inTeam := applicationSet("fleet")
	inTeam["metadata"] = map[string]any{"name": "fleet", "namespace": "team-a"}
	t.Run("ANY-04 a set is only in a namespace that the settings and its project list", func(t *testing.T) {
		w.call(admin, "POST", setsPath, inTeam).fails(403)
		w.call(admin, "PATCH", settingsPath, map[string]any{"values": map[string]any{"argocd-cmd-params-cm": map[string]any{"applicationsetcontroller.namespaces": "team-*", "application.namespaces": "team-*"}}}).ok(200)
		w.call(admin, "POST", setsPath, inTeam).fails(400)
		w.call(admin, "POST", "/api/v1/projects", project("shop", open(map[string]any{"sourceNamespaces": []any{"team-a"}}))).ok(201)
		w.call(admin, "POST", setsPath, inProject(inTeam, "shop")).ok(201)
		var page setList
		w.call(admin, "GET", setsPath+"?appsetNamespace=team-a", nil).ok(200).into(&page)
		if page.names() != "team-a/fleet" {
			t.Error(page.names())
		}
		w.call(admin, "GET", setsPath+"/team-a/fleet", nil).ok(200)
	})
}

func TestPreviewOfApplicationSets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
	at := func(set map[string]any, cluster string) map[string]any {
		spec, _ := set["spec"].(map[string]any)
		template, _ := spec["template"].(map[string]any)
		template["spec"] = application("x", func(s map[string]any) { s["destination"] = map[string]any{"name": cluster, "namespace": "x"} })["spec"]
		return set
	}
	type preview struct {
		Exists bool
		Items  []struct {
			Name, Action, Problem string
			Held                  bool
			Parameters            map[string]any
			After                 struct{ Metadata struct{ Name string } }
		}
		Applications []struct{ Metadata struct{ Name string } }
		Counts       struct{ Create, Update, Delete, Unchanged, Problems, Held int }
	}
	t.Run("ASET-19 UX-PRO-4(part) generate says what there would be, with parameters, and stores nothing", func(t *testing.T) {
		var p preview
		w.call(admin, "POST", setsPath+"/generate", at(applicationSet("fleet", "a", "b"), "prod")).ok(200).into(&p)
		if p.Exists || p.Counts.Create != 2 || len(p.Applications) != 2 || p.Applications[0].Metadata.Name != "fleet-a" || p.Items[0].After.Metadata.Name != "fleet-a" || p.Items[0].Parameters["name"] != "a" {
			t.Errorf("%+v", p)
		}
		w.call(admin, "GET", setsPath+"/argocd/fleet", nil).fails(404)
		var apps struct{ Total int }
		w.call(admin, "GET", "/api/v1/applications", nil).ok(200).into(&apps)
		if apps.Total != 0 {
			t.Errorf("%d applications", apps.Total)
		}
	})
	t.Run("ASET-10 generate names applications that would not be made, and why", func(t *testing.T) {
		var p preview
		w.call(admin, "POST", setsPath+"/generate", at(applicationSet("fleet", "a"), "nowhere")).ok(200).into(&p)
		if p.Counts.Problems != 1 || len(p.Applications) != 0 || !strings.Contains(p.Items[0].Problem, "cluster") {
			t.Errorf("%+v", p)
		}
		w.call(admin, "POST", setsPath+"/generate", map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "metadata": map[string]any{"name": "x"}, "spec": map[string]any{}}).fails(400)
	})
	t.Run("SEC-D1 ASET-19 generate needs the rights of the write", func(t *testing.T) {
		reader := w.User("acme", "only-reads", "readonly")
		w.call(reader, "POST", setsPath+"/generate", at(applicationSet("fleet", "a"), "prod")).fails(403)
	})
}

func TestStreamOfApplicationSets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, ann := w.Admin("acme"), w.User("acme", "ann")
	w.call(admin, "POST", "/api/v1/projects", project("shop", open(nil))).ok(201)
	const sees = "p, ann, applications, get, shop/*, allow\np, ann, applicationsets, get, shop/*, allow\n"
	w.setPolicy(admin, map[string]any{"policy.csv": sees}).ok(200)
	var list setList
	w.call(ann, "GET", setsPath, nil).ok(200).into(&list)
	ofSet := func(e event) bool { return e.Name == "applicationset" }
	t.Run("ASET-22 SEC-D8 the stream brings changes of sets to those who may see them", func(t *testing.T) {
		events := w.listen(t, ann, "?cursor="+list.Cursor)
		w.call(admin, "POST", setsPath, applicationSet("hidden")).ok(201)
		w.call(admin, "POST", setsPath, inProject(applicationSet("fleet"), "shop")).ok(201)
		made := until(t, events, "the set", ofSet)
		if made.Data.Name != "fleet" || made.Data.Namespace != "argocd" || made.Data.ApplicationSet.Metadata.Name != "fleet" || made.Data.Gone {
			t.Errorf("%+v", made)
		}
		w.setPolicy(admin, map[string]any{"policy.csv": "p, ann, applications, get, shop/*, allow\n"}).ok(200)
		if gone := until(t, events, "the end of the visibility", func(e event) bool { return ofSet(e) && e.Data.Gone }); gone.Data.ID != made.Data.ID || gone.Data.Name != "" {
			t.Errorf("%+v", gone)
		}
		w.setPolicy(admin, map[string]any{"policy.csv": sees}).ok(200)
		until(t, events, "the set again", func(e event) bool { return ofSet(e) && e.Data.Name == "fleet" })
		w.call(admin, "DELETE", setsPath+"/argocd/fleet", nil).ok(204)
		until(t, events, "the deletion", func(e event) bool { return ofSet(e) && e.Data.Gone && e.Data.ID == made.Data.ID })
	})
}
