// Package stage tells recipients of what has changed: it decides about the
// transitions of applications, and delivers the messages that follow. The store
// notes transitions in the transaction that makes them, so none is lost while no
// hub runs. The daemon runs one Stage per replica; work items say what is due, so
// any replica goes on with it.
//
// What always holds: a transition is decided about once, in one transaction with
// the messages that follow. A message is sent until its service has accepted it,
// or until it has failed too often; it carries an id that is the same in all
// attempts. Nothing that a service does delays a sync.
package stage

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/notify"
	"github.com/capstan-cd/capstan/hub/notify/send"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// Work is where applications with transitions, and messages, wait.
type Work interface {
	Claim(ctx context.Context, kind string, limit int) ([]hub.WorkItem, error)
	ClaimWithin(ctx context.Context, kind string, room func() (limit int, busy []hub.TenantID), freed <-chan struct{}) ([]hub.WorkItem, error)
	Done(ctx context.Context, items []hub.WorkItem) error
	Later(ctx context.Context, items []hub.WorkItem, due time.Time) error
}

// Store reads what is decided about, and stores what was decided.
type Store interface {
	Waiting(ctx context.Context, tenant hub.TenantID, app hub.ApplicationID) (Waiting, error)
	// Decided stores a decision if the lease of the work item is still valid.
	Decided(ctx context.Context, item hub.WorkItem, d Decided) error
	Letter(ctx context.Context, tenant hub.TenantID, id hub.DeliveryID) (Letter, error)
	Attempted(ctx context.Context, tenant hub.TenantID, d hub.Delivery) error
	Settings(ctx context.Context, tenant hub.TenantID) (Settings, error)
}

// Settings are what a tenant has set, with the values of its secrets.
type Settings struct {
	Values, Secrets map[string]string
	Processors      int
}

// Waiting is an application with its oldest transitions.
type Waiting struct {
	notify.Input
	Settings
	More bool // there are more transitions than these
	Gone bool // there is nothing to decide about
	// Room is how many messages the tenant may still send in this hour; negative:
	// any number.
	Room int64
}

// Decided is what was decided about transitions.
type Decided struct {
	Application hub.ApplicationID
	State       *hub.NotifiedState // nil: the application is forgotten
	Transitions []int64
	Deliveries  []hub.Delivery
}

// Letter is a delivery with what is sent.
type Letter struct {
	hub.Delivery
	// After is when an earlier message to the same recipient is sent, which this
	// one waits for; nil: there is none.
	After *time.Time
	Settings
}

// Counts receives what happens.
type Counts interface {
	Evaluated(trigger string, triggered bool, n int)
	Delivered(trigger, service string, succeeded bool)
}

// Sender delivers one letter.
type Sender func(ctx context.Context, l send.Letter) (hub.DeliveryAttempt, error)

const (
	claimed      = 16
	senders      = 16 // deliveries of all tenants at once
	stepTimeout  = time.Minute
	again        = 5 * time.Second // after an error of the hub itself
	giveBack     = 20 * time.Second
	loopLimit    = 5 * time.Minute
	maxAttempts  = 8
	firstBackoff = 10 * time.Second
	maxBackoff   = 30 * time.Minute
)

// A Stage decides and delivers.
type Stage struct {
	work    Work
	store   Store
	send    Sender
	lookups func(tenant hub.TenantID, in notify.Input) notify.Lookups
	counts  Counts
	context map[string]string // of tenants that do not set it
	clock   lifecycle.Clock
	log     *slog.Logger

	mu    sync.Mutex
	busy  map[hub.TenantID]int
	limit map[hub.TenantID]int
	freed chan struct{} // capacity 1
}

// Parts are what a stage needs.
type Parts struct {
	Work    Work
	Store   Store
	Send    Sender
	Lookups func(tenant hub.TenantID, in notify.Input) notify.Lookups
	Counts  Counts
	// URL is the address of the console, which templates read as context.argocdUrl
	// of tenants that do not set it.
	URL   string
	Clock lifecycle.Clock
	Log   *slog.Logger
}

// New makes a stage.
func New(p Parts) *Stage {
	return &Stage{
		work: p.Work, store: p.Store, send: p.Send, lookups: p.Lookups, counts: p.Counts, context: map[string]string{"argocdUrl": p.URL}, clock: p.Clock, log: p.Log,
		busy: map[hub.TenantID]int{}, limit: map[hub.TenantID]int{}, freed: make(chan struct{}, 1),
	}
}

// Decide decides about transitions until ctx ends.
func (s *Stage) Decide(ctx context.Context) error {
	return s.loop(ctx, hub.WorkNotify, func(ctx context.Context) ([]hub.WorkItem, error) { return s.work.Claim(ctx, hub.WorkNotify, claimed) }, s.decide)
}

func (s *Stage) loop(ctx context.Context, kind string, claim func(context.Context) ([]hub.WorkItem, error), do func(context.Context, hub.WorkItem) (time.Time, error)) error {
	ctx, done := lifecycle.Watch(ctx, kind, loopLimit)
	defer done()
	for ctx.Err() == nil {
		items, err := claim(ctx)
		if err != nil {
			s.failed(ctx, kind, err)
			continue
		}
		var wait sync.WaitGroup
		for _, item := range items {
			wait.Go(func() { s.step(ctx, item, do) })
		}
		wait.Wait()
	}
	return nil
}

func (s *Stage) failed(ctx context.Context, kind string, err error) {
	if ctx.Err() == nil {
		s.log.ErrorContext(ctx, "work cannot be claimed", logkey.Kind, kind, logkey.Error, err)
		_ = lifecycle.Sleep(ctx, s.clock, time.Second) // it ends with ctx
	}
}

// step does one item and releases it: for a later time, or for good.
func (s *Stage) step(ctx context.Context, item hub.WorkItem, do func(context.Context, hub.WorkItem) (time.Time, error)) {
	own, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	var due time.Time
	err := lifecycle.Safely(own, item.Kind, func(ctx context.Context) (err error) {
		due, err = do(ctx, item)
		return err
	})
	if err != nil {
		due = s.clock.Now().Add(again)
		s.log.WarnContext(ctx, "a notification was not handled, will retry", logkey.Kind, item.Kind, logkey.Tenant, item.Tenant, logkey.Error, err)
	}
	back, end := context.WithTimeout(context.WithoutCancel(ctx), giveBack)
	defer end()
	if due.IsZero() {
		err = s.work.Done(back, []hub.WorkItem{item})
	} else {
		err = s.work.Later(back, []hub.WorkItem{item}, due)
	}
	if err != nil {
		s.log.WarnContext(ctx, "work not given back; its lease will run out", logkey.Kind, item.Kind, logkey.Error, err)
	}
}
