package repourl

import (
	"net/url"
	"strings"
)

// Place is what two addresses of one repository have in common: host and
// path of a normalised URL, without scheme and port (HOOKW-04). An event that
// names the https address finds the repository that is fetched over SSH.
func Place(normalised string) string {
	_, rest, _ := strings.Cut(normalised, "://")
	authority := beforeAny(rest, "/")
	host := authority
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		host = host[:i]
	}
	return host + rest[len(authority):]
}

// IsSSH reports whether a normalised URL is fetched over SSH.
func IsSSH(normalised string) bool { return strings.HasPrefix(normalised, "ssh://") }

// SSHUser is the user that a URL as a person wrote it names for SSH, which
// Normalize drops; empty: none, or the usual "git".
func SSHUser(raw string) string {
	s := strings.TrimSpace(raw)
	if u, err := url.Parse(s); err == nil && repoScheme(u.Scheme) == "ssh" && u.User != nil {
		return usualUser(u.User.Username())
	}
	if strings.Contains(s, "://") {
		return ""
	}
	host, _, found := strings.Cut(s, ":")
	user, _, named := strings.Cut(host, "@")
	if !found || !named {
		return ""
	}
	return usualUser(user)
}

func usualUser(user string) string {
	if user == "git" {
		return ""
	}
	return user
}
