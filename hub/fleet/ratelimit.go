package fleet

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/clientip"
	"github.com/capstan-cd/capstan/shared/fault"
)

// How often enrolment may be tried. A token cannot be guessed at any rate;
// the limits protect the database. Whether a token is known costs one read;
// what follows costs a signature and a transaction.
const (
	lookupPerSecond = 500 // shared by source addresses
	lookupBurst     = 1000
	enrolPerSecond  = 50 // of tokens that are known, shared by tenants
	enrolBurst      = 100
	tokenPerSecond  = 1 // of one token
	tokenBurst      = 10
	hostPerSecond   = 5 // of tokens that are not known, from one address
	hostBurst       = 20
	mostHosts       = 4096 // addresses, and tokens, remembered at once
)

// enrolLimit bounds attempts to enrol. Clients without a known token compete
// for lookups with other addresses only, and never with those that have one.
type enrolLimit struct {
	lookups *fairLimit // by address
	all     *fairLimit // by tenant
	hosts   *keyed     // what is not known, by address
	tokens  *keyed     // by enrolment
}

func newEnrolLimit() *enrolLimit {
	return &enrolLimit{
		lookups: newFairLimit(lookupPerSecond, lookupBurst), all: newFairLimit(enrolPerSecond, enrolBurst),
		hosts: newKeyed(hostPerSecond, hostBurst), tokens: newKeyed(tokenPerSecond, tokenBurst),
	}
}

// takeLookup counts one lookup of a token, or returns that there are too many.
func (l *enrolLimit) takeLookup(address string, now time.Time) error {
	host := clientip.Key(address)
	if l.hosts.of(host, now).TokensAt(now) < 1 {
		return errTooManyAttempts()
	}
	if _, ok := l.lookups.take(host, true, now); !ok {
		return errTooManyAttempts()
	}
	return nil
}

// unknown counts a token of an unknown address.
func (l *enrolLimit) unknown(address string, now time.Time) {
	l.hosts.of(clientip.Key(address), now).AllowN(now, 1)
}

// takeKnown counts one attempt with a known token.
func (l *enrolLimit) takeKnown(inv hub.Invitation, now time.Time) error {
	if !l.tokens.of(string(inv.ID), now).AllowN(now, 1) {
		return errTooManyAttempts()
	}
	if _, ok := l.all.take(string(inv.Tenant), true, now); !ok {
		return errTooManyAttempts()
	}
	return nil
}

func errTooManyAttempts() error {
	return &fault.Error{Kind: fault.Exceeded, Cause: "too many attempts to enrol", Fix: "try again in a minute", RetryAfter: 20 * time.Second}
}

// keyed is a token bucket for each key.
type keyed struct {
	perSecond float64
	burst     int

	mu      sync.Mutex
	buckets map[string]*rate.Limiter
	tidied  time.Time
}

func newKeyed(perSecond float64, burst int) *keyed {
	return &keyed{perSecond: perSecond, burst: burst, buckets: map[string]*rate.Limiter{}}
}

func (k *keyed) of(key string, now time.Time) *rate.Limiter {
	k.mu.Lock()
	defer k.mu.Unlock()
	if b := k.buckets[key]; b != nil {
		return b
	}
	if len(k.buckets) >= mostHosts && now.Sub(k.tidied) >= time.Second {
		k.tidied = now
		for other, b := range k.buckets {
			if b.TokensAt(now) >= float64(k.burst) { // as good as new
				delete(k.buckets, other)
			}
		}
	}
	// With no room left, the limit for everyone has to do.
	b := rate.NewLimiter(rate.Limit(k.perSecond), k.burst)
	if len(k.buckets) < mostHosts {
		k.buckets[key] = b
	}
	return b
}
