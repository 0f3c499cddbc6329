package lifecycle

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Backoff says how long to wait before the next try: with full jitter, so
// that clients that failed together do not retry together. The zero value waits
// up to 1 s first and up to 60 s at most. One goroutine may use it.
type Backoff struct {
	First time.Duration  // most to wait before the first retry; zero: 1 s
	Max   time.Duration  // most to wait at all; zero: 60 s
	Rand  func() float64 // in [0, 1); nil: a random number

	tries int
}

// Next returns the next wait: a random part of First, then of twice First, and
// so on up to Max.
func (b *Backoff) Next() time.Duration {
	first, most := b.First, b.Max
	if first <= 0 {
		first = time.Second
	}
	if most <= 0 {
		most = time.Minute
	}
	ceiling := most
	if b.tries < 32 && first<<b.tries > 0 && first<<b.tries < most {
		ceiling = first << b.tries
	}
	b.tries++
	random := b.Rand
	if random == nil {
		random = rand.Float64
	}
	return time.Duration(random() * float64(ceiling))
}

// Tries is the number of waits since the last Reset.
func (b *Backoff) Tries() int { return b.tries }

// Reset starts again from First.
func (b *Backoff) Reset() { b.tries = 0 }

// Spread returns d with up to the given share more or less, such as 0.2 for
// ± 20 %. random is in [0, 1).
func Spread(d time.Duration, share, random float64) time.Duration {
	return time.Duration(float64(d) * (1 - share + 2*share*random))
}

// Loop calls fn until ctx ends, and then returns nil. After an error it passes
// the error and the delay to failed, which logs it, and waits as b says. A call
// without an error resets the back-off. fn itself waits when there is nothing
// to do.
func Loop(ctx context.Context, c Clock, b Backoff, failed func(error, time.Duration), fn func(ctx context.Context) error) error {
	for ctx.Err() == nil {
		err := fn(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			b.Reset()
			continue
		}
		wait := b.Next()
		if failed != nil {
			failed(err, wait)
		}
		if Sleep(ctx, c, wait) != nil {
			return nil
		}
	}
	return nil
}

// Every calls fn at once and then after each interval, give or take the
// share, until ctx ends; then it returns nil. The interval is counted from
// the end of a call, so calls never overlap. An error goes to failed and
// changes nothing else.
func Every(ctx context.Context, c Clock, interval time.Duration, share float64, failed func(error), fn func(ctx context.Context) error) error {
	for ctx.Err() == nil {
		if err := fn(ctx); err != nil && ctx.Err() == nil && failed != nil {
			failed(err)
		}
		if Sleep(ctx, c, Spread(interval, share, rand.Float64())) != nil {
			return nil
		}
	}
	return nil
}
