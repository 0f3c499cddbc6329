package changes

import (
	"slices"
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/hub"
)

// A Policy is what a set may do to applications that are there (ASET-14).
// Creating them is always allowed.
type Policy struct{ Update, Delete bool }

// PolicyOf returns the policy of a set. The tenant's setting wins, unless it is
// empty or sets may say it themselves.
func PolicyOf(setting string, override bool, spec hub.ApplicationSetSpec) Policy {
	policy := setting
	if own := spec.SyncPolicy; own != nil && own.ApplicationsSync != nil && (override || setting == "") {
		policy = *own.ApplicationsSync
	}
	return Policy{
		Update: policy == "" || policy == hub.ApplicationsSync || policy == hub.ApplicationsCreateUpdate,
		Delete: policy == "" || policy == hub.ApplicationsSync || policy == hub.ApplicationsCreateDelete,
	}
}

// A Limit is how many applications are deleted without consent.
type Limit struct {
	most    int
	percent int
	// stated means that somebody has set it: then it holds also for the deletion
	// of all applications.
	stated bool
}

// The limit that holds where none is set: five applications, or a fifth of them
// where that is more.
const (
	freeDeletions = 5
	freePercent   = 20
)

// DefaultLimit is the limit where none is set.
func DefaultLimit() Limit { return Limit{most: freeDeletions, percent: freePercent} }

// ParseLimit reads a number of applications or a percentage of them. False means
// that it is neither.
func ParseLimit(text string) (Limit, bool) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	n, err := strconv.Atoi(number)
	switch {
	case err != nil || n < 0 || percent && n > 100:
		return Limit{}, false
	case percent:
		return Limit{percent: n, stated: true}, true
	}
	return Limit{most: n, stated: true}, true
}

// of returns how many of some applications are deleted without consent.
func (l Limit) of(all int) int { return max(l.most, all*l.percent/100) }

// holds reports whether the deletion of some of all applications of a set waits
// for consent.
func (l Limit) holds(deleted, all int, passing bool) bool {
	if deleted == 0 {
		return false
	}
	return deleted > l.of(all) || deleted == all && !l.stated && !passing
}

// passing reports whether all generators of a set list pull requests: that there
// are none is usual.
func passing(generators []hub.Generator) bool {
	return len(generators) > 0 && !slices.ContainsFunc(generators, func(g hub.Generator) bool { return !listsPullRequests(g) })
}

func listsPullRequests(g hub.Generator) bool {
	if g.Matrix != nil {
		return slices.ContainsFunc(g.Matrix.Generators, listsPullRequests)
	}
	return len(g.PullRequest) > 0
}
