package stage

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/notify"
	"github.com/capstan-cd/capstan/hub/notify/send"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// Deliver sends messages until ctx ends. One that a service keeps waiting holds
// up no other tenant, and of its own tenant no more than the rest of its share.
func (s *Stage) Deliver(ctx context.Context) error {
	ctx, done := lifecycle.Watch(ctx, hub.WorkDeliver, loopLimit)
	defer done()
	var wait sync.WaitGroup
	defer wait.Wait()
	for ctx.Err() == nil {
		items, err := s.work.ClaimWithin(ctx, hub.WorkDeliver, s.room, s.freed)
		if err != nil {
			s.failed(ctx, hub.WorkDeliver, err)
			continue
		}
		for _, item := range items {
			s.begin(item.Tenant)
			wait.Go(func() {
				defer s.end(item.Tenant)
				s.step(ctx, item, s.deliver)
			})
		}
	}
	return nil
}

// room returns how many messages can be sent now, and of which tenants none.
func (s *Stage) room() (limit int, busy []hub.TenantID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := 0
	for tenant, n := range s.busy {
		all += n
		if n >= max(1, s.limit[tenant]) {
			busy = append(busy, tenant)
		}
	}
	if all >= senders {
		return 0, busy
	}
	// One at a time: a tenant's share may be full after each.
	return 1, busy
}

func (s *Stage) begin(tenant hub.TenantID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy[tenant]++
}

func (s *Stage) end(tenant hub.TenantID) {
	s.mu.Lock()
	if s.busy[tenant]--; s.busy[tenant] == 0 {
		delete(s.busy, tenant)
	}
	s.mu.Unlock()
	select {
	case s.freed <- struct{}{}:
	default:
	}
}

// deliver makes one attempt.
func (s *Stage) deliver(ctx context.Context, item hub.WorkItem) (time.Time, error) {
	l, err := s.store.Letter(ctx, item.Tenant, hub.DeliveryID(item.Key))
	if fault.KindOf(err) == fault.Missing {
		return time.Time{}, nil
	}
	if err != nil || l.State.Over() {
		return time.Time{}, err
	}
	if l.After != nil { // recipients hear of changes in their order
		return later(*l.After, s.clock.Now().Add(queueGap)), nil
	}
	s.mu.Lock()
	s.limit[item.Tenant] = l.Processors
	s.mu.Unlock()
	attempt, failure := s.attempt(ctx, item.Tenant, l)
	if ctx.Err() != nil {
		return time.Time{}, ctx.Err() // the hub stops: another one makes the attempt
	}
	s.counts.Delivered(l.Trigger, l.Service, failure == nil)
	d := l.Delivery
	d.Attempts = append(d.Attempts, attempt)
	now := s.clock.Now()
	due := after(&d, failure, now)
	return due, s.store.Attempted(ctx, item.Tenant, d)
}

// queueGap is how long a message waits for one before it that is due.
const queueGap = 200 * time.Millisecond

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// attempt sends a letter.
func (s *Stage) attempt(ctx context.Context, tenant hub.TenantID, l Letter) (hub.DeliveryAttempt, error) {
	fail := func(err error) (hub.DeliveryAttempt, error) {
		return hub.DeliveryAttempt{At: s.clock.Now(), Error: fault.Sentence(err)}, &send.Failure{Permanent: true, Err: err}
	}
	service, ok := notify.Read(l.Values).Services[l.Service]
	if !ok {
		return fail(fault.New(fault.Invalid, "the service %s is not set any more", l.Service))
	}
	hidden := service.Hidden(l.Secrets)
	service, err := service.With(l.Secrets)
	if err != nil {
		return fail(err)
	}
	var message notify.Message
	if err := json.Unmarshal(l.Message, &message); err != nil {
		return fail(fault.New(fault.Invalid, "the message cannot be read"))
	}
	return s.send(ctx, send.Letter{
		Tenant: tenant, ID: l.ID, Service: service, Secrets: append(hidden, service.Hidden(nil)...), Message: message, Recipient: l.Recipient, At: l.CreatedAt,
	})
}

// after notes what an attempt means for the delivery, and returns when the next
// one is due; zero: there is none.
func after(d *hub.Delivery, failure error, now time.Time) time.Time {
	d.DueAt = nil
	if failure == nil {
		d.State, d.Reason, d.FinishedAt = hub.DeliveryDelivered, "", &now
		return time.Time{}
	}
	var f *send.Failure
	errors.As(failure, &f)
	last := d.Attempts[len(d.Attempts)-1]
	d.Reason = last.Error
	if f == nil || f.Permanent || len(d.Attempts) >= maxAttempts {
		d.State, d.FinishedAt = hub.DeliveryFailed, &now
		return time.Time{}
	}
	wait := min(firstBackoff<<(len(d.Attempts)-1), maxBackoff)
	wait += rand.N(wait / 4)
	due := now.Add(max(wait, min(f.RetryAfter, maxBackoff)))
	d.DueAt = &due
	return due
}
