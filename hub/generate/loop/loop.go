// Package loop has application sets reconciled. It decides nothing: the catalogue
// generates a set and writes its applications. The daemon runs one Stage per
// replica. A work item says that a set is to be reconciled, so any replica does
// it, and one that was killed loses nothing. A set for which nothing is due costs
// nothing.
package loop

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// Work is where sets wait that are to be reconciled.
type Work interface {
	// ClaimWithin waits for items, as many as room returns, of tenants that are not
	// busy; freed says that there is more room.
	ClaimWithin(ctx context.Context, kind string, room func() (limit int, busy []hub.TenantID), freed <-chan struct{}) ([]hub.WorkItem, error)
	Done(ctx context.Context, items []hub.WorkItem) error
	Later(ctx context.Context, items []hub.WorkItem, due time.Time) error
}

// Catalog reconciles a set, and says when it is due again: zero, when something
// changes. Fresh means that somebody waits for what hosts say now.
type Catalog interface {
	ReconcileApplicationSet(ctx context.Context, tenant hub.TenantID, id hub.ApplicationSetID, fresh bool) (next time.Time, err error)
}

const (
	parallel  = 8               // sets at once
	ofTenant  = 4               // of them, of one tenant
	timeout   = 4 * time.Minute // for one set
	again     = 5 * time.Second // after an error of the hub
	giveBack  = 20 * time.Second
	loopLimit = 6 * time.Minute
)

// A Stage reconciles sets.
type Stage struct {
	work    Work
	catalog Catalog
	clock   lifecycle.Clock
	log     *slog.Logger
	freed   chan struct{}

	mu     sync.Mutex
	inWork map[hub.TenantID]int
}

// New makes a stage.
func New(work Work, catalog Catalog, clock lifecycle.Clock, log *slog.Logger) *Stage {
	return &Stage{work: work, catalog: catalog, clock: clock, log: log, freed: make(chan struct{}, 1), inWork: map[hub.TenantID]int{}}
}

// room returns how many sets may begin, and which tenants have as many in work
// as they may.
func (s *Stage) room() (limit int, busy []hub.TenantID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit = parallel
	for tenant, n := range s.inWork {
		limit -= n
		if n >= ofTenant {
			busy = append(busy, tenant)
		}
	}
	return limit, busy
}

func (s *Stage) begin(tenant hub.TenantID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inWork[tenant]++
}

func (s *Stage) end(tenant hub.TenantID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inWork[tenant]--; s.inWork[tenant] == 0 {
		delete(s.inWork, tenant)
	}
	select {
	case s.freed <- struct{}{}:
	default: // it is known already
	}
}

// Run reconciles sets until ctx ends. A set that takes long delays no other one.
func (s *Stage) Run(ctx context.Context) error {
	ctx, done := lifecycle.Watch(ctx, hub.WorkApplicationSet, loopLimit)
	defer done()
	var works sync.WaitGroup
	defer works.Wait()
	for ctx.Err() == nil {
		items, err := s.work.ClaimWithin(ctx, hub.WorkApplicationSet, s.room, s.freed)
		if err != nil {
			if ctx.Err() == nil {
				s.log.ErrorContext(ctx, "work cannot be claimed", logkey.Kind, hub.WorkApplicationSet, logkey.Error, err)
				_ = lifecycle.Sleep(ctx, s.clock, time.Second)
			}
			continue
		}
		for _, item := range items {
			s.begin(item.Tenant)
			works.Go(func() {
				defer s.end(item.Tenant)
				s.reconcile(ctx, item)
			})
		}
	}
	return nil
}

// reconcile reconciles one set and releases its work item.
func (s *Stage) reconcile(ctx context.Context, item hub.WorkItem) {
	own, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var next time.Time
	err := lifecycle.Safely(own, item.Kind, func(ctx context.Context) (err error) {
		next, err = s.catalog.ReconcileApplicationSet(ctx, item.Tenant, hub.ApplicationSetID(item.Key), item.Forced)
		return err
	})
	if err != nil {
		next = s.clock.Now().Add(again)
		s.log.WarnContext(ctx, "an application set was not reconciled, will retry", logkey.Tenant, item.Tenant, logkey.Error, err)
	}
	back, end := context.WithTimeout(context.WithoutCancel(ctx), giveBack)
	defer end()
	if next.IsZero() {
		err = s.work.Done(back, []hub.WorkItem{item})
	} else {
		err = s.work.Later(back, []hub.WorkItem{item}, next)
	}
	if err != nil {
		s.log.WarnContext(ctx, "work not given back; its lease will run out", logkey.Kind, item.Kind, logkey.Error, err)
	}
}
