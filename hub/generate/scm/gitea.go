package scm

import (
	"context"
	"net/url"
	"time"
)

const giteaPage = "50"

func giteaSource(api string, token *secretRef, insecure bool) source {
	return source{
		kind: "gitea", base: defaultTo(api, "") + "/api/v1", api: api, insecure: insecure, auth: authorization{scheme: "token ", secret: token},
		settled: settled{delay: 5 * time.Minute, most: 36 * time.Hour},
	}
}

// check returns the generator's host.
func (g *giteaProvider) check(p protocol) (provider, error) {
	return giteaRepositories{*g, p}, required("scmProvider.gitea.owner", g.Owner, "scmProvider.gitea.api", g.API)
}

type giteaRepositories struct {
	giteaProvider
	protocol protocol
}

func (g giteaRepositories) source() source { return giteaSource(g.API, g.Token, g.Insecure) }

func (g giteaRepositories) open(c *caller) providerHost { return gitea{g, c} }

// gitea is an organisation or a user of Gitea.
type gitea struct {
	giteaRepositories
	c *caller
}

type giteaRepository struct {
	ID       int64     `json:"id"`
	Name     string    `json:"name"`
	Branch   string    `json:"default_branch"`
	SSH      string    `json:"ssh_url"`
	Page     string    `json:"html_url"` // Git clones it, too
	Archived bool      `json:"archived"`
	Empty    bool      `json:"empty"`
	Updated  time.Time `json:"updated_at"`
}

func (g gitea) repositories(ctx context.Context) ([]Repository, error) {
	of := numbered("limit", "X-Total-Count", func(r giteaRepository) string { return number(r.ID) })
	query := url.Values{"limit": {giteaPage}}
	all, err := list(ctx, g.c, ask{endpoint: "/orgs/{org}/repos", path: pathOf("orgs", g.Owner, "repos"), query: query}, of)
	if isMissing(err) {
		all, err = list(ctx, g.c, ask{endpoint: "/users/{user}/repos", path: pathOf("users", g.Owner, "repos"), query: query}, of)
	}
	if err != nil {
		return nil, g.c.missing(err, "the organisation or user", g.Owner)
	}
	var out []Repository
	for _, r := range all {
		if r.Name == "" || r.SSH == "" || r.Page == "" || r.Branch == "" && !r.Empty {
			return nil, g.c.garbled()
		}
		if r.Empty || g.ExcludeArchived && r.Archived {
			continue
		}
		labels, err := g.labels(ctx, r)
		if err != nil {
			return nil, err
		}
		out = append(out, Repository{Organization: g.Owner, Name: r.Name, ID: r.ID, URL: g.protocol.of(r.SSH, r.Page), Branch: r.Branch, Labels: labels, pushed: r.Updated})
	}
	return out, nil
}

// labels are those that issues of a repository may have, as in Argo CD.
func (g gitea) labels(ctx context.Context, r giteaRepository) ([]string, error) {
	all, err := list(ctx, g.c, ask{
		endpoint: "/repos/{owner}/{repo}/labels", path: pathOf("repos", g.Owner, r.Name, "labels"), query: url.Values{"limit": {giteaPage}}, pushed: r.Updated,
	}, numbered("limit", "X-Total-Count", func(l named) string { return l.Name }))
	return names(all), g.c.missing(err, "the repository", g.Owner+"/"+r.Name)
}

type giteaBranch struct {
	Name   string `json:"name"`
	Commit struct {
		ID string `json:"id"`
	} `json:"commit"`
}

func (g gitea) branches(ctx context.Context, r Repository) ([]Repository, error) {
	path := pathOf("repos", r.Organization, r.Name, "branches")
	if !g.AllBranches {
		b, err := get[giteaBranch](ctx, g.c, ask{endpoint: "/repos/{owner}/{repo}/branches/{branch}", path: path + filePath(r.Branch), pushed: r.pushed})
		if err != nil {
			return nil, g.c.missing(err, "the default branch of", r.Organization+"/"+r.Name)
		}
		return g.c.branchesOf(r, []branch{{b.Name, b.Commit.ID}})
	}
	all, err := list(ctx, g.c, ask{endpoint: "/repos/{owner}/{repo}/branches", path: path, query: url.Values{"limit": {giteaPage}}, pushed: r.pushed},
		numbered("limit", "X-Total-Count", func(b giteaBranch) string { return b.Name }))
	if err != nil {
		return nil, g.c.missing(err, "the repository", r.Organization+"/"+r.Name)
	}
	var out []branch
	for _, b := range all {
		out = append(out, branch{b.Name, b.Commit.ID})
	}
	return g.c.branchesOf(r, out)
}

func (g gitea) hasPath(ctx context.Context, r Repository, path string) (bool, error) {
	return g.c.exists(ctx, ask{
		endpoint: "/repos/{owner}/{repo}/contents/{path}", path: pathOf("repos", r.Organization, r.Name, "contents") + filePath(path),
		query: url.Values{"ref": {r.SHA}}, commit: true, pushed: r.pushed,
	})
}

// check returns the generator's host.
func (g *giteaPulls) check() (puller, error) {
	return *g, required("pullRequest.gitea.owner", g.Owner, "pullRequest.gitea.repo", g.Repo, "pullRequest.gitea.api", g.API)
}

func (g giteaPulls) source() source { return giteaSource(g.API, g.Token, g.Insecure) }

// pulls are as GitHub has them.
func (g giteaPulls) pulls(ctx context.Context, c *caller) ([]PullRequest, error) {
	all, err := list(ctx, c, ask{
		endpoint: "/repos/{owner}/{repo}/pulls", path: pathOf("repos", g.Owner, g.Repo, "pulls"), query: url.Values{"state": {"open"}, "limit": {giteaPage}},
	}, numbered("limit", "X-Total-Count", func(p gitHubPull) string { return number(p.Number) }))
	if err != nil {
		return nil, c.noRepository(err, g.Owner+"/"+g.Repo)
	}
	return c.gitHubPulls(all, g.Labels)
}
