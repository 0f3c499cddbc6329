package telemetry

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
)

// checkTime bounds what one check may take.
const checkTime = 3 * time.Second

// Health reports whether a process is alive and whether it is ready. Parts add
// their checks; many goroutines may use it.
type Health struct {
	mu    sync.Mutex
	live  map[string]Check
	ready map[string]Check
}

// A Check returns nil, or the reason for its failure.
type Check func(ctx context.Context) error

// NewHealth returns one without checks: alive and ready.
func NewHealth() *Health { return &Health{live: map[string]Check{}, ready: map[string]Check{}} }

// Live adds a reason to restart the process. Checks of other systems do not
// belong here: a restart would not repair them.
func (h *Health) Live(name string, c Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.live[name] = c
}

// Ready adds a reason to send no requests to this process for now.
func (h *Health) Ready(name string, c Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready[name] = c
}

// Liveness returns nil, or what is wrong.
func (h *Health) Liveness(ctx context.Context) error {
	return h.runChecks(ctx, func() map[string]Check { return h.live })
}

// Readiness returns nil, or what is missing.
func (h *Health) Readiness(ctx context.Context) error {
	return h.runChecks(ctx, func() map[string]Check { return h.ready })
}

// runChecks runs all checks concurrently. A check that does not return in time
// counts as failed, and is abandoned.
func (h *Health) runChecks(ctx context.Context, which func() map[string]Check) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	type answer struct {
		name string
		err  error
	}
	h.mu.Lock()
	answers := make(chan answer, len(which())) // one for each check: none blocks
	waiting := map[string]bool{}
	for name, check := range which() {
		waiting[name] = true
		go func() { answers <- answer{name, checked(ctx, check)} }()
	}
	h.mu.Unlock()
	var wrong []string
	for len(waiting) > 0 {
		select {
		case a := <-answers:
			delete(waiting, a.name)
			if a.err != nil {
				wrong = append(wrong, a.name+": "+fault.Sentence(a.err))
			}
		case <-ctx.Done():
			for name := range waiting {
				wrong = append(wrong, fmt.Sprintf("%s: no answer within %s", name, checkTime))
			}
			waiting = nil
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	return fault.New(fault.Offline, "%s", strings.Join(wrong, "; "))
}

func checked(ctx context.Context, c Check) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fault.New(fault.Offline, "the check itself failed")
		}
	}()
	return c(ctx)
}

// handler answers 200 or 503 with the reason in one line.
func handler(ask Check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if err := ask(r.Context()); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, fault.Sentence(err))
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
