// Package repourl reads, normalises and compares the URLs of repositories, and
// removes passwords and tokens from URLs that are shown. It is pure.
package repourl

import (
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// maxRepoURL is the longest repository URL, in bytes.
const maxRepoURL = 2048

// Normalize returns the one spelling under which a repository is kept and
// compared (CRED-16), so that a webhook, an application and a registration
// find each other. Scheme and host become lower case; user information, the
// default port, trailing slashes and a trailing ".git" go; the scp form
// host:path becomes ssh://host/path. The path keeps its case, because most Git
// servers tell cases apart, except on the public hosts that are known not to.
//
// The result never holds a credential, is its own normal form, and still leads
// to the repository: whoever fetches from it tries the path with ".git" too.
// The error is fault.Invalid and never repeats user information.
func Normalize(raw string) (string, error) {
	s := strings.TrimSpace(raw)
	if err := checkRepoText(s); err != nil {
		return "", err
	}
	if !strings.Contains(s, "://") {
		scp, err := fromSCP(s)
		if err != nil {
			return "", err
		}
		s = scp
	}
	u, err := url.Parse(s)
	if err != nil {
		// The parser's own text repeats the URL with its password.
		return "", repoURLFault("it cannot be parsed")
	}
	if err := checkRepoParts(u); err != nil {
		return "", err
	}
	host, err := repoHost(u)
	if err != nil {
		return "", err
	}
	p := u.EscapedPath()
	if slices.Contains(foldingHosts(), host) {
		p = strings.ToLower(p)
	}
	out := repoScheme(u.Scheme) + "://" + host + repoPath(p)
	if len(out) > maxRepoURL {
		return "", repoURLFault("it is longer than 2048 bytes")
	}
	// Without its ending the path may be another one: of "..git" a dot is left.
	if u, err = url.Parse(out); err != nil {
		return "", repoURLFault("it cannot be parsed")
	}
	if err := checkRepoParts(u); err != nil {
		return "", err
	}
	return out, nil
}

// NormalizeCharts is Normalize for a repository of charts: an address without a
// scheme is one of a registry.
func NormalizeCharts(raw string) (string, error) {
	s := strings.TrimSpace(raw)
	if err := checkRepoText(s); err != nil {
		return "", err
	}
	if !strings.Contains(s, "://") {
		s = "oci://" + s
	}
	return Normalize(s)
}

// Key distinguishes the repository of a project from those of others with
// the same normalised URL, which has no fragment; without a project it is the
// URL.
func Key(url, project string) string {
	if project == "" {
		return url
	}
	return url + "#" + project
}

// Redact removes user information, query and fragment from a URL of any
// kind, for logs and messages. Text that is no URL is cut at its last "@".
func Redact(raw string) string {
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		rest = raw[strings.LastIndexByte(raw, '@')+1:]
		return beforeAny(rest, "?#")
	}
	authority := beforeAny(rest, "/?#")
	tail := beforeAny(rest[len(authority):], "?#")
	return scheme + "://" + authority[strings.LastIndexByte(authority, '@')+1:] + tail
}

// beforeAny is s up to the first of the characters.
func beforeAny(s, chars string) string {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return s[:i]
	}
	return s
}

// foldingHosts are the hosts on which two paths that differ only in case are
// one repository.
func foldingHosts() []string {
	return []string{"github.com", "gitlab.com", "bitbucket.org", "dev.azure.com"}
}

func repoURLFault(cause string) error {
	return fault.With(fault.New(fault.Invalid, "the repository URL is not usable: %s", cause), "",
		"write it like https://git.example.com/team/repository.git")
}

func checkRepoText(s string) error {
	switch {
	case s == "":
		return repoURLFault("it is empty")
	case len(s) > maxRepoURL:
		return repoURLFault("it is longer than 2048 bytes")
	case strings.HasPrefix(s, "-"):
		return repoURLFault("it starts with a hyphen")
	case strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' || r == 0xfffd }):
		return repoURLFault("it contains a space, a backslash or a control character")
	case strings.Contains(s, "::"):
		if before, _, _ := strings.Cut(s, "::"); !strings.ContainsAny(before, "/[") {
			return repoURLFault("transport helpers such as ext:: are not allowed")
		}
	}
	return nil
}

// fromSCP rewrites [user@]host:path, the form that ssh users write.
func fromSCP(s string) (string, error) {
	host, p, found := strings.Cut(s, ":")
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		host = host[i+1:]
	}
	if !found || host == "" || p == "" || strings.Contains(host, "/") {
		return "", repoURLFault("it has no scheme")
	}
	return "ssh://" + host + "/" + strings.TrimLeft(p, "/"), nil
}

func checkRepoParts(u *url.URL) error {
	switch repoScheme(u.Scheme) {
	case "http", "https", "ssh", "oci":
	case "file":
		return repoURLFault("file:// would read the hub's own disk")
	default:
		return repoURLFault("its scheme is not one of https, http, ssh and oci")
	}
	switch {
	case u.Opaque != "" || u.Hostname() == "":
		return repoURLFault("it names no host")
	case u.RawQuery != "" || u.ForceQuery:
		return repoURLFault("it has a query")
	case u.Fragment != "":
		return repoURLFault("it has a fragment")
	}
	for _, part := range strings.Split(u.Path, "/") {
		if part == "." || part == ".." {
			return repoURLFault("its path has a . or .. element")
		}
		if strings.ContainsFunc(part, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return repoURLFault("its path contains a control character")
		}
	}
	return nil
}

func repoScheme(s string) string {
	s = strings.ToLower(s)
	if s == "git+ssh" || s == "ssh+git" {
		return "ssh"
	}
	return s
}

func repoHost(u *url.URL) (string, error) {
	host := strings.ToLower(u.Hostname())
	if strings.HasPrefix(host, "-") || strings.ContainsAny(host, "%/@?#") {
		return "", repoURLFault("its host name is malformed")
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		host = addr.String()
		if addr.Is6() {
			host = "[" + host + "]"
		}
	}
	if u.Port() == "" {
		return host, nil
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || n == 0 {
		return "", repoURLFault("its port is not a number from 1 to 65535")
	}
	port := strconv.FormatUint(n, 10)
	if port == defaultRepoPort(repoScheme(u.Scheme)) {
		return host, nil
	}
	return host + ":" + port, nil
}

func defaultRepoPort(scheme string) string {
	switch scheme {
	case "http":
		return "80"
	case "ssh":
		return "22"
	}
	return "443"
}

// repoPath drops what does not change which repository is meant, until
// nothing of it is left.
func repoPath(p string) string {
	for {
		next := strings.TrimRight(p, "/")
		if base := path.Base(next); base != ".git" {
			next = strings.TrimSuffix(next, ".git")
		}
		if next == p {
			return p
		}
		p = next
	}
}
