package scm

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"
)

const bitbucketAPI = "https://api.bitbucket.org/2.0"

// bitbucketSource is Bitbucket Cloud. It says when a repository was updated, and
// not of what that is the time, so it is believed for less long.
func bitbucketSource(api string, auth authorization) source {
	return source{kind: "bitbucket", base: defaultTo(api, bitbucketAPI), api: api, auth: auth, settled: settled{delay: time.Hour, most: 6 * time.Hour}}
}

// check returns the generator's host.
func (b *bitbucketProvider) check(p protocol) (provider, error) {
	if b.Password == nil {
		return nil, required("scmProvider.bitbucket.appPasswordRef", "")
	}
	return bitbucketRepositories{*b, p}, required("scmProvider.bitbucket.owner", b.Owner, "scmProvider.bitbucket.user", b.User)
}

type bitbucketRepositories struct {
	bitbucketProvider
	protocol protocol
}

func (b bitbucketRepositories) source() source { return bitbucketSource("", basic(b.User, b.Password)) }

func (b bitbucketRepositories) open(c *caller) providerHost { return bitbucket{b, c} }

// bitbucket is a workspace of Bitbucket Cloud.
type bitbucket struct {
	bitbucketRepositories
	c *caller
}

// inBody is a list whose pages name the next one and the number of items. Only
// the query of the next page counts: requests stay at the host.
func inBody[T any](id func(T) string) lister[T] {
	return lister[T]{id: id, page: func(_ url.Values, body []byte, _ http.Header) (pageOf[T], error) {
		var answer struct {
			Values *[]T   `json:"values"`
			Next   string `json:"next"`
			Size   *int   `json:"size"`
		}
		if err := decode(body, &answer); err != nil {
			return pageOf[T]{}, err
		}
		if answer.Values == nil {
			return pageOf[T]{}, errors.New("there are no values")
		}
		got := pageOf[T]{items: *answer.Values, total: -1}
		if answer.Size != nil {
			got.total = *answer.Size
		}
		if answer.Next == "" {
			return got, nil
		}
		next, err := url.Parse(answer.Next)
		if err == nil && len(next.Query()) == 0 {
			err = errors.New("the next page has no query")
		}
		if err == nil {
			got.next = next.Query()
		}
		return got, err
	}}
}

type cloneLink struct {
	Name string `json:"name"`
	Href string `json:"href"`
}

// urlOf is the link of a protocol; empty: there is none.
func urlOf(links []cloneLink, name string) string {
	for _, l := range links {
		if l.Name == name {
			return l.Href
		}
	}
	return ""
}

type bitbucketRepository struct {
	UUID  string `json:"uuid"`
	Slug  string `json:"slug"`
	Links struct {
		Clone []cloneLink `json:"clone"`
	} `json:"links"`
	Main    *named    `json:"mainbranch"`
	Updated time.Time `json:"updated_on"`
}

func (b bitbucket) repositories(ctx context.Context) ([]Repository, error) {
	all, err := list(ctx, b.c, ask{
		endpoint: "/repositories/{workspace}", path: pathOf("repositories", b.Owner), query: url.Values{"role": {"member"}, "pagelen": {"100"}},
	}, inBody(func(r bitbucketRepository) string { return r.UUID }))
	if err != nil {
		return nil, b.c.missing(err, "the workspace", b.Owner)
	}
	var out []Repository
	for _, r := range all {
		clone := urlOf(r.Links.Clone, string(b.protocol))
		if r.Slug == "" || clone == "" {
			return nil, b.c.garbled()
		}
		if r.Main == nil {
			continue // it is empty
		}
		out = append(out, Repository{Organization: b.Owner, Name: r.Slug, ID: r.UUID, URL: clone, Branch: r.Main.Name, Labels: []string{}, pushed: r.Updated})
	}
	return out, nil
}

type bitbucketBranch struct {
	Name   string `json:"name"`
	Target struct {
		Hash string `json:"hash"`
	} `json:"target"`
}

func (b bitbucket) branches(ctx context.Context, r Repository) ([]Repository, error) {
	path := pathOf("repositories", b.Owner, r.Name, "refs", "branches")
	if !b.AllBranches {
		one, err := get[bitbucketBranch](ctx, b.c, ask{endpoint: "/repositories/{workspace}/{repo}/refs/branches/{branch}", path: path + filePath(r.Branch), pushed: r.pushed})
		if err != nil {
			return nil, b.c.missing(err, "the main branch of", b.Owner+"/"+r.Name)
		}
		return b.c.branchesOf(r, []branch{{one.Name, one.Target.Hash}})
	}
	all, err := list(ctx, b.c, ask{endpoint: "/repositories/{workspace}/{repo}/refs/branches", path: path, query: url.Values{"pagelen": {"100"}}, pushed: r.pushed},
		inBody(func(b bitbucketBranch) string { return b.Name }))
	if err != nil {
		return nil, b.c.missing(err, "the repository", b.Owner+"/"+r.Name)
	}
	var out []branch
	for _, one := range all {
		out = append(out, branch{one.Name, one.Target.Hash})
	}
	return b.c.branchesOf(r, out)
}

func (b bitbucket) hasPath(ctx context.Context, r Repository, path string) (bool, error) {
	return b.c.exists(ctx, ask{
		endpoint: "/repositories/{workspace}/{repo}/src/{commit}/{path}", path: pathOf("repositories", b.Owner, r.Name, "src", r.SHA) + filePath(path),
		query: url.Values{"format": {"meta"}}, commit: true, pushed: r.pushed,
	})
}

// check returns the generator's host.
func (b *bitbucketPulls) check() (puller, error) {
	return *b, required("pullRequest.bitbucket.owner", b.Owner, "pullRequest.bitbucket.repo", b.Repo)
}

func (b bitbucketPulls) source() source {
	return bitbucketSource(b.API, basicOrBearer(b.Basic, b.Bearer))
}

type bitbucketSide struct {
	Branch named `json:"branch"`
	Commit *struct {
		Hash string `json:"hash"`
	} `json:"commit"`
}

type bitbucketPull struct {
	ID          int64         `json:"id"`
	Title       string        `json:"title"`
	Source      bitbucketSide `json:"source"`
	Destination bitbucketSide `json:"destination"`
	Author      struct {
		Nickname string `json:"nickname"`
	} `json:"author"`
}

func (b bitbucketPulls) pulls(ctx context.Context, c *caller) ([]PullRequest, error) {
	all, err := list(ctx, c, ask{
		endpoint: "/repositories/{workspace}/{repo}/pullrequests", path: pathOf("repositories", b.Owner, b.Repo, "pullrequests"), query: url.Values{"pagelen": {"50"}},
	}, inBody(func(p bitbucketPull) string { return number(p.ID) }))
	if err != nil {
		return nil, c.noRepository(err, b.Owner+"/"+b.Repo)
	}
	var out []PullRequest
	for _, p := range all {
		if p.Source.Commit == nil {
			continue // its source was deleted
		}
		out = append(out, PullRequest{
			Number: p.ID, Title: p.Title, Branch: p.Source.Branch.Name, TargetBranch: p.Destination.Branch.Name, HeadSHA: p.Source.Commit.Hash, Author: p.Author.Nickname,
		})
	}
	return c.pullsOf(out, nil)
}
