package clientip_test

import (
	"net/http"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/shared/clientip"
)

func TestKey(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"192.0.2.7":              "192.0.2.7",
		"192.0.2.7:1234":         "192.0.2.7",
		"::ffff:192.0.2.7":       "192.0.2.7",
		"[::ffff:192.0.2.7]:80":  "192.0.2.7",
		"2001:db8:1:2:3:4:5:6":   "2001:db8:1:2::/64",
		"[2001:db8:1:2::9]:443":  "2001:db8:1:2::/64",
		"[2001:db8:1:3::9]":      "2001:db8:1:3::/64",
		"fe80::1%eth0":           "fe80::/64",
		"[fe80::1%eth0]:80":      "fe80::/64",
		"pipe":                   "pipe",
		"":                       "",
		"192.0.2.7:not-a-number": "192.0.2.7:not-a-number",
	} {
		if got := clientip.Key(in); got != want {
			t.Errorf("SEC-E8 Key(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestParseProxies(t *testing.T) {
	t.Parallel()
	p, err := clientip.ParseProxies([]string{"10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "::ffff:172.16.0.0/108"})
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]bool{
		"10.1.2.3": true, "10.1.2.3:80": true, "::ffff:10.1.2.3": true, "[::ffff:10.1.2.3]:80": true, "192.0.2.7": true, "192.0.2.8": false,
		"2001:db8::1": true, "2001:db9::1": false, "172.16.5.5": true, "172.32.0.1": false, "nobody": false, "": false,
	} {
		if p.Trust(address) != want {
			t.Errorf("Trust(%q) = %v, want %v", address, !want, want)
		}
	}
	for _, bad := range []string{"", "10.0.0.0/33", "proxy.example.com", "10.0.0.0/8 ", "fe80::1%eth0"} {
		if _, err := clientip.ParseProxies([]string{bad}); err == nil {
			t.Errorf("ParseProxies(%q) took it", bad)
		}
	}
}

func TestClient(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		peer  string
		heads []string
		want  string
	}{
		"TM07 a direct peer's header is ignored":                   {"203.0.113.9:5", []string{"198.51.100.1"}, "203.0.113.9"},
		"TM07 a trusted proxy says who calls":                      {"10.0.0.1:5", []string{"198.51.100.1"}, "198.51.100.1"},
		"SEC-E8 the rightmost address that is not trusted counts":  {"10.0.0.1:5", []string{"1.1.1.1, 198.51.100.1, 10.0.0.2"}, "198.51.100.1"},
		"what a client put before the proxy's word does not count": {"10.0.0.1:5", []string{"127.0.0.1, 198.51.100.1"}, "198.51.100.1"},
		"several headers are one list":                             {"10.0.0.1:5", []string{"1.1.1.1", "198.51.100.1"}, "198.51.100.1"},
		"all are proxies":                                          {"10.0.0.1:5", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		"no header":                                                {"10.0.0.1:5", nil, "10.0.0.1"},
		"garbage ends the search at the proxy":                     {"10.0.0.1:5", []string{"198.51.100.1, unknown"}, "10.0.0.1"},
		"an address with a port":                                   {"10.0.0.1:5", []string{"198.51.100.1:4711"}, "198.51.100.1"},
		"IPv6":                                                     {"[2001:db8::1]:5", []string{"2001:db9::7"}, "2001:db9::7"},
		"IPv6 with a port":                                         {"[2001:db8::1]:5", []string{"[2001:db9::7]:80"}, "2001:db9::7"},
		"IPv4 in IPv6":                                             {"[::ffff:10.0.0.1]:5", []string{"198.51.100.1"}, "198.51.100.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := clientip.ParseProxies([]string{"10.0.0.0/8", "2001:db8::/32"})
			if err != nil {
				t.Fatal(err)
			}
			r := &http.Request{RemoteAddr: c.peer, Header: http.Header{"X-Forwarded-For": c.heads}}
			if got := p.Client(r); got != c.want {
				t.Errorf("Client() = %q, want %q", got, c.want)
			}
		})
	}
	t.Run("without trusted proxies the peer is the client", func(t *testing.T) {
		t.Parallel()
		r := &http.Request{RemoteAddr: "10.0.0.1:5", Header: http.Header{"X-Forwarded-For": {"198.51.100.1"}}}
		if got := (clientip.Proxies)(nil).Client(r); got != "10.0.0.1" {
			t.Errorf("Client() = %q", got)
		}
	})
}

// TestUntrustedHeader tries every header: whoever is not a trusted proxy is
// known by the address of the connection alone.
func TestUntrustedHeader(t *testing.T) {
	t.Parallel()
	p := clientip.Proxies{netip.MustParsePrefix("10.0.0.0/8")}
	rapid.Check(t, func(t *rapid.T) {
		heads := rapid.SliceOf(rapid.OneOf(rapid.String(), rapid.StringMatching(`[0-9.,: ]*`))).Draw(t, "headers")
		r := &http.Request{RemoteAddr: "203.0.113.9:5", Header: http.Header{"X-Forwarded-For": heads}}
		if got := p.Client(r); got != "203.0.113.9" {
			t.Fatalf("Client() = %q", got)
		}
		r.RemoteAddr = "10.0.0.1:5"
		r.Header["X-Forwarded-For"] = append(heads, "198.51.100.1")
		if got := p.Client(r); got != "198.51.100.1" {
			t.Fatalf("behind a proxy Client() = %q", got)
		}
	})
}
