// Package rootpath is the path under which a hub is reached, such as /capstan in
// https://example.com/capstan. Behind it every address of the hub has this path in
// front. A proxy may cut it: the hub answers without it, too. The API calls it.
package rootpath

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A Path is one without a slash at its end; empty: the hub has the whole host.
type Path string

// maxLength of a path, in bytes.
const maxLength = 200

var shape = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$`)

// Of returns the path of the address under which people reach a hub. The error is
// fault.Invalid if it is no such address.
func Of(address string) (Path, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", fault.With(fault.New(fault.Invalid, "the external URL is not usable"), "", "write it like https://capstan.example.com or https://example.com/capstan")
	}
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	if path == "" {
		return "", nil
	}
	if !shape.MatchString(path) || len(path) > maxLength {
		return "", fault.With(fault.New(fault.Invalid, "the path of the external URL is not usable"), "", "write it with letters, digits and the signs . _ ~ - alone, like https://example.com/capstan")
	}
	return Path(path), nil
}

// Free refuses a path that begins as addresses of the hub itself do. These are
// patterns, such as /api/v1/me: with them it would be unclear what a request means.
func (p Path) Free(own []string) error {
	first := firstOf(string(p))
	if first != "" && slices.ContainsFunc(own, func(o string) bool { return firstOf(o) == first }) {
		return fault.With(fault.New(fault.Invalid, "the external URL has a path that begins with /%s, as addresses of the hub do", first), "", "choose another path, like https://example.com/capstan")
	}
	return nil
}

// firstOf is the first part of a path or of a pattern; empty if that is a variable.
func firstOf(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if strings.ContainsAny(first, "*:{") {
		return ""
	}
	return first
}

// Under is an address of the hub, given as its own path, for whoever is outside.
func (p Path) Under(path string) string { return string(p) + path }

// Cookie is the path for which browsers send a cookie along. Others that share the
// host do not get it.
func (p Path) Cookie() string {
	if p == "" {
		return "/"
	}
	return string(p)
}

// CookieName is the name of a cookie. Browsers take __Host- only for the path / and
// __Secure- for every path, both over TLS alone.
func (p Path) CookieName(name string, secure bool) string {
	switch {
	case !secure:
		return name
	case p == "":
		return "__Host-" + name
	}
	return "__Secure-" + name
}

// Inside cuts the path from an address. An address that does not have it is
// returned as it is.
func (p Path) Inside(path string) string {
	if rest, found := strings.CutPrefix(path, string(p)); found && p != "" && (rest == "" || rest[0] == '/') {
		return rest
	}
	return path
}

// Cut returns the request as the hub's own. It reports whether the request is for
// the path itself, without the slash that relative links need.
func (p Path) Cut(r *http.Request) (own *http.Request, bare bool) {
	path := p.Inside(r.URL.Path)
	if path == r.URL.Path {
		return r, false
	}
	raw := p.Inside(r.URL.RawPath)
	if r.URL.RawPath != "" && raw == r.URL.RawPath {
		return r, false // its path is written with escapes; nobody writes ours so
	}
	if path == "" {
		return r, true
	}
	own = new(http.Request)
	*own = *r
	own.URL = new(url.URL)
	*own.URL = *r.URL
	own.URL.Path, own.URL.RawPath = path, raw
	return own, false
}
