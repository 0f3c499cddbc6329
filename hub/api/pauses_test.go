package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

const pausesPath = "/api/v1/pauses"

// Pauses of the automation of a tenant or of a cluster.
func TestPauses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, stranger := w.Admin("acme"), w.Admin("bolt")
	reader, nobody := w.User("acme", "reader", hub.RoleReadOnly), w.User("acme", "nobody")
	w.call(admin, http.MethodPost, "/api/v1/clusters/enroll", map[string]any{"name": "prod", "server": "https://kubernetes.default.svc"}).ok(201)
	w.call(admin, http.MethodPost, appsPath, application("web")).ok(201)
	type pause struct{ Cluster, Reason, By string }
	list := func(secret string) []pause {
		t.Helper()
		var out struct{ Items []pause }
		w.call(secret, http.MethodGet, pausesPath, nil).ok(200).into(&out)
		return out.Items
	}
	automated := func() (allowed bool, reason string) {
		t.Helper()
		var out struct {
			CanSync   bool
			Automated struct {
				Allowed bool
				Reason  string
			}
		}
		w.call(admin, http.MethodGet, appsPath+"/argocd/web/syncwindows", nil).ok(200).into(&out)
		if !out.CanSync {
			t.Error("people may not sync")
		}
		return out.Automated.Allowed, out.Automated.Reason
	}
	order := func(cluster, length string) map[string]any {
		out := map[string]any{"reason": "checkout is down", "for": length}
		if cluster != "" {
			out["cluster"] = cluster
		}
		return out
	}
	t.Run("UX-OP-9 the automation of a cluster is paused with a reason and an end", func(t *testing.T) {
		w.call(admin, http.MethodPost, pausesPath, order("prod", "2h")).ok(201)
		if allowed, reason := automated(); allowed || !strings.Contains(reason, "checkout is down") {
			t.Errorf("automation is allowed: %v; the reason is %q", allowed, reason)
		}
		if got := list(admin); !slices.Equal(got, []pause{{"prod", "checkout is down", "admin"}}) {
			t.Errorf("%+v", got)
		}
	})
	t.Run("UX-OP-9 whom it concerns sees it, and nobody else", func(t *testing.T) {
		if len(list(reader)) != 1 || len(list(nobody)) != 0 || len(list(stranger)) != 0 {
			t.Errorf("reader %v, nobody %v, stranger %v", list(reader), list(nobody), list(stranger))
		}
	})
	t.Run("UX-OP-9 it needs rights, and one of the tenant that to its settings, too", func(t *testing.T) {
		w.call(reader, http.MethodPost, pausesPath, order("prod", "1h")).fails(403)
		w.call(reader, http.MethodPost, pausesPath, order("", "1h")).fails(403)
		w.call(nobody, http.MethodPost, pausesPath, order("prod", "1h")).fails(404)
		w.call(stranger, http.MethodPost, pausesPath, order("prod", "1h")).fails(404)
	})
	t.Run("UX-OP-9 without reason, or for no good time, it is refused", func(t *testing.T) {
		for _, length := range []string{"1s", "31d", "soon", "-1h"} {
			w.call(admin, http.MethodPost, pausesPath, order("prod", length)).fails(400)
		}
		w.call(admin, http.MethodPost, pausesPath, map[string]any{"reason": "  ", "for": "1h"}).fails(400)
	})
	t.Run("UX-OP-9 FT-C1 it ends by the clock of the hub, in its list and in what it stops", func(t *testing.T) {
		w.Ahead.Store(int64(3 * time.Hour))
		defer w.Ahead.Store(0)
		if got := list(admin); len(got) != 0 {
			t.Errorf("after its end there is %+v", got)
		}
		if allowed, reason := automated(); !allowed {
			t.Errorf("after its end it stops automation: %s", reason)
		}
	})
	t.Run("UX-OP-9 one of the tenant is seen by everybody in it", func(t *testing.T) {
		w.call(admin, http.MethodPost, pausesPath, order("", "30m")).ok(201)
		if len(list(nobody)) != 1 || len(list(admin)) != 2 || len(list(stranger)) != 0 {
			t.Errorf("nobody %v, admin %v", list(nobody), list(admin))
		}
	})
	t.Run("UX-OP-9 a resumed one ends at once, with records of both", func(t *testing.T) {
		w.call(admin, http.MethodDelete, pausesPath, nil).ok(204)
		w.call(admin, http.MethodDelete, pausesPath+"?cluster=prod", nil).ok(204)
		w.call(admin, http.MethodDelete, pausesPath+"?cluster=prod", nil).ok(204)
		if allowed, reason := automated(); !allowed {
			t.Error(reason)
		}
		var audit struct {
			Items []struct{ Action, Object, Reason, Actor string }
		}
		w.call(admin, http.MethodGet, "/api/v1/audit?resource=clusters&object=prod", nil).ok(200).into(&audit)
		var did []string
		for _, r := range audit.Items {
			did = append(did, r.Action)
		}
		if !slices.Contains(did, "pause") || !slices.Contains(did, "resume") {
			t.Errorf("%+v", audit.Items)
		}
	})
}

// Who may do something, as the policy decides.
func TestWhoCan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.User("acme", "reader", hub.RoleReadOnly)
	for _, name := range []string{"web", "api"} {
		w.call(admin, http.MethodPost, appsPath, application(name)).ok(201)
	}
	w.setPolicy(admin, map[string]any{"policy.csv": "p, role:ops, applications, delete, default/web, allow\ng, on-call, role:ops\n"}).ok(200)
	type item struct {
		Subject, Kind, Rule, Source string
		Count, Line                 int
	}
	ask := func(action, object string) (items map[string]item, objects int) {
		t.Helper()
		var out struct {
			Items   []item
			Objects int
		}
		w.call(admin, http.MethodPost, "/api/v1/account/who-can", map[string]any{"resource": "applications", "action": action, "object": object}).ok(200).into(&out)
		items = map[string]item{}
		for _, i := range out.Items {
			items[i.Subject] = i
		}
		return items, out.Objects
	}
	t.Run("UX-ACC-2 everybody who may is named with the rule and its place, and nobody else", func(t *testing.T) {
		got, objects := ask("delete", "default/*")
		if objects != 2 || got["admin"].Count != 2 || got["admin"].Kind != "account" {
			t.Errorf("%d objects, %+v", objects, got)
		}
		if g := got["on-call"]; g.Count != 1 || g.Kind != "user or group" || g.Source != "policy.csv" || g.Line != 1 || !strings.Contains(g.Rule, "default/web") {
			t.Errorf("%+v", g)
		}
		if _, is := got["reader"]; is {
			t.Error("the reader may not")
		}
	})
	t.Run("UX-ACC-2 a project stands for its applications, and nothing is found in another one", func(t *testing.T) {
		if _, objects := ask("delete", "default"); objects != 2 {
			t.Errorf("%d objects", objects)
		}
		if got, objects := ask("delete", "elsewhere/*"); objects != 0 || got["admin"].Count != 1 {
			t.Errorf("%d objects, %+v", objects, got)
		}
	})
	t.Run("UX-ACC-2 a right of everybody is said once", func(t *testing.T) {
		w.setPolicy(admin, map[string]any{"policy.default": "role:readonly"}).ok(200)
		got, _ := ask("get", "default/*")
		if len(got) != 1 || got[""].Kind != "everybody" || got[""].Count != 2 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("UX-ACC-2 who may not read the policy may not ask", func(t *testing.T) {
		w.call(w.User("acme", "nobody"), http.MethodPost, "/api/v1/account/who-can", map[string]any{"resource": "applications", "action": "get", "object": "*"}).fails(403)
	})
}
