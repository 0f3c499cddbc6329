package plugin

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// probe is what a hostile program tries; it prints what it has reached.
func probe(args []string) int {
	proxy := func(*http.Request) (*url.URL, error) { return url.Parse(os.Getenv("HTTPS_PROXY")) }
	client := http.Client{Transport: &http.Transport{Proxy: proxy, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	err := func() error {
		switch args[0] {
		case "get":
			res, err := client.Get(args[1])
			if err != nil {
				return err
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			fmt.Printf("%d %s", res.StatusCode, text)
			return err
		case "dial":
			c, err := net.Dial(args[1], args[2])
			if err != nil {
				return err
			}
			defer c.Close()
			if _, err := c.Write([]byte("hello\r\n\r\n")); err != nil {
				return err
			}
			text, err := io.ReadAll(c)
			fmt.Printf("%.12s", text)
			return err
		case "listen":
			_, err := net.Listen("tcp", "127.0.0.1:0")
			return err
		case "address": // where Argo CD's plugins listen, in a directory that it may write to
			dir := filepath.Join(os.Getenv("HOME"), "plugins")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return nil //nolint:nilerr // the directory can be made, or nothing is proven
			}
			_, err := net.Listen("unix", filepath.Join(dir, "p-v1.sock"))
			return err
		case "pair": // of datagram sockets, which could send to others
			_, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
			return err
		case "streams":
			_, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			return err
		}
		return fmt.Errorf("no probe %q", args[0])
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// probing runs a probe as a plugin.
func probing(t *testing.T, hosts string, args ...string) (string, error) {
	t.Helper()
	if raceDetector {
		t.Skip("the race detector maps more than a program may")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	annotation := ""
	if hosts != "" {
		annotation = "  annotations: {capstan.dev/hosts: '" + hosts + "'}\n"
	}
	text := "apiVersion: argoproj.io/v1alpha1\nkind: ConfigManagementPlugin\nmetadata:\n  name: p\n" + annotation +
		"spec:\n  generate: {command: ['" + self + "', probe, '" + strings.Join(args, "', '") + "']}\n"
	r, _ := plugins(t, func(c *Config) {
		c.Read = []string{self}
		c.AllowedNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		if hosts == "127.0.0.1:guarded" {
			c.AllowedNetworks = nil
		}
	}, strings.ReplaceAll(text, "127.0.0.1:guarded", "127.0.0.1:"+portOf(args[len(args)-1])))
	reply, err := r.Run(t.Context(), call("p", nil))
	return string(reply.Output), err
}

func portOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Port()
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "reached") })
	plain, secure := httptest.NewServer(answer), httptest.NewTLSServer(answer)
	defer plain.Close()
	defer secure.Close()
	var strangers atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strangers.Add(1) }))
	defer other.Close()
	other.Config.ConnState = func(net.Conn, http.ConnState) { strangers.Add(1) }
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	host := func(address string) string {
		return strings.TrimPrefix(strings.TrimPrefix(address, "https://"), "http://")
	}
	for name, c := range map[string]struct {
		hosts string
		args  []string
		want  string // of the output; empty: it must fail
	}{
		"SEC-A11 nothing without hosts":                                {"", []string{"get", plain.URL}, ""},
		"SEC-A11 no socket at all":                                     {"", []string{"dial", "tcp", host(plain.URL)}, ""},
		"SEC-A11 no name server":                                       {"", []string{"dial", "udp", "127.0.0.1:53"}, ""},
		"SEC-A11 no socket of the machine":                             {"", []string{"dial", "unix", socket}, ""},
		"SEC-A11 no port of its own":                                   {"", []string{"listen"}, ""},
		"CMP-03 a plugin listens on no address":                        {"", []string{"address"}, ""},
		"CMP-03 a plugin listens on no address, though it has hosts":   {host(plain.URL), []string{"address"}, ""},
		"SEC-A11 no pair of datagram sockets":                          {"", []string{"pair"}, ""},
		"a pair of streams, which runtimes need":                       {"", []string{"streams"}, " "},
		"CMP-12 a host that the operator has named":                    {host(plain.URL), []string{"get", plain.URL}, "200 reached"},
		"CMP-12 over TLS":                                              {host(secure.URL), []string{"get", secure.URL}, "200 reached"},
		"SEC-A11 another host":                                         {host(plain.URL), []string{"get", other.URL}, "403 the plugin may not reach"},
		"SEC-A11 another host over TLS":                                {host(plain.URL), []string{"get", strings.Replace(other.URL, "http:", "https:", 1)}, ""},
		"SEC-A11 another host, past the proxy":                         {host(plain.URL), []string{"dial", "tcp", host(other.URL)}, "HTTP/1.1 400"},
		"SEC-A11 a name server, though it has hosts":                   {host(plain.URL), []string{"dial", "udp", "127.0.0.1:53"}, ""},
		"SEC-A11 a socket of the machine, though it has hosts":         {host(plain.URL), []string{"dial", "unix", socket}, ""},
		"SEC-A11 a port of its own, though it has hosts":               {host(plain.URL), []string{"listen"}, ""},
		"SEC-A8 an internal address that the operator has not allowed": {"127.0.0.1:guarded", []string{"get", plain.URL}, "502 the host cannot be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := probing(t, c.hosts, c.args...)
			if c.want == "" {
				if err == nil {
					t.Errorf("it reached %q", out)
				}
				return
			}
			if err != nil || !strings.HasPrefix(out, strings.TrimSpace(c.want)) {
				t.Errorf("output %q, %v; want %q", out, err, c.want)
			}
		})
	}
	if strangers.Load() > 0 {
		t.Errorf("SEC-A11 %d connections to a host that was not named", strangers.Load())
	}
}

func TestHostsOfAPlugin(t *testing.T) {
	t.Parallel()
	n := &network{hosts: []string{"registry.example.com", "*.example.org", "proxy.example.net:8443"}}
	for address, want := range map[string]bool{
		"registry.example.com:443": true, "registry.example.com:80": true, "REGISTRY.example.com.:443": true, "registry.example.com:22": false,
		"a.example.org:443": true, "a.b.example.org:443": true, "example.org:443": false, "evilexample.org:443": false,
		"proxy.example.net:8443": true, "proxy.example.net:443": false, "registry.example.com.evil.com:443": false, "127.0.0.1:443": false, "x": false,
	} {
		if got := n.permits(address); got != want {
			t.Errorf("SEC-A11 %s: permitted %t, want %t", address, got, want)
		}
	}
}
