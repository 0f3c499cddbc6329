package scm

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// bitbucketServerSource is a server of Bitbucket Data Center. It does not list
// when something was pushed.
func bitbucketServerSource(api string, auth authorization, insecure bool, ca *configRef) source {
	base := defaultTo(api, "")
	if !strings.HasSuffix(base, "/rest") {
		base += "/rest"
	}
	return source{kind: "bitbucketServer", base: base + "/api/1.0", api: api, insecure: insecure, ca: ca, auth: auth}
}

// check returns the generator's host.
func (b *bitbucketServerProvider) check(p protocol) (provider, error) {
	return bitbucketServerRepositories{*b, p}, required("scmProvider.bitbucketServer.project", b.Project, "scmProvider.bitbucketServer.api", b.API)
}

type bitbucketServerRepositories struct {
	bitbucketServerProvider
	protocol protocol
}

func (b bitbucketServerRepositories) source() source {
	return bitbucketServerSource(b.API, basicOrBearer(b.Basic, b.Bearer), b.Insecure, b.CA)
}

func (b bitbucketServerRepositories) open(c *caller) providerHost { return bitbucketServer{b, c} }

// bitbucketServer is a project of Bitbucket Data Center.
type bitbucketServer struct {
	bitbucketServerRepositories
	c *caller
}

// started is a list whose pages begin at a number of items.
func started[T any](id func(T) string) lister[T] {
	return lister[T]{id: id, page: func(query url.Values, body []byte, _ http.Header) (pageOf[T], error) {
		var answer struct {
			Values *[]T  `json:"values"`
			Last   *bool `json:"isLastPage"`
			Next   *int  `json:"nextPageStart"`
		}
		if err := decode(body, &answer); err != nil {
			return pageOf[T]{}, err
		}
		if answer.Values == nil || answer.Last == nil || !*answer.Last && answer.Next == nil {
			return pageOf[T]{}, errors.New("it is no page")
		}
		got := pageOf[T]{items: *answer.Values, total: -1}
		if !*answer.Last {
			got.next = cloned(query)
			got.next.Set("start", strconv.Itoa(*answer.Next))
		}
		return got, nil
	}}
}

type serverRepository struct {
	ID      int64  `json:"id"`
	Slug    string `json:"slug"`
	Name    string `json:"name"`
	Project struct {
		Key string `json:"key"`
	} `json:"project"`
	Links struct {
		Clone []cloneLink `json:"clone"`
	} `json:"links"`
}

type serverBranch struct {
	Name   string `json:"displayId"`
	Commit string `json:"latestCommit"`
}

func (b bitbucketServer) repositories(ctx context.Context) ([]Repository, error) {
	all, err := list(ctx, b.c, ask{endpoint: "/projects/{project}/repos", path: pathOf("projects", b.Project, "repos"), query: url.Values{"limit": {"100"}}},
		started(func(r serverRepository) string { return number(r.ID) }))
	if err != nil {
		return nil, b.c.missing(err, "the project", b.Project)
	}
	link := "ssh"
	if b.protocol == https {
		link = "http"
	}
	var out []Repository
	for _, r := range all {
		if r.Slug == "" || r.Name == "" || r.Project.Key == "" {
			return nil, b.c.garbled()
		}
		out = append(out, Repository{Organization: r.Project.Key, Name: r.Name, ID: r.ID, URL: urlOf(r.Links.Clone, link), Labels: []string{}, slug: r.Slug})
	}
	return out, nil
}

func (b bitbucketServer) path(r Repository, names ...string) string {
	return pathOf("projects", r.Organization, "repos", r.slug) + pathOf(names...)
}

func (b bitbucketServer) branches(ctx context.Context, r Repository) ([]Repository, error) {
	if !b.AllBranches {
		one, err := get[serverBranch](ctx, b.c, ask{endpoint: "/projects/{project}/repos/{repo}/branches/default", path: b.path(r, "branches", "default"), mayBeEmpty: true})
		var missing notFound
		if errors.As(err, &missing) && (missing.message == noContent || strings.Contains(missing.message, "NoDefaultBranchException")) {
			return nil, nil // the repository is empty
		}
		if err != nil {
			return nil, b.c.missing(err, "the repository", r.Organization+"/"+r.Name)
		}
		return b.c.branchesOf(r, []branch{{one.Name, one.Commit}})
	}
	all, err := list(ctx, b.c, ask{endpoint: "/projects/{project}/repos/{repo}/branches", path: b.path(r, "branches"), query: url.Values{"limit": {"100"}}},
		started(func(b serverBranch) string { return b.Name }))
	if err != nil {
		return nil, b.c.missing(err, "the repository", r.Organization+"/"+r.Name)
	}
	var out []branch
	for _, one := range all {
		out = append(out, branch{one.Name, one.Commit})
	}
	return b.c.branchesOf(r, out)
}

func (b bitbucketServer) hasPath(ctx context.Context, r Repository, path string) (bool, error) {
	return b.c.exists(ctx, ask{
		endpoint: "/projects/{project}/repos/{repo}/browse/{path}", path: b.path(r, "browse") + filePath(path),
		query: url.Values{"at": {r.SHA}, "type": {"true"}, "limit": {"1"}}, commit: true, absent: []string{"NoSuchPathException"},
	})
}

// check returns the generator's host.
func (b *bitbucketServerPulls) check() (puller, error) {
	return *b, required("pullRequest.bitbucketServer.project", b.Project, "pullRequest.bitbucketServer.repo", b.Repo, "pullRequest.bitbucketServer.api", b.API)
}

func (b bitbucketServerPulls) source() source {
	return bitbucketServerSource(b.API, basicOrBearer(b.Basic, b.Bearer), b.Insecure, b.CA)
}

type serverPull struct {
	ID     int64        `json:"id"`
	Title  string       `json:"title"`
	From   serverBranch `json:"fromRef"`
	To     serverBranch `json:"toRef"`
	Author struct {
		User named `json:"user"`
	} `json:"author"`
}

func (b bitbucketServerPulls) pulls(ctx context.Context, c *caller) ([]PullRequest, error) {
	all, err := list(ctx, c, ask{
		endpoint: "/projects/{project}/repos/{repo}/pull-requests", path: pathOf("projects", b.Project, "repos", b.Repo, "pull-requests"), query: url.Values{"limit": {"100"}},
	}, started(func(p serverPull) string { return number(p.ID) }))
	if err != nil {
		return nil, c.noRepository(err, b.Project+"/"+b.Repo)
	}
	var out []PullRequest
	for _, p := range all {
		out = append(out, PullRequest{
			Number: p.ID, Title: p.Title, Branch: p.From.Name, TargetBranch: p.To.Name, HeadSHA: p.From.Commit, Labels: []string{}, Author: p.Author.User.Name,
		})
	}
	return c.pullsOf(out, nil)
}
