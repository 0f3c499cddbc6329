package api_test

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
)

func TestSecurityEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Run("SEC-L2 a refused sign-in is logged with level, weakness, address and request id, and without the password", func(t *testing.T) {
		a := w.call("", "POST", "/api/v1/login", map[string]any{"username": "mallory\nlevel=ERROR", "password": "canary-77aa"})
		a.fails(401)
		id := a.header.Get("X-Request-Id")
		line := ""
		for l := range strings.Lines(w.Log.String()) {
			if strings.Contains(l, "request refused") && id != "" && strings.Contains(l, id) {
				line = l
			}
		}
		for _, want := range []string{"security", "cwe", "287", "address", "/api/v1/login", "401"} {
			if !strings.Contains(line, want) {
				t.Errorf("the line %q lacks %s", line, want)
			}
		}
		if strings.Contains(w.Log.String(), "canary-77aa") {
			t.Error("the password is in the log")
		}
	})
	reader := w.User("acme", "reader", hub.RoleReadOnly)
	t.Run("OBS-08 security records carry severity and CWE", func(t *testing.T) {
		login := map[string]any{"tenant": "acme", "username": "victim", "password": "wrong"}
		for range 5 {
			w.call("", "POST", "/api/v1/login", login).fails(401)
		}
		for want, a := range map[string]answer{
			"security=3 cwe=287 method=POST route=/api/v1/login":   w.call("", "POST", "/api/v1/login", map[string]any{"username": "x", "password": "y"}),
			"security=3 cwe=307 method=POST route=/api/v1/login":   w.call("", "POST", "/api/v1/login", login),
			"security=2 cwe=862 method=POST route=/api/v1/users":   w.call(reader, "POST", "/api/v1/users", map[string]any{"name": "eve", "password": password}),
			"security=3 cwe=287 method=POST route=/api/webhook":    w.call("", "POST", "/api/webhook", map[string]any{}),
			"security=3 cwe=287 method=POST route=/api/v1/webhook": w.call("", "POST", "/api/v1/webhook", map[string]any{}),
		} {
			found, id := false, a.header.Get("X-Request-Id")
			for l := range strings.Lines(w.Log.String()) {
				found = found || strings.Contains(l, want) && id != "" && strings.Contains(l, id)
			}
			if !found {
				t.Errorf("no line of status %d has %q", a.status, want)
			}
		}
		if n := strings.Count(w.Log.String(), "security="); n > strings.Count(w.Log.String(), "level=WARN") {
			t.Errorf("%d security records, not all of them warnings", n)
		}
	})
}
