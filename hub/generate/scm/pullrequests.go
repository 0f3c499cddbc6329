package scm

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A PullRequests is the generator pullRequest.
type PullRequests struct {
	RequeueAfter time.Duration
	Values       map[string]string
	Template     *hub.ApplicationTemplate

	filters   []compiledPullFilter
	continues bool // if the repository does not exist
	host      puller
}

// A puller is how one kind of host lists pull requests.
type puller interface {
	source() source
	// watches are places as Watches returns them.
	watches() []string
	// pulls lists all that are open. The error is errNoRepository if the host
	// says that there is no such repository.
	pulls(ctx context.Context, c *caller) ([]PullRequest, error)
}

// errNoRepository means that a host says that a repository does not exist.
var errNoRepository = errors.New("the host knows no such repository")

// ParsePullRequests reads the generator pullRequest. Its strings are used as
// they are, so templates in them are replaced before.
func ParsePullRequests(raw json.RawMessage) (*PullRequests, error) {
	var s pullRequestSpec
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fault.New(fault.Invalid, "pullRequest is no valid generator: %w", err)
	}
	filters, err := compilePullFilters(s.Filters)
	if err != nil {
		return nil, err
	}
	p := &PullRequests{RequeueAfter: requeue(s.RequeueAfterSeconds), Values: s.Values, Template: s.Template, filters: filters, continues: s.ContinueOnNotFound}
	p.host, err = s.puller()
	return p, err
}

// puller is the kind that the generator names.
func (s pullRequestSpec) puller() (puller, error) {
	switch {
	case s.GitHub != nil:
		return s.GitHub.check()
	case s.GitLab != nil:
		return s.GitLab.check()
	case s.Gitea != nil:
		return s.Gitea.check()
	case s.BitbucketServer != nil:
		return s.BitbucketServer.check()
	case s.Bitbucket != nil:
		return s.Bitbucket.check()
	case s.AzureDevOps != nil:
		return s.AzureDevOps.check()
	}
	return nil, fault.With(fault.New(fault.Invalid, "pullRequest names no host"), "", "set one of github, gitlab, gitea, bitbucket, bitbucketServer and azuredevops")
}

// List lists the pull requests that have all labels of the generator and fulfil
// its filters. A repository that does not exist has none if the generator
// continues then; else it is an error.
func (p *PullRequests) List(ctx context.Context, access Access) ([]PullRequest, error) {
	c, err := connect(ctx, access, p.host.source(), p.RequeueAfter)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, longestList)
	defer cancel()
	all, err := p.host.pulls(ctx, c)
	if errors.Is(err, errNoRepository) && p.continues {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(q PullRequest) bool { return !anyPullMatches(q, p.filters) }), nil
}

// hasLabels reports whether labels contain all that a generator wants.
func hasLabels(labels, want []string) bool {
	return !slices.ContainsFunc(want, func(l string) bool { return !slices.Contains(labels, l) })
}
