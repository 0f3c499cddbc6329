package daemon

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
)

// Events of one repository cause at most so many fetches: pushBurst at once,
// and then one in each pushGap. Others wait and become one fetch. So a Git host
// that repeats its events, or anybody who knows the secret, cannot make the hub
// send more requests than that to the host.
const (
	pushBurst = 60
	pushGap   = time.Second
	// maxPaced is of how many repositories the rate is known. Beyond it all are
	// forgotten, which costs a burst each.
	maxPaced = 10_000
)

// An eventRate limits how often events have a repository fetched.
type eventRate struct {
	mu   sync.Mutex
	each map[hub.RepositoryID]*rate.Limiter
}

func newEventRate() *eventRate { return &eventRate{each: map[hub.RepositoryID]*rate.Limiter{}} }

// wait returns how long a repository waits for its next fetch after an event.
func (p *eventRate) wait(id hub.RepositoryID, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, ok := p.each[id]
	if !ok {
		if len(p.each) >= maxPaced {
			clear(p.each)
		}
		l = rate.NewLimiter(rate.Every(pushGap), pushBurst)
		p.each[id] = l
	}
	if l.AllowN(now, 1) {
		return 0
	}
	return pushGap
}

// slow notes in targets which of their repositories wait.
func (p *eventRate) slow(targets []store.WebhookTarget, now time.Time) {
	for i := range targets {
		t := &targets[i]
		for _, id := range t.Repositories {
			if wait := p.wait(id, now); wait > 0 {
				if t.Waits == nil {
					t.Waits = map[hub.RepositoryID]time.Duration{}
				}
				t.Waits[id] = wait
			}
		}
	}
}
