package scm

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
)

const gitLabAPI = "https://gitlab.com"

// gitLabSource is a server of GitLab. It touches the time of a project's last
// activity once an hour at most.
func gitLabSource(api string, token *secretRef, insecure bool, ca *configRef) source {
	base := defaultTo(api, gitLabAPI)
	if !strings.HasSuffix(base, "/api/v4") {
		base += "/api/v4"
	}
	return source{
		kind: "gitlab", base: base, api: api, insecure: insecure, ca: ca, auth: authorization{header: "PRIVATE-TOKEN", secret: token},
		settled: settled{delay: 65 * time.Minute, most: 36 * time.Hour},
	}
}

// check returns the generator's host.
func (g *gitLabProvider) check(p protocol) (provider, error) {
	return gitLabProjects{*g, p}, required("scmProvider.gitlab.group", g.Group)
}

type gitLabProjects struct {
	gitLabProvider
	protocol protocol
}

func (g gitLabProjects) source() source { return gitLabSource(g.API, g.Token, g.Insecure, g.CA) }

func (g gitLabProjects) open(c *caller) providerHost { return gitLab{g, c} }

// gitLab is a group of GitLab.
type gitLab struct {
	gitLabProjects
	c *caller
}

type gitLabProject struct {
	ID        int64     `json:"id"`
	Path      string    `json:"path"`
	Branch    string    `json:"default_branch"`
	SSH       string    `json:"ssh_url_to_repo"`
	HTTPS     string    `json:"http_url_to_repo"`
	Topics    []string  `json:"topics"`
	Tags      []string  `json:"tag_list"` // before GitLab 14.5
	Empty     bool      `json:"empty_repo"`
	Access    string    `json:"repository_access_level"`
	Activity  time.Time `json:"last_activity_at"`
	Namespace struct {
		Path string `json:"full_path"`
	} `json:"namespace"`
}

// repositories lists the projects of the group. The parameter archived selects
// either kind, so both are listed where archived ones count.
func (g gitLab) repositories(ctx context.Context) ([]Repository, error) {
	all, err := g.projects(ctx, false)
	if err != nil || !g.IncludeArchived {
		return all, err
	}
	archived, err := g.projects(ctx, true)
	return append(all, archived...), err
}

func (g gitLab) projects(ctx context.Context, archived bool) ([]Repository, error) {
	query := url.Values{
		"per_page": {"100"}, "include_subgroups": {strconv.FormatBool(g.Subgroups)}, "with_shared": {strconv.FormatBool(g.Shared == nil || *g.Shared)},
		"archived": {strconv.FormatBool(archived)},
	}
	if g.Topic != "" {
		query.Set("topic", g.Topic)
	}
	all, err := list(ctx, g.c, ask{endpoint: "/groups/{group}/projects", path: pathOf("groups", g.Group, "projects"), query: query},
		numbered("per_page", "X-Total", func(p gitLabProject) string { return number(p.ID) }))
	if err != nil {
		return nil, g.c.missing(err, "the group", g.Group)
	}
	var out []Repository
	for _, p := range all {
		switch {
		case p.Path == "" || p.Namespace.Path == "" || p.SSH == "" || p.HTTPS == "":
			return nil, g.c.garbled()
		case p.Empty || p.Access == "disabled":
			continue
		case p.Branch == "": // GitLab leaves it out for those who may not read code
			return nil, fault.With(fault.New(fault.Invalid, "%s does not permit the token to read the code of %q", g.c.base.Host, p.Namespace.Path+"/"+p.Path), "", "give the token's user the role Reporter at least")
		}
		labels := p.Topics
		if len(labels) == 0 {
			labels = p.Tags
		}
		out = append(out, Repository{
			Organization: p.Namespace.Path, Name: p.Path, ID: p.ID, URL: g.protocol.of(p.SSH, p.HTTPS), Branch: p.Branch, Labels: labels, pushed: p.Activity,
		})
	}
	return out, nil
}

type gitLabBranch struct {
	Name   string `json:"name"`
	Commit struct {
		ID string `json:"id"`
	} `json:"commit"`
}

func projectPath(r Repository) string {
	id, _ := r.ID.(int64)
	return pathOf("projects", strconv.FormatInt(id, 10), "repository")
}

func (g gitLab) branches(ctx context.Context, r Repository) ([]Repository, error) {
	path := projectPath(r) + "/branches"
	if !g.AllBranches {
		b, err := get[gitLabBranch](ctx, g.c, ask{endpoint: "/projects/{id}/repository/branches/{branch}", path: path + pathOf(r.Branch), pushed: r.pushed})
		var missing notFound
		if errors.As(err, &missing) && missing.message == "404 Branch Not Found" {
			return nil, nil
		}
		if err != nil {
			return nil, g.c.missing(err, "the project", r.Organization+"/"+r.Name)
		}
		return g.c.branchesOf(r, []branch{{b.Name, b.Commit.ID}})
	}
	all, err := list(ctx, g.c, ask{endpoint: "/projects/{id}/repository/branches", path: path, query: url.Values{"per_page": {"100"}}, pushed: r.pushed},
		numbered("per_page", "X-Total", func(b gitLabBranch) string { return b.Name }))
	if err != nil {
		return nil, g.c.missing(err, "the project", r.Organization+"/"+r.Name)
	}
	var out []branch
	for _, b := range all {
		out = append(out, branch{b.Name, b.Commit.ID})
	}
	return g.c.branchesOf(r, out)
}

// hasPath looks for a file, and then for a folder.
func (g gitLab) hasPath(ctx context.Context, r Repository, path string) (bool, error) {
	path = strings.Trim(path, "/")
	there, err := g.c.exists(ctx, ask{
		endpoint: "/projects/{id}/repository/files/{path}", path: projectPath(r) + pathOf("files", path), query: url.Values{"ref": {r.SHA}},
		commit: true, absent: []string{"File Not Found"},
	})
	if there || err != nil {
		return there, err
	}
	tree := ask{
		endpoint: "/projects/{id}/repository/tree", path: projectPath(r) + "/tree", query: url.Values{"ref": {r.SHA}, "path": {path}, "per_page": {"1"}},
		commit: true, absent: []string{"Tree Not Found", "revision or path Not Found"},
	}
	entries, err := get[[]named](ctx, g.c, tree)
	if err != nil {
		return g.c.present(tree, err)
	}
	return len(entries) > 0, nil
}

// check returns the generator's host.
func (g *gitLabPulls) check() (puller, error) {
	switch g.State {
	case "", "opened", "closed", "merged", "locked":
	default:
		return nil, fault.With(fault.New(fault.Invalid, "pullRequest.gitlab.pullRequestState is no state of a merge request"), "", "set it to opened, closed, merged or locked, or leave it out for all")
	}
	return *g, required("pullRequest.gitlab.project", g.Project)
}

func (g gitLabPulls) source() source { return gitLabSource(g.API, g.Token, g.Insecure, g.CA) }

type gitLabPull struct {
	Number int64  `json:"iid"`
	Title  string `json:"title"`
	Source string `json:"source_branch"`
	Target string `json:"target_branch"`
	SHA    string `json:"sha"`
	Author struct {
		Username string `json:"username"`
	} `json:"author"`
	Labels []string `json:"labels"`
}

func (g gitLabPulls) pulls(ctx context.Context, c *caller) ([]PullRequest, error) {
	query := url.Values{"per_page": {"100"}}
	if g.State != "" {
		query.Set("state", g.State)
	}
	if len(g.Labels) > 0 {
		query.Set("labels", strings.Join(g.Labels, ","))
	}
	all, err := list(ctx, c, ask{endpoint: "/projects/{id}/merge_requests", path: pathOf("projects", g.Project, "merge_requests"), query: query},
		numbered("per_page", "X-Total", func(p gitLabPull) string { return number(p.Number) }))
	if err != nil {
		return nil, c.noRepository(err, g.Project)
	}
	var out []PullRequest
	for _, p := range all {
		if p.SHA == "" {
			continue // it has no commit yet
		}
		out = append(out, PullRequest{
			Number: p.Number, Title: p.Title, Branch: p.Source, TargetBranch: p.Target, HeadSHA: p.SHA, Labels: p.Labels, Author: p.Author.Username,
		})
	}
	return c.pullsOf(out, nil)
}
