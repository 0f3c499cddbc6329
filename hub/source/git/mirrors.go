// Package git is the source of Git repositories. Each repository of each tenant
// has one bare mirror on disk. An update costs one listing and at most one
// fetch, or only the fetch of a branch that a push event names. The package
// resolves revisions and serves the files of a commit as a hub.Tree from the
// object database, which is hub/source/git/packstore.
//
// It never makes a working copy, never runs a program, and never writes outside
// its state directory. It connects to no internal address that the operator did
// not allow. Errors and logs contain no credential. Changes are found by
// comparing with the mirror; the commit of a branch comes from its server,
// never from a webhook.
//
// The daemon runs one Mirrors per replica, which hub/source finds in its
// Registry. A mirror is a cache: losing it costs a fetch, never a
// state. An error never removes a ref, and a damaged mirror is fetched again.
package git

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source"
	"github.com/capstan-cd/capstan/hub/source/git/packstore"
	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// Config sets where mirrors are and what a repository may cost. Zero values
// mean the defaults.
type Config struct {
	Dir string // state directory; required; nothing else may write to it

	// AllowedNetworks are loopback, link-local and private networks that
	// repositories may be in all the same. Default: none.
	AllowedNetworks []netip.Prefix
	RootCAs         *x509.CertPool // authorities of Git servers; default: the system's
	// Proxies may be used by repositories. Default: none.
	Proxies []guard.Proxy
	// Lookup finds hosts that are reached through a proxy; default: the system's.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	Tokens Tokens // default: identities that need a token are refused

	ListTimeout  time.Duration // one listing of refs; default 15 s
	Attempts     int           // to list the refs, while the server is not reachable; default 1
	FetchTimeout time.Duration // one transfer of objects; default 5 min, doubled after each that timed out, up to eight times

	MaxBytes     int64 // one mirror on disk; default 2 GiB
	MaxListBytes int64 // one listing; default 64 MiB
	MaxRefs      int   // branches and tags; default 100,000
	MaxObjects   int64 // objects of one fetch; default 4,000,000
	MaxObject    int64 // bytes of an object that is stored as a difference; default 128 MiB
	MaxFile      int64 // bytes of one file that is read; default 10 MiB

	// Observe is called after each conversation with a server: ls-remote or
	// fetch, the repository, the error and the duration. It may be nil.
	Observe func(kind, repository string, err error, took time.Duration)

	MaxPacks   int           // packs of a mirror before they are merged; default 50
	CacheBytes int64         // memory for objects and trees of all mirrors; default 16 MiB
	IdleAfter  time.Duration // files and memory of a mirror are released after; default 60 s
}

func (c Config) withDefaults() Config {
	c.ListTimeout = cmp.Or(c.ListTimeout, 15*time.Second)
	c.Attempts = max(c.Attempts, 1)
	c.FetchTimeout = cmp.Or(c.FetchTimeout, 5*time.Minute)
	c.MaxBytes = cmp.Or(c.MaxBytes, 2<<30)
	c.MaxListBytes = cmp.Or(c.MaxListBytes, 64<<20)
	c.MaxRefs = cmp.Or(c.MaxRefs, 100_000)
	c.MaxObjects = cmp.Or(c.MaxObjects, 4_000_000)
	c.MaxObject = cmp.Or(c.MaxObject, 128<<20)
	c.MaxFile = cmp.Or(c.MaxFile, 10<<20)
	c.MaxPacks = cmp.Or(c.MaxPacks, 50)
	c.CacheBytes = cmp.Or(c.CacheBytes, 16<<20)
	c.IdleAfter = cmp.Or(c.IdleAfter, time.Minute)
	if c.Observe == nil {
		c.Observe = func(string, string, error, time.Duration) {}
	}
	return c
}

// ways are what the hub may dial.
func (c Config) ways() guard.Ways {
	return guard.Ways{Allowed: c.AllowedNetworks, Proxies: c.Proxies, RootCAs: c.RootCAs, Lookup: c.Lookup}
}

// packLimits bound what a pack may cost to ingest.
func (c Config) packLimits() packstore.Limits {
	return packstore.Limits{Objects: c.MaxObjects, Object: c.MaxObject, Inflated: 16 * c.MaxBytes}
}

// Validate reports every setting that cannot work.
func (c Config) Validate() error {
	var errs []error
	if !filepath.IsAbs(c.Dir) {
		errs = append(errs, fmt.Errorf("source: the state directory %q is not an absolute path", c.Dir))
	}
	if c.ListTimeout < 0 || c.FetchTimeout < 0 || c.IdleAfter < 0 {
		errs = append(errs, errors.New("source: a time is negative"))
	}
	if c.MaxBytes < 0 || c.MaxListBytes < 0 || c.MaxRefs < 0 || c.MaxObjects < 0 || c.MaxObject < 0 || c.MaxFile < 0 || c.MaxPacks < 0 || c.CacheBytes < 0 {
		errs = append(errs, errors.New("source: a limit is negative"))
	}
	for _, p := range c.AllowedNetworks {
		if !p.IsValid() {
			errs = append(errs, errors.New("source: an allowed network is not valid"))
		}
	}
	return errors.Join(errs...)
}

// Credentials finds what opens a repository, for fetches that a reader needs
// at once. The daemon provides it.
type Credentials interface {
	// Credential returns the repository's own credential, or that of the best
	// template, or none.
	Credential(ctx context.Context, tenant hub.TenantID, repo hub.RepositoryID) (hub.Credential, error)
	// HostKeys returns the keys of SSH servers that the tenant has stored.
	HostKeys(ctx context.Context, tenant hub.TenantID) ([]hub.HostKey, error)
	// Authorities returns the certificates, in PEM, that the tenant has stored
	// for servers of a host; empty: none, and the hub's own count.
	Authorities(ctx context.Context, tenant hub.TenantID, host string) (string, error)
}

// Tokens exchanges identities for the tokens that servers accept. The daemon
// provides it from hub/source/accesstoken.
type Tokens interface {
	// Exchange returns the credential that the server is shown.
	Exchange(ctx context.Context, tenant hub.TenantID, repo hub.Repository, cred hub.Credential) (hub.Credential, error)
	// Forget means that the server has refused the token.
	Forget(tenant hub.TenantID, repo hub.Repository, cred hub.Credential)
}

// Mirrors are all Git repositories of one replica. Any number of goroutines may
// use it.
type Mirrors struct {
	cfg   Config
	creds Credentials
	clock lifecycle.Clock
	log   *slog.Logger
	lib   *packstore.Library

	access Access // nil: only registered repositories are opened

	verified verifiedDemands
	removed  atomic.Uint64 // mirrors, so that each has a place of its own in the trash

	mu  sync.Mutex
	all map[mirrorKey]*mirror
}

var (
	_ source.Source      = (*Mirrors)(nil)
	_ source.PushFetcher = (*Mirrors)(nil)
)

// trashDir is where mirrors go while they are deleted.
const trashDir = ".trash"

type mirrorKey struct {
	tenant hub.TenantID
	repo   hub.RepositoryID
	module string // of a submodule; empty: the repository itself
}

// New makes the mirrors of a replica. Those of an earlier run are found in
// the state directory again when they are first needed.
func New(cfg Config, creds Credentials, clock lifecycle.Clock, log *slog.Logger) (*Mirrors, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	trash := filepath.Join(cfg.Dir, trashDir)
	if err := cmp.Or(os.RemoveAll(trash), os.MkdirAll(trash, 0o700)); err != nil {
		return nil, fmt.Errorf("create state directory: %w", err)
	}
	return &Mirrors{
		cfg: cfg, creds: creds, clock: clock, log: log,
		lib: packstore.NewLibrary(cfg.CacheBytes, cfg.MaxObject, log),
		all: map[mirrorKey]*mirror{},
	}, nil
}

// mirror finds the mirror of a repository. Identifiers become folder names,
// so nothing but the text form of a UUID passes.
func (m *Mirrors) mirror(tenant hub.TenantID, repo hub.RepositoryID) (*mirror, error) {
	if !hub.ValidID(string(tenant)) || !hub.ValidID(string(repo)) {
		return nil, fault.New(fault.Invalid, "%q of tenant %q is not the id of a repository", repo, tenant)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := mirrorKey{tenant: tenant, repo: repo}
	got := m.all[key]
	if got == nil {
		got = newMirror(m, tenant, filepath.Join(m.cfg.Dir, string(tenant), string(repo)))
		m.all[key] = got
	}
	got.used.Store(m.clock.Now().UnixNano())
	return got, nil
}

// Remove deletes the mirror of a repository. A fetch that runs is
// waited for.
func (m *Mirrors) Remove(ctx context.Context, tenant hub.TenantID, repo hub.RepositoryID) error {
	mir, err := m.mirror(tenant, repo)
	if err != nil {
		return err
	}
	if err := mir.enter(ctx); err != nil {
		return err
	}
	defer mir.leave()
	m.mu.Lock()
	delete(m.all, mirrorKey{tenant: tenant, repo: repo})
	m.mu.Unlock()
	mir.disconnect()
	return cmp.Or(mir.wipe(), m.removeModules(ctx, tenant, repo))
}

// removeAll deletes a folder or a file; an unknown one is no error.
func removeAll(name string) error {
	if err := os.RemoveAll(name); err != nil {
		return fmt.Errorf("remove %q: %w", name, err)
	}
	return nil
}

// Run releases files and memory of unused mirrors, until ctx ends.
// Then it closes everything and returns nil.
func (m *Mirrors) Run(ctx context.Context) error {
	for lifecycle.Sleep(ctx, m.clock, m.cfg.IdleAfter/2) == nil {
		m.rest(m.clock.Now().Add(-m.cfg.IdleAfter))
	}
	m.rest(m.clock.Now().Add(time.Hour))
	return nil
}

// rest releases what was not used since a moment.
func (m *Mirrors) rest(since time.Time) {
	m.mu.Lock()
	var idle []*mirror
	for _, mir := range m.all {
		if mir.used.Load() < since.UnixNano() {
			idle = append(idle, mir)
		}
	}
	m.mu.Unlock()
	for _, mir := range idle {
		mir.rest()
	}
}
