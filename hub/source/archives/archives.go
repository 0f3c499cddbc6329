// Package archives is what the sources of charts and of OCI artifacts have in
// common. What such a repository publishes is packed in archives, under versions
// and digests. The package fetches those that applications name, unpacks them
// into files of its own and serves them as a hub.Tree. How versions are found
// and archives are read is the concern of an Origin, one for each kind:
// hub/source/helmrepo and hub/source/oci.
//
// An archive never becomes files and folders on disk: its contents are one file
// that a list of names points into. Sizes are checked while it is read, its
// digest before it is served, and that of each file whenever it is read.
//
// A version stands for the contents that it was first seen with. Other contents
// under the same version are an error of the applications that use it, until
// somebody accepts them (decision 0096).
//
// The daemon builds one Source for each kind and replica. What is stored is a
// cache: losing it costs a download, never a state.
package archives

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/lru"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/hub/source"
	"github.com/capstan-cd/capstan/hub/source/charts"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Config sets where archives are and what they may cost. Zero values mean the
// defaults.
type Config struct {
	Dir      string        // required; nothing else may write to it
	Limits   Limits        // of one archive; default 1 GiB and 100,000 entries
	MaxFile  int64         // bytes of one file that is read; default 10 MiB
	MaxBytes int64         // stored for one tenant; default 4 GiB
	Targets  int           // charts and revisions of one repository; default 1,000
	Timeout  time.Duration // of one call; default 5 min
	Tokens   Tokens        // nil: no identity is exchanged
}

func (c Config) withDefaults() Config {
	c.Limits.Bytes = cmp.Or(c.Limits.Bytes, 1<<30)
	c.Limits.Entries = cmp.Or(c.Limits.Entries, 100_000)
	c.MaxFile = cmp.Or(c.MaxFile, 10<<20)
	c.MaxBytes = cmp.Or(c.MaxBytes, 4<<30)
	c.Targets = cmp.Or(c.Targets, 1000)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Minute)
	return c
}

// Secrets are what opens the repositories of a tenant.
type Secrets interface {
	// Credential returns what opens a repository.
	Credential(ctx context.Context, tenant hub.TenantID, repo hub.RepositoryID) (hub.Credential, error)
	// Authorities returns the PEM that a tenant has stored for a host; empty:
	// those of the system count.
	Authorities(ctx context.Context, tenant hub.TenantID, host string) (pem string, err error)
}

// Tokens exchanges identities for the tokens that servers accept. The daemon
// provides it from hub/source/accesstoken.
type Tokens interface {
	// Exchange returns the credential that the server is shown.
	Exchange(ctx context.Context, tenant hub.TenantID, repo hub.Repository, cred hub.Credential) (hub.Credential, error)
	// Forget means that the server has refused the token.
	Forget(tenant hub.TenantID, repo hub.Repository, cred hub.Credential)
}

// A Place is one repository of one tenant.
type Place struct {
	Repository hub.Repository
	Access     charts.Access
	Dir        string // for what the origin stores; empty: it stores nothing
}

// An Origin is how one kind finds and reads what is published.
type Origin interface {
	// Open prepares calls to a repository, and contacts nobody yet. Fresh: what
	// was read before is asked for again.
	Open(p Place, fresh bool) (Session, error)
}

// A Session is some calls to one repository.
type Session interface {
	// Check contacts the repository, and says whether it can be read.
	Check(ctx context.Context) error
	// Choose finds what a target stands for. charts.ErrNone is in the chain of
	// the error if there is nothing.
	Choose(ctx context.Context, t hub.Target) (Choice, error)
	// List returns what the repository publishes: the charts of an index, or
	// the tags of a registry or of one of its charts.
	List(ctx context.Context, chart string) (hub.Listing, error)
	// Download reads the archive of a choice.
	Download(ctx context.Context, c Choice, into *Download) error
	// Close releases the connection.
	Close()
}

// A Choice is what a target stands for.
type Choice struct {
	Target hub.Target
	Commit string // the revision: a version, or a digest
	Digest string // "sha256:" and 64 hex digits, of what is served; empty: known after the download
	Origin any    // what the origin needs for the download
}

// A Source serves the repositories of one kind.
type Source struct {
	cfg     Config
	origin  Origin
	secrets Secrets
	layouts *lru.Cache[string, *layout] // by the name of the stored archive

	mu    sync.Mutex
	locks map[string]chan struct{} // by folder of a repository
}

var (
	_ source.Prober = (*Source)(nil)
	_ source.Lister = (*Source)(nil)
)

// layoutBytes is the memory for lists of files of all archives.
const layoutBytes = 32 << 20

// New makes the source of a kind.
func New(cfg Config, origin Origin, secrets Secrets) (*Source, error) {
	cfg = cfg.withDefaults()
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the folder of archives: %w", err)
	}
	return &Source{cfg: cfg, origin: origin, secrets: secrets, layouts: lru.New[string, *layout](layoutBytes), locks: map[string]chan struct{}{}}, nil
}

// folder is where a repository is stored. Identifiers become names on disk, so
// nothing but the text form of a UUID passes.
func (s *Source) folder(tenant hub.TenantID, repo hub.RepositoryID) (string, error) {
	if !hub.ValidID(string(tenant)) || !hub.ValidID(string(repo)) {
		return "", fault.New(fault.Invalid, "%q of tenant %q is not the id of a repository", repo, tenant)
	}
	return filepath.Join(s.cfg.Dir, string(tenant), string(repo)), nil
}

// enter locks a repository until leave is called.
func (s *Source) enter(ctx context.Context, dir string) (leave func(), err error) {
	s.mu.Lock()
	lock, ok := s.locks[dir]
	if !ok {
		lock = make(chan struct{}, 1)
		s.locks[dir] = lock
	}
	s.mu.Unlock()
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// open prepares calls to a repository.
func (s *Source) open(ctx context.Context, tenant hub.TenantID, repo hub.Repository, cred hub.Credential, dir string, fresh bool) (Session, error) {
	u, err := url.Parse(repo.URL)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the address %q cannot be parsed", repourl.Redact(repo.URL))
	}
	authorities, err := s.secrets.Authorities(ctx, tenant, u.Hostname())
	if err != nil {
		return nil, fmt.Errorf("read the authorities of %s: %w", u.Hostname(), err)
	}
	shown, err := s.exchange(ctx, tenant, repo, cred)
	if err != nil {
		return nil, err
	}
	opened, err := s.origin.Open(Place{
		Repository: repo, Dir: dir,
		Access: charts.Access{Credential: shown, Insecure: repo.Insecure, PlainHTTP: repo.PlainHTTP && repo.Registry(), Authorities: authorities},
	}, fresh)
	if err != nil || cred.Exchanged == (hub.Exchanged{}) {
		return opened, err
	}
	return exchanged{opened, func() { s.cfg.Tokens.Forget(tenant, repo, cred) }}, nil
}

// exchange returns the credential that the server is shown.
func (s *Source) exchange(ctx context.Context, tenant hub.TenantID, repo hub.Repository, cred hub.Credential) (hub.Credential, error) {
	switch {
	case cred.Exchanged == (hub.Exchanged{}):
		return cred, nil
	case s.cfg.Tokens == nil:
		return cred, fault.New(fault.Invalid, "the hub cannot request tokens for its identity")
	}
	return s.cfg.Tokens.Exchange(ctx, tenant, repo, cred)
}

// An exchanged session was opened with a token. One that the server refuses is
// requested anew next time.
type exchanged struct {
	Session
	forget func()
}

func (e exchanged) noted(err error) error {
	if errors.Is(err, charts.ErrRefused) {
		e.forget()
	}
	return err
}

func (e exchanged) Check(ctx context.Context) error { return e.noted(e.Session.Check(ctx)) }

func (e exchanged) Choose(ctx context.Context, t hub.Target) (Choice, error) {
	c, err := e.Session.Choose(ctx, t)
	return c, e.noted(err)
}

func (e exchanged) List(ctx context.Context, chart string) (hub.Listing, error) {
	l, err := e.Session.List(ctx, chart)
	return l, e.noted(err)
}

// explained is the error of a call: that of the context once it has ended, and
// otherwise one that names the repository.
func explained(ctx context.Context, repo hub.Repository, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("repository %s: %w", repourl.Redact(repo.URL), ctx.Err())
	}
	if e, ok := fault.As(err); ok && errors.Is(err, charts.ErrNone) {
		missing := *e
		missing.Kind = fault.Missing
		err = &missing
	}
	return named(err, repo)
}

// named adds the repository to an error that does not name it.
func named(err error, repo hub.Repository) error {
	url := repourl.Redact(repo.URL)
	e, ok := fault.As(err)
	if !ok || strings.Contains(e.Object+e.Cause, url) {
		return err
	}
	out := *e
	out.Object = strings.TrimSuffix("repository "+url+": "+e.Object, ": ")
	return &out
}

// Fetch finds what the targets of a repository stand for, and downloads what is
// not here yet. A target that stands for nothing has no ref: its applications
// say so when they are refreshed.
func (s *Source) Fetch(ctx context.Context, tenant hub.TenantID, repo hub.Repository, cred hub.Credential) (refs []hub.Ref, err error) {
	dir, err := s.folder(tenant, repo.ID)
	if err != nil {
		return nil, err
	}
	defer func() { err = explained(ctx, repo, err) }()
	limited, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	leave, err := s.enter(limited, dir)
	if err != nil {
		return nil, late(err)
	}
	defer leave()
	session, err := s.open(limited, tenant, repo, cred, dir, true)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	if err := session.Check(limited); err != nil {
		return nil, late(err)
	}
	if len(repo.Use.Targets) > s.cfg.Targets {
		return nil, fault.With(fault.New(fault.Exceeded, "applications name %d charts and revisions of it, and at most %d are followed", len(repo.Use.Targets), s.cfg.Targets), "",
			"let applications use the same ranges of versions, or split the repository")
	}
	return s.followAll(limited, s.at(tenant, dir), repo, session)
}

// followAll finds what the targets stand for. One that cannot be used stops no
// other: its applications say so when they are refreshed. If none can be used,
// the repository says so.
func (s *Source) followAll(ctx context.Context, at shelf, repo hub.Repository, session Session) ([]hub.Ref, error) {
	refs := []hub.Ref{}
	var unusable error
	for _, t := range merged(repo.Use) {
		ref, err := s.follow(ctx, at, repo, session, t.Target, t.accept)
		kind := fault.KindOf(err)
		switch {
		case err == nil:
			refs = append(refs, ref)
		case errors.Is(err, charts.ErrNone):
		case kind == fault.Invalid || kind == fault.Exceeded:
			unusable = cmp.Or(unusable, err)
		default:
			return nil, late(err)
		}
	}
	if len(refs) == 0 && unusable != nil {
		return nil, unusable
	}
	return refs, nil
}

// late explains that the time for a call was over.
func late(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && fault.KindOf(err) == fault.Internal {
		return fault.With(fault.Wrap(fault.Offline, err, "it cannot be read in time"), "", "it is retried automatically")
	}
	return err
}

// A wanted target is one that is followed. Accept takes other contents under a
// version that is known (FT-G7).
type wanted struct {
	hub.Target
	accept bool
}

// merged has each target once, those first whose contents are accepted. A switch
// that one source sets counts for all of the same revision.
func merged(use hub.RepositoryUse) (out []wanted) {
	accepted := map[string]bool{}
	for _, r := range use.Known {
		_, digest, _ := strings.Cut(r.Commit, " ")
		accepted[r.Name] = digest == hub.AcceptedContents
	}
	places := map[string]int{}
	for _, t := range use.Targets {
		i, there := places[t.Ref()]
		if !there {
			places[t.Ref()] = len(out)
			out = append(out, wanted{t, accepted[t.Ref()]})
			continue
		}
		out[i].PassCredentials = out[i].PassCredentials || t.PassCredentials
	}
	slices.SortStableFunc(out, func(a, b wanted) int { return cmp.Compare(order(a), order(b)) })
	return out
}

func order(w wanted) int {
	if w.accept {
		return 0
	}
	return 1
}

// follow finds what one target stands for.
func (s *Source) follow(ctx context.Context, at shelf, repo hub.Repository, session Session, t hub.Target, accept bool) (hub.Ref, error) {
	c, err := session.Choose(ctx, t)
	if err != nil {
		return hub.Ref{}, err
	}
	first := at.pin(t.Chart, c.Commit)
	if first == "" {
		first = pinned(repo.Use.Known, t.Chart, c.Commit)
	}
	if first != "" && c.Digest != "" && c.Digest != first && !accept {
		return hub.Ref{Name: t.Ref(), Commit: c.Commit + " " + first + " " + c.Digest}, nil
	}
	if accept || c.Digest == "" && first == "" || !at.has(cmp.Or(c.Digest, first)) {
		if accept {
			first = ""
		}
		if c.Digest, err = s.download(ctx, at, session, c, first); err != nil {
			return hub.Ref{}, err
		}
	}
	digest := cmp.Or(c.Digest, first)
	if err := at.setPin(t.Chart, c.Commit, digest); err != nil {
		return hub.Ref{}, err
	}
	return hub.Ref{Name: t.Ref(), Commit: c.Commit + " " + digest}, nil
}

// pinned is the digest that a version was first seen with, by stored refs.
func pinned(refs []hub.Ref, chart, commit string) string {
	for _, r := range refs {
		name, _, ok := strings.Cut(r.Name, "@")
		parts := strings.Fields(r.Commit)
		if ok && name == chart && len(parts) >= 2 && parts[0] == commit && parts[1] != hub.AcceptedContents {
			return parts[1]
		}
	}
	return ""
}

// Resolve finds what a revision stands for: by the refs of the newest fetch, by
// what is stored, or by a question to the repository.
func (s *Source) Resolve(ctx context.Context, tenant hub.TenantID, repo hub.Repository, refs []hub.Ref, revision, _ string) (commit string, err error) {
	dir, err := s.folder(tenant, repo.ID)
	if err != nil {
		return "", err
	}
	defer func() { err = explained(ctx, repo, err) }()
	t := repo.Use.Target
	t.Revision = revision
	for _, r := range refs {
		if r.Name == t.Ref() {
			return fromRef(t, r)
		}
	}
	at := s.at(tenant, dir)
	if digest := at.pin(t.Chart, revision); digest != "" && at.has(digest) {
		return revision, nil
	}
	session, cancel, err := s.session(ctx, tenant, repo, dir)
	if err != nil {
		return "", err
	}
	defer cancel()
	c, err := session.Choose(session.ctx, t)
	return c.Commit, late(err)
}

// fromRef reads what follow has written.
func fromRef(t hub.Target, r hub.Ref) (string, error) {
	parts := strings.Fields(r.Commit)
	switch len(parts) {
	case 2:
		return parts[0], nil
	case 3:
		return "", republished(t.Chart, parts[0], parts[1], parts[2])
	}
	return "", fmt.Errorf("the ref %q is not readable", r.Name)
}

// republished is the error that a version has other contents than before
// (FT-G7).
func republished(chart, version, before, now string) error {
	return fault.With(fault.New(fault.Invalid, "version %s of %q was published again with other contents: its digest was %s and is %s now", version, chart, abbreviated(before), abbreviated(now)), "",
		"publish changed contents under a version of their own, or accept them by a hard refresh of the application")
}

func abbreviated(digest string) string { return digest[:min(len(digest), 19)] }

// A lookup is a session for a reader that waits.
type lookup struct {
	Session
	ctx context.Context //nolint:containedctx // of the one call that it is made for
}

func (s *Source) session(ctx context.Context, tenant hub.TenantID, repo hub.Repository, dir string) (*lookup, func(), error) {
	limited, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	cred, err := s.secrets.Credential(limited, tenant, repo.ID)
	if err != nil {
		cancel()
		return nil, nil, fmt.Errorf("credential of repository %q: %w", repo.ID, err)
	}
	session, err := s.open(limited, tenant, repo, cred, dir, false)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return &lookup{session, limited}, func() {
		session.Close()
		cancel()
	}, nil
}

// Tree opens the files of a version, which it downloads first if they are not
// here.
func (s *Source) Tree(ctx context.Context, tenant hub.TenantID, repo hub.Repository, commit string) (t hub.Tree, err error) {
	dir, err := s.folder(tenant, repo.ID)
	if err != nil {
		return nil, err
	}
	defer func() { err = explained(ctx, repo, err) }()
	chart := repo.Use.Target.Chart
	at := s.at(tenant, dir)
	if digest := at.pin(chart, commit); digest != "" {
		if t, err := s.tree(at, commit, digest); err == nil {
			return t, nil
		}
	}
	digest, err := s.demand(ctx, tenant, repo, at, commit)
	if err != nil {
		return nil, err
	}
	return s.tree(at, commit, digest)
}

// demand downloads a version that a reader needs.
func (s *Source) demand(ctx context.Context, tenant hub.TenantID, repo hub.Repository, at shelf, commit string) (string, error) {
	leave, err := s.enter(ctx, at.dir)
	if err != nil {
		return "", err
	}
	defer leave()
	t := repo.Use.Target
	first := cmp.Or(at.pin(t.Chart, commit), pinned(repo.Use.Known, t.Chart, commit))
	if first != "" && at.has(first) { // another reader has brought it
		return first, at.setPin(t.Chart, commit, first)
	}
	session, cancel, err := s.session(ctx, tenant, repo, at.dir)
	if err != nil {
		return "", err
	}
	defer cancel()
	t.Revision = commit
	c, err := session.Choose(session.ctx, t)
	switch {
	case err != nil:
		return "", late(err)
	case c.Commit != commit:
		return "", fault.Wrap(fault.Missing, charts.ErrNone, "it has no version %q", shorten(commit))
	case first != "" && c.Digest != "" && c.Digest != first:
		return "", republished(t.Chart, commit, first, c.Digest)
	}
	digest, err := s.download(session.ctx, at, session, c, first)
	if err != nil {
		return "", late(err)
	}
	return digest, at.setPin(t.Chart, commit, digest)
}

// Probe contacts a repository, and stores nothing.
func (s *Source) Probe(ctx context.Context, tenant hub.TenantID, repo hub.Repository, cred hub.Credential) (err error) {
	defer func() { err = explained(ctx, repo, err) }()
	limited, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	session, err := s.open(limited, tenant, repo, cred, "", true)
	if err != nil {
		return err
	}
	defer session.Close()
	return late(session.Check(limited))
}

// List returns the charts or tags that a repository publishes now.
func (s *Source) List(ctx context.Context, tenant hub.TenantID, repo hub.Repository) (out hub.Listing, err error) {
	dir, err := s.folder(tenant, repo.ID)
	if err != nil {
		return out, err
	}
	defer func() { err = explained(ctx, repo, err) }()
	session, cancel, err := s.session(ctx, tenant, repo, dir)
	if err != nil {
		return out, err
	}
	defer cancel()
	out, err = session.List(session.ctx, repo.Use.Target.Chart)
	return out, late(err)
}

// Remove deletes what is stored of a repository. A call that is under way is
// waited for.
func (s *Source) Remove(ctx context.Context, tenant hub.TenantID, repo hub.RepositoryID) error {
	dir, err := s.folder(tenant, repo)
	if err != nil {
		return err
	}
	leave, err := s.enter(ctx, dir)
	if err != nil {
		return fmt.Errorf("wait for the repository: %w", err)
	}
	defer leave()
	s.layouts.Drop(func(name string) bool { return strings.HasPrefix(name, dir+string(filepath.Separator)) })
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the archives of a repository: %w", err)
	}
	return nil
}

// Tenants returns whose archives there are.
func (s *Source) Tenants() (out []hub.TenantID, err error) {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("list the archives: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() && hub.ValidID(e.Name()) {
			out = append(out, hub.TenantID(e.Name()))
		}
	}
	return out, nil
}

// RemoveTenant deletes everything of a tenant.
func (s *Source) RemoveTenant(ctx context.Context, tenant hub.TenantID) error {
	if !hub.ValidID(string(tenant)) {
		return fmt.Errorf("%q is not the id of a tenant", tenant)
	}
	dir := filepath.Join(s.cfg.Dir, string(tenant))
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list the archives of a tenant: %w", err)
	}
	for _, e := range entries {
		if hub.ValidID(e.Name()) {
			if err := s.Remove(ctx, tenant, hub.RepositoryID(e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the folder of a tenant's archives: %w", err)
	}
	return nil
}
