package scm

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/guard"
)

// An Observer sees each request to a host.
type Observer interface {
	SCMCall(c Call)
}

// A Call is one request that was sent.
type Call struct {
	Tenant    hub.TenantID
	Namespace string // of the set that sent it
	Set       string
	Kind      string // of the host
	Host      string
	Method    string
	Endpoint  string // the path without names
	Status    int    // 0: there was no answer
	Took      time.Duration
	Limit     RateLimit
}

// A RateLimit is what a host says about its limit of requests.
type RateLimit struct {
	Known     bool
	Limit     int // requests of a period
	Remaining int
	Used      int
	Reset     time.Time // when the period ends
	Resource  string    // what the limit is for
}

// A limitKey is a credential of a tenant at a host.
type limitKey struct {
	tenant   hub.TenantID
	host     string
	identity [32]byte
}

// A limit is when requests may be sent again.
type limit struct{ until time.Time }

const (
	limitedFor        = time.Minute // where the host does not say how long
	shortlyLimited    = 5 * time.Second
	longestLimit      = time.Hour
	mostLimitedAnswer = 512 // bytes of an entry
)

// called shows a request to the observer.
func (a *Answers) called(c *caller, q ask, status int, h http.Header, began time.Time) {
	if a == nil || a.cache.observer == nil {
		return
	}
	r := a.reader
	a.cache.observer.SCMCall(Call{
		Tenant: r.Tenant, Namespace: r.Namespace, Set: r.Set, Kind: c.kind, Host: c.base.Host, Method: http.MethodGet, Endpoint: q.endpoint,
		Status: status, Took: a.now().Sub(began), Limit: readLimit(h),
	})
}

// readLimit reads the headers of GitHub, GitLab, Bitbucket Cloud and Azure
// DevOps.
func readLimit(h http.Header) RateLimit {
	of := func(name string) (int, bool) {
		n, err := strconv.Atoi(cmp.Or(h.Get("X-RateLimit-"+name), h.Get("RateLimit-"+name)))
		return n, err == nil
	}
	var l RateLimit
	l.Remaining, l.Known = of("Remaining")
	l.Limit, _ = of("Limit")
	var used bool
	if l.Used, used = of("Used"); !used {
		l.Used, used = of("Observed")
	}
	if !used {
		l.Used = max(l.Limit-l.Remaining, 0)
	}
	if reset, ok := of("Reset"); ok {
		l.Reset = time.Unix(int64(reset), 0)
	}
	l.Resource = h.Get("X-RateLimit-Resource")
	return l
}

// limited returns how long a host refuses further requests, and remembers it;
// zero: the answer is no refusal because of a limit.
func (a *Answers) limited(c *caller, res *http.Response, message errorAnswer) time.Duration {
	now := a.now()
	wait, l := guard.RetryAfter(res, now), readLimit(res.Header)
	switch {
	case res.StatusCode == http.StatusTooManyRequests:
	case res.StatusCode == http.StatusForbidden && (wait > 0 || l.Known && l.Remaining == 0 || strings.Contains(strings.ToLower(message.Message), "rate limit")):
	case res.StatusCode == http.StatusServiceUnavailable && wait > 0:
	default:
		return 0
	}
	switch {
	case wait > 0:
	case l.Reset.IsZero():
		wait = limitedFor
	default:
		wait = max(l.Reset.Sub(now), shortlyLimited) // clocks differ
	}
	wait = min(wait, longestLimit)
	if a != nil {
		a.cache.limits.Put(limitKey{a.reader.Tenant, c.base.Host, c.identity}, limit{now.Add(wait)}, mostLimitedAnswer)
	}
	return wait
}

// blocked returns how long a host still refuses requests; zero: it does not.
func (a *Answers) blocked(c *caller) time.Duration {
	if a == nil {
		return 0
	}
	l, _ := a.cache.limits.Get(limitKey{a.reader.Tenant, c.base.Host, c.identity})
	return max(l.until.Sub(a.now()), 0)
}
