package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/hub/source/git/packstore"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

const (
	maxHaves     = 256 // commits that are offered to the server as known
	maxAncestors = 32  // of a branch that was rewritten
)

// Fetch updates the mirror of a repository and returns its branches,
// tags and HEAD. It costs one listing and, if something is new, one transfer.
// The error is one sentence for the repository's owner, unless ctx ended. An
// error changes nothing of what the mirror serves.
func (m *Mirrors) Fetch(ctx context.Context, tenant hub.TenantID, repo hub.Repository, cred hub.Credential) ([]hub.Ref, error) {
	mir, err := m.mirror(tenant, repo.ID)
	if err != nil {
		return nil, err
	}
	if err := mir.enter(ctx); err != nil {
		return nil, err
	}
	defer mir.leave()
	return mir.fetch(ctx, repo, cred)
}

// Probe lists the branches of a repository as Fetch would, and stores nothing.
func (m *Mirrors) Probe(ctx context.Context, tenant hub.TenantID, repo hub.Repository, cred hub.Credential) error {
	mir := newMirror(m, tenant, "")
	defer mir.disconnect()
	v, err := mir.visit(ctx, repo, cred)
	if err != nil {
		return err
	}
	v.close()
	return nil
}

// A visit is one conversation with the server of a repository.
type visit struct {
	*mirror
	repo    hub.Repository
	cred    hub.Credential
	session session
	listed  *packp.AdvRefs
	tips    []tip
	head    string // branch that HEAD names; empty: none
}

func (m *mirror) fetch(ctx context.Context, repo hub.Repository, cred hub.Credential) ([]hub.Ref, error) {
	begun := m.clock.Now() // what is pushed from here on may not be listed
	v, err := m.visit(ctx, repo, cred)
	if err != nil {
		return nil, err
	}
	defer v.close()
	if m.damaged.Load() || repo.Depth == 0 && m.isShallow() {
		if err := m.wipe(); err != nil {
			return nil, v.failed(nil, 0, err)
		}
	}
	sum := digest(v.tips)
	if sum == m.last.digest {
		m.last.at = begun
		return refs(v.tips), nil
	}
	err = v.update(ctx)
	if isDamage(err) {
		m.log.WarnContext(ctx, "mirror damaged, fetching it again", logkey.Repository, repo.ID, logkey.Error, err)
		if err = m.wipe(); err == nil {
			err = v.update(ctx)
		}
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("fetch: %w", ctx.Err()) // is no error of the repository
	}
	if err != nil {
		return nil, v.failed(nil, 0, err)
	}
	m.last.digest, m.last.at = sum, begun
	m.tidy(ctx)
	return refs(v.tips), nil
}

// isDamage reports whether the mirror's own files are at fault.
func isDamage(err error) bool {
	_, message := fault.As(err)
	return !message && (errors.Is(err, packstore.ErrDamaged) || errors.Is(err, packstore.ErrNoObject))
}

// visit lists the refs of the repository.
func (m *mirror) visit(ctx context.Context, repo hub.Repository, cred hub.Credential) (*visit, error) {
	if cred.Username == "" && cred.Password != "" {
		cred.Username = repo.Username
	}
	v := &visit{mirror: m, repo: repo, cred: cred}
	shown, err := m.exchange(ctx, repo, cred)
	if err != nil {
		return nil, v.failed(nil, 0, err)
	}
	v.cred = shown
	trust, err := m.trust(ctx, repo, cred)
	if err != nil {
		return nil, fmt.Errorf("read authorities: %w", err)
	}
	if m.remote == nil || m.remote.trust != trust {
		m.disconnect()
		if m.remote, err = newRemote(m.cfg, trust, m.hostKeys); err != nil {
			m.remote = nil
			return nil, v.failed(nil, 0, err)
		}
	}
	status, err := v.listPatiently(ctx)
	for _, other := range spellings(repo.URL) {
		if status != 404 || other == m.suffix {
			continue
		}
		if again, second := v.list(ctx, other); again != 404 {
			m.suffix, status, err = other, again, second
		}
	}
	if status == 401 || status == 403 {
		m.forget(repo, cred)
	}
	if err != nil {
		return nil, err
	}
	if err := v.read(); err != nil {
		v.close()
		return nil, v.failed(nil, 0, err)
	}
	return v, nil
}

// exchange returns the credential that the server is shown.
func (m *mirror) exchange(ctx context.Context, repo hub.Repository, cred hub.Credential) (hub.Credential, error) {
	switch {
	case cred.Exchanged == (hub.Exchanged{}):
		return cred, nil
	case m.cfg.Tokens == nil:
		return cred, fault.New(fault.Invalid, "the hub cannot request tokens for its identity")
	}
	return m.cfg.Tokens.Exchange(ctx, m.tenant, repo, cred)
}

// forget has the next visit request another token: the server has refused this
// one.
func (m *mirror) forget(repo hub.Repository, cred hub.Credential) {
	if m.cfg.Tokens != nil && cred.Exchanged != (hub.Exchanged{}) {
		m.cfg.Tokens.Forget(m.tenant, repo, cred)
	}
}

// firstPause is the wait before the second attempt to list; it doubles.
const firstPause = 250 * time.Millisecond

// listPatiently lists the refs, several times while the server is not reachable.
func (v *visit) listPatiently(ctx context.Context) (status int, err error) {
	for attempt := range v.cfg.Attempts {
		if attempt > 0 {
			if err := lifecycle.Sleep(ctx, v.clock, firstPause<<min(attempt-1, 5)); err != nil {
				return 0, fmt.Errorf("list refs: %w", err)
			}
		}
		status, err = v.list(ctx, v.suffix)
		if err == nil || ctx.Err() != nil || fault.KindOf(err) != fault.Offline || asksToWait(err) {
			return status, err
		}
	}
	return status, err
}

// spellings are the ways to name a repository to its server: URLs are stored
// without ".git", and some servers insist on it; SSH servers may count its path
// from the home of the user.
func spellings(url string) []string {
	switch {
	case repourl.IsSSH(url):
		return []string{"", relativeWay, ".git"}
	case strings.HasSuffix(url, ".git"):
		return nil
	}
	return []string{"", ".git"}
}

// close ends the conversation. What it is about is done or has failed by then.
func (v *visit) close() {
	if v.session == nil {
		return
	}
	if err := v.session.Close(); err != nil {
		v.log.Debug("conversation not ended in peace", logkey.Repository, v.repo.ID, logkey.Error, err)
	}
	v.session = nil
}

// failed explains what went wrong in an exchange, or without one.
func (v *visit) failed(x *exchange, timeout time.Duration, err error) error {
	f := failure{repo: v.repo, cred: v.cred, timeout: timeout, err: err}
	if x != nil {
		status, wrong := x.wrong()
		if f.status = status; wrong != nil {
			f.err = wrong
		}
		if f.wait = x.wait(); status < 300 {
			f.status = 0
		}
	}
	return f.explain()
}

func (v *visit) list(ctx context.Context, spelling string) (status int, err error) {
	v.close()
	began := time.Now()
	defer func() { v.cfg.Observe("ls-remote", v.repo.URL, err, time.Since(began)) }()
	lifecycle.Expect(ctx, v.cfg.ListTimeout)
	limit, cancel := context.WithTimeout(ctx, v.cfg.ListTimeout)
	defer cancel()
	limit, x := begin(limit, v.cfg.MaxListBytes)
	if v.session, err = v.remote.session(v.repo, spelling, v.cred); err == nil {
		v.listed, err = v.session.AdvertisedReferencesContext(limit)
	}
	if err == nil {
		return 200, nil
	}
	if v.session != nil {
		v.close()
	}
	if ctx.Err() != nil {
		return 0, fmt.Errorf("list refs: %w", ctx.Err())
	}
	status, _ = x.wrong()
	return status, v.failed(x, v.cfg.ListTimeout, err)
}

// read picks the refs that are wanted: branches, tags and HEAD.
func (v *visit) read() error {
	for name, hash := range v.listed.References {
		if !strings.HasPrefix(name, "refs/heads/") && !strings.HasPrefix(name, "refs/tags/") {
			continue
		}
		if len(name) > 1024 || plumbing.ReferenceName(name).Validate() != nil {
			continue // no ref that git would accept
		}
		v.tips = append(v.tips, tip{name, hash, v.listed.Peeled[name]})
	}
	if len(v.tips) > v.cfg.MaxRefs {
		return packstore.LimitError{What: "the repository has too many branches and tags", Limit: int64(v.cfg.MaxRefs)}
	}
	if len(v.tips) == 0 {
		return errEmpty(nil)
	}
	if v.listed.Head != nil && !v.listed.Head.IsZero() {
		v.tips = append(v.tips, tip{name: "HEAD", hash: *v.listed.Head})
	}
	sortTips(v.tips)
	for _, ref := range v.listed.Capabilities.Get(capability.SymRef) {
		if branch, ok := strings.CutPrefix(ref, "HEAD:"); ok && plumbing.ReferenceName(branch).Validate() == nil {
			v.head = branch
		}
	}
	return nil
}

// update fetches what the listing has and the mirror has not. The refs come
// last: what they name is there. They are written to disk when the mirror
// comes to rest; older ones only make a fetch after a crash offer less.
func (v *visit) update(ctx context.Context) error {
	if err := cmp.Or(v.prepare(), v.sweep()); err != nil {
		return err
	}
	known, err := v.load()
	if err != nil {
		return err
	}
	wants, err := v.wanted(known)
	if err != nil {
		return err
	}
	if len(wants) > 0 {
		haves, err := v.haves(known)
		if err != nil {
			return err
		}
		if err := v.transfer(ctx, wants, haves); err != nil {
			return err
		}
	}
	v.last.tips, v.last.branch, v.last.dirty = v.tips, v.head, true
	return nil
}

// wanted are the listed objects that are not here.
func (v *visit) wanted(known []tip) ([]plumbing.Hash, error) {
	here := map[plumbing.Hash]bool{}
	for _, t := range known {
		here[t.hash] = true
	}
	// A stored name without its object would never be corrected.
	if len(known) > 0 {
		ok, err := v.objects.Has(known[0].hash)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("%w: %s of %s is missing", packstore.ErrDamaged, known[0].hash, known[0].name)
		}
	}
	var wants []plumbing.Hash
	for _, t := range v.tips {
		if here[t.hash] {
			continue
		}
		here[t.hash] = true
		ok, err := v.objects.Has(t.hash)
		if err != nil {
			return nil, err
		}
		if !ok {
			wants = append(wants, t.hash)
		}
	}
	return wants, nil
}

// haves are the commits that the server may build upon: first the branches
// that moved, with ancestors where they were rewritten, then all others.
func (v *visit) haves(known []tip) ([]plumbing.Hash, error) {
	now := map[string]plumbing.Hash{}
	listed := map[plumbing.Hash]bool{}
	for _, t := range v.tips {
		now[t.name] = t.hash
		listed[t.hash] = true
	}
	o := offer{made: map[plumbing.Hash]bool{}}
	for _, t := range known {
		if now[t.name] == t.hash || !strings.HasPrefix(t.name, "refs/heads/") {
			continue
		}
		o.add(t.hash)
		if listed[t.hash] || v.repo.Depth > 0 {
			continue
		}
		ancestors, err := v.objects.Ancestors(t.hash, maxAncestors)
		if err != nil && !errors.Is(err, packstore.ErrNotCommit) {
			return nil, err
		}
		o.add(ancestors...)
	}
	for _, prefix := range []string{"HEAD", "refs/heads/", "refs/tags/"} {
		o.addTips(known, prefix)
	}
	return o.haves, nil
}

// An offer lists up to maxHaves commits, each once.
type offer struct {
	haves []plumbing.Hash
	made  map[plumbing.Hash]bool
}

func (o *offer) add(commits ...plumbing.Hash) {
	for _, h := range commits {
		if !h.IsZero() && !o.made[h] && len(o.haves) < maxHaves {
			o.made[h] = true
			o.haves = append(o.haves, h)
		}
	}
}

// addTips adds the tips whose names begin with the prefix.
func (o *offer) addTips(tips []tip, prefix string) {
	for _, t := range tips {
		if strings.HasPrefix(t.name, prefix) {
			o.add(t.hash)
		}
	}
}

// transfer fetches objects and checks that they came.
func (v *visit) transfer(ctx context.Context, wants, haves []plumbing.Hash) (err error) {
	began := time.Now()
	defer func() { v.cfg.Observe("fetch", v.repo.URL, err, time.Since(began)) }()
	timeout := v.cfg.FetchTimeout << min(v.timeouts, 3)
	lifecycle.Expect(ctx, timeout)
	limit, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	limit, x := begin(limit, v.cfg.MaxBytes+v.cfg.MaxBytes/64+1<<16) // with the frames around the pack
	err = v.receive(limit, wants, haves)
	if err == nil {
		v.timeouts = 0
		return v.check(wants)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("fetch objects: %w", ctx.Err())
	}
	if limit.Err() != nil {
		v.timeouts++
		err = limit.Err()
	}
	return v.failed(x, timeout, err)
}

func (v *visit) receive(ctx context.Context, wants, haves []plumbing.Hash) error {
	req := packp.NewUploadPackRequestFromCapabilities(v.listed.Capabilities)
	if v.listed.Capabilities.Supports(capability.NoProgress) {
		if err := req.Capabilities.Set(capability.NoProgress); err != nil {
			return fmt.Errorf("set capability: %w", err)
		}
	}
	req.Wants, req.Haves = wants, haves
	if err := v.shallow(req); err != nil {
		return err
	}
	res, err := v.session.UploadPack(ctx, req)
	if err != nil {
		return errors.Join(err, protocolError(err))
	}
	defer res.Close()
	pack := packOf(res, req.Capabilities)
	s, err := v.objects.Spool(pack, v.cfg.MaxBytes)
	if err != nil {
		return errors.Join(err, protocolError(err))
	}
	defer s.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(res, 1<<16)); err != nil { // to the end, so that the connection can be used again
		return fmt.Errorf("read the end of the pack: %w", err)
	}
	if err := v.putShallow(res.Shallows, nil); err != nil {
		return err
	}
	if err := v.objects.Ingest(ctx, s, v.cfg.packLimits()); err != nil {
		return err
	}
	return v.putShallow(nil, res.Unshallows)
}

// protocolError marks errors of the demultiplexer and the decoder, which have
// no types of their own.
func protocolError(err error) error {
	for _, text := range []string{"unexpected error", "unknown channel", "error decoding", "invalid pkt-len", "max. packed size"} {
		if strings.Contains(err.Error(), text) {
			return errProtocol
		}
	}
	if errors.Is(err, transport.ErrEmptyUploadPackRequest) {
		return errProtocol
	}
	return nil
}

// packOf is the pack in an answer, without what is sent beside it.
func packOf(res io.Reader, c *capability.List) io.Reader {
	switch {
	case c.Supports(capability.Sideband64k):
		return sideband.NewDemuxer(sideband.Sideband64k, res)
	case c.Supports(capability.Sideband):
		return sideband.NewDemuxer(sideband.Sideband, res)
	}
	return res
}

func (v *visit) check(wants []plumbing.Hash) error {
	for _, h := range wants {
		ok, err := v.objects.Has(h)
		if err != nil {
			return err
		}
		if !ok {
			return v.failed(nil, 0, fmt.Errorf("%w: %s", errIncomplete, h))
		}
	}
	return nil
}

// tidy merges packs and starts from scratch where rewritten history has made a
// mirror too large. Neither is worth an error.
func (m *mirror) tidy(ctx context.Context) {
	if err := m.objects.Merge(ctx, m.cfg.MaxPacks); err != nil {
		m.log.WarnContext(ctx, "packs not merged", logkey.File, m.dir, logkey.Error, err)
		if isDamage(err) {
			m.damaged.Store(true)
		}
	}
	if size, err := m.objects.Bytes(); err == nil && size > m.cfg.MaxBytes {
		m.damaged.Store(true)
		m.last.digest = [32]byte{}
	}
}
