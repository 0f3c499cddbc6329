package link_test

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/capstan-cd/capstan/agent/doctor"
	"github.com/capstan-cd/capstan/agent/link"
	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// way is how agents of a test reach the hub.
type way struct {
	addr    string
	proxy   tunnel.ProxyConfig
	carrier string
}

// TestCarriers runs a whole agent over each kind of network: enrolment,
// desired state, reports, calls of the hub, and the bulk lane.
func TestCarriers(t *testing.T) {
	company := newAuthority(t)
	ways := map[string]func(*testing.T, *replica) way{
		"nothing in between": func(_ *testing.T, r *replica) way { return way{r.addr, tunnel.ProxyConfig{}, tunnel.CarrierTLS} },
		"a load balancer that ends TLS and goes on with TLS": func(t *testing.T, r *replica) way {
			return way{balancer(t, company, forward(t, "https://"+r.addr)).addr, tunnel.ProxyConfig{}, tunnel.CarrierWebSocket}
		},
		"a load balancer that ends TLS and goes on without": func(t *testing.T, r *replica) way {
			plain := serveOn(t, nil, r.split.WebSocket())
			return way{balancer(t, company, forward(t, "http://"+plain)).addr, tunnel.ProxyConfig{Roots: company.pool()}, tunnel.CarrierWebSocket}
		},
		"a box that resets handshakes which offer more than HTTP": func(t *testing.T, r *replica) way {
			return way{picky(t, r.addr).addr, tunnel.ProxyConfig{}, tunnel.CarrierWebSocket}
		},
		"a network of small packets": func(t *testing.T, r *replica) way {
			return way{narrow(t, r.addr, 1220).addr, tunnel.ProxyConfig{}, tunnel.CarrierTLS} // MTU 1280
		},
		"a network that delivers single bytes": func(t *testing.T, r *replica) way {
			return way{narrow(t, r.addr, 1, 1, 3, 1220, 2, 536).addr, tunnel.ProxyConfig{}, tunnel.CarrierTLS}
		},
		"a layer 7 load balancer behind a network of small packets": func(t *testing.T, r *replica) way {
			return way{narrow(t, balancer(t, company, forward(t, "https://"+r.addr)).addr, 1220, 1).addr, tunnel.ProxyConfig{Roots: company.pool()}, tunnel.CarrierWebSocket}
		},
		"an HTTP proxy with a password": func(t *testing.T, r *replica) way {
			return way{hubName + ":443", viaProxy(t, "someone:s3cret", plainProxy(t, "someone:s3cret", r.addr)), tunnel.CarrierTLS}
		},
		"an HTTP proxy that looks into TLS, without trust in it": func(t *testing.T, r *replica) way {
			return way{hubName + ":443", viaProxy(t, "", inspector(t, company, r.addr)), tunnel.CarrierWebSocket}
		},
		"an HTTP proxy that looks into TLS, with trust in it": func(t *testing.T, r *replica) way {
			o := viaProxy(t, "", inspector(t, company, r.addr))
			o.Roots = company.pool()
			return way{hubName + ":443", o, tunnel.CarrierWebSocket}
		},
	}
	for name, prepare := range ways {
		t.Run("FT-L10 "+name, func(t *testing.T) {
			w := newWorld(t)
			r := w.start()
			wholeAgent(t, w, r, prepare(t, r))
			if strings.Contains(w.log.String(), "s3cret") {
				t.Error("SEC-C3 the log contains the proxy's password")
			}
		})
	}
}

func TestIPv6(t *testing.T) {
	if ln, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	} else {
		_ = ln.Close()
	}
	w := newWorld(t)
	w.host = "::1"
	r := w.start()
	t.Run("FT-L10 a hub that has nothing but IPv6", func(t *testing.T) {
		wholeAgent(t, w, r, way{r.addr, tunnel.ProxyConfig{}, tunnel.CarrierTLS})
	})
	t.Run("FT-L10 a proxy that has nothing but IPv6 before it", func(t *testing.T) {
		p := plainProxy(t, "", r.addr)
		p.addr = narrowAt(t, "::1", p.addr).addr
		wholeAgent(t, w, r, way{r.addr, viaProxy(t, "", p), tunnel.CarrierTLS})
	})
	t.Run("FT-L10 the doctor", func(t *testing.T) {
		pin, err := r.authority.Pin()
		if err != nil {
			t.Fatal(err)
		}
		cert, v, _ := w.credential(r, tenant())
		text, failed := examine(t, doctor.Hub{
			Addresses: []string{r.addr}, Pins: []tunnel.Pin{pin}, Certificate: cert, AgentID: v.id.AgentID,
			Fingerprint: someFacts().Fingerprint, Version: "test",
		})
		if failed != 0 || !strings.Contains(text, "ok    hub") {
			t.Errorf("%d checks went wrong\n%s", failed, text)
		}
	})
}

func wholeAgent(t *testing.T, w *world, r *replica, by way) {
	t.Helper()
	token, _, cluster := w.token(r, by.addr, tenant())
	v := &vault{}
	if _, err := link.Enroll(t.Context(), token, link.EnrolConfig{Vault: v, Cluster: someFacts(), Log: w.log.logger(), Version: "test", Proxy: by.proxy}); err != nil {
		t.Fatalf("Enroll() = %v", err)
	}
	digests := w.svc.store(200, 6<<10)
	a := w.run(v, func(c *link.Config) { c.Proxy = by.proxy })
	w.svc.row(string(cluster), "shop", strings.Repeat("x", 100<<10))
	w.svc.await(func() bool { return w.svc.receipts[string(cluster)] == 1 })
	a.reports.make(50 << 10)
	a.reports.await(func() bool { return a.reports.acked == 1 })
	if got := a.State().Carrier; got != by.carrier {
		t.Errorf("the session runs over %q, want %q", got, by.carrier)
	}
	cc, ok := r.Conn(cluster)
	if !ok {
		t.Fatal("the hub has no connection to the agent")
	}
	if res, err := linkv1.NewOpsClient(cc).Get(t.Context(), &linkv1.GetRequest{Name: "x"}); err != nil || string(res.GetJson()) != "agent has x" {
		t.Errorf("Get() = %q, %v", res.GetJson(), err)
	}
	var n int
	if missing, err := a.Fetch(t.Context(), digests, func(*linkv1.Blob) error { n++; return nil }); err != nil || len(missing) > 0 || n != len(digests) {
		t.Errorf("Fetch() gave %d of %d, %d missing, %v", n, len(digests), len(missing), err)
	}
	w.svc.mu.Lock()
	defer w.svc.mu.Unlock()
	if got := w.svc.lanes[0]; got != "bulk" {
		t.Errorf("blobs came over the %s lane", got)
	}
}

func TestCarrierErrors(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	company, other := newAuthority(t), newWorld(t).start()
	cert, _, _ := w.credential(r, tenant())
	proxied := func(o tunnel.ProxyConfig) func(*tunnel.DialConfig) { return func(c *tunnel.DialConfig) { c.Proxy = o } }
	closed := &middle{addr: "127.0.0.1:1"} // a port that was free a moment ago may be taken
	cases := map[string]struct {
		addr   string
		change func(*tunnel.DialConfig)
		want   fault.Kind
		says   string
	}{
		"ProxyWantsPassword":   {hubName + ":443", proxied(viaProxy(t, "", plainProxy(t, "a:b", r.addr))), fault.Offline, "requires a user name and a password (407)"},
		"ProxyPasswordWrong":   {hubName + ":443", proxied(viaProxy(t, "a:s3cret", plainProxy(t, "a:b", r.addr))), fault.Offline, "does not accept the user name and password"},
		"ProxyRefuses":         {hubName + ":443", proxied(viaProxy(t, "", tunnelProxy(t, "", func(rw http.ResponseWriter, _ func() net.Conn) { rw.WriteHeader(http.StatusForbidden) }))), fault.Offline, "the proxy refuses to connect to hub.test:443: 403 Forbidden"},
		"ProxyAway":            {hubName + ":443", proxied(viaProxy(t, "", closed)), fault.Offline, "proxy " + closed.addr + ": it cannot be connected to"},
		"ProxyIsNone":          {hubName + ":443", proxied(viaProxy(t, "", &middle{addr: r.addr})), fault.Offline, "proxy " + r.addr},
		"CertificateUnknown":   {balancer(t, company, refuse(200)).addr, func(c *tunnel.DialConfig) { c.Proxy.Roots = newAuthority(t).pool() }, fault.Offline, "outer CA file"},
		"UpgradeRefused":       {balancer(t, company, refuse(http.StatusForbidden)).addr, nil, fault.Offline, "the upgrade was refused with 403 Forbidden"},
		"UpgradeNotFound":      {balancer(t, company, refuse(http.StatusNotFound)).addr, nil, fault.Offline, "refused with 404 Not Found"},
		"UpgradeRedirected":    {balancer(t, company, http.RedirectHandler("https://login.example/", http.StatusFound)).addr, nil, fault.Offline, "refused with 302 Found"},
		"UpgradeAnsweredPlain": {balancer(t, company, refuse(http.StatusOK)).addr, nil, fault.Offline, "refused with 200 OK"},
		"SEC-K4 AnotherHub":    {other.addr, nil, fault.Unknown, "not the hub's"},
		"SEC-K4 AnotherHubBehindATrustedCertificate": {
			balancer(t, company, forward(t, "https://"+other.addr)).addr,
			func(c *tunnel.DialConfig) { c.Proxy.Roots = company.pool() }, fault.Unknown, "not the hub's",
		},
	}
	for name, c := range cases {
		t.Run("FT-L10 "+name, func(t *testing.T) {
			_, err := dialThrough(t.Context(), t, r, c.addr, cert, c.change)
			if fault.KindOf(err) != c.want || !strings.Contains(fault.Sentence(err), c.says) {
				t.Errorf("Dial() = %q (%s), want %s with %q", fault.Sentence(err), fault.KindOf(err), c.want, c.says)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Error("SEC-C3 the error contains the proxy's password")
			}
		})
	}
	t.Run("FT-L10 a busy hub returns when to connect again", func(t *testing.T) {
		busy := balancer(t, company, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Retry-After", "7")
			rw.WriteHeader(http.StatusServiceUnavailable)
		}))
		_, err := dialThrough(t.Context(), t, r, busy.addr, cert, nil)
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Exceeded || f.RetryAfter != 7*time.Second {
			t.Errorf("Dial() = %+v", err)
		}
	})
	t.Run("SEC-K7 a proxy that terminates the outer TLS never sees the agent's certificate", func(t *testing.T) {
		curious := balancer(t, company, forward(t, "https://"+r.addr))
		if _, err := dialThrough(t.Context(), t, r, curious.addr, cert, nil); err != nil {
			t.Fatal(err)
		}
		if len(curious.cert) == 0 || len(curious.cert[0]) != 0 {
			t.Errorf("it saw %d certificates", len(curious.cert[0]))
		}
	})
}

func TestProxyMemory(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	cert, _, _ := w.credential(r, tenant())
	box := picky(t, r.addr)
	var memory tunnel.ProxyMemory
	dial := func(addr string) (dials int, err error) {
		before := len(box.requests())
		s, err := dialThrough(t.Context(), t, r, addr, cert, func(c *tunnel.DialConfig) {
			c.Memory = &memory
			if addr == "" {
				t.Fatal("no address")
			}
		})
		if err == nil {
			s.Close(errTestOver)
		}
		return len(box.requests()) - before, err
	}
	for i, want := range []int{2, 1, 1} {
		if n, err := dial(box.addr); err != nil || n != want {
			t.Fatalf("FT-L10 dial %d took %d connections, want %d: %v", i+1, n, want, err)
		}
	}
	r.stop()
	for range 3 {
		if n, err := dial(box.addr); err == nil || n != 1 {
			t.Fatalf("a dial without a hub took %d connections: %v", n, err)
		}
	}
	if n, err := dial(box.addr); err == nil || n != 2 {
		t.Errorf("FT-L10 after three failures a dial took %d connections, want both offers again: %v", n, err)
	}
}

func TestWebSocketAbuse(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	web := serveOn(t, nil, r.split.WebSocket())
	good := w.join(r, r.addr, hub.NewID[hub.TenantID](), nil)
	good.sessions.awaitOpened(1)
	t.Run("FT-L13 a giant message ends the connection", func(t *testing.T) {
		c, _, err := websocket.Dial(t.Context(), "ws://"+web+tunnel.WebSocketPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.CloseNow() }()
		_ = c.Write(t.Context(), websocket.MessageBinary, make([]byte, 8<<20)) // may be cut half-way
		if _, _, err := c.Read(t.Context()); err == nil {
			t.Error("the hub answered")
		}
	})
	t.Run("FT-L13 text and noise end the connection", func(t *testing.T) {
		for _, kind := range []websocket.MessageType{websocket.MessageText, websocket.MessageBinary} {
			c, _, err := websocket.Dial(t.Context(), "ws://"+web+tunnel.WebSocketPath, nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Write(t.Context(), kind, []byte("GET / HTTP/1.1\r\n\r\n"))
			for err == nil { // an alert may come first
				_, _, err = c.Read(t.Context())
			}
			_ = c.CloseNow()
		}
	})
	t.Run("FT-L10 a request that is no upgrade is refused with that reason", func(t *testing.T) {
		res, err := http.Get("http://" + web + tunnel.WebSocketPath)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusUpgradeRequired {
			t.Errorf("got %s", res.Status)
		}
	})
	if !good.connected(t) || len(good.sessions.opened) != 1 {
		t.Errorf("another agent was disturbed: %+v", good.State())
	}
}
