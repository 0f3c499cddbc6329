package git

import (
	"net/http"
	"time"

	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/shared/fault"
)

// asks notes how long the server asks to wait.
func (x *exchange) asks(res *http.Response) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.retryAfter = guard.RetryAfter(res, time.Now())
}

// wait is how long the server has asked to wait, with its last answer.
func (x *exchange) wait() time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.retryAfter
}

// asksToWait reports whether the server that returned an error wants no other
// request soon.
func asksToWait(err error) bool {
	e, ok := fault.As(err)
	return ok && e.RetryAfter > 0
}

// waiting adds to an error how long the server asks to wait.
func waiting(err error, d time.Duration) error {
	e, ok := fault.As(err)
	if !ok || d == 0 {
		return err
	}
	c := *e
	c.RetryAfter = d
	return &c
}
