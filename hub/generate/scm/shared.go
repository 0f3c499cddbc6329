package scm

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A branch is one as hosts list it.
type branch struct{ name, sha string }

// branchesOf are the branches of a repository. Each has a commit.
func (c *caller) branchesOf(r Repository, all []branch) ([]Repository, error) {
	var out []Repository
	for _, b := range all {
		if b.name == "" || b.sha == "" {
			return nil, c.garbled()
		}
		one := r
		one.Branch, one.SHA = b.name, b.sha
		out = append(out, one)
	}
	return out, nil
}

// pullsOf are the pull requests with all labels. Each has a branch and a
// commit.
func (c *caller) pullsOf(all []PullRequest, labels []string) ([]PullRequest, error) {
	var out []PullRequest
	for _, p := range all {
		if p.Number == 0 || p.Branch == "" || p.TargetBranch == "" || p.HeadSHA == "" {
			return nil, c.garbled()
		}
		if hasLabels(p.Labels, labels) {
			out = append(out, p)
		}
	}
	return out, nil
}

// anything is an object or a list whose content does not matter.
type anything struct{}

// UnmarshalJSON accepts every object and list.
func (*anything) UnmarshalJSON(text []byte) error {
	if len(text) == 0 || text[0] != '{' && text[0] != '[' {
		return errors.New("it is neither an object nor a list")
	}
	return nil
}

// exists reports whether a commit has a file or folder.
func (c *caller) exists(ctx context.Context, a ask) (bool, error) {
	_, err := get[anything](ctx, c, a)
	return c.present(a, err)
}

// present reports whether a request for a file or folder has found it.
func (c *caller) present(a ask, err error) (bool, error) {
	var missing notFound
	if errors.As(err, &missing) && (len(a.absent) == 0 || a.proves(missing.message)) {
		return false, nil
	}
	return err == nil, c.missing(err, "the commit", a.query.Get("ref"))
}

// proves reports whether a text of the host proves that a path is absent.
func (a ask) proves(message string) bool {
	return slices.ContainsFunc(a.absent, func(text string) bool { return strings.Contains(message, text) })
}

func isMissing(err error) bool {
	var missing notFound
	return errors.As(err, &missing)
}

// missing is the error of a list for users: what the host does not find is
// named.
func (c *caller) missing(err error, what, name string) error {
	if !isMissing(err) {
		return err
	}
	return fault.With(fault.New(fault.Invalid, "%s does not find %s %q, or the token may not read it", c.base.Host, what, name), "", "check its name and the rights of the token")
}

// noRepository is the error of a list of pull requests.
func (c *caller) noRepository(err error, name string) error {
	if !isMissing(err) {
		return err
	}
	return fault.Wrap(fault.Invalid, errNoRepository, "%s does not find the repository %q, or the token may not read it", c.base.Host, name)
}
