package guard

import (
	"net/http"
	"strconv"
	"time"
)

// mostRetryAfter is the longest wait that a server may ask for.
const mostRetryAfter = time.Hour

// RetryAfter is how long a server asks to wait, in seconds or until a date;
// zero: it does not. GitHub limits some requests with status 403.
func RetryAfter(res *http.Response, now time.Time) time.Duration {
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusForbidden:
	default:
		return 0
	}
	value := res.Header.Get("Retry-After")
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return min(time.Duration(n)*time.Second, mostRetryAfter)
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), mostRetryAfter)
	}
	return 0
}
