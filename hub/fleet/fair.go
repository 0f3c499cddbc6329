package fleet

import (
	"sync"
	"time"
)

const (
	recently   = 10 * time.Second // for how long a party counts as one that shares
	mostAdvice = time.Minute      // the longest wait that is advised
	mostParty  = 16_384           // distinct parties; those beyond share one
)

// A fairLimit is a token bucket that parties share: each has an equal part of
// the rate and of the burst among those that asked within the last ten seconds,
// and may use what others leave. A single party has the whole rate and burst. A
// quarter of the burst is reserved for new parties that arrive while another
// uses everything.
type fairLimit struct {
	perSecond, burst, spare float64

	mu      sync.Mutex
	tokens  float64
	at      time.Time // when tokens was right
	parties map[string]*party
	active  int   // parties that asked recently
	lines   []int // how many parties have at least one, two, three … members that wait
	tidied  time.Time
}

// A party is what one of those who share has left.
type party struct {
	tokens  float64
	at      time.Time // when tokens was right, and when it asked last
	active  bool
	next    time.Time // the last retry time given to its members
	waiting int       // members that wait for such a time
}

func newFairLimit(perSecond float64, burst int) *fairLimit {
	b := float64(max(1, burst))
	return &fairLimit{perSecond: perSecond, burst: b, spare: b / 4, tokens: b + b/4, parties: map[string]*party{}}
}

// take takes one token for a party. Without one it returns a retry time,
// another one with each call, so that all who wait return at the rate of their
// tokens; with promised set it returns none.
func (l *fairLimit) take(name string, promised bool, now time.Time) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tidy(now)
	p := l.party(name, now)
	if !p.active {
		p.active = true
		l.active++
	}
	l.tokens = min(l.burst+l.spare, l.tokens+l.perSecond*since(l.at, now))
	parts := float64(max(1, l.active))
	p.tokens = min(max(1, l.burst/parts), p.tokens+l.perSecond/parts*since(p.at, now))
	l.at, p.at = later(l.at, now), later(p.at, now)
	if l.tokens >= 1 && (p.tokens >= 1 || l.tokens >= 1+l.spare) {
		l.tokens--
		p.tokens = max(0, p.tokens-1)
		return 0, true
	}
	if promised {
		return 0, false
	}
	return l.promise(p, now), false
}

// promise returns the next member of a party a time. Parties are served in
// turn, so a member comes after one of each party that has as many waiting.
func (l *fairLimit) promise(p *party, now time.Time) time.Duration {
	if !p.next.After(now) {
		l.served(p)
		p.next = now
	}
	if len(l.lines) == p.waiting {
		l.lines = append(l.lines, 0)
	}
	next := p.next.Add(time.Duration(float64(l.lines[p.waiting]+1) / l.perSecond * float64(time.Second)))
	if next.Sub(now) > mostAdvice {
		return mostAdvice // later ones get a new time
	}
	l.lines[p.waiting]++
	p.waiting++
	p.next = next
	return max(time.Second, next.Sub(now))
}

// served ends the line of a party.
func (l *fairLimit) served(p *party) {
	for i := range p.waiting {
		l.lines[i]--
	}
	p.waiting = 0
}

// party finds a party, or makes one with all that it may have.
func (l *fairLimit) party(name string, now time.Time) *party {
	p := l.parties[name]
	if p == nil && len(l.parties) >= mostParty {
		name = ""
		p = l.parties[name]
	}
	if p == nil {
		p = &party{tokens: l.burst, at: now} // cut to its share when it takes
		l.parties[name] = p
	}
	return p
}

// tidy recounts once a second, and drops parties whose bucket is full.
func (l *fairLimit) tidy(now time.Time) {
	if since(l.tidied, now) < 1 {
		return
	}
	l.tidied = now
	l.active = 0
	refill := time.Duration(l.burst / l.perSecond * float64(time.Second))
	for name, p := range l.parties {
		idle := now.Sub(p.at)
		if !p.next.After(now) {
			l.served(p)
			if idle > max(recently, refill) {
				delete(l.parties, name)
				continue
			}
		}
		if p.active = idle <= recently; p.active {
			l.active++
		}
	}
}

// since is the time between two moments in seconds; none if it runs backwards.
func since(from, to time.Time) float64 { return max(0, to.Sub(from).Seconds()) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
