package rootpath_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub/api/rootpath"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestOf(t *testing.T) {
	t.Run("API-01 the path is that of the external URL", func(t *testing.T) {
		for address, want := range map[string]rootpath.Path{
			"https://capstan.example.com": "", "https://capstan.example.com/": "", "http://127.0.0.1:8080": "",
			"https://example.com/capstan": "/capstan", "https://example.com/capstan/": "/capstan", "https://example.com/tools/cd-1.0_x~y": "/tools/cd-1.0_x~y",
		} {
			if got, err := rootpath.Of(address); err != nil || got != want {
				t.Errorf("%s: %q %v, want %q", address, got, err, want)
			}
		}
	})
	t.Run("API-01 what browsers, proxies or cookies would read in another way is refused", func(t *testing.T) {
		for _, address := range []string{
			"", "capstan.example.com", "ftp://example.com", "https://", "https:///capstan", "https://u:p@example.com/capstan", "https://example.com/a?b", "https://example.com/a?",
			"https://example.com/a#b", "https://example.com//capstan", "https://example.com/a//b", "https://example.com/a/../b", "https://example.com/..", "https://example.com/.a",
			"https://example.com/a;b", "https://example.com/a%2fb", "https://example.com/a%20b", "https://example.com/a\"b", "https://example.com/a<b", "https://example.com/ä",
			"https://example.com/a,b", "https://example.com/*", "https://example.com/:a", "https://example.com/" + strings.Repeat("a", 200),
		} {
			if got, err := rootpath.Of(address); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%s: %q %v", address, got, err)
			}
		}
	})
	t.Run("API-01 a path that begins as the hub's own addresses is refused", func(t *testing.T) {
		own := []string{"/", "/*", "/api/v1/me", "/scim/v2/*", "/:any", "/favicon.svg"}
		for path, free := range map[rootpath.Path]bool{"": true, "/capstan": true, "/apis": true, "/x/api": true, "/api": false, "/api/x": false, "/scim": false, "/favicon.svg": false} {
			if err := path.Free(own); (err == nil) != free {
				t.Errorf("%q: %v", path, err)
			}
		}
	})
}

func TestCut(t *testing.T) {
	request := func(address string) *http.Request {
		u, err := url.ParseRequestURI(address)
		if err != nil {
			t.Fatal(err)
		}
		return &http.Request{Method: http.MethodGet, URL: u}
	}
	t.Run("API-01 a request under the path is one of the hub, and one without it as well", func(t *testing.T) {
		for address, want := range map[string]string{
			"/capstan/": "/", "/capstan/api/v1/me?a=b": "/api/v1/me?a=b", "/api/v1/me": "/api/v1/me", "/": "/", "/capstanx/a": "/capstanx/a",
			"/capstan/capstan/a": "/capstan/a", "/capstan/a%2Fb/c": "/a%2Fb/c", "/capst%61n/a": "/capst%61n/a", "/x/capstan/a": "/x/capstan/a", "/capstan//evil": "//evil",
		} {
			given := request(address)
			got, bare := rootpath.Path("/capstan").Cut(given)
			if bare || got.URL.RequestURI() != want && got.URL.EscapedPath() != want {
				t.Errorf("%s: %s %t, want %s", address, got.URL.RequestURI(), bare, want)
			}
			if given.URL.RequestURI() != address {
				t.Errorf("%s: the request that was given is now %s", address, given.URL.RequestURI())
			}
		}
	})
	t.Run("API-01 the path without its slash is told apart", func(t *testing.T) {
		if _, bare := rootpath.Path("/capstan").Cut(request("/capstan?a=b")); !bare {
			t.Error("it is not")
		}
	})
	t.Run("API-01 without a path nothing changes", func(t *testing.T) {
		r := request("/capstan/a")
		if got, bare := rootpath.Path("").Cut(r); got != r || bare {
			t.Errorf("%s %t", got.URL, bare)
		}
	})
}

func TestCookies(t *testing.T) {
	t.Run("SEC-H4 API-01 browsers keep a cookie to the host, or to the path of a host that others share", func(t *testing.T) {
		for _, x := range []struct {
			root   rootpath.Path
			secure bool
			name   string
			path   string
		}{
			{"", true, "__Host-s", "/"}, {"", false, "s", "/"}, {"/capstan", true, "__Secure-s", "/capstan"}, {"/capstan", false, "s", "/capstan"},
		} {
			if name, path := x.root.CookieName("s", x.secure), x.root.Cookie(); name != x.name || path != x.path {
				t.Errorf("%q, TLS %t: %s %s", x.root, x.secure, name, path)
			}
		}
	})
}
