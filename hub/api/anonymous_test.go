package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub/api"
	"github.com/capstan-cd/capstan/hub/api/ratelimit"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
)

const appsPath = "/api/v1/applications"

// What requests without a sign-in may read where a tenant permits that.
func TestAnonymousAccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.Admin("bolt")
	w.call(admin, http.MethodPost, "/api/v1/applications", application("web")).ok(201)
	in := func(tenant string) option { return header("X-Capstan-Tenant", tenant) }
	allow := func(on string) {
		t.Helper()
		w.call(admin, http.MethodPatch, settingsPath, map[string]any{"values": map[string]any{"argocd-cm": map[string]any{"users.anonymous.enabled": on}}}).ok(200)
	}
	// until waits: a decision of the tenant is used for a second.
	until := func(t *testing.T, status int) {
		t.Helper()
		if err := poll.Until(t.Context(), func(context.Context) error {
			if got := w.call("", http.MethodGet, appsPath, nil, in("acme")).status; got != status {
				return fmt.Errorf("the answer is %d, want %d", got, status)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(t *testing.T, tenant string) string {
		t.Helper()
		p := w.call("", http.MethodGet, appsPath, nil, in(tenant)).fails(401)
		p.RequestID = ""
		return fmt.Sprintf("%+v", p)
	}
	t.Run("RBAC-17 without the setting every request needs a sign-in", func(t *testing.T) {
		refused(t, "acme")
		w.call("", http.MethodGet, appsPath, nil).fails(401)
	})
	w.setPolicy(admin, map[string]any{"policy.default": "role:viewer", "policy.csv": "p, role:viewer, applications, *, */*, allow\np, role:viewer, clusters, get, *, allow\n"}).ok(200)
	allow("true")
	t.Run("RBAC-17 with it, what the default role may read can be read without a sign-in", func(t *testing.T) {
		until(t, 200)
		w.call("", http.MethodGet, appsPath+"/argocd/web", nil, in("acme")).ok(200)
		w.call("", http.MethodGet, "/api/v1/clusters", nil, in("acme")).ok(200)
		w.call("", http.MethodGet, "/api/v1/projects", nil, in("acme")).ok(403)
	})
	t.Run("RBAC-17 SEC-D1 nothing is written, and neither people, settings, records nor streams are read, whatever the default role may", func(t *testing.T) {
		w.setPolicy(admin, map[string]any{"policy.default": "role:admin"}).ok(200)
		until(t, 200)
		for _, m := range methods(t) {
			open := map[string]bool{"applications": true, "applicationsets": m.id != "getApplicationSetEvents", "projects": true, "repositories": true, "clusters": true, "certificates": true, "gpgkeys": true}
			if m.resource == "public" || m.verb == http.MethodGet && m.action == "get" && !m.streams() && open[m.resource] {
				continue
			}
			path := concrete(m.path, nil)
			if got := w.call("", m.verb, path, bodies()[m.id], in("acme")); got.status != http.StatusUnauthorized {
				t.Errorf("%s %s answers %d: %s", m.verb, path, got.status, got.body)
			}
		}
		w.call("", http.MethodGet, appsPath+"/argocd/web?refresh=hard", nil, in("acme")).fails(401)
		w.call("", http.MethodGet, "/api/v1/audit", nil, in("acme")).fails(401)
	})
	t.Run("RBAC-17 SEC-G3 a tenant that does not permit it, one that does not exist, and none are answered alike", func(t *testing.T) {
		one := refused(t, "bolt")
		for _, other := range []string{"nowhere", "default", "", strings.Repeat("x", 300), "../acme", "ACME"} {
			if got := refused(t, other); got != one {
				t.Errorf("%q: %s, want %s", other, got, one)
			}
		}
	})
	t.Run("RBAC-17 a wrong secret is no missing one", func(t *testing.T) {
		w.call("cpt_wrong", http.MethodGet, appsPath, nil, in("acme")).fails(401)
	})
	t.Run("RBAC-17 ISO-5 the header changes nothing for somebody who has signed in", func(t *testing.T) {
		w.call(w.Admin("bolt"), http.MethodGet, appsPath+"/argocd/web", nil, in("acme")).fails(404)
	})
	t.Run("RBAC-17 SEC-D15 denials of the organisation for everybody hold", func(t *testing.T) {
		w.setPolicy(admin, map[string]any{"policy.org.csv": "p, *, applications, get, default/web, deny\n"}).ok(200)
		w.call("", http.MethodGet, appsPath+"/argocd/web", nil, in("acme")).fails(404)
		w.setPolicy(admin, map[string]any{"policy.org.csv": nil}).ok(200)
	})
	t.Run("RBAC-17 SEC-D8 it ends with the setting", func(t *testing.T) {
		allow("false")
		until(t, 401)
	})
}

func TestAnonymousRequestsShareARate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.Rates.Caller = ratelimit.Rate{PerSecond: 0.001, Burst: 20} })
	admin := w.Admin("acme")
	w.call(admin, http.MethodPatch, settingsPath, map[string]any{"values": map[string]any{"argocd-cm": map[string]any{"users.anonymous.enabled": "true"}}}).ok(200)
	w.setPolicy(admin, map[string]any{"policy.default": "role:readonly"}).ok(200)
	t.Run("RBAC-17 SEC-I6 strangers together have the rate of one caller, and leave the tenant's people theirs", func(t *testing.T) {
		last := 0
		for deadline := time.Now().Add(time.Minute); last != http.StatusTooManyRequests && time.Now().Before(deadline); {
			last = w.call("", http.MethodGet, appsPath, nil, header("X-Capstan-Tenant", "acme")).status
		}
		if last != http.StatusTooManyRequests {
			t.Errorf("the last answer is %d", last)
		}
		w.call(admin, http.MethodGet, appsPath, nil).ok(200)
	})
}
