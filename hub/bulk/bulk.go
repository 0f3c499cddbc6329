// Package bulk carries out requests about many applications. It decides
// nothing: the catalog has stored the request, and does each of its parts with
// the rights of who asked. The daemon runs one Stage per replica. A work item
// says that a request has applications left, so any replica goes on with it,
// and one that was killed loses nothing.
package bulk

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// Work is where requests wait that have something left.
type Work interface {
	Claim(ctx context.Context, kind string, limit int) ([]hub.WorkItem, error)
	Done(ctx context.Context, items []hub.WorkItem) error
	Later(ctx context.Context, items []hub.WorkItem, due time.Time) error
}

// Catalog does a part of a request, and reports whether that was the last one.
type Catalog interface {
	AdvanceBulk(ctx context.Context, tenant hub.TenantID, id hub.BulkID) (over bool, err error)
}

const (
	claimed     = 4               // requests at once
	partTimeout = 2 * time.Minute // for one part
	again       = 2 * time.Second // after an error
	giveBack    = 20 * time.Second
	loopLimit   = 5 * time.Minute
)

// A Stage carries out requests.
type Stage struct {
	work    Work
	catalog Catalog
	clock   lifecycle.Clock
	log     *slog.Logger
}

// New makes a stage.
func New(work Work, catalog Catalog, clock lifecycle.Clock, log *slog.Logger) *Stage {
	return &Stage{work: work, catalog: catalog, clock: clock, log: log}
}

// Run carries out requests until ctx ends.
func (s *Stage) Run(ctx context.Context) error {
	ctx, done := lifecycle.Watch(ctx, hub.WorkBulk, loopLimit)
	defer done()
	for ctx.Err() == nil {
		items, err := s.work.Claim(ctx, hub.WorkBulk, claimed)
		if err != nil {
			if ctx.Err() == nil {
				s.log.ErrorContext(ctx, "work cannot be claimed", logkey.Kind, hub.WorkBulk, logkey.Error, err)
				_ = lifecycle.Sleep(ctx, s.clock, time.Second)
			}
			continue
		}
		var parts sync.WaitGroup // the end of one part ends no other
		for _, item := range items {
			parts.Go(func() { s.part(ctx, item) })
		}
		parts.Wait()
	}
	return nil
}

// part does one part of a request and releases its work item. Other requests
// have their turn before the next part.
func (s *Stage) part(ctx context.Context, item hub.WorkItem) {
	own, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	var over bool
	err := lifecycle.Safely(own, item.Kind, func(ctx context.Context) (err error) {
		over, err = s.catalog.AdvanceBulk(ctx, item.Tenant, hub.BulkID(item.Key))
		return err
	})
	due := s.clock.Now()
	if err != nil {
		due = due.Add(again)
		s.log.WarnContext(ctx, "a part of a bulk request was not done, will retry", logkey.Tenant, item.Tenant, logkey.Error, err)
	}
	back, end := context.WithTimeout(context.WithoutCancel(ctx), giveBack)
	defer end()
	if over {
		err = s.work.Done(back, []hub.WorkItem{item})
	} else {
		err = s.work.Later(back, []hub.WorkItem{item}, due)
	}
	if err != nil {
		s.log.WarnContext(ctx, "work not given back; its lease will run out", logkey.Kind, item.Kind, logkey.Error, err)
	}
}
