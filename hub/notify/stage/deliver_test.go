package stage

import (
	"errors"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/notify/send"
)

func TestAttempts(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	busy := &send.Failure{Err: errors.New("busy")}
	for name, c := range map[string]struct {
		attempts        int // the last one included
		failure         error
		state           hub.DeliveryState
		atLeast, atMost time.Duration // until the next; zero: there is none
	}{
		"FT-W4 an accepted message is over":                 {1, nil, hub.DeliveryDelivered, 0, 0},
		"FT-W4 the first failure is tried again soon":       {1, busy, hub.DeliveryPending, 10 * time.Second, 13 * time.Second},
		"FT-W4 later ones wait longer":                      {4, busy, hub.DeliveryPending, 80 * time.Second, 100 * time.Second},
		"FT-W4 a service says when to come again":           {1, &send.Failure{RetryAfter: 2 * time.Minute, Err: errors.New("busy")}, hub.DeliveryPending, 2 * time.Minute, 2 * time.Minute},
		"FT-W4 but cannot make a message wait for days":     {1, &send.Failure{RetryAfter: 48 * time.Hour, Err: errors.New("busy")}, hub.DeliveryPending, maxBackoff, maxBackoff},
		"FT-W4 after the last attempt the message failed":   {maxAttempts, busy, hub.DeliveryFailed, 0, 0},
		"FT-W4 what is refused for good is not tried again": {1, &send.Failure{Permanent: true, Err: errors.New("gone")}, hub.DeliveryFailed, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := hub.Delivery{State: hub.DeliveryPending, Attempts: make([]hub.DeliveryAttempt, c.attempts)}
			due := after(&d, c.failure, now)
			if d.State != c.state || (c.atLeast == 0) != due.IsZero() || (d.FinishedAt != nil) != d.State.Over() {
				t.Fatalf("%s, due %s", d.State, due)
			}
			if wait := due.Sub(now); c.atLeast > 0 && (wait < c.atLeast || wait > c.atMost) {
				t.Errorf("the next attempt is after %s", wait)
			}
		})
	}
}

func TestRoom(t *testing.T) {
	t.Parallel()
	s := New(Parts{})
	s.limit["slow"] = 2
	s.begin("slow")
	if limit, busy := s.room(); limit != 1 || len(busy) != 0 {
		t.Errorf("%d, %v", limit, busy)
	}
	s.begin("slow")
	t.Run("NOTI-19 a tenant sends no more messages at once than it may, and holds up no other", func(t *testing.T) {
		if limit, busy := s.room(); limit != 1 || len(busy) != 1 || busy[0] != "slow" {
			t.Errorf("%d, %v", limit, busy)
		}
	})
	s.end("slow")
	if _, busy := s.room(); len(busy) != 0 {
		t.Errorf("%v", busy)
	}
}
