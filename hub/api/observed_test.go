package api_test

import (
	"strings"
	"testing"
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
}
