package scm

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gosimple/slug"
)

// A Repository is a branch of a repository.
type Repository struct {
	Organization string // of the repository; group, project or workspace at other hosts
	Name         string
	ID           any // an int64, or a string where hosts use UUIDs
	URL          string
	Branch       string
	SHA          string
	Labels       []string

	pushed time.Time // the last push, as the host lists it; zero: it does not
	slug   string    // Bitbucket Server's name in URLs
}

// A PullRequest is one that a host lists.
type PullRequest struct {
	Number       int64
	Title        string
	Branch       string
	TargetBranch string
	HeadSHA      string
	Labels       []string
	Author       string
}

// Params are the parameters of the repository for templates (AGEN-09).
func (r Repository) Params() map[string]any {
	return map[string]any{
		"organization":     r.Organization,
		"repository":       r.Name,
		"repository_id":    r.ID,
		"url":              r.URL,
		"branch":           r.Branch,
		"branchNormalized": normalize(r.Branch),
		"sha":              r.SHA,
		"short_sha":        short(r.SHA, 8),
		"short_sha_7":      short(r.SHA, 7),
		"labels":           strings.Join(r.Labels, ","),
	}
}

// Params are the parameters of the pull request for templates (AGEN-11). Go
// templates have its labels as a list; legacy ones have none.
func (p PullRequest) Params(goTemplate bool) map[string]any {
	out := map[string]any{
		"number":             strconv.FormatInt(p.Number, 10),
		"title":              p.Title,
		"branch":             p.Branch,
		"branch_slug":        slugOf(p.Branch),
		"target_branch":      p.TargetBranch,
		"target_branch_slug": slugOf(p.TargetBranch),
		"head_sha":           p.HeadSHA,
		"head_short_sha":     short(p.HeadSHA, 8),
		"head_short_sha_7":   short(p.HeadSHA, 7),
		"author":             p.Author,
	}
	if goTemplate {
		out["labels"] = p.Labels
	}
	return out
}

func short(sha string, n int) string { return sha[:min(len(sha), n)] }

// longestSlug leaves room for a prefix or suffix in a DNS label.
const longestSlug = 50

// configureSlugs sets the rules of the library, which are variables of its
// package. Nothing else in the hub uses it.
var configureSlugs = sync.OnceFunc(func() { //nolint:gochecknoglobals // once for the process, as the variables that it sets
	slug.MaxLength = longestSlug
	slug.CustomSub = map[string]string{"_": "-"}
})

// slugOf is a branch's name as a part of a DNS label.
func slugOf(branch string) string {
	configureSlugs()
	return slug.Make(branch)
}

const longestName = 253

// normalize is a branch's name as a DNS name.
func normalize(branch string) string {
	name := regexp.MustCompile("[^-a-z0-9.]").ReplaceAllString(strings.ToLower(branch), "-")
	return strings.Trim(short(name, longestName), "-.")
}
