package scm

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/lru"
)

// Config sets up a cache. Zero values mean the defaults.
type Config struct {
	Bytes    int64 // memory for answers of all tenants; default 64 MiB
	Now      func() time.Time
	Observer Observer // nil: nobody
}

// A Cache has the answers of hosts, in memory. An answer is shared by the sets
// of one tenant that send the same credential to the same address, and by nobody
// else. What is asked again is asked conditionally. The daemon makes one for
// each replica.
type Cache struct {
	now      func() time.Time
	observer Observer
	answers  *lru.Cache[key, answer]
	limits   *lru.Cache[limitKey, limit]
	flight   singleflight.Group
}

// A key is a document of a host as one credential of a tenant sees it.
type key struct {
	tenant   hub.TenantID
	identity [32]byte
	document [32]byte // hash of its address
}

// An answer is one document, or all pages of a list. It is never changed.
type answer struct {
	pages   []page
	began   time.Time // when it was asked for
	fetched time.Time // the host's time then; zero: unknown
}

// A page is one answer of a host, reduced to the fields that are read.
type page struct {
	status  int
	body    []byte
	message string // with status 404
	etag    string
	query   string
	next    string // query of the next page; empty: it is the last
	total   int    // of all pages; negative: unknown

	volatile bool // it is not asked for conditionally
}

const (
	cacheBytes = 64 << 20
	limitBytes = 1 << 20
	ownBytes   = 200 // of a page, besides its body
)

// NewCache makes an empty cache.
func NewCache(cfg Config) *Cache {
	if cfg.Bytes == 0 {
		cfg.Bytes = cacheBytes
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Cache{now: cfg.Now, observer: cfg.Observer, answers: lru.New[key, answer](cfg.Bytes), limits: lru.New[limitKey, limit](limitBytes)}
}

// A Reader says for whom answers are read, and how old they may be.
type Reader struct {
	Tenant    hub.TenantID
	Namespace string // of the set
	Set       string // its name
	// Fresh is for a refresh that somebody asked for, or an event of the host:
	// lists are asked for again. Hard is for one that believes nothing.
	Fresh, Hard bool
}

// Answers are the cache as one run of a set's generators uses it.
type Answers struct {
	cache  *Cache
	reader Reader
	made   time.Time
}

// Of returns the cache for one run.
func (c *Cache) Of(r Reader) *Answers { return &Answers{cache: c, reader: r, made: c.now()} }

// Forget removes all answers of a tenant.
func (c *Cache) Forget(tenant hub.TenantID) {
	c.answers.Drop(func(k key) bool { return k.tenant == tenant })
}

func (a *Answers) now() time.Time {
	if a == nil {
		return time.Now()
	}
	return a.cache.now()
}

// find returns an answer that is recent enough, or fetches one. Callers that
// need the same one wait for one fetch.
func (a *Answers) find(ctx context.Context, c *caller, q ask, fetch func(ctx context.Context, known answer) (answer, error)) (answer, error) {
	if a == nil {
		return fetch(ctx, answer{})
	}
	k := key{a.reader.Tenant, c.identity, sha256.Sum256([]byte(c.base.String() + q.path + "?" + q.query.Encode()))}
	oldest := a.oldest(c.maxAge)
	for {
		known, _ := a.cache.answers.Get(k)
		if a.current(c, q, k, known, oldest) {
			return known, nil
		}
		name := fmt.Sprintf("%s %x %x", k.tenant, k.identity, k.document)
		done := a.cache.flight.DoChan(name, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestList)
			defer cancel()
			found, err := fetch(ctx, known)
			if err == nil {
				a.cache.answers.Put(k, found, found.size())
			}
			return found, err
		})
		select {
		case r := <-done:
			found, _ := r.Val.(answer)
			if r.Err != nil || !found.began.Before(oldest) {
				return found, r.Err
			}
		case <-ctx.Done():
			return answer{}, fmt.Errorf("wait for %s: %w", c.base.Host, context.Cause(ctx))
		}
	}
}

// oldest is the time after which an answer must have been asked for.
func (a *Answers) oldest(maxAge time.Duration) time.Time {
	if a.reader.Fresh || a.reader.Hard {
		return a.made
	}
	return a.now().Add(-maxAge)
}

// current reports whether an answer can be used as it is: it is recent, or of a
// commit, or nothing was pushed since.
func (a *Answers) current(c *caller, q ask, k key, known answer, oldest time.Time) bool {
	switch {
	case len(known.pages) == 0:
		return false
	case !known.began.Before(oldest), q.commit && (known.pages[0].status == http.StatusOK || q.proves(known.pages[0].message)):
		return true
	case a.reader.Hard || q.pushed.IsZero() || known.fetched.IsZero() || c.settled.most == 0:
		return false
	}
	// Each document has its own time of the period, so that requests are spread.
	phase := time.Duration(binary.BigEndian.Uint64(k.document[:8]) % uint64(c.settled.most))
	period := func(t time.Time) int64 { return (t.UnixNano() + int64(phase)) / int64(c.settled.most) }
	return period(known.began) == period(a.now()) && known.fetched.After(q.pushed.Add(c.settled.delay))
}

func (w answer) size() int64 {
	var n int64
	for _, p := range w.pages {
		n += int64(len(p.body)+len(p.etag)+len(p.next)) + ownBytes
	}
	return n
}

// dateOf is the host's time of an answer, as the times of pushes are; zero:
// unknown.
func dateOf(h http.Header) time.Time {
	at, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return at
}
