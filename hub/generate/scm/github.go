package scm

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	gitHubKind = "github"
	gitHubAPI  = "https://api.github.com"
	gitHubPage = "100"
)

// gitHubBase is the address of the REST API of a server: Enterprise servers
// have it below /api/v3.
func gitHubBase(api string) string {
	base := defaultTo(api, gitHubAPI)
	u, err := url.Parse(base)
	if err != nil || strings.HasSuffix(base, "/api/v3") || strings.HasPrefix(u.Host, "api.") || strings.Contains(u.Host, ".api.") || api == "" {
		return base
	}
	return base + "/api/v3"
}

func gitHubSource(api string, token *secretRef, app, owner string, pulls bool) source {
	s := source{kind: gitHubKind, base: gitHubBase(api), api: api, auth: bearer(token), settled: settled{delay: 5 * time.Minute, most: 36 * time.Hour}}
	if app != "" {
		s.auth = authorization{app: app, owner: owner, pulls: pulls}
	}
	return s
}

// check returns the generator's host.
func (g *gitHubProvider) check(p protocol) (provider, error) {
	return gitHubRepositories{*g, p}, required("scmProvider.github.organization", g.Organization)
}

type gitHubRepositories struct {
	gitHubProvider
	protocol protocol
}

func (g gitHubRepositories) source() source {
	return gitHubSource(g.API, g.Token, g.App, g.Organization, false)
}

func (g gitHubRepositories) open(c *caller) providerHost { return gitHub{g, c} }

// gitHub is an organisation of GitHub.
type gitHub struct {
	gitHubRepositories
	c *caller
}

type gitHubRepository struct {
	ID     int64  `json:"id"`
	Name   string `json:"name"`
	Branch string `json:"default_branch"`
	SSH    string `json:"ssh_url"`
	HTTPS  string `json:"clone_url"`
	Owner  struct {
		Login string `json:"login"`
	} `json:"owner"`
	Archived bool      `json:"archived"`
	Topics   []string  `json:"topics"`
	Pushed   time.Time `json:"pushed_at"`
}

func (g gitHub) repositories(ctx context.Context) ([]Repository, error) {
	all, err := list(ctx, g.c, ask{
		endpoint: "/orgs/{org}/repos", path: pathOf("orgs", g.Organization, "repos"), query: url.Values{"per_page": {gitHubPage}},
	}, numbered("per_page", "", func(r gitHubRepository) string { return number(r.ID) }))
	if err != nil {
		return nil, g.c.missing(err, "the organisation", g.Organization)
	}
	var out []Repository
	for _, r := range all {
		if r.Name == "" || r.Owner.Login == "" || r.SSH == "" || r.HTTPS == "" {
			return nil, g.c.garbled()
		}
		if g.ExcludeArchived && r.Archived {
			continue
		}
		out = append(out, Repository{
			Organization: r.Owner.Login, Name: r.Name, ID: r.ID, URL: g.protocol.of(r.SSH, r.HTTPS), Branch: r.Branch, Labels: r.Topics, pushed: r.Pushed,
		})
	}
	return out, nil
}

type gitHubBranch struct {
	Name   string `json:"name"`
	Commit struct {
		SHA string `json:"sha"`
	} `json:"commit"`
}

func (g gitHub) branches(ctx context.Context, r Repository) ([]Repository, error) {
	path := pathOf("repos", r.Organization, r.Name, "branches")
	if !g.AllBranches {
		b, err := get[gitHubBranch](ctx, g.c, ask{endpoint: "/repos/{owner}/{repo}/branches/{branch}", path: path + pathOf(r.Branch), pushed: r.pushed})
		var missing notFound
		if errors.As(err, &missing) && missing.message == "Branch not found" {
			return nil, nil // the repository is empty
		}
		if err != nil {
			return nil, g.c.missing(err, "the repository", r.Organization+"/"+r.Name)
		}
		return g.c.branchesOf(r, []branch{{b.Name, b.Commit.SHA}})
	}
	all, err := list(ctx, g.c, ask{endpoint: "/repos/{owner}/{repo}/branches", path: path, query: url.Values{"per_page": {gitHubPage}}, pushed: r.pushed},
		numbered("per_page", "", func(b gitHubBranch) string { return b.Name }))
	if err != nil {
		return nil, g.c.missing(err, "the repository", r.Organization+"/"+r.Name)
	}
	var out []branch
	for _, b := range all {
		out = append(out, branch{b.Name, b.Commit.SHA})
	}
	return g.c.branchesOf(r, out)
}

func (g gitHub) hasPath(ctx context.Context, r Repository, path string) (bool, error) {
	return g.c.exists(ctx, ask{
		endpoint: "/repos/{owner}/{repo}/contents/{path}", path: pathOf("repos", r.Organization, r.Name, "contents") + filePath(path),
		query: url.Values{"ref": {r.SHA}}, commit: true, pushed: r.pushed,
	})
}

// check returns the generator's host.
func (g *gitHubPulls) check() (puller, error) {
	return *g, required("pullRequest.github.owner", g.Owner, "pullRequest.github.repo", g.Repo)
}

func (g gitHubPulls) source() source { return gitHubSource(g.API, g.Token, g.App, g.Owner, true) }

type named struct {
	Name string `json:"name"`
}

type gitHubPull struct {
	Number int64  `json:"number"`
	Title  string `json:"title"`
	Head   struct {
		Ref string `json:"ref"`
		SHA string `json:"sha"`
	} `json:"head"`
	Base struct {
		Ref string `json:"ref"`
	} `json:"base"`
	User struct {
		Login string `json:"login"`
	} `json:"user"`
	Labels []named `json:"labels"`
}

func (g gitHubPulls) pulls(ctx context.Context, c *caller) ([]PullRequest, error) {
	all, err := list(ctx, c, ask{
		endpoint: "/repos/{owner}/{repo}/pulls", path: pathOf("repos", g.Owner, g.Repo, "pulls"), query: url.Values{"per_page": {gitHubPage}},
	}, numbered("per_page", "", func(p gitHubPull) string { return number(p.Number) }))
	if err != nil {
		return nil, c.noRepository(err, g.Owner+"/"+g.Repo)
	}
	return c.gitHubPulls(all, g.Labels)
}

// gitHubPulls are the pull requests with all labels.
func (c *caller) gitHubPulls(all []gitHubPull, labels []string) ([]PullRequest, error) {
	var out []PullRequest
	for _, p := range all {
		out = append(out, PullRequest{
			Number: p.Number, Title: p.Title, Branch: p.Head.Ref, TargetBranch: p.Base.Ref, HeadSHA: p.Head.SHA, Labels: names(p.Labels), Author: p.User.Login,
		})
	}
	return c.pullsOf(out, labels)
}

// number is a number as an id; empty: there is none.
func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func names(labels []named) []string {
	var out []string
	for _, l := range labels {
		out = append(out, l.Name)
	}
	return out
}
