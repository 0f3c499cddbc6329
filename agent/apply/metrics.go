package apply

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/agent/wave"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/trace"
)

// loopLimit is the time without progress after which a loop of the engine
// counts as stuck.
const loopLimit = 110 * time.Second

// A Metrics counts the engine's operations on objects. Doing is apply, hook,
// delete or heal; result is changed, unchanged, or the kind of a fault.
type Metrics interface {
	Object(doing, result string)
	Operation(phase string, took time.Duration)
}

type uncounted struct{}

func (uncounted) Object(string, string)           {}
func (uncounted) Operation(string, time.Duration) {}

func outcome(err error) string {
	if err != nil {
		return string(fault.KindOf(err))
	}
	return "changed"
}

// guarded wraps the target of one operation. Every step counts as progress and
// is counted, and a panic in it fails only that object.
type guarded struct {
	*task
	mu    sync.Mutex
	kinds map[string]*timingSpan
}

// A timingSpan is the time in which objects of one kind were processed.
type timingSpan struct {
	begin, end  time.Time
	doing, kind string
	objects     int
	err         error // the first
}

// Apply writes an object's desired content, or creates a hook.
func (g *guarded) Apply(ctx context.Context, it wave.Item) (out wave.Outcome, err error) {
	doing := "apply"
	if it.Hook {
		doing = "hook"
	}
	err = g.step(ctx, doing, it, func(ctx context.Context) (bool, error) {
		out, err = g.task.Apply(ctx, it)
		return out.Changed, err
	})
	return out, err
}

// Delete removes an object.
func (g *guarded) Delete(ctx context.Context, it wave.Item) (out wave.Outcome, err error) {
	err = g.step(ctx, "delete", it, func(ctx context.Context) (bool, error) {
		out, err = g.task.Delete(ctx, it)
		return out.Changed, err
	})
	return out, err
}

// State returns the live state.
func (g *guarded) State(ctx context.Context, it wave.Item) (out wave.State, err error) {
	lifecycle.Beat(ctx)
	err = lifecycle.Safely(ctx, "state", func(ctx context.Context) error {
		out, err = g.task.State(ctx, it)
		return err
	})
	return out, err
}

func (g *guarded) step(ctx context.Context, doing string, it wave.Item, do func(context.Context) (bool, error)) error {
	lifecycle.Beat(ctx)
	began := time.Now()
	changed := false
	err := lifecycle.Safely(ctx, doing, func(ctx context.Context) (err error) {
		changed, err = do(ctx)
		return err
	})
	word := outcome(err)
	if err == nil && !changed {
		word = unchanged
	}
	g.app.e.Metrics.Object(doing, word)
	if trace.Enabled(ctx) {
		g.measure(doing, it.Key.Kind, began, err)
	}
	lifecycle.Beat(ctx)
	return err
}

func (g *guarded) measure(doing, kind string, began time.Time, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.kinds[doing+kind]
	if s == nil {
		s = &timingSpan{begin: began, doing: doing, kind: kind}
		g.kinds[doing+kind] = s
	}
	s.objects++
	s.end = time.Now()
	if s.err == nil {
		s.err = err
	}
}

// record creates one span for each kind of the processed objects.
func (g *guarded) record(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.kinds {
		trace.Record(ctx, s.doing+" "+s.kind, s.begin, s.end, s.err, "objects", strconv.Itoa(s.objects))
	}
}
