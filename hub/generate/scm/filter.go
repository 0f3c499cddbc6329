package scm

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A pattern is a regular expression that may be absent, and then matches all.
type pattern struct{ re *regexp.Regexp }

func compile(field string, text *string) (pattern, error) {
	if text == nil {
		return pattern{}, nil
	}
	re, err := regexp.Compile(*text)
	if err != nil {
		return pattern{}, fault.With(fault.New(fault.Invalid, "%s is no regular expression", field), "", "correct it: Go's syntax of regular expressions counts")
	}
	return pattern{re}, nil
}

func (p pattern) matches(text string) bool { return p.re == nil || p.re.MatchString(text) }

func (p pattern) matchesAny(texts []string) bool {
	return p.re == nil || slices.ContainsFunc(texts, p.re.MatchString)
}

// A providerFilter is one of scmProvider as it is written.
type providerFilter struct {
	RepositoryMatch *string  `json:"repositoryMatch"`
	PathsExist      []string `json:"pathsExist"`
	PathsDoNotExist []string `json:"pathsDoNotExist"`
	LabelMatch      *string  `json:"labelMatch"`
	BranchMatch     *string  `json:"branchMatch"`
}

// A repositoryFilter is one whose fields must all match.
type repositoryFilter struct {
	repository, label, branch pattern
	exist, lack               []string
}

func compileRepositoryFilters(in []providerFilter) ([]repositoryFilter, error) {
	var out []repositoryFilter
	for _, f := range in {
		c := repositoryFilter{exist: f.PathsExist, lack: f.PathsDoNotExist}
		var err error
		if c.repository, err = compile("filters.repositoryMatch", f.RepositoryMatch); err != nil {
			return nil, err
		}
		if c.label, err = compile("filters.labelMatch", f.LabelMatch); err != nil {
			return nil, err
		}
		if c.branch, err = compile("filters.branchMatch", f.BranchMatch); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// A pathFinder finds files and folders of repositories.
type pathFinder interface {
	hasPath(ctx context.Context, r Repository, path string) (bool, error)
}

// matches reports whether a repository fulfils every field of the filter.
func (f repositoryFilter) matches(ctx context.Context, h pathFinder, r Repository) (bool, error) {
	if !f.repository.matches(r.Name) || !f.branch.matches(r.Branch) || !f.label.matchesAny(r.Labels) {
		return false, nil
	}
	for _, want := range []struct {
		paths []string
		there bool
	}{{f.exist, true}, {f.lack, false}} {
		for _, path := range want.paths {
			there, err := h.hasPath(ctx, r, strings.TrimRight(path, "/"))
			if err != nil || there != want.there {
				return false, err
			}
		}
	}
	return true, nil
}

// anyMayMatch reports whether branches of a repository may fulfil a filter.
func anyMayMatch(r Repository, filters []repositoryFilter) bool {
	return len(filters) == 0 || slices.ContainsFunc(filters, func(f repositoryFilter) bool {
		return f.repository.matches(r.Name) && f.label.matchesAny(r.Labels)
	})
}

// anyMatches reports whether a repository fulfils one of the filters. None
// are fulfilled by all.
func anyMatches(ctx context.Context, h pathFinder, r Repository, filters []repositoryFilter) (bool, error) {
	for _, f := range filters {
		if ok, err := f.matches(ctx, h, r); ok || err != nil {
			return ok, err
		}
	}
	return len(filters) == 0, nil
}

// A pullFilter is one of pullRequest as it is written.
type pullFilter struct {
	BranchMatch       *string `json:"branchMatch"`
	TargetBranchMatch *string `json:"targetBranchMatch"`
	TitleMatch        *string `json:"titleMatch"`
}

type compiledPullFilter struct{ branch, target, title pattern }

func compilePullFilters(in []pullFilter) ([]compiledPullFilter, error) {
	var out []compiledPullFilter
	for _, f := range in {
		var c compiledPullFilter
		var err error
		if c.branch, err = compile("filters.branchMatch", f.BranchMatch); err != nil {
			return nil, err
		}
		if c.target, err = compile("filters.targetBranchMatch", f.TargetBranchMatch); err != nil {
			return nil, err
		}
		if c.title, err = compile("filters.titleMatch", f.TitleMatch); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func anyPullMatches(p PullRequest, filters []compiledPullFilter) bool {
	return len(filters) == 0 || slices.ContainsFunc(filters, func(f compiledPullFilter) bool {
		return f.branch.matches(p.Branch) && f.target.matches(p.TargetBranch) && f.title.matches(p.Title)
	})
}
