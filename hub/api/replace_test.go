package api_test

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
)

func TestReplaceIsForbidden(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, other := w.Admin("acme"), w.Admin("bolt")
	for _, secret := range []string{admin, other} {
		w.call(secret, "POST", "/api/v1/applications", application("web")).ok(201)
		w.call(secret, "POST", "/api/v1/applications", application("always", func(s map[string]any) {
			s["syncPolicy"] = map[string]any{"syncOptions": []any{"Replace=true"}}
		})).ok(201)
	}
	forbid := func(value any) {
		t.Helper()
		w.call(admin, "PATCH", "/api/v1/settings", map[string]any{"values": map[string]any{hub.ParamsMap: map[string]any{"server.sync.replace.allowed": value}}}).ok(200)
	}
	marked := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {argocd.argoproj.io/sync-options: 'Prune=false,Replace=true'}}\n"
	requests := map[string]struct {
		app, says string
		body      map[string]any
	}{
		"option":    {"web", "with Replace", map[string]any{"syncOptions": []any{"Replace=true"}}},
		"force":     {"web", "with Force", map[string]any{"force": true}},
		"strategy":  {"web", "with Force", map[string]any{"strategy": map[string]any{"apply": map[string]any{"force": true}}}},
		"own":       {"always", "with Replace", map[string]any{}},
		"manifests": {"web", "with Replace on ConfigMap a", map[string]any{"manifests": []any{marked}}},
	}
	t.Run("SYNC-08 it is permitted if the setting is absent, or true", func(t *testing.T) {
		for _, value := range []any{nil, "true"} {
			forbid(value)
			for name, r := range requests {
				// It goes on to the next question: nothing was rendered yet.
				if p := w.call(admin, "POST", "/api/v1/applications/argocd/"+r.app+"/sync", r.body).fails(409); strings.Contains(p.Message, "settings") {
					t.Errorf("%s: %q", name, p.Message)
				}
			}
		}
	})
	t.Run("SYNC-08 Replace and Force are refused where the settings forbid them, and a plain sync is not", func(t *testing.T) {
		forbid("false")
		for name, r := range requests {
			p := w.call(admin, "POST", "/api/v1/applications/argocd/"+r.app+"/sync", r.body).fails(403)
			if !strings.Contains(p.Message, "settings forbid") || !strings.Contains(p.Message, r.says) || !strings.Contains(p.Fix, "server.sync.replace.allowed") {
				t.Errorf("%s: %+v", name, p)
			}
		}
		w.call(admin, "POST", "/api/v1/applications/argocd/web/sync", map[string]any{"syncOptions": []any{"Replace=false"}}).fails(409)
		w.call(admin, "POST", "/api/v1/applications/argocd/always/sync", map[string]any{"syncOptions": []any{"Replace=false"}}).fails(409)
	})
	t.Run("SYNC-08 INV-7 the settings of one tenant forbid nothing to another", func(t *testing.T) {
		w.call(other, "POST", "/api/v1/applications/argocd/web/sync", map[string]any{"force": true}).fails(409)
	})
	t.Run("SYNC-08 a value that is neither true nor false is refused", func(t *testing.T) {
		w.call(admin, "PATCH", "/api/v1/settings", map[string]any{"values": map[string]any{hub.ParamsMap: map[string]any{"server.sync.replace.allowed": "never"}}}).fails(400)
	})
}
