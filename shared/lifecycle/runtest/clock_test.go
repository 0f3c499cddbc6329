package runtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
)

func TestClock(t *testing.T) {
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	c := runtest.NewClock(start)
	first, _ := c.After(time.Second)
	second, stop := c.After(2 * time.Second)
	c.Wait(2)
	c.Advance(time.Second)
	if at := <-first; !at.Equal(start.Add(time.Second)) {
		t.Errorf("the first timer fired at %s", at)
	}
	stop()
	c.Advance(time.Hour)
	select {
	case <-second:
		t.Error("a stopped timer fired")
	default:
	}

	done := make(chan error)
	go func() { done <- lifecycle.Sleep(t.Context(), c, time.Minute) }()
	c.Wait(1)
	c.Advance(time.Minute)
	if err := <-done; err != nil {
		t.Errorf("Sleep() = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := lifecycle.Sleep(ctx, c, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("Sleep() of a cancelled context = %v", err)
	}
}
