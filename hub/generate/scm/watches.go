package scm

import (
	"net/url"
	"strconv"
	"strings"
)

// Watches are the places whose events change what the generator lists, in lower
// case: host and path of an organisation, with a slash at the end. Empty: they
// cannot be told from the generator.
func (p *Provider) Watches() []string { return p.host.watches() }

// Watches is the place of the repository, as of a Provider but without a slash
// at the end.
func (p *PullRequests) Watches() []string { return p.host.watches() }

// placeAt is a place at the host of a source.
func placeAt(s source, names ...string) []string {
	u, err := url.Parse(s.base)
	if err != nil {
		return nil
	}
	host := strings.ToLower(u.Hostname())
	switch host {
	case "api.bitbucket.org":
		host = "bitbucket.org"
	default:
		if s.kind == gitHubKind {
			host = strings.TrimPrefix(host, "api.")
		}
	}
	return []string{strings.ToLower(host + "/" + strings.Join(names, "/"))}
}

func (g gitHubRepositories) watches() []string { return placeAt(g.source(), g.Organization, "") }

func (g gitHubPulls) watches() []string { return placeAt(g.source(), g.Owner, g.Repo) }

func (g gitLabProjects) watches() []string {
	if _, err := strconv.Atoi(g.Group); err == nil {
		return nil // a number, which events do not have
	}
	return placeAt(g.source(), g.Group, "")
}

func (g gitLabPulls) watches() []string {
	if _, err := strconv.Atoi(g.Project); err == nil {
		return nil
	}
	return placeAt(g.source(), g.Project)
}

func (g giteaRepositories) watches() []string { return placeAt(g.source(), g.Owner, "") }

func (g giteaPulls) watches() []string { return placeAt(g.source(), g.Owner, g.Repo) }

func (b bitbucketRepositories) watches() []string { return placeAt(b.source(), b.Owner, "") }

func (b bitbucketPulls) watches() []string { return placeAt(b.source(), b.Owner, b.Repo) }

func (b bitbucketServerRepositories) watches() []string {
	return placeAt(b.source(), "scm", b.Project, "")
}

func (b bitbucketServerPulls) watches() []string {
	return placeAt(b.source(), "scm", b.Project, b.Repo)
}

func (a azureProvider) watches() []string {
	return placeAt(a.source(), a.Organization, a.Project, "_git", "")
}

func (a azurePulls) watches() []string {
	return placeAt(a.source(), a.Organization, a.Project, "_git", a.Repo)
}

// WatchedBy are the places with which a generator watches a repository: its own,
// and those of the folders that it is in. place is what repourl.Place returns.
func WatchedBy(place string) []string {
	place = strings.ToLower(place)
	out := []string{place}
	for i, c := range place {
		if c == '/' {
			out = append(out, place[:i+1])
		}
	}
	return out
}
