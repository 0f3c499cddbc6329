package fleet

import (
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/capstan-cd/capstan/shared/fault"
)

// How often enrolment may be tried. A token cannot be guessed at any rate;
// the limits protect the database.
const (
	enrolPerSecond     = 50
	enrolBurst         = 100
	enrolHostPerSecond = 5
	enrolHostBurst     = 20
	enrolHosts         = 4096 // hosts remembered at once
)

// enrolLimit bounds attempts to enrol, of everyone and of each host.
type enrolLimit struct {
	all *rate.Limiter

	mu    sync.Mutex
	hosts map[string]*rate.Limiter
	tidy  time.Time // when hosts was last looked through
}

func newEnrolLimit() *enrolLimit {
	return &enrolLimit{all: rate.NewLimiter(enrolPerSecond, enrolBurst), hosts: map[string]*rate.Limiter{}}
}

// check takes one attempt, or says that there are too many.
func (l *enrolLimit) check(address string, now time.Time) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if !l.host(host, now).AllowN(now, 1) || !l.all.AllowN(now, 1) {
		return &fault.Error{Kind: fault.Exceeded, Cause: "too many attempts to enrol", Fix: "try again in a minute", RetryAfter: 20 * time.Second}
	}
	return nil
}

func (l *enrolLimit) host(host string, now time.Time) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.hosts[host]; h != nil {
		return h
	}
	if len(l.hosts) >= enrolHosts && now.Sub(l.tidy) >= time.Minute {
		l.tidy = now
		for name, h := range l.hosts {
			if h.TokensAt(now) >= enrolHostBurst { // as good as new
				delete(l.hosts, name)
			}
		}
	}
	// With no room left, the limit for everyone has to do.
	h := rate.NewLimiter(enrolHostPerSecond, enrolHostBurst)
	if len(l.hosts) < enrolHosts {
		l.hosts[host] = h
	}
	return h
}
