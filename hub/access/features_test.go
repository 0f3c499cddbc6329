package access

import (
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/rbac"
)

// What policies say about parts of applications, logs, terminals and
// extensions, as Argo CD decides it.
func TestRightsOfFeatures(t *testing.T) {
	t.Parallel()
	type question struct {
		resource, action, object string
		want                     bool
	}
	const pod, secret, deployment = "/Pod/shop/web-1", "/Secret/shop/key", "/apps/Deployment/shop/web"
	for name, c := range map[string]struct {
		policy Policy
		asks   []question
	}{
		"RBAC-06 update of single objects names their kinds and places, and includes no update of the application": {
			Policy{Values: csv("p, ann, applications, update/apps/Deployment/shop/*, shop/*, allow\np, ann, applications, update/*/ConfigMap/*, shop/web, allow\n")},
			[]question{
				{Applications, "update" + deployment, "shop/web", true}, {Applications, "update/apps/Deployment/other/web", "shop/web", false}, {Applications, "update" + deployment, "bank/web", false},
				{Applications, "update//ConfigMap/any/where", "shop/web", true}, {Applications, "update//ConfigMap/any/where", "shop/api", false},
				{Applications, Update, "shop/web", false}, {Applications, "delete" + deployment, "shop/web", false},
			},
		},
		"RBAC-06 update and delete of an application include no update and delete of its objects": {
			Policy{Values: csv("p, ann, applications, update, shop/*, allow\np, ann, applications, delete, shop/*, allow\n")},
			[]question{{Applications, Update, "shop/web", true}, {Applications, "update/" + deployment, "shop/web", false}, {Applications, "delete/" + pod, "shop/web", false}},
		},
		"RBAC-06 with inheritance they do, except for what is denied": {
			Policy{Inherits: true, Values: csv("p, ann, applications, update, shop/*, allow\np, ann, applications, delete, shop/*, allow\np, ann, applications, update/*/Secret/*, shop/*, deny\n")},
			[]question{{Applications, "update" + deployment, "shop/web", true}, {Applications, "delete/" + pod, "shop/web", true}, {Applications, "update/" + secret, "shop/web", false}, {Applications, "delete/" + secret, "shop/web", true}},
		},
		"RBAC-06 a denial for the application denies its objects only with inheritance": {
			Policy{Values: csv("p, ann, applications, update, shop/*, deny\np, ann, applications, update/*, shop/*, allow\n")},
			[]question{{Applications, Update, "shop/web", false}, {Applications, "update" + deployment, "shop/web", true}},
		},
		"RBAC-07 an action is named by group, kind and name": {
			Policy{Values: csv("p, ann, applications, action/apps/Deployment/restart, shop/*, allow\np, ann, applications, action//Pod/*, shop/*, allow\np, ann, applications, action/argoproj.io/*, shop/*, allow\n" +
				"p, ann, applications, action/argoproj.io/Rollout/abort, shop/prod, deny\n")},
			[]question{
				{Applications, "action/apps/Deployment/restart", "shop/web", true}, {Applications, "action/apps/Deployment/scale", "shop/web", false}, {Applications, "action/apps/StatefulSet/restart", "shop/web", false},
				{Applications, "action/apps/Deployment/restart", "bank/web", false}, {Applications, "action//Pod/evict", "shop/web", true}, {Applications, "action/argoproj.io/Rollout/abort", "shop/web", true},
				{Applications, "action/argoproj.io/Rollout/abort", "shop/prod", false}, {Applications, "action/argoproj.io/Rollout/resume", "shop/prod", true}, {Applications, Get, "shop/web", false},
			},
		},
		"RBAC-07 action/* and * allow every action, sync and update none": {
			Policy{Values: csv("p, ann, applications, action/*, shop/*, allow\np, ann, applications, *, bank/*, allow\np, ann, applications, sync, mine/*, allow\np, ann, applications, update, mine/*, allow\n")},
			[]question{
				{Applications, "action/apps/Deployment/restart", "shop/web", true}, {Applications, "action/apps/Deployment/restart", "bank/web", true}, {Applications, "action/apps/Deployment/restart", "mine/web", false},
			},
		},
		"RBAC-07 as a regular expression": {
			Policy{Values: map[string]string{rbac.MatchModeKey: "regex", rbac.PolicyKey: "p, ann, applications, ^action/apps/[^/]+/restart$, ^shop/.*$, allow\n"}},
			[]question{{Applications, "action/apps/Deployment/restart", "shop/web", true}, {Applications, "action/apps/Deployment/scale", "shop/web", false}, {Applications, "action/apps/Deployment/restart", "bank/web", false}},
		},
		"RBAC-08 logs need the right logs, which the right to the application is not": {
			Policy{Values: csv("p, ann, applications, *, shop/*, allow\np, ann, logs, get, bank/*, allow\np, ann, logs, get, bank/vault, deny\n")},
			[]question{{Logs, Get, "shop/web", false}, {Logs, Get, "bank/web", true}, {Logs, Get, "bank/team/web", true}, {Logs, Get, "bank/vault", false}},
		},
		"RBAC-09 a terminal needs the right exec": {
			Policy{Values: csv("p, ann, applications, *, shop/*, allow\np, ann, exec, create, bank/*, allow\np, ann, exec, get, mine/*, allow\n")},
			[]question{{Exec, Create, "shop/web", false}, {Exec, Create, "bank/web", true}, {Exec, Create, "mine/web", false}, {Applications, Get, "bank/web", false}},
		},
		"RBAC-11 an extension is named by its name": {
			Policy{Values: csv("p, ann, extensions, invoke, httpbin, allow\np, ann, extensions, invoke, team-*, allow\n")},
			[]question{{Extensions, "invoke", "httpbin", true}, {Extensions, "invoke", "team-metrics", true}, {Extensions, "invoke", "metrics", false}, {Extensions, Get, "httpbin", false}},
		},
		"RBAC-08 RBAC-09 RBAC-11 roles of projects have logs and terminals of their project, and no extensions": {
			Policy{Projects: []hub.Project{project(t, "shop", hub.ProjectSpec{Roles: []hub.ProjectRole{{Name: "dev", Groups: []string{"ann"}, Policies: []string{
				"p, proj:shop:dev, logs, get, shop/*, allow", "p, proj:shop:dev, exec, create, shop/*, allow",
			}}}})}},
			[]question{{Logs, Get, "shop/web", true}, {Exec, Create, "shop/web", true}, {Logs, Get, "bank/web", false}, {Exec, Create, "bank/web", false}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ix := index(t, c.policy, Subject{User: "ann"})
			for _, q := range c.asks {
				if got := ix.Check(q.resource, q.action, q.object); got != q.want {
					t.Errorf("Check(%s, %s, %s) = %v, want %v", q.resource, q.action, q.object, got, q.want)
				}
			}
		})
	}
	t.Run("RBAC-08 RBAC-09 RBAC-11 of the built-in roles, readonly reads logs, and admin has all three", func(t *testing.T) {
		t.Parallel()
		for role, want := range map[string][3]bool{"readonly": {true, false, false}, "admin": {true, true, true}, "tenant-admin": {true, true, true}, "platform-admin": {}} {
			ix := index(t, Policy{}, Subject{User: "ann", Roles: []string{role}})
			if got := [3]bool{ix.Check(Logs, Get, "shop/web"), ix.Check(Exec, Create, "shop/web"), ix.Check(Extensions, "invoke", "x")}; got != want {
				t.Errorf("%s: %v, want %v", role, got, want)
			}
		}
	})
}
