package api_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

const settingsPath = "/api/v1/settings"

// setPolicy changes keys of argocd-rbac-cm; nil removes one.
func (w *world) setPolicy(secret string, values map[string]any) answer {
	return w.call(secret, http.MethodPatch, settingsPath, map[string]any{"values": map[string]any{"argocd-rbac-cm": values}})
}

type decision struct {
	Allowed             bool
	Layer, Rule, Source string
	Line                int
	Problem             string
}

// why asks what somebody may do; no names are the caller.
func (w *world) why(secret, action, resource, object string, names ...string) decision {
	w.t.Helper()
	body := map[string]any{"questions": []any{map[string]any{"resource": resource, "action": action, "object": object}}}
	if len(names) > 0 {
		body["subject"] = map[string]any{"user": names[0], "groups": names[1:]}
	}
	var out struct{ Items []decision }
	w.call(secret, http.MethodPost, "/api/v1/account/can-i", body).ok(200).into(&out)
	return out.Items[0]
}

func (w *world) canI(secret, action, resource, object string) string {
	w.t.Helper()
	var out struct{ Value string }
	w.call(secret, http.MethodGet, "/api/v1/account/can-i/"+resource+"/"+strings.ReplaceAll(action, "/", "%2F")+"/"+object, nil).ok(200).into(&out)
	return out.Value
}

// guide returns a manifest of the guide.
func guide(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "integration", "testdata", "guide", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPolicyOfTheGuide(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, someone := w.Admin("acme"), w.User("acme", "someone")
	w.call(admin, "POST", "/api/v1/apply", guide(t, "15-appproject.yaml")).ok(200)
	applied := w.call(admin, "POST", "/api/v1/apply", guide(t, "16-argocd-rbac-cm.yaml")).ok(200)
	t.Run("RBAC-02 guide/16 is stored, is in use and comes back", func(t *testing.T) {
		if body := string(applied.body); strings.Contains(body, "not used yet") || !strings.Contains(body, `"failed":0`) {
			t.Errorf("the answer is %s", body)
		}
		var all struct {
			Items []struct {
				Map, Key, Value string
				Used            bool
			}
		}
		w.call(admin, http.MethodGet, settingsPath, nil).ok(200).into(&all)
		got := map[string]string{}
		for _, s := range all.Items {
			if s.Map == "argocd-rbac-cm" && s.Used {
				got[s.Key] = s.Value
			}
		}
		if got["policy.default"] != "role:readonly" || got["scopes"] != "[groups, email]" || !strings.Contains(got["policy.csv"], "g, my-org:sre-team, role:sre") {
			t.Errorf("the settings are %v", got)
		}
	})
	t.Run("RBAC-03 RBAC-04 RBAC-15 each line of guide/16 has its effect", func(t *testing.T) {
		for _, c := range []struct {
			group, action, resource, object string
			want                            bool
		}{
			{"my-org:platform-team", "delete", "applications", "shop/web", true},
			{"my-org:platform-team", "action/apps/Deployment/restart", "applications", "shop/web", true},
			{"my-org:platform-team", "create", "clusters", "https://prod.example.com", true},
			{"my-org:platform-team", "update", "repositories", "https://git.example.com/a", true},
			{"my-org:platform-team", "delete", "projects", "shop", true},
			{"my-org:platform-team", "create", "exec", "shop/web", false},
			{"my-org:platform-team", "create", "accounts", "ann", false},
			{"my-org:developers", "get", "applications", "shop/web", true},
			{"my-org:developers", "sync", "applications", "shop/web", true},
			{"my-org:developers", "delete", "applications", "shop/web", false},
			{"my-org:developers", "get", "logs", "shop/web", true},
			{"my-org:developers", "create", "exec", "shop/web", false},
			{"my-org:sre-team", "delete", "applications", "shop/web", true},
			{"my-org:sre-team", "create", "exec", "shop/web", true},
			{"my-org:sre-team", "create", "clusters", "https://prod.example.com", false},
			{"my-org:others", "get", "applications", "shop/web", true}, // policy.default
			{"my-org:others", "sync", "applications", "shop/web", false},
		} {
			if d := w.why(admin, c.action, c.resource, c.object, "dan", c.group); d.Allowed != c.want {
				t.Errorf("%s: %s %s %s: %+v", c.group, c.action, c.resource, c.object, d)
			}
		}
	})
	t.Run("RBAC-14 PROJ-12 guide/15: the role developer gets and syncs in its project", func(t *testing.T) {
		for _, c := range []struct {
			action, resource, object string
			want                     bool
		}{
			{"sync", "applications", "team-backend/web", true}, {"sync", "applications", "team-front/web", false},
			{"delete", "applications", "team-backend/web", false}, {"get", "projects", "team-backend", true},
		} {
			if d := w.why(admin, c.action, c.resource, c.object, "dan", "my-org:backend-developers"); d.Allowed != c.want {
				t.Errorf("%s %s %s: %+v", c.action, c.resource, c.object, d)
			}
		}
		d := w.why(admin, "sync", "applications", "team-backend/web", "my-org:backend-developers")
		if d.Source != "project team-backend, role developer" || d.Line != 2 {
			t.Errorf("the rule is of %s, line %d", d.Source, d.Line)
		}
	})
	t.Run("RBAC-12 RBAC-13 everybody has the default role", func(t *testing.T) {
		w.call(someone, http.MethodGet, "/api/v1/applications", nil).ok(200)
		if d := w.why(someone, "get", "applications", "shop/web"); !d.Allowed || d.Layer != "default" || d.Source != "built in" {
			t.Errorf("the decision is %+v", d)
		}
		if got := w.call(someone, http.MethodPost, "/api/v1/applications", application("web")).status; got != http.StatusForbidden {
			t.Errorf("somebody with the default role creates an application: %d", got)
		}
	})
}

func TestPolicyKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, ann := w.Admin("acme"), w.User("acme", "ann")
	t.Run("RBAC-02 overlays are added to policy.csv", func(t *testing.T) {
		w.setPolicy(admin, map[string]any{
			"policy.csv":      "p, role:dev, applications, get, shop/*, allow\n",
			"policy.team.csv": "# the members\n\ng, ann, role:dev\np, role:dev, applications, get, shop/secret, deny\n",
		}).ok(200)
		if got := w.canI(ann, "get", "applications", "shop/web"); got != "yes" {
			t.Errorf("can-i = %s", got)
		}
		d := w.why(ann, "get", "applications", "shop/secret")
		if d.Allowed || d.Source != "policy.team.csv" || d.Line != 4 || d.Rule != "p, role:dev, applications, get, shop/secret, deny" {
			t.Errorf("the decision is %+v", d)
		}
	})
	t.Run("RBAC-12 no line denies what the default role allows", func(t *testing.T) {
		w.setPolicy(admin, map[string]any{"policy.default": "role:readonly"}).ok(200)
		if d := w.why(ann, "get", "applications", "shop/secret"); !d.Allowed || d.Layer != "default" {
			t.Errorf("the decision is %+v", d)
		}
		w.setPolicy(admin, map[string]any{"policy.default": nil}).ok(200)
	})
	t.Run("RBAC-02 policy.matchMode regex reads patterns as regular expressions", func(t *testing.T) {
		w.setPolicy(admin, map[string]any{"policy.matchMode": "regex", "policy.csv": "p, ann, applications, ^(get|sync)$, \"^shop/w[a-z]{2,3}$\", allow\n", "policy.team.csv": nil}).ok(200)
		for object, want := range map[string]string{"shop/web": "yes", "shop/webshop": "no", "bank/shop/web": "no"} {
			if got := w.canI(ann, "sync", "applications", object); got != want {
				t.Errorf("can-i sync %s = %s", object, got)
			}
		}
		w.setPolicy(admin, map[string]any{"policy.csv": "p, ann, applications, get, shop/(, allow\n"}).status4(400, "policy.csv, line 1", "regular expression")
		w.call(admin, "POST", "/api/v1/apply", "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: shop}\nspec:\n  roles: [{name: dev, groups: [devs], policies: ['p, proj:shop:dev, applications, get, shop/.*, allow']}]\n").ok(200)
		if d := w.why(admin, "get", "applications", "workshop/web", "devs"); d.Allowed {
			t.Errorf("a project's expression reaches into another project: %+v", d)
		}
		if d := w.why(admin, "get", "applications", "shop/web", "devs"); !d.Allowed {
			t.Errorf("a project's expression does not hold in its project: %+v", d)
		}
		w.setPolicy(admin, map[string]any{"policy.matchMode": nil, "policy.csv": nil}).ok(200)
	})
	t.Run("RBAC-06 update and delete leave out single objects, unless inheritance is enabled", func(t *testing.T) {
		w.setPolicy(admin, map[string]any{"policy.csv": "p, ann, applications, update, shop/*, allow\np, ann, applications, delete, shop/*, allow\np, ann, applications, delete/*/Secret/*, shop/*, deny\n" +
			"p, ann, applications, update/apps/Deployment/*, bank/*, allow\n"}).ok(200)
		const pod, secret, deployment = "delete//Pod/shop/web-1", "delete//Secret/shop/key", "update/apps/Deployment/shop/web"
		if w.canI(ann, pod, "applications", "shop/web") != "no" || w.canI(ann, deployment, "applications", "bank/web") != "yes" || w.canI(ann, "update", "applications", "bank/web") != "no" {
			t.Error("a right of an application and one of its objects are not apart")
		}
		w.call(admin, http.MethodPatch, settingsPath, map[string]any{"values": map[string]any{"argocd-cm": map[string]any{"server.rbac.disableApplicationFineGrainedRBACInheritance": "false"}}}).ok(200)
		if w.canI(ann, pod, "applications", "shop/web") != "yes" || w.canI(ann, deployment, "applications", "shop/web") != "yes" || w.canI(ann, secret, "applications", "shop/web") != "no" {
			t.Error("the right to an application does not include its objects, or a denial does not count")
		}
	})
	t.Run("RBAC-05 a cluster is named by its server, and decided under all its names", func(t *testing.T) {
		w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod", "server": "https://prod.example.com"}).ok(201)
		w.setPolicy(admin, map[string]any{"policy.csv": "p, ann, clusters, get, https://prod.example.com, allow\n"}).ok(200)
		w.call(ann, http.MethodGet, "/api/v1/clusters/prod", nil).ok(200)
		if got := w.canI(ann, "get", "clusters", "prod"); got != "yes" {
			t.Errorf("can-i = %s", got)
		}
	})
	t.Run("RBAC-03 RBAC-11 resources of features that are not built are accepted and answered about", func(t *testing.T) {
		for _, r := range []struct{ resource, action string }{
			{"applicationsets", "create"}, {"write-repositories", "get"}, {"gpgkeys", "create"}, {"logs", "get"}, {"exec", "create"}, {"extensions", "invoke"},
		} {
			w.setPolicy(admin, map[string]any{"policy.csv": fmt.Sprintf("p, ann, %s, %s, shop*, allow\n", r.resource, r.action)}).ok(200)
			if w.canI(ann, r.action, r.resource, "shop") != "yes" || w.canI(ann, r.action, r.resource, "bank") != "no" {
				t.Errorf("%s %s is decided wrongly", r.action, r.resource)
			}
		}
	})
}

// status4 is a refused request whose message contains texts.
func (a answer) status4(status int, texts ...string) {
	a.w.t.Helper()
	if a.status != status {
		a.w.t.Errorf("%s: status %d, want %d: %s", a.what, a.status, status, a.body)
	}
	for _, text := range texts {
		if !strings.Contains(string(a.body), text) {
			a.w.t.Errorf("%s: the answer lacks %q: %s", a.what, text, a.body)
		}
	}
}

func TestPolicyWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, ann := w.Admin("acme"), w.User("acme", "ann", hub.RoleReadOnly)
	t.Run("refused RBAC-02 a policy with an error names the line and changes nothing", func(t *testing.T) {
		w.setPolicy(admin, map[string]any{"policy.csv": "p, ann, applications, get, shop/*, allow\n# x\np, ann, applications, get, shop/*\n"}).
			status4(400, "ConfigMap argocd-rbac-cm, key policy.csv, line 3")
		w.setPolicy(admin, map[string]any{"policy.matchMode": "wild"}).status4(400, "policy.matchMode")
		w.setPolicy(admin, map[string]any{"scopes": "groups"}).status4(400, "scopes")
		w.setPolicy(admin, map[string]any{"policy.csv": "p, *, applications, get, shop/*, allow\n"}).status4(400, "policy.csv, line 1")
		w.call(ann, http.MethodGet, "/api/v1/applications", nil).ok(200)
	})
	t.Run("refused a policy that fails its tests is not saved, and the answer names the test", func(t *testing.T) {
		w.setPolicy(admin, map[string]any{
			"policy.csv":   "p, role:dev, applications, sync, shop/*, allow\ng, devs, role:dev\n",
			"policy.tests": "# expectations\nt, dan;devs, applications, sync, shop/web, allow\nt, devs, applications, delete, shop/web, deny\nt, ann, applications, get, shop/web, allow\n",
		}).ok(200)
		w.setPolicy(admin, map[string]any{"policy.csv": "p, role:dev, applications, *, shop/*, allow\ng, devs, role:dev\n"}).
			status4(400, "policy.tests, line 3", "devs may delete applications shop/web", "policy.csv, line 1")
		if d := w.why(admin, "delete", "applications", "shop/web", "devs"); d.Allowed {
			t.Error("the policy was saved")
		}
		w.setPolicy(admin, map[string]any{"policy.tests": "t, devs, applications, delete\n"}).status4(400, "policy.tests", "line 1")
	})
	t.Run("refused a policy by which its writer loses the right to change it", func(t *testing.T) {
		w.setPolicy(admin, map[string]any{"policy.csv": "p, role:tenant-admin, settings, *, *, deny\n", "policy.tests": nil}).status4(400, "lose the right", "policy.csv, line 1")
		w.setPolicy(admin, map[string]any{"policy.org.csv": "p, *, *, *, *, deny\n", "policy.tests": nil}).status4(400, "lose the right")
	})
	t.Run("RBAC-02 a stored policy that cannot be read allows nothing, says why, and can be repaired", func(t *testing.T) {
		storetest.In(t, w.DB, w.Tenant("acme"), func(ctx context.Context, tx *store.Tenant) error {
			return tx.SetPolicy(ctx, "p, ann, applications, *, *, allow\nnonsense\n")
		})
		w.call(ann, http.MethodGet, "/api/v1/applications", nil).status4(403, "cannot be read", "policy.csv, line 2")
		w.call(admin, http.MethodGet, "/api/v1/applications", nil).status4(403, "cannot be read")
		if d := w.why(ann, "get", "applications", "a/b"); d.Allowed || !strings.Contains(d.Problem, "policy.csv, line 2") {
			t.Errorf("the decision is %+v", d)
		}
		var state struct {
			InForce  bool
			Problems []string
		}
		w.call(admin, http.MethodGet, settingsPath+"/rbac", nil).ok(200).into(&state)
		if state.InForce || len(state.Problems) != 1 {
			t.Errorf("the state is %+v", state)
		}
		w.setPolicy(admin, map[string]any{"policy.csv": "", "policy.tests": nil}).ok(200)
		w.call(ann, http.MethodGet, "/api/v1/applications", nil).ok(200)
	})
	t.Run("a rule about a resource that is none is stored with a warning", func(t *testing.T) {
		if body := string(w.setPolicy(admin, map[string]any{"policy.csv": "p, ann, aplications, get, *, allow\n"}).ok(200).body); !strings.Contains(body, "there is no resource aplications") {
			t.Errorf("the answer is %s", body)
		}
	})
}

func TestOrganisationPolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, ann := w.Admin("acme"), w.User("acme", "ann")
	w.call(admin, "POST", "/api/v1/apply", "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: prod}\nspec:\n  roles: [{name: dev, groups: [ann], policies: ['p, proj:prod:dev, applications, delete, prod/*, allow']}]\n").ok(200)
	w.setPolicy(admin, map[string]any{
		"policy.default": "role:readonly",
		"policy.csv":     "p, ann, applications, sync, */*, allow\n",
		"policy.org.csv": "p, *, applications, delete, prod/*, deny\np, role:outside, applications, *, */secret, deny\ng, ann, role:outside\n",
	}).ok(200)
	t.Run("SEC-D15 a denial of the organisation wins over the default role, projects and admins, and is named", func(t *testing.T) {
		for _, c := range []struct{ who, action, object, want string }{
			{ann, "delete", "prod/web", "no"}, {admin, "delete", "prod/web", "no"}, {admin, "delete", "shop/web", "yes"},
			{ann, "get", "shop/secret", "no"}, {ann, "sync", "shop/secret", "no"}, {ann, "sync", "shop/web", "yes"}, {ann, "get", "shop/web", "yes"},
		} {
			if got := w.canI(c.who, c.action, "applications", c.object); got != c.want {
				t.Errorf("%s %s: %s, want %s", c.action, c.object, got, c.want)
			}
		}
		if d := w.why(ann, "delete", "applications", "prod/web"); d.Layer != "organisation" || d.Source != "policy.org.csv" || d.Line != 1 || d.Rule != "p, *, applications, delete, prod/*, deny" {
			t.Errorf("the decision is %+v", d)
		}
	})
	t.Run("SEC-D15 who may write the policy need not be able to write that of the organisation", func(t *testing.T) {
		keeper := w.User("acme", "keeper")
		w.setPolicy(admin, map[string]any{"policy.csv": "p, keeper, settings, *, argocd-rbac-cm/*, allow\n"}).ok(200)
		w.setPolicy(admin, map[string]any{"policy.org.csv": "p, keeper, settings, update, argocd-rbac-cm/policy.org.csv, deny\np, *, applications, delete, prod/*, deny\n"}).ok(200)
		w.setPolicy(keeper, map[string]any{"policy.csv": "p, keeper, settings, *, argocd-rbac-cm/*, allow\np, keeper, applications, *, *, allow\n"}).ok(200)
		w.setPolicy(keeper, map[string]any{"policy.org.csv": nil}).status4(403)
		if w.canI(keeper, "delete", "applications", "prod/web") != "no" || w.canI(keeper, "delete", "applications", "shop/web") != "yes" {
			t.Error("a tenant's policy allows what the organisation denies")
		}
	})
}

func TestRightsOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, ann := w.Admin("acme"), w.User("acme", "ann", hub.RoleReadOnly)
	t.Run("RBAC-18 who may read the policy asks about others, and others do not", func(t *testing.T) {
		if d := w.why(admin, "sync", "applications", "shop/web", "ann"); d.Allowed || d.Layer != "none" {
			t.Errorf("the decision is %+v", d)
		}
		if d := w.why(admin, "get", "applications", "shop/web", "ann"); !d.Allowed {
			t.Errorf("the roles of the account do not count: %+v", d)
		}
		body := map[string]any{"subject": map[string]any{"user": "admin"}, "questions": []any{map[string]any{"resource": "applications", "action": "get", "object": "a/b"}}}
		w.call(ann, http.MethodPost, "/api/v1/account/can-i", body).status4(403)
	})
	t.Run("RBAC-18 a preview says who gains and who loses what, and changes nothing", func(t *testing.T) {
		w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
		for _, name := range []string{"one", "two"} {
			w.call(admin, "POST", "/api/v1/applications", application(name)).ok(201)
		}
		w.setPolicy(admin, map[string]any{"policy.csv": "p, devs, applications, sync, default/*, allow\n"}).ok(200)
		var preview struct {
			State   struct{ InForce bool }
			Effects []struct {
				Subject, Resource, Action string
				Gained, Lost              []string
				GainedCount, LostCount    int
			}
		}
		w.call(admin, http.MethodPost, settingsPath+"/rbac/preview", map[string]any{"values": map[string]any{
			"policy.csv": "p, devs, applications, sync, default/one, allow\np, ops, applications, delete, default/*, allow\n",
		}}).ok(200).into(&preview)
		got := map[string]string{}
		for _, e := range preview.Effects {
			got[e.Subject+" "+e.Action+" "+e.Resource] = fmt.Sprint(e.Gained, e.GainedCount, e.Lost, e.LostCount)
		}
		want := map[string]string{
			"devs sync applications": "[] 0 [default/two] 1", "devs rollback applications": "[] 0 [default/two] 1",
			"ops delete applications": "[default/one default/two] 2 [] 0",
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || !preview.State.InForce {
			t.Errorf("the effects are %v, want %v", got, want)
		}
		if d := w.why(admin, "sync", "applications", "default/two", "devs"); !d.Allowed {
			t.Error("the preview has changed the policy")
		}
		w.call(ann, http.MethodPost, settingsPath+"/rbac/preview", map[string]any{"values": map[string]any{}}).status4(403)
	})
}
