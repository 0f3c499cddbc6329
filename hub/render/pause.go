package render

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/lru"
	"github.com/capstan-cd/capstan/shared/fault"
)

// failingBytes is how much is stored of failed renders, of all tenants.
// Losing it costs a render each.
const failingBytes = 16 << 20

// failing remembers applications whose renders fail (REPO-05). A render that
// has failed some times with the same inputs is not repeated for a while: its
// last error is the answer. Another input, another parameter and a hard refresh
// end that.
type failing struct {
	after int           // failures until the pause
	pause time.Duration // its length

	mu   sync.Mutex
	last *lru.Cache[failingKey, failure]
}

type failingKey struct {
	tenant hub.TenantID
	app    hub.ApplicationID
}

// A failure is what is known of an application's failed renders in a row.
type failure struct {
	params   [sha256.Size]byte
	inputs   []hub.Input // what the last one read
	times    int
	at       time.Time // when the last one ended
	kind     fault.Kind
	sentence string
}

func newFailing(after int, pause time.Duration) *failing {
	return &failing{after: after, pause: pause, last: lru.New[failingKey, failure](failingBytes)}
}

func (f *failing) of(key failingKey) (failure, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last, ok := f.last.Get(key)
	return last, ok && last.times > 0
}

// note remembers a failed render, and returns when it is tried again: the zero
// time if it is not paused. Only an error of the source that came with all that
// was read is remembered. If again is set, the failure before had the same
// inputs.
func (f *failing) note(key failingKey, params [sha256.Size]byte, inputs []hub.Input, err error, again bool) time.Time {
	kind := fault.KindOf(err)
	if len(inputs) == 0 || kind != fault.Invalid && kind != fault.Exceeded {
		f.forget(key)
		return time.Time{}
	}
	now := failure{params: params, inputs: inputs, times: 1, at: time.Now(), kind: kind, sentence: fault.Sentence(err)}
	size := int64(len(now.sentence))
	for _, in := range inputs {
		size += int64(len(in.Path)+len(in.Hash)) + 64
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if old, ok := f.last.Get(key); ok && again {
		now.times += old.times
	}
	f.last.Put(key, now, size)
	return f.until(now)
}

// forget ends what is known of an application.
func (f *failing) forget(key failingKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.last.Get(key); known {
		f.last.Put(key, failure{}, 0)
	}
}

// until is when a failed render is tried again; the zero time: at once.
func (f *failing) until(last failure) time.Time {
	if last.times < f.after {
		return time.Time{}
	}
	return last.at.Add(f.pause)
}

// cached is the error of a paused application.
func (f *failing) cached(last failure) error {
	return fault.New(last.kind, "%s. This is the cached error of %d attempts with the same inputs, the last at %s; it is rendered again at %s, when an input changes, or by a hard refresh",
		last.sentence, last.times, last.at.UTC().Format(time.RFC3339), f.until(last).UTC().Format(time.RFC3339))
}

func (r *round) failingKey(j *job) failingKey {
	return failingKey{r.tenant, j.refresh.Application.ID}
}

// unlessPaused returns the job, or notes the cached error of one whose render
// is paused. An operation that waits for manifests of its own is rendered.
func (r *round) unlessPaused(ctx context.Context, j *job) *job {
	last, ok := r.failing.of(r.failingKey(j))
	if !ok || j.asked != "" || last.params != j.params {
		return j
	}
	trees, err := r.trees.open(ctx, r.Stage, r.tenant, j)
	if err != nil {
		return j // the render returns the error
	}
	if j.again, err = Fresh(last.inputs, trees, r.connected(ctx, j, j.request(r.tenant, trees))); err != nil || !j.again {
		return j
	}
	until := r.failing.until(last)
	if !r.now.Before(until) {
		return j
	}
	r.count(func(c *Counters) { c.Paused++ })
	r.until[j.refresh.Application.ID] = earlier(until, r.polls(j, last.inputs))
	r.fail(j, hub.ComparisonError, r.failing.cached(last))
	return nil
}

// renderFailed remembers a failed render, which may pause the next ones.
func (r *round) renderFailed(j *job, inputs []hub.Input, err error) outcome {
	out := r.failure(j, err)
	if j.asked == "" {
		out.until = earlier(r.failing.note(r.failingKey(j), j.params, inputs, err, j.again), r.polls(j, inputs))
	}
	return out
}

// A postponed is what of a batch is refreshed again later.
type postponed struct {
	passing map[hub.ApplicationID]bool      // failed for a transient cause
	until   map[hub.ApplicationID]time.Time // renders are paused, or bases looked at
}

func newPostponed() postponed {
	return postponed{map[hub.ApplicationID]bool{}, map[hub.ApplicationID]time.Time{}}
}

// due is when an item is to be refreshed again; the zero time: not before
// something changes.
func (p postponed) due(item hub.WorkItem, now time.Time) time.Time {
	app := hub.ApplicationID(item.Key)
	if p.passing[app] {
		return now.Add(min(passingFirst<<min(item.Attempts, 10), passingMax))
	}
	return p.until[app]
}
