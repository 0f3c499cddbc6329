package lua

import (
	"context"
	"time"

	glua "github.com/yuin/gopher-lua"

	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	stepBytes       = 32  // estimated allocation of an instruction; the real one is at most about ten times higher
	valueBytes      = 16  // a slot in a table or on the stack
	entryBytes      = 128 // a named entry of a table
	frameBytes      = 96  // a place on the call stack
	fewValues       = 256 // on the stack of one call, which are not counted
	clockCheckEvery = 16  // instructions between two checks of the clock
)

// A budget is the rest of a run's limits. One goroutine uses it at a time.
type budget struct {
	limits     Limits
	deadline   time.Time
	parent     context.Context //nolint:containedctx // ends with the run that it limits
	closed     chan struct{}
	steps      int64
	memory     int64
	untilCheck int
	threads    int
	err        error // the limit that was passed
}

func newBudget(ctx context.Context, l Limits) *budget {
	standard := Bounds()
	if l.Time <= 0 {
		l.Time = standard.Time
	}
	if l.Steps <= 0 {
		l.Steps = standard.Steps
	}
	if l.Memory <= 0 {
		l.Memory = standard.Memory
	}
	if l.Text <= 0 {
		l.Text = standard.Text
	}
	closed := make(chan struct{})
	close(closed)
	return &budget{limits: l, deadline: time.Now().Add(l.Time), parent: ctx, closed: closed}
}

// spend counts steps and bytes. It returns the first limit that was exceeded.
func (b *budget) spend(steps, bytes int64) error {
	if b.err != nil {
		return b.err
	}
	b.steps += steps
	b.memory += bytes
	switch {
	case b.steps > b.limits.Steps:
		b.err = fault.New(fault.Exceeded, "the script was stopped after %d steps", b.limits.Steps)
	case b.memory > b.limits.Memory:
		b.err = fault.New(fault.Exceeded, "the script was stopped because it used more than %d MiB of memory", b.limits.Memory>>20)
	}
	return b.err
}

// tick is called before each instruction.
func (b *budget) tick(top int) error {
	bytes := int64(stepBytes)
	if top > fewValues {
		bytes += int64(top) * valueBytes
	}
	if err := b.spend(1, bytes); err != nil {
		return err
	}
	if b.untilCheck--; b.untilCheck < 0 {
		b.untilCheck = clockCheckEvery
		return b.onTime()
	}
	return nil
}

func (b *budget) onTime() error {
	if b.err == nil && !time.Now().Before(b.deadline) {
		b.err = fault.New(fault.Exceeded, "the script was stopped after %s", b.limits.Time)
	}
	if b.err == nil && b.parent.Err() != nil {
		b.err = fault.Wrap(fault.Offline, b.parent.Err(), "the script was stopped because its caller has ended")
	}
	return b.err
}

// text counts the bytes of a text before it is made.
func (b *budget) text(n int) error {
	if b.err == nil && n > b.limits.Text {
		b.err = fault.New(fault.Exceeded, "the script was stopped because it made a text of more than %d KiB", b.limits.Text>>10)
	}
	return b.spend(int64(n)/64, int64(n))
}

// A meter counts instructions: the interpreter checks its context before each
// one.
type meter struct {
	context.Context //nolint:containedctx // it is one

	b *budget
	l *glua.LState
}

// Done counts an instruction, and returns a closed channel once a limit is
// exceeded.
func (m meter) Done() <-chan struct{} {
	if m.b.tick(m.l.GetTop()) != nil {
		return m.b.closed
	}
	return nil
}

// Err is the limit that was passed.
func (m meter) Err() error { return m.b.err }

// pay spends from inside a function that a script calls, and ends the run if
// a limit is passed.
func (r *running) pay(l *glua.LState, steps, bytes int64) {
	if err := r.b.spend(steps, bytes); err != nil {
		l.RaiseError("%s", err.Error())
	}
}

// payText is pay for a text.
func (r *running) payText(l *glua.LState, n int) {
	if err := r.b.text(n); err != nil {
		l.RaiseError("%s", err.Error())
	}
}
