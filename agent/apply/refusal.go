package apply

import (
	"context"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/agent/apply/ownership"
	"github.com/capstan-cd/capstan/agent/inventory"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// refusals are the reasons for which the last operation of an application could
// not write objects: each names the object's owner. Once none of these causes
// exists any more the hub is notified, and decides whether the operation's
// target is retried (AUTO-04). The application's mu guards them.
type refusals struct {
	operation string // empty: nothing was refused
	causes    map[manifest.Key]string
	over      bool      // the causes are gone, and the hub is notified
	notBefore time.Time // when the hub may be notified next
	backoff   lifecycle.Backoff
	planned   bool
}

// The back-off of these notifications, for an operation that fails for the same
// causes again and again.
const (
	unblockFirst = 5 * time.Second
	unblockMost  = 5 * time.Minute
)

// set replaces the refusals by those of the newest operation.
func (r *refusals) set(operation string, refused []inventory.Refusal) {
	r.operation, r.causes, r.over = "", nil, false
	if len(refused) == 0 {
		r.backoff, r.notBefore = lifecycle.Backoff{}, time.Time{}
		return
	}
	r.operation, r.causes = operation, map[manifest.Key]string{}
	for _, c := range refused {
		if key, err := manifest.ParseKey(c.Key); err == nil {
			r.causes[key] = c.Mark
		}
	}
}

// restore is set for stored refusals.
func (r *refusals) restore(operation string, refused []inventory.Refusal) { r.set(operation, refused) }

// unblocked returns the operation whose refusals have no cause any more; empty:
// none. The caller holds mu.
func (a *app) unblocked(now time.Time) string {
	r := &a.refusals
	if r.operation == "" || a.running != nil || len(a.queue) > 0 || a.deleting || a.closed {
		return ""
	}
	if r.over {
		return r.operation
	}
	for key, mark := range r.causes {
		if a.blocks(key, mark) {
			return ""
		}
	}
	if wait := r.notBefore.Sub(now); wait > 0 {
		if !r.planned {
			r.planned = true
			a.e.runAfter(wait, func(context.Context) {
				a.mu.Lock()
				defer a.mu.Unlock()
				r.planned = false
				a.scheduleReport()
			})
		}
		return ""
	}
	if r.backoff.First == 0 {
		r.backoff = lifecycle.Backoff{First: unblockFirst, Max: unblockMost}
	}
	r.over, r.notBefore = true, now.Add(r.backoff.Next())
	return r.operation
}

// blocks reports whether the cause for which an operation was refused an object
// still exists. The caller holds mu.
func (a *app) blocks(key manifest.Key, mark string) bool {
	x := a.objects[key]
	if mark != "" && x != nil {
		if !x.live.known {
			return true // the next event shows it
		}
		return x.live.found && x.live.foreign != nil && x.live.foreign.Title() == mark
	}
	a.e.mu.RLock()
	defer a.e.mu.RUnlock()
	s := a.e.objects[key]
	if s == nil {
		return false
	}
	may := ownership.Interest{App: a.id, Permitted: true, Listed: true} // any other obstacle is another cause
	return !s.Unblocked(may, a.e.interestOf(s.Owner, key, true))
}

// refused collects the refusals of one operation.
type refused struct {
	mu   sync.Mutex
	list []inventory.Refusal
}

func (r *refused) add(key manifest.Key, mark string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.list {
		if c.Key == key.String() {
			return
		}
	}
	if len(r.list) < mostRefused {
		r.list = append(r.list, inventory.Refusal{Key: key.String(), Mark: mark})
	}
}

// mostRefused is how many causes are stored per operation.
const mostRefused = 1000

func (r *refused) all() []inventory.Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list
}
