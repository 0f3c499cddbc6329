package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub/api"
	"github.com/capstan-cd/capstan/hub/api/ratelimit"
)

// Pictures of the status of applications, which everybody may see where a
// tenant permits that.
func TestBadges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.Rates.Caller = ratelimit.Rate{PerSecond: 0.001, Burst: 60} })
	admin := w.Admin("acme")
	w.Admin("bolt")
	for _, name := range []string{"web", "api"} {
		w.call(admin, http.MethodPost, appsPath, application(name)).ok(201)
	}
	badge := func(query string) string {
		t.Helper()
		a := w.call("", http.MethodGet, "/api/badge?"+query, nil).ok(200)
		if kind := a.header.Get("Content-Type"); kind != "image/svg+xml" {
			t.Errorf("the picture is %q", kind)
		}
		if cache := a.header.Get("Cache-Control"); cache != "private, no-store" {
			t.Errorf("the picture is stored: %q", cache)
		}
		return string(a.body)
	}
	unknown := badge("tenant=nowhere&name=web&showAppName=true&revision=true")
	t.Run("UI-24 they are off by default", func(t *testing.T) {
		if got := badge("tenant=acme&name=web&showAppName=true"); got != unknown {
			t.Errorf("%s, want %s", got, unknown)
		}
	})
	w.call(admin, http.MethodPatch, settingsPath, map[string]any{"values": map[string]any{"argocd-cm": map[string]any{"statusbadge.enabled": "true"}}}).ok(200)
	t.Run("UI-24 with the setting an application has one, with its name if asked for", func(t *testing.T) {
		if got := badge("tenant=acme&name=web&showAppName=true"); !strings.Contains(got, ">web<") {
			t.Error(got)
		}
		if got := badge("tenant=acme&name=web"); strings.Contains(got, ">web<") {
			t.Error(got)
		}
		if got := badge("tenant=acme&name=web&namespace=argocd&project=default&showAppName=true&width=300"); !strings.Contains(got, ">web<") || !strings.Contains(got, `width="300"`) {
			t.Error(got)
		}
		var client struct {
			Features struct{ StatusBadge bool }
		}
		if w.call(admin, http.MethodGet, "/api/v1/settings/client", nil).ok(200).into(&client); !client.Features.StatusBadge {
			t.Error("clients are not told")
		}
	})
	t.Run("UI-24 projects have one of their worst states", func(t *testing.T) {
		if got := badge("tenant=acme&project=default"); !strings.Contains(got, "Unknown") {
			t.Error(got)
		}
	})
	t.Run("UI-24 ISO-5 what is not there, not permitted or of another tenant looks alike", func(t *testing.T) {
		for _, query := range []string{
			"tenant=acme&name=nothing", "tenant=acme&name=web&project=other", "tenant=acme&name=web&namespace=elsewhere", "tenant=acme&project=nothing", "tenant=acme",
			"tenant=bolt&name=web", "tenant=bolt", "name=web", "tenant=nowhere&name=web",
		} {
			if got := badge(query + "&showAppName=true&revision=true&keepFullRevision=true"); got != unknown {
				t.Errorf("%s: %s, want %s", query, got, unknown)
			}
		}
	})
	t.Run("UI-24 a wrong width is refused", func(t *testing.T) {
		w.call("", http.MethodGet, "/api/badge?tenant=acme&name=web&width=100000", nil).fails(400)
	})
	t.Run("UI-24 SEC-E3 strangers share one rate, and take nothing from people", func(t *testing.T) {
		limited := false
		for end := time.Now().Add(time.Minute); !limited && time.Now().Before(end); {
			limited = w.call("", http.MethodGet, "/api/badge?tenant=acme&name=web", nil).status == http.StatusTooManyRequests
		}
		if !limited {
			t.Error("there is no limit")
		}
		w.call(admin, http.MethodGet, appsPath+"/argocd/web", nil).ok(200)
	})
}
