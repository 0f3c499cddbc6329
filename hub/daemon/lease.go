package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/logkey"
)

const (
	// workLease is how long work of a replica that died waits for another
	// one, unless the operator says otherwise. A replica that lives renews its
	// leases three times as often.
	workLease = 15 * time.Second
	// longestHold ends the renewal of work that was never released.
	longestHold = 10 * time.Minute
	// leastSleep is how long a transaction may do nothing in any case: a
	// replica that is short of CPU is slow, and not stopped. With longer leases
	// it is one lease, after which its work is others' anyhow.
	leastSleep = 5 * time.Second
)

// renewer is the store, as leases see it.
type renewer interface {
	Renew(ctx context.Context, items []hub.WorkItem, lease time.Duration) (int, error)
}

// leases are this replica's leases. They are renewed as long as it runs, so
// that slow work is not done twice.
type leases struct {
	lease time.Duration

	mu   sync.Mutex
	held map[int64]holding // by token
}

type holding struct {
	item  hub.WorkItem
	since time.Time
}

func newLeases() *leases { return &leases{lease: workLease, held: map[int64]holding{}} }

func (l *leases) took(items []hub.WorkItem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, i := range items {
		l.held[i.Token] = holding{i, time.Now()}
	}
}

func (l *leases) release(items []hub.WorkItem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, i := range items {
		delete(l.held, i.Token)
	}
}

// due returns the leases, and drops those that are too old.
func (l *leases) due(now time.Time) []hub.WorkItem {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []hub.WorkItem
	for token, h := range l.held {
		if now.Sub(h.since) > longestHold {
			delete(l.held, token)
			continue
		}
		out = append(out, h.item)
	}
	return out
}

// renew renews leases until ctx ends.
func (l *leases) renew(ctx context.Context, store renewer, log *slog.Logger) error {
	tick := time.NewTicker(l.lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		items := l.due(time.Now())
		if len(items) == 0 {
			continue
		}
		if _, err := store.Renew(ctx, items, l.lease); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "leases of work cannot be renewed; other replicas may take it", logkey.Items, len(items), logkey.Error, err)
		}
	}
}
