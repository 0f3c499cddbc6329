package api_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/capstan-cd/capstan/hub"
)

func TestQuotasOfTheAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root, admin := w.platform(), w.Admin("acme")
	w.call(root, "PATCH", "/api/v1/tenants/acme/quotas", map[string]any{"quotas": map[string]any{
		"applications": 3, "clusters": 1, "repositories": 1, "users": 2, "tokens": 1,
	}}).ok(200)
	t.Run("UX-ACC-8 an error says what, the limit, the use and whom to ask", func(t *testing.T) {
		w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "one"}).ok(201)
		w.call(admin, "POST", "/api/v1/repositories", map[string]any{"url": "https://git.example.com/a/one"}).ok(200)
		w.call(admin, "POST", "/api/v1/users", map[string]any{"name": "second", "password": password}).ok(201)
		w.call(admin, "POST", "/api/v1/tokens", map[string]any{"name": "one"}).ok(201)
		for quota, c := range map[string]struct {
			path string
			body any
		}{
			"clusters":     {"/api/v1/clusters/enroll", map[string]any{"name": "two"}},
			"repositories": {"/api/v1/repositories", map[string]any{"url": "https://git.example.com/a/two"}},
			"users":        {"/api/v1/users", map[string]any{"name": "third", "password": password}},
			"tokens":       {"/api/v1/tokens", map[string]any{"name": "two"}},
		} {
			p := w.call(admin, "POST", c.path, c.body).fails(403)
			if p.Code != hub.CodeQuota || p.Object != "quota "+quota || !strings.Contains(p.Cause, "may have") || !strings.Contains(p.Fix, "platform admin") || p.Retryable {
				t.Errorf("%s: %+v", quota, p)
			}
		}
		w.call(admin, "POST", "/api/v1/repositories", map[string]any{"url": "https://git.example.com/a/one", "name": "again"}).ok(200)
	})
	t.Run("UX-ACC-8 concurrent requests cannot exceed a quota", func(t *testing.T) {
		var made atomic.Int64
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if a := w.call(admin, "POST", "/api/v1/applications", application(fmt.Sprintf("web-%02d", i))); a.status == 201 {
					made.Add(1)
				} else if a.status != 403 {
					t.Errorf("status %d: %s", a.status, a.body)
				}
			})
		}
		wg.Wait()
		if made.Load() != 3 {
			t.Errorf("%d applications were made", made.Load())
		}
	})
	t.Run("UX-ACC-8 the tenant sees its use and limits, and others do not", func(t *testing.T) {
		var u struct {
			Tenant string
			Items  []struct {
				Quota        string
				Limit, Used  int64
				Own, Reached bool
			}
		}
		w.call(admin, "GET", "/api/v1/usage", nil).ok(200).into(&u)
		if q := u.Items[0]; u.Tenant != "acme" || q.Quota != "applications" || q.Limit != 3 || q.Used != 3 || !q.Own || !q.Reached {
			t.Errorf("the usage is %+v", u)
		}
		w.call(w.Admin("bolt"), "GET", "/api/v1/tenants/acme/usage", nil).fails(403)
		w.call(admin, "PATCH", "/api/v1/tenants/acme/quotas", map[string]any{"quotas": map[string]any{"applications": 100}}).fails(403)
		w.call(w.Admin("bolt"), "POST", "/api/v1/applications", application("web-1")).ok(201)
	})
	t.Run("UX-ACC-8 a quota that does not exist is refused by name", func(t *testing.T) {
		p := w.call(root, "PATCH", "/api/v1/tenants/acme/quotas", map[string]any{"quotas": map[string]any{"apples": 1}}).fails(400)
		if !strings.Contains(p.Message, "apples") {
			t.Errorf("%+v", p)
		}
	})
}
