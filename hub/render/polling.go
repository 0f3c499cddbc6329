package render

import (
	"hash/fnv"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

// polls is when an application is refreshed next because a base of another
// repository may have changed by then; the zero time: it has none that can. No
// fetch of a repository tells of that.
func (r *round) polls(j *job, inputs []hub.Input) time.Time {
	source, moving := movingBase(inputs)
	if !moving || j.asked != "" || source < 0 || source >= len(j.refresh.Sources) {
		return time.Time{}
	}
	return NextPoll(j.refresh.Sources[source].Repository.ID, r.now, r.cfg.Poll)
}

// NextPoll is the first time after now at which bases that a repository names
// are looked at. It is the same for all its applications, so that they share
// one listing of each base, and differs between repositories.
func NextPoll(repo hub.RepositoryID, now time.Time, interval time.Duration) time.Time {
	if interval <= 0 {
		return time.Time{}
	}
	h := fnv.New64a()
	h.Write([]byte(repo))
	next := now.Truncate(interval).Add(time.Duration(h.Sum64() % uint64(interval)))
	if !next.After(now) {
		next = next.Add(interval)
	}
	return next
}

// movingBase returns the source of the first base that is named by a branch or a
// tag. A commit never changes.
func movingBase(inputs []hub.Input) (source int, found bool) {
	for _, in := range inputs {
		if b, _, _, ok := baseAt(in.Path); ok && in.Kind != hub.InputFact && in.Kind != hub.InputRemote && !isFullCommit(b.Revision) {
			return in.Source, true
		}
	}
	return 0, false
}

func isFullCommit(revision string) bool {
	if len(revision) != 40 && len(revision) != 64 {
		return false
	}
	for _, c := range revision {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// earlier is the earlier one of two times, of which the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
