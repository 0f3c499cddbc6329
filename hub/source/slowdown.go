package source

import (
	"net/url"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A tenantHost is a server as one tenant uses it. Servers limit accounts, which
// differ by tenant: one that is refused does not slow others down.
type tenantHost struct {
	tenant hub.TenantID
	host   string
}

// maxHosts is of how many hosts is known that they asked to wait.
const maxHosts = 10_000

// spreadAfter is the time over which the repositories of a host are spread
// that have waited for it.
const spreadAfter = 10 * time.Second

// asked is how long the server that returned an error asks to wait.
func asked(err error) time.Duration {
	if e, ok := fault.As(err); ok {
		return e.RetryAfter
	}
	return 0
}

// hostOf is the host of a repository, without its port.
func hostOf(repo hub.Repository) string {
	u, err := url.Parse(repo.URL)
	if err != nil {
		return repo.URL
	}
	return u.Hostname()
}

// slowDown has all repositories of a tenant at a host wait, if the host asked
// to wait.
func (l *Loop) slowDown(tenant hub.TenantID, repo hub.Repository, err error) {
	wait := asked(err)
	if wait <= 0 {
		return
	}
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.hosts) >= maxHosts {
		for h, until := range l.hosts {
			if !now.Before(until) {
				delete(l.hosts, h)
			}
		}
		if len(l.hosts) >= maxHosts {
			clear(l.hosts)
		}
	}
	h := tenantHost{tenant, hostOf(repo)}
	if until := now.Add(wait); until.After(l.hosts[h]) {
		l.hosts[h] = until
	}
}

// waitsFor is until when a repository waits for its host; the zero time: it
// does not. A fetch that a person asked for does not wait.
func (l *Loop) waitsFor(item hub.WorkItem, repo hub.Repository) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := tenantHost{item.Tenant, hostOf(repo)}
	until, ok := l.hosts[h]
	switch {
	case !ok || item.Forced:
		return time.Time{}
	case !l.clock.Now().Before(until):
		delete(l.hosts, h)
		return time.Time{}
	}
	return until
}
