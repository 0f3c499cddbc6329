// Package simagent simulates agents by the thousand for benchmarks of a hub:
// each is the agent's own link code with a log in memory instead of a
// cluster. A simulated agent reports at once that everything is applied and
// healthy; it shows what a hub costs, and nothing about the sync engine.
package simagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// How fast simulated agents enrol: what a hub takes is 50 a second.
const (
	enrolRate  = 45
	enrolBurst = 90
)

// A Fleet is the simulated agents of one installation.
type Fleet struct {
	Agents []*Agent

	api     *stack.API
	log     *slog.Logger
	apis    []string        // API versions of every cluster
	life    context.Context // ends with Stop, and with it all agents
	stop    context.CancelFunc
	running sync.WaitGroup
}

// NewFleet returns a fleet without agents. The caller must Stop it.
func NewFleet(ctx context.Context, api *stack.API) *Fleet {
	f := &Fleet{api: api, log: slog.New(slog.DiscardHandler)}
	f.life, f.stop = context.WithCancel(ctx)
	for i := range 80 {
		f.apis = append(f.apis, fmt.Sprintf("group-%02d.example.com/v1/SomeKind%02d", i/4, i))
	}
	return f
}

// Stop ends all agents.
func (f *Fleet) Stop() {
	f.stop()
	f.running.Wait()
}

// Grow enrols agents until there are so many, each attaches as soon as it may.
func (f *Fleet) Grow(ctx context.Context, to int) error {
	limit := rate.NewLimiter(enrolRate, enrolBurst)
	slots := make(chan struct{}, 32)
	errs := make(chan error, to)
	var all sync.WaitGroup
	for n := len(f.Agents); n < to; n++ {
		a := newAgent(f, n)
		f.Agents = append(f.Agents, a)
		if err := limit.Wait(ctx); err != nil {
			return err
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if err := f.enrol(ctx, a); err != nil {
				errs <- fmt.Errorf("%s: %w", a.Name, err)
				return
			}
			f.running.Go(func() { _ = a.run(f.life) })
		})
	}
	all.Wait()
	close(errs)
	return errors.Join(<-errs, f.All(ctx, time.Minute, "attached", (*Agent).Attached))
}

// Enrol enrols one agent that is none of Agents. The caller starts it.
func (f *Fleet) Enrol(ctx context.Context, n int) (*Agent, error) {
	a := newAgent(f, n)
	return a, f.enrol(ctx, a)
}

func (f *Fleet) enrol(ctx context.Context, a *Agent) error {
	var answer struct {
		JoinToken string `json:"joinToken"`
	}
	if err := f.api.Do(ctx, http.MethodPost, "/api/v1/clusters/enroll", map[string]any{"name": a.Name}, &answer); err != nil {
		return err
	}
	if answer.JoinToken == "" {
		return errors.New("the answer has no join token")
	}
	return a.enrol(ctx, answer.JoinToken)
}

// Start runs an agent that Enrol returned until stop is called, or the fleet is.
func (f *Fleet) Start(a *Agent) (stop func()) {
	live, cancel := context.WithCancel(f.life)
	done := make(chan error, 1)
	go func() { done <- a.run(live) }()
	return func() {
		cancel()
		<-done
	}
}

// All waits until every agent is so far.
func (f *Fleet) All(ctx context.Context, within time.Duration, what string, is func(*Agent) bool) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for from := 0; from < len(f.Agents); {
		if is(f.Agents[from]) {
			from++
			continue
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d agents are %s: %w; wrong: %v", f.count(is), len(f.Agents), what, ctx.Err(), f.Err())
		case <-tick.C:
		}
	}
	return f.Err()
}

func (f *Fleet) count(is func(*Agent) bool) int {
	n := 0
	for _, a := range f.Agents {
		if is(a) {
			n++
		}
	}
	return n
}

// Err is the first thing that a hub sent to an agent and should not have.
func (f *Fleet) Err() error {
	for _, a := range f.Agents {
		if err := a.Err(); err != nil {
			return err
		}
	}
	return nil
}
