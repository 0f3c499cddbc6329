package fleet

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/capstan-cd/capstan/shared/fault"
)

// How many agents a hub process lets in. The burst takes a small fleet at
// once; a large one comes back at the steady rate, each agent at the time
// that it was told.
const (
	admitPerSecond = 100
	admitBurst     = 600
	mostAdvice     = time.Minute // the longest wait that is advised
)

// An admission is a token bucket for agents that attach. Those that find it
// empty are told when to come again, each another time, so that they come at
// the rate at which the bucket fills.
type admission struct {
	bucket *rate.Limiter
	later  *rate.Limiter // gives out the times
}

func newAdmission(perSecond float64, burst int) *admission {
	return &admission{bucket: rate.NewLimiter(rate.Limit(perSecond), burst), later: rate.NewLimiter(rate.Limit(perSecond), 1)}
}

// take lets one in, or says when to come again.
func (a *admission) take(now time.Time) error {
	if a.bucket.AllowN(now, 1) {
		return nil
	}
	wait := time.Second
	r := a.later.ReserveN(now, 1)
	if d := r.DelayFrom(now); d > mostAdvice {
		r.CancelAt(now) // whoever comes that late is told anew then
		wait = mostAdvice
	} else {
		wait = max(wait, d)
	}
	return &fault.Error{
		Kind: fault.Exceeded, Cause: "too many agents connect at once", Fix: "the agent comes again by itself", RetryAfter: wait,
	}
}
