package scm

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// requeueAfter is how often hosts are asked where a generator does not say so.
const requeueAfter = 30 * time.Minute

// A Provider is the generator scmProvider.
type Provider struct {
	RequeueAfter time.Duration
	Values       map[string]string
	Template     *hub.ApplicationTemplate

	filters []repositoryFilter
	host    provider
}

// A provider is how one kind of host lists repositories.
type provider interface {
	// source is how the host is connected to.
	source() source
	// watches are places as Watches returns them.
	watches() []string
	// open returns the host over a connection to it.
	open(c *caller) providerHost
}

// A providerHost lists repositories of one organisation.
type providerHost interface {
	pathFinder
	// repositories lists all of them, without commits.
	repositories(ctx context.Context) ([]Repository, error)
	// branches lists the branches of a repository that count, with commits.
	branches(ctx context.Context, r Repository) ([]Repository, error)
}

// ParseProvider reads the generator scmProvider. Its strings are used as they
// are, so templates in them are replaced before.
func ParseProvider(raw json.RawMessage) (*Provider, error) {
	var s providerSpec
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fault.New(fault.Invalid, "scmProvider is no valid generator: %w", err)
	}
	filters, err := compileRepositoryFilters(s.Filters)
	if err != nil {
		return nil, err
	}
	p := &Provider{RequeueAfter: requeue(s.RequeueAfterSeconds), Values: s.Values, Template: s.Template, filters: filters}
	p.host, err = s.provider()
	return p, err
}

func requeue(seconds *int64) time.Duration {
	if seconds == nil {
		return requeueAfter
	}
	return time.Duration(*seconds) * time.Second
}

// provider is the kind that the generator names.
func (s providerSpec) provider() (provider, error) {
	protocol, err := protocolOf(s.CloneProtocol)
	if err != nil {
		return nil, err
	}
	switch {
	case s.GitHub != nil:
		return s.GitHub.check(protocol)
	case s.GitLab != nil:
		return s.GitLab.check(protocol)
	case s.Gitea != nil:
		return s.Gitea.check(protocol)
	case s.BitbucketServer != nil:
		return s.BitbucketServer.check(protocol)
	case s.AzureDevOps != nil:
		return s.AzureDevOps.check()
	case s.Bitbucket != nil:
		return s.Bitbucket.check(protocol)
	case s.AWSCodeCommit != nil:
		return nil, refuseCodeCommit()
	}
	return nil, fault.With(fault.New(fault.Invalid, "scmProvider names no host"), "", "set one of github, gitlab, gitea, bitbucket, bitbucketServer and azureDevOps")
}

// refuseCodeCommit says why there is no client for it: Argo CD's generator has
// no reference to a credential, and uses the identity of the controller.
func refuseCodeCommit() error {
	return fault.With(fault.New(fault.Invalid, "scmProvider.awsCodeCommit is not supported: it would use the hub's own identity in AWS, which is the operator's"), "",
		"list the repositories with a list or a git generator")
}

// A protocol is how applications clone.
type protocol string

const (
	ssh   protocol = "ssh"
	https protocol = "https"
)

func protocolOf(text string) (protocol, error) {
	switch p := protocol(text); p {
	case "":
		return ssh, nil
	case ssh, https:
		return p, nil
	}
	return "", fault.With(fault.New(fault.Invalid, "cloneProtocol is neither ssh nor https"), "", "set it to ssh or https, or leave it out for ssh")
}

// of returns the URL of the protocol.
func (p protocol) of(overSSH, overHTTPS string) string {
	if p == https {
		return overHTTPS
	}
	return overSSH
}

// required refuses empty fields. Pairs are a field's name and its value.
func required(pairs ...string) error {
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] == "" {
			return fault.With(fault.New(fault.Invalid, "%s is empty", pair[0]), "", "set it")
		}
	}
	return nil
}

// branchReaders is how many repositories are asked about at the same time.
const branchReaders = 8

// Repositories lists the branches of repositories that fulfil the filters, in
// the host's order.
func (p *Provider) Repositories(ctx context.Context, access Access) ([]Repository, error) {
	c, err := connect(ctx, access, p.host.source(), p.RequeueAfter)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, longestList)
	defer cancel()
	h := p.host.open(c)
	all, err := h.repositories(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(r Repository) bool { return !anyMayMatch(r, p.filters) })
	found := make([][]Repository, len(all))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(branchReaders)
	for i, r := range all {
		group.Go(func() error {
			var err error
			found[i], err = p.matching(ctx, h, r)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(found...), nil
}

// matching lists the branches of a repository that fulfil the filters.
func (p *Provider) matching(ctx context.Context, h providerHost, r Repository) ([]Repository, error) {
	branches, err := h.branches(ctx, r)
	if err != nil {
		return nil, err
	}
	var out []Repository
	for _, b := range branches {
		ok, err := anyMatches(ctx, h, b, p.filters)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, b)
		}
	}
	return out, nil
}
