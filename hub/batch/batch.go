// Package gather puts together what many ask at the same time: one query or
// one transaction for all of them, where each alone would cost a round trip
// and a commit. It knows nothing of what is asked, and holds nobody up:
// whoever asks alone is answered at once, and only what comes while a batch is
// under way waits for the next one. Stages of the hub call it. Nothing runs
// while nobody asks.
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

// A defect is a panic of the one who answers. It goes on in those who asked:
// they have their guards, and the process does not end because of one of them.
type defect struct {
	value any
	stack []byte
}

func (d *defect) Error() string { return fmt.Sprintf("%v\n%s", d.value, d.stack) }

// New makes a gatherer. answer gives as many answers as there are questions,
// in their order; what it does for one question must not depend on the others.
// An error is that of all of them, unless they go better one by one; a
// panic likewise, and who asked panics then.
func New[Q, A any](answer func(context.Context, string, []Q) ([]A, error)) *Batcher[Q, A] {
	return &Batcher[Q, A]{answer: answer, waiting: map[string][]*question[Q, A]{}, at: map[string]int{}}
}

// After lets each batch wait until wait returns; what is asked meanwhile joins
// it. It is called before the first question.
func (g *Batcher[Q, A]) After(wait func(context.Context)) *Batcher[Q, A] {
	g.after = wait
	return g
}

// Do waits for the answer, or for the end of ctx: the question may have been
// carried out then all the same.
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

// run answers until nobody asks. It ends with the last question.
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

// mayBeOne reports whether one of several questions may be what went wrong. A
// database that is away answers none of them.
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
