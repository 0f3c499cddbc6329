package api_test

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestFirstAdmin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secret := w.User("default", "root", "platform-admin", "tenant-admin")
	var me struct {
		Username, Tenant, Via string
		Roles                 []string
		Permissions           []struct{ Resource, Action string }
	}
	w.call(secret, "GET", "/api/v1/me", nil).ok(200).into(&me)
	if me.Username != "root" || me.Tenant != "default" || me.Via != "session" || len(me.Roles) != 2 || len(me.Permissions) == 0 {
		t.Errorf("GET /me = %+v", me)
	}
	t.Run("UX-ACC-3(part) me has each right that an operation needs, so that the console offers what will work", func(t *testing.T) {
		text, err := os.ReadFile("openapi.yaml")
		if err != nil {
			t.Fatal(err)
		}
		held := map[string]bool{"public": true, "self": true, "apply": true, "stream": true} // which no policy gives
		for _, p := range me.Permissions {
			held[p.Resource+" "+p.Action] = true
		}
		found := regexp.MustCompile(`x-capstan-resource: ([a-z-]+)\n +x-capstan-action: ([a-z-]+)`).FindAllStringSubmatch(string(text), -1)
		if len(found) < 100 {
			t.Fatalf("only %d operations are found", len(found))
		}
		for _, m := range found {
			if !held[m[1]] && !held[m[1]+" "+m[2]] {
				t.Errorf("%s %s is not among the rights of an admin", m[1], m[2])
			}
		}
	})
	t.Run("SEC-E9 a setup token works once and garbage never", func(t *testing.T) {
		for _, token := range []string{"cpu_x", "nonsense", strings.Repeat("a", 53)} {
			w.call("", "POST", "/api/v1/setup", map[string]any{"token": token, "username": "eve", "password": password}).fails(404)
		}
	})
	t.Run("the password signs in, in the tenant default unless another is named", func(t *testing.T) {
		var in struct{ Token string }
		w.call("", "POST", "/api/v1/login", map[string]any{"username": "root", "password": password, "mode": "token"}).ok(200).into(&in)
		w.call(in.Token, "POST", "/api/v1/logout", nil).ok(204)
		w.call(in.Token, "GET", "/api/v1/me", nil).fails(401)
	})
}

func TestApplications(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	var app struct {
		Metadata struct {
			UID, ResourceVersion string
		}
		Status struct {
			Sync    struct{ Status string }
			Health  struct{ Status string }
			Capstan struct{ Connection, Automation string }
		}
		Warnings []string
	}
	created := w.call(admin, "POST", "/api/v1/applications", application("web")).ok(201).into(&app)
	if app.Status.Sync.Status != "Unknown" || app.Status.Capstan.Connection != "NoCluster" || app.Status.Capstan.Automation != "Manual" {
		t.Errorf("a new application says %+v", app.Status)
	}
	if len(app.Warnings) != 1 || !strings.Contains(app.Warnings[0], "cluster") {
		t.Errorf("APP-03 an unknown cluster is said as a warning: %q", app.Warnings)
	}
	tag := created.header.Get("ETag")
	t.Run("creating it twice is a conflict", func(t *testing.T) {
		w.call(admin, "POST", "/api/v1/applications", application("web")).fails(409)
	})
	t.Run("UX-API-2 a write with an old ETag is refused", func(t *testing.T) {
		changed := application("web", func(s map[string]any) { s["info"] = []any{map[string]any{"name": "a", "value": "b"}} })
		next := w.call(admin, "PUT", "/api/v1/applications/argocd/web", changed, header("If-Match", tag)).ok(200)
		if next.header.Get("ETag") == tag {
			t.Error("the ETag did not change")
		}
		w.call(admin, "PUT", "/api/v1/applications/argocd/web", changed, header("If-Match", tag)).fails(412)
		w.call(admin, "PUT", "/api/v1/applications/argocd/web", changed, header("If-Match", `"x"`)).fails(400)
		same := w.call(admin, "PUT", "/api/v1/applications/argocd/web", changed, header("If-Match", next.header.Get("ETag"))).ok(200)
		if same.header.Get("ETag") != next.header.Get("ETag") {
			t.Error("a write that changes nothing made a new version")
		}
	})
	t.Run("SEC-D3 address and object must agree", func(t *testing.T) {
		w.call(admin, "PUT", "/api/v1/applications/argocd/web", application("other")).fails(400)
		w.call(admin, "PUT", "/api/v1/applications/elsewhere/web", application("web")).fails(400)
	})
	t.Run("APP-02 to APP-06 bad specs are refused with one clear sentence", func(t *testing.T) {
		cases := map[string]struct {
			change func(spec map[string]any)
			says   string
		}{
			"BothDestinations": {func(s map[string]any) { s["destination"] = map[string]any{"server": "https://x", "name": "y"} }, "both server and name"},
			"NoDestination":    {func(s map[string]any) { s["destination"] = map[string]any{"namespace": "y"} }, "neither server nor name"},
			"NoSource":         {func(s map[string]any) { delete(s, "source") }, "names no source"},
			"EmptyRepo":        {func(s map[string]any) { s["source"] = map[string]any{"repoURL": ""} }, "repoURL is empty"},
			"FileRepo":         {func(s map[string]any) { s["source"] = map[string]any{"repoURL": "file:///etc"} }, "own disk"},
			"ClimbingPath":     {func(s map[string]any) { s["source"].(map[string]any)["path"] = "../../etc" }, "leaves the repository"},
			"AbsolutePath":     {func(s map[string]any) { s["source"].(map[string]any)["path"] = "/etc" }, "absolute"},
			"OptionRevision":   {func(s map[string]any) { s["source"].(map[string]any)["targetRevision"] = "--upload-pack=x" }, "no revision"},
			"WrongType":        {func(s map[string]any) { s["source"] = "here" }, "object"},
			"BadRetry": {func(s map[string]any) {
				s["syncPolicy"] = map[string]any{"retry": map[string]any{"backoff": map[string]any{"duration": "soon"}}}
			}, "no duration"},
			"BadProject": {func(s map[string]any) { s["project"] = "Not A Name" }, "no DNS label"},
		}
		for name, c := range cases {
			p := w.call(admin, "POST", "/api/v1/applications", application("bad", c.change)).fails(400)
			if !strings.Contains(p.Message, c.says) {
				t.Errorf("%s: %q does not say %q", name, p.Message, c.says)
			}
		}
		w.call(admin, "POST", "/api/v1/applications", application("Bad_Name")).fails(400)
		w.call(admin, "GET", "/api/v1/applications/argocd/bad", nil).fails(404)
	})
	t.Run("APP-06 a missing project is accepted with a warning", func(t *testing.T) {
		w.call(admin, "POST", "/api/v1/applications", application("lost", func(s map[string]any) { s["project"] = "nowhere" })).ok(201).into(&app)
		if len(app.Warnings) == 0 || !strings.Contains(app.Warnings[0], `project "nowhere" does not exist`) {
			t.Errorf("warnings are %q", app.Warnings)
		}
	})
	t.Run("an impossible operation is a conflict, in one sentence", func(t *testing.T) {
		p := w.call(admin, "POST", "/api/v1/applications/argocd/web/sync", map[string]any{}).fails(409)
		if p.Object != "application web" || p.Fix == "" {
			t.Errorf("sync of what was never rendered says %+v", p)
		}
		w.call(admin, "POST", "/api/v1/applications/argocd/web/terminate", nil).fails(409)
		w.call(admin, "POST", "/api/v1/applications/argocd/web/rollback", map[string]any{"id": 7}).fails(409)
		w.call(admin, "POST", "/api/v1/applications/argocd/web/refresh", nil).ok(202)
		w.call(admin, "GET", "/api/v1/applications/argocd/web/diff", nil).fails(409)
		w.call(admin, "GET", "/api/v1/applications/argocd/web/manifests", nil).fails(404)
		w.call(admin, "GET", "/api/v1/applications/argocd/web/tree", nil).ok(200)
		w.call(admin, "GET", "/api/v1/applications/argocd/web/history", nil).ok(200)
		w.call(admin, "GET", "/api/v1/applications/argocd/web/operations", nil).ok(200)
	})
	t.Run("a new cluster becomes the destination", func(t *testing.T) {
		w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
		w.call(admin, "GET", "/api/v1/applications/argocd/web", nil).ok(200).into(&app)
		if app.Status.Capstan.Connection != "NeverConnected" {
			t.Errorf("connection is %q", app.Status.Capstan.Connection)
		}
		w.call(admin, "GET", "/api/v1/applications/argocd/web/diff", nil).fails(503)
		w.call(admin, "DELETE", "/api/v1/clusters/prod", nil).ok(204)
		w.call(admin, "GET", "/api/v1/applications/argocd/web", nil).ok(200).into(&app)
		if app.Status.Capstan.Connection != "NoCluster" {
			t.Errorf("CLU-19: after its cluster went, connection is %q", app.Status.Capstan.Connection)
		}
	})
	t.Run("deletion", func(t *testing.T) {
		w.call(admin, "DELETE", "/api/v1/applications/argocd/web?cascade=maybe", nil).fails(400)
		w.call(admin, "DELETE", "/api/v1/applications/argocd/web", nil).ok(204)
		w.call(admin, "GET", "/api/v1/applications/argocd/web", nil).fails(404)
		w.call(admin, "DELETE", "/api/v1/applications/argocd/web", nil).fails(404)
	})
}

func TestList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	for _, name := range []string{"alpha", "beta", "delta", "gamma"} {
		a := application(name)
		a["metadata"].(map[string]any)["labels"] = map[string]any{"team": name[:1], "env": "prod"}
		w.call(admin, "POST", "/api/v1/applications", a).ok(201)
	}
	type list struct {
		Metadata struct{ Continue string }
		Cursor   string
		Items    []struct{ Metadata struct{ Name string } }
	}
	names := func(l list) string {
		var out []string
		for _, i := range l.Items {
			out = append(out, i.Metadata.Name)
		}
		return strings.Join(out, " ")
	}
	t.Run("UX-NAV-1 API-03 pages follow one another without gaps", func(t *testing.T) {
		var all []string
		cursor := ""
		for {
			var l list
			w.call(admin, "GET", "/api/v1/applications?limit=3&cursor="+cursor, nil).ok(200).into(&l)
			all = append(all, names(l))
			if cursor = l.Metadata.Continue; cursor == "" {
				break
			}
		}
		if got := strings.Join(all, " | "); got != "alpha beta delta | gamma" {
			t.Errorf("pages are %q", got)
		}
	})
	t.Run("API-03 filters", func(t *testing.T) {
		for query, want := range map[string]string{
			"q=ET":                        "beta",
			"labels=team%3Da":             "alpha",
			"labels=team%20in%20(a,g)":    "alpha gamma",
			"labels=team!%3Da,env":        "beta delta gamma",
			"labels=!env":                 "",
			"project=default":             "alpha beta delta gamma",
			"project=other":               "",
			"sync=Unknown&health=Unknown": "alpha beta delta gamma",
			"sync=Synced":                 "",
			"cluster=nowhere":             "",
			"namespace=argocd":            "alpha beta delta gamma",
		} {
			var l list
			w.call(admin, "GET", "/api/v1/applications?"+query, nil).ok(200).into(&l)
			if names(l) != want {
				t.Errorf("%s gives %q, want %q", query, names(l), want)
			}
		}
	})
	t.Run("bad questions are answered in one sentence", func(t *testing.T) {
		for _, query := range []string{"limit=0", "limit=501", "limit=x", "sync=Green", "cursor=%21", "cursor=YQ", "labels=a%20b", "labels=(", "labels=a%20in%20b"} {
			w.call(admin, "GET", "/api/v1/applications?"+query, nil).fails(400)
		}
	})
	t.Run("an ETag spares a page that did not change", func(t *testing.T) {
		tag := w.call(admin, "GET", "/api/v1/applications", nil).ok(200).header.Get("ETag")
		w.call(admin, "GET", "/api/v1/applications", nil, header("If-None-Match", tag)).ok(http.StatusNotModified)
		w.call(admin, "DELETE", "/api/v1/applications/argocd/beta", nil).ok(204)
		w.call(admin, "GET", "/api/v1/applications", nil, header("If-None-Match", tag)).ok(200)
	})
}

// Clusters that come and go must not move what runs, unless it names its
// cluster.
func TestDestinationsStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	on := func(name string) string {
		t.Helper()
		var a struct {
			Status struct{ Capstan struct{ Cluster string } }
		}
		w.call(admin, "GET", "/api/v1/applications/argocd/"+name, nil).ok(200).into(&a)
		return a.Status.Capstan.Cluster
	}
	enroll := func(name string) {
		t.Helper()
		w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": name}).ok(201)
	}
	named := application("named", func(s map[string]any) { s["destination"] = map[string]any{"name": "later", "namespace": "x"} })
	w.call(admin, "POST", "/api/v1/applications", application("web")).ok(201)
	w.call(admin, "POST", "/api/v1/applications", named).ok(201)
	enroll("first")
	if on("web") != "first" || on("named") != "" {
		t.Fatalf("APP-05: web is on %q, named on %q", on("web"), on("named"))
	}
	enroll("later")
	enroll("in-cluster")
	if on("web") != "first" || on("named") != "later" {
		t.Errorf("after more clusters came, web is on %q, named on %q", on("web"), on("named"))
	}
	changed := application("web", func(s map[string]any) { s["revisionHistoryLimit"] = 3 })
	w.call(admin, "PUT", "/api/v1/applications/argocd/web", changed).ok(200)
	if on("web") != "first" {
		t.Errorf("a change of something else moved it to %q", on("web"))
	}
	w.call(admin, "POST", "/api/v1/applications", application("new")).ok(201)
	if on("new") != "in-cluster" {
		t.Errorf("APP-05: a new application is on %q", on("new"))
	}
	w.call(admin, "DELETE", "/api/v1/clusters/first", nil).ok(204)
	w.call(admin, "DELETE", "/api/v1/clusters/in-cluster", nil).ok(204)
	if on("web") != "" || on("new") != "" {
		t.Errorf("CLU-19: after its cluster went, web is on %q and new on %q", on("web"), on("new"))
	}
	moved := application("web", func(s map[string]any) { s["destination"] = map[string]any{"name": "later", "namespace": "web"} })
	w.call(admin, "PUT", "/api/v1/applications/argocd/web", moved).ok(200)
	if on("web") != "later" {
		t.Errorf("a person's move put it on %q", on("web"))
	}
}
