// Package batch combines concurrent requests: one query or one transaction for
// all of them, where each alone would cost a round trip and a commit. It does
// not know what is requested, and delays nobody: a single request is processed
// at once, and only requests that arrive while a batch is running wait for the
// next one. Stages of the hub call it. Nothing runs without requests.
package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	most       = 64               // questions of one batch
	maxBatches = 2                // batches of one owner at one time
	longest    = 30 * time.Second // for one of them
)

// A Batcher answers questions of any number of goroutines in batches, apart
// for each owner. It is safe for all of them.
type Batcher[Q, A any] struct {
	answer func(ctx context.Context, owner string, of []Q) ([]A, error)
	after  func(ctx context.Context) // nil: nothing is waited for

	mu      sync.Mutex
	waiting map[string][]*question[Q, A]
	at      map[string]int // batches under way
}

type question[Q, A any] struct {
	of     Q
	answer A
	err    error
	defect *defect
	done   chan struct{}
}

// A defect is a panic of the batch function. It continues in the callers: they
// recover, and the process does not end because of one of them.
type defect struct {
	value any
	stack []byte
}

func (d *defect) Error() string { return fmt.Sprintf("%v\n%s", d.value, d.stack) }

// New makes a batcher. answer returns as many results as there are requests, in
// their order; results must not depend on other requests. An error is that of
// all of them, unless they succeed one by one; so is a panic, which then
// continues in the callers.
func New[Q, A any](answer func(context.Context, string, []Q) ([]A, error)) *Batcher[Q, A] {
	return &Batcher[Q, A]{answer: answer, waiting: map[string][]*question[Q, A]{}, at: map[string]int{}}
}

// After delays each batch until wait returns; requests that arrive in between
// join it. It is called before the first request.
func (g *Batcher[Q, A]) After(wait func(context.Context)) *Batcher[Q, A] {
	g.after = wait
	return g
}

// Waiting returns how many requests of an owner have not been taken into a
// batch yet.
func (g *Batcher[Q, A]) Waiting(owner string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting[owner])
}

// Do waits for the result, or for the end of ctx: the request may have been
// executed nevertheless.
func (g *Batcher[Q, A]) Do(ctx context.Context, owner string, of Q) (A, error) {
	q := &question[Q, A]{of: of, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting[owner] = append(g.waiting[owner], q)
	begin := g.at[owner] < maxBatches
	if begin {
		g.at[owner]++
	}
	g.mu.Unlock()
	if begin {
		go g.run(context.WithoutCancel(ctx), owner)
	}
	select {
	case <-q.done:
		if q.defect != nil {
			panic(q.defect)
		}
		return q.answer, q.err
	case <-ctx.Done():
		var none A
		return none, ctx.Err()
	}
}

// run processes requests until there are none. It ends with the last one.
func (g *Batcher[Q, A]) run(ctx context.Context, owner string) {
	for {
		if g.after != nil {
			g.after(ctx)
		}
		batch := g.nextBatch(owner)
		if len(batch) == 0 {
			return
		}
		if err := g.settle(ctx, owner, batch); len(batch) > 1 && mayBeOne(err) {
			for i := range batch {
				_ = g.settle(ctx, owner, batch[i:i+1])
			}
		}
		for _, q := range batch {
			close(q.done)
		}
	}
}

// nextBatch returns what waits. With nothing left, the caller's turn is over.
func (g *Batcher[Q, A]) nextBatch(owner string) []*question[Q, A] {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.waiting[owner]
	if len(all) == 0 {
		delete(g.waiting, owner)
		if g.at[owner]--; g.at[owner] == 0 {
			delete(g.at, owner)
		}
		return nil
	}
	n := min(len(all), most)
	g.waiting[owner] = all[n:]
	return all[:n:n]
}

// mayBeOne reports whether one of several requests may have caused the error.
// An unreachable database is an error of all.
func mayBeOne(err error) bool {
	return err != nil && fault.KindOf(err) != fault.Offline && !errors.Is(err, context.DeadlineExceeded)
}

func (g *Batcher[Q, A]) settle(ctx context.Context, owner string, batch []*question[Q, A]) (err error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	var caught *defect
	defer func() {
		if v := recover(); v != nil {
			caught = &defect{v, debug.Stack()}
			err = caught
		}
		for _, q := range batch {
			q.defect = caught
		}
	}()
	of := make([]Q, len(batch))
	for i, q := range batch {
		of[i] = q.of
	}
	answers, err := g.answer(ctx, owner, of)
	for i, q := range batch {
		if q.err = err; err == nil {
			q.answer = answers[i]
		}
	}
	return err
}
