package link_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/agent/doctor"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// examine runs the doctor's way to the hub and gives what it wrote.
func examine(t *testing.T, h doctor.Hub) (text string, failed int) {
	t.Helper()
	var out bytes.Buffer
	r := doctor.NewReport(&out)
	h.Log = (&logs{}).logger()
	h.Check(t.Context(), r)
	return out.String(), r.Failed()
}

func TestDoctor(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	other := newWorld(t).start()
	company := newAuthority(t)
	pin, err := r.authority.Pin()
	if err != nil {
		t.Fatal(err)
	}
	cert, v, _ := w.credential(r, tenant())
	enrolled := doctor.Hub{
		Addresses: []string{r.addr}, Pins: []tunnel.Pin{pin}, Certificate: cert, AgentID: v.id.AgentID,
		Fingerprint: someFacts().Fingerprint, Version: "test",
	}
	token, _, _ := w.token(r, r.addr, tenant())
	parsed, err := tunnel.ParseJoinToken(token)
	if err != nil {
		t.Fatal(err)
	}
	fresh := doctor.Hub{Addresses: parsed.Addresses, Pins: []tunnel.Pin{parsed.Pin}, Token: parsed.Secret, Fingerprint: "f", Version: "test"}
	used, _, _ := w.token(r, r.addr, tenant())
	if _, err := w.enrol(used); err != nil {
		t.Fatal(err)
	}
	spent, err := tunnel.ParseJoinToken(used)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		hub    func(h *doctor.Hub)
		before bool // enrolment
		failed int
		lines  []string
	}{
		"all is well":      {lines: []string{"ok    name", "ok    connection", "ok    carrier", "ok    link TLS", `ok    hub`, `cluster "demo"`}},
		"before enrolment": {before: true, lines: []string{"ok    link TLS", `ok    join token      good for cluster "demo"`}},
		"a token that was used": {
			before: true, failed: 1, hub: func(h *doctor.Hub) { h.Token = spent.Secret },
			lines: []string{"FAIL  join token", "used before", "create a new one"},
		},
		"behind a load balancer": {
			hub:   func(h *doctor.Hub) { h.Addresses = []string{balancer(t, company, forward(t, "https://"+r.addr)).addr} },
			lines: []string{"ok    outer TLS", "Test company", "ok    carrier         WebSocket", "ok    hub"},
		},
		"a box that cuts the first handshake": {
			hub:   func(h *doctor.Hub) { h.Addresses = []string{picky(t, r.addr).addr} },
			lines: []string{"warn  outer TLS", "another carrier is tried", "ok    carrier         WebSocket", "ok    hub"},
		},
		"no such name": {
			hub: func(h *doctor.Hub) { h.Addresses = []string{"hub.invalid:443"} }, failed: 1,
			lines: []string{"FAIL  name", "hub.invalid", "DNS"},
		},
		"a proxy that wants a password": {
			hub: func(h *doctor.Hub) {
				h.Addresses, h.Proxy = []string{hubName + ":443"}, viaProxy(t, "me:s3cret", plainProxy(t, "me:other", r.addr))
			},
			failed: 1, lines: []string{"FAIL  proxy", "407", "HTTPS_PROXY"},
		},
		"a proxy that works": {
			hub: func(h *doctor.Hub) {
				h.Addresses, h.Proxy = []string{hubName + ":443"}, viaProxy(t, "me:s3cret", plainProxy(t, "me:s3cret", r.addr))
			},
			lines: []string{"ok    proxy", "opened the way to hub.test:443", "ok    hub"},
		},
		"an unknown authority in front": {
			hub: func(h *doctor.Hub) {
				h.Addresses, h.Proxy.Roots = []string{balancer(t, company, refuse(200)).addr}, newAuthority(t).pool()
			},
			failed: 2, lines: []string{"FAIL  outer TLS", "outer CA file"},
		},
		"nobody listens": {
			hub:    func(h *doctor.Hub) { h.Addresses = []string{"127.0.0.1:1"} },
			failed: 1, lines: []string{"FAIL  connection", "127.0.0.1:1: it cannot be connected to: connection refused"},
		},
		"no WebSocket": {
			hub:    func(h *doctor.Hub) { h.Addresses = []string{balancer(t, company, refuse(http.StatusForbidden)).addr} },
			failed: 1, lines: []string{"ok    outer TLS", "FAIL  carrier", "403 Forbidden"},
		},
		"another hub": {
			hub: func(h *doctor.Hub) {
				h.Addresses = []string{balancer(t, company, forward(t, "https://"+other.addr)).addr}
			},
			failed: 1, lines: []string{"FAIL  link TLS", "not the hub's"},
		},
		"a clone": {
			hub:    func(h *doctor.Hub) { h.Fingerprint = "another" },
			failed: 1, lines: []string{"FAIL  hub", "another Kubernetes cluster"},
		},
	}
	for name, c := range cases {
		t.Run("FT-L10 "+name, func(t *testing.T) {
			h := enrolled
			if c.before {
				h = fresh
			}
			if c.hub != nil {
				c.hub(&h)
			}
			text, failed := examine(t, h)
			if failed != c.failed {
				t.Errorf("%d checks went wrong, want %d", failed, c.failed)
			}
			for _, line := range c.lines {
				if !strings.Contains(text, line) {
					t.Errorf("no line has %q", line)
				}
			}
			for _, secret := range []string{string(parsed.Secret), string(spent.Secret), "s3cret"} {
				if strings.Contains(text, secret) {
					t.Error("SEC-C3 a secret is printed")
				}
			}
			if t.Failed() {
				t.Log("\n" + text)
			}
		})
	}
	if _, err := w.enrol(token); err != nil {
		t.Errorf("SEC-K2 the doctor used the token: %v", err)
	}
}
