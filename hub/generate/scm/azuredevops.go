package scm

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	azureAPI     = "https://dev.azure.com"
	azureVersion = "7.1"
	azurePage    = 100
	heads        = "refs/heads/"
)

// azureSource is an organisation of Azure DevOps. It does not list when
// something was pushed. Tokens are passwords without a user.
func azureSource(api, organization string, token *secretRef) source {
	return source{kind: "azureDevOps", base: defaultTo(api, azureAPI) + pathOf(organization), api: api, auth: basic("", token)}
}

// check returns the generator's host.
func (a *azureProvider) check() (provider, error) {
	if a.Token == nil {
		return nil, required("scmProvider.azureDevOps.accessTokenRef", "")
	}
	return *a, required("scmProvider.azureDevOps.organization", a.Organization, "scmProvider.azureDevOps.teamProject", a.Project)
}

func (a azureProvider) source() source { return azureSource(a.API, a.Organization, a.Token) }

func (a azureProvider) open(c *caller) providerHost { return azure{a, c} }

// azure is a project of Azure DevOps.
type azure struct {
	azureProvider
	c *caller
}

// counted is a list that says how many items a page has. next is the query of
// the page behind it.
func counted[T any](id func(T) string, next func(query url.Values, items int, h http.Header) url.Values) lister[T] {
	return lister[T]{id: id, page: func(query url.Values, body []byte, h http.Header) (pageOf[T], error) {
		var answer struct {
			Values *[]T `json:"value"`
			Count  *int `json:"count"`
		}
		if err := decode(body, &answer); err != nil {
			return pageOf[T]{}, err
		}
		if answer.Values == nil || answer.Count == nil || *answer.Count != len(*answer.Values) {
			return pageOf[T]{}, errors.New("the items are not as many as their count")
		}
		got := pageOf[T]{items: *answer.Values, total: -1, full: true}
		got.next = next(query, len(got.items), h)
		return got, nil
	}}
}

// continued is the next page where the host names it in a header.
func continued(query url.Values, _ int, h http.Header) url.Values {
	token := h.Get("X-Ms-Continuationtoken")
	if token == "" {
		return nil
	}
	next := cloned(query)
	next.Set("continuationToken", token)
	return next
}

// skipped is the next page where the host names none: the last is not full.
func skipped(query url.Values, items int, _ http.Header) url.Values {
	if items < azurePage {
		return nil
	}
	before, _ := strconv.Atoi(query.Get("$skip"))
	next := cloned(query)
	next.Set("$skip", strconv.Itoa(before+items))
	return next
}

type azureRepository struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Branch   string `json:"defaultBranch"`
	Remote   string `json:"remoteUrl"`
	Disabled bool   `json:"isDisabled"`
}

func (a azure) repositories(ctx context.Context) ([]Repository, error) {
	all, err := list(ctx, a.c, ask{
		endpoint: "/{project}/_apis/git/repositories", path: pathOf(a.Project, "_apis", "git", "repositories"), query: url.Values{"api-version": {azureVersion}},
	}, counted(func(r azureRepository) string { return r.ID }, continued))
	if err != nil {
		return nil, a.c.missing(err, "the project", a.Project)
	}
	var out []Repository
	for _, r := range all {
		if r.Name == "" || r.Remote == "" {
			return nil, a.c.garbled()
		}
		if r.Branch == "" || r.Disabled {
			continue // it is empty, or cannot be read
		}
		out = append(out, Repository{Organization: a.Organization, Name: r.Name, ID: r.ID, URL: r.Remote, Branch: strings.TrimPrefix(r.Branch, heads), Labels: []string{}})
	}
	return out, nil
}

func (a azure) path(r Repository, name string) string {
	id, _ := r.ID.(string)
	return pathOf(a.Project, "_apis", "git", "repositories", id, name)
}

type azureRef struct {
	Name   string `json:"name"`
	Commit string `json:"objectId"`
}

// branches lists references, because that is one request without statistics of
// each branch. The filter is the beginning of a name.
func (a azure) branches(ctx context.Context, r Repository) ([]Repository, error) {
	filter := "heads/"
	if !a.AllBranches {
		filter += r.Branch
	}
	all, err := list(ctx, a.c, ask{
		endpoint: "/{project}/_apis/git/repositories/{repo}/refs", path: a.path(r, "refs"), query: url.Values{"api-version": {azureVersion}, "filter": {filter}, "$top": {"1000"}},
	}, counted(func(b azureRef) string { return b.Name }, continued))
	if err != nil {
		return nil, a.c.missing(err, "the repository", a.Project+"/"+r.Name)
	}
	var out []branch
	for _, b := range all {
		name := strings.TrimPrefix(b.Name, heads)
		if a.AllBranches || name == r.Branch {
			out = append(out, branch{name, b.Commit})
		}
	}
	if len(out) == 0 && !a.AllBranches {
		return nil, fault.With(fault.New(fault.Offline, "%s does not list the default branch of %q", a.c.base.Host, a.Project+"/"+r.Name), "", "it is retried automatically")
	}
	return a.c.branchesOf(r, out)
}

func (a azure) hasPath(ctx context.Context, r Repository, path string) (bool, error) {
	return a.c.exists(ctx, ask{
		endpoint: "/{project}/_apis/git/repositories/{repo}/items", path: a.path(r, "items"), query: url.Values{
			"api-version": {azureVersion}, "$format": {"json"}, "path": {"/" + strings.Trim(path, "/")},
			"versionDescriptor.version": {r.SHA}, "versionDescriptor.versionType": {"commit"},
		},
		commit: true, absent: []string{"GitItemNotFoundException"},
	})
}

// check returns the generator's host.
func (a *azurePulls) check() (puller, error) {
	return *a, required("pullRequest.azuredevops.organization", a.Organization, "pullRequest.azuredevops.project", a.Project, "pullRequest.azuredevops.repo", a.Repo)
}

func (a azurePulls) source() source { return azureSource(a.API, a.Organization, a.Token) }

type azurePull struct {
	ID     int64  `json:"pullRequestId"`
	Title  string `json:"title"`
	Source string `json:"sourceRefName"`
	Target string `json:"targetRefName"`
	Commit *struct {
		ID string `json:"commitId"`
	} `json:"lastMergeSourceCommit"`
	Labels  []named `json:"labels"`
	Creator struct {
		Name string `json:"uniqueName"`
	} `json:"createdBy"`
}

func (a azurePulls) pulls(ctx context.Context, c *caller) ([]PullRequest, error) {
	all, err := list(ctx, c, ask{
		endpoint: "/{project}/_apis/git/repositories/{repo}/pullrequests", path: pathOf(a.Project, "_apis", "git", "repositories", a.Repo, "pullrequests"),
		query: url.Values{"api-version": {azureVersion}, "searchCriteria.status": {"active"}, "$top": {strconv.Itoa(azurePage)}},
	}, counted(func(p azurePull) string { return number(p.ID) }, skipped))
	if err != nil {
		return nil, c.noRepository(err, a.Project+"/"+a.Repo)
	}
	var out []PullRequest
	for _, p := range all {
		if p.Commit == nil {
			continue // it was never merged for a check
		}
		author, _, _ := strings.Cut(p.Creator.Name, "@")
		out = append(out, PullRequest{
			Number: p.ID, Title: p.Title, Branch: strings.TrimPrefix(p.Source, heads), TargetBranch: strings.TrimPrefix(p.Target, heads),
			HeadSHA: p.Commit.ID, Labels: names(p.Labels), Author: author,
		})
	}
	return c.pullsOf(out, a.Labels)
}
