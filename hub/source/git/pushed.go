package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/git/packstore"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

const (
	pushedFresh  = 10 * time.Second // how long after its event a push is fetched by its name
	pushedPause  = time.Minute      // how long events are only a reason to list, after one that was wrong
	protocolKept = time.Hour        // how long the capabilities of a server are cached
	gitProtocol  = "version=2"
)

// FetchPushed is Fetch for a repository with a push event. The event decides
// nothing: the server must confirm the commit of the branch, in a request for
// its objects and only this branch. If that is not possible, or the answer
// differs, everything is listed. Listed is when that was last done; since is
// how old it may be.
func (m *Mirrors) FetchPushed(
	ctx context.Context, tenant hub.TenantID, repo hub.Repository, cred hub.Credential, pushed hub.Pushed, since time.Time,
) (all []hub.Ref, listed time.Time, err error) {
	mir, err := m.mirror(tenant, repo.ID)
	if err != nil {
		return nil, time.Time{}, err
	}
	if err := mir.enter(ctx); err != nil {
		return nil, time.Time{}, err
	}
	defer mir.leave()
	if mir.followable(repo, pushed, since) && mir.trusts(ctx, repo, cred) {
		switch done, err := mir.follow(ctx, repo, cred, pushed); {
		case ctx.Err() != nil:
			return nil, time.Time{}, fmt.Errorf("fetch: %w", ctx.Err())
		case done:
			mir.tidy(ctx)
			return refs(mir.last.tips), mir.last.at, nil
		case err != nil:
			// It is no error of the repository: a forged or late event may
			// name anything. The next events are a reason to list and no more,
			// so that a flood of them costs what it did before.
			mir.distrusted = m.clock.Now().Add(pushedPause)
			m.log.DebugContext(ctx, "push not fetched by its name, listing the repository", logkey.Repository, repo.ID, logkey.Error, err)
		}
	}
	all, err = mir.fetch(ctx, repo, cred)
	return all, mir.last.at, err
}

// followable reports whether one branch may be brought up to date without a
// listing: all others are known from one that is young enough.
func (m *mirror) followable(repo hub.Repository, pushed hub.Pushed, since time.Time) bool {
	now := m.clock.Now()
	scheme, _, _ := strings.Cut(repo.URL, "://")
	switch {
	case scheme != "http" && scheme != "https":
		return false
	case repo.Depth > 0: // its history is not whole
		return false
	case !strings.HasPrefix(pushed.Ref, "refs/heads/"), len(pushed.Ref) > 1024, plumbing.ReferenceName(pushed.Ref).Validate() != nil:
		return false
	case !isCommit(pushed.Commit), plumbing.NewHash(pushed.Commit).IsZero():
		return false
	case now.Sub(pushed.At) > pushedFresh, now.Before(m.distrusted):
		return false
	case m.damaged.Load(), m.last.digest == [32]byte{}, m.remote == nil, m.remote.trust.insecure != repo.Insecure, m.last.at.Before(since):
		return false
	}
	return true
}

// trusts reports whether the connection to the repository still matches its
// settings. Otherwise a listing connects again.
func (m *mirror) trusts(ctx context.Context, repo hub.Repository, cred hub.Credential) bool {
	now, err := m.trust(ctx, repo, cred)
	return err == nil && m.remote.trust == now
}

// A protocol is what a server can do in version 2 of Git's protocol.
type protocol struct {
	url   string // with the spelling that it belongs to
	known time.Time
	v2    bool
	named bool // objects are requested by the name of a branch; the answer has its commit
}

// follow brings one branch up to date. Done is false if the branch is at
// another commit than that of the event: nothing was changed.
func (m *mirror) follow(ctx context.Context, repo hub.Repository, cred hub.Credential, pushed hub.Pushed) (done bool, err error) {
	if cred.Username == "" && cred.Password != "" {
		cred.Username = repo.Username
	}
	if cred, err = m.exchange(ctx, repo, cred); err != nil {
		return false, err
	}
	tips, err := m.load()
	if err != nil || digest(tips) != m.last.digest {
		return false, err // not what was listed: there is nothing to build upon
	}
	v := &visit{mirror: m, repo: repo, cred: cred, tips: tips, head: m.last.branch}
	if ok, err := m.objects.Has(plumbing.NewHash(pushed.Commit)); ok || err != nil {
		return false, err // an old event, or a branch that was set to an older commit
	}
	if err := v.readCapabilities(ctx); err != nil || !m.protocol.v2 {
		return false, err
	}
	stands, s, err := v.fetchPushed(ctx, pushed)
	if s != nil {
		defer s.Close()
	}
	if err != nil {
		return false, err
	}
	if ok, err := m.objects.Has(stands); err != nil || ok {
		return false, err
	}
	if err := v.objects.Ingest(ctx, s, v.cfg.packLimits()); err != nil {
		return false, err
	}
	if ok, err := v.objects.Has(stands); err != nil || !ok {
		return false, errors.Join(err, errIncomplete)
	}
	m.last.tips, m.last.dirty = moved(tips, m.last.branch, pushed.Ref, stands), true
	m.last.digest = digest(m.last.tips)
	return true, nil
}

// fetchPushed fetches the branch of an event and returns where it stands. The
// error is errMoved if that is not where the event says. The caller closes the
// spool, which may be there with an error.
func (v *visit) fetchPushed(ctx context.Context, pushed hub.Pushed) (stands plumbing.Hash, s *packstore.Spool, err error) {
	haves, err := v.havesOf(v.tips, pushed.Ref)
	if err != nil {
		return stands, nil, err
	}
	want := plumbing.NewHash(pushed.Commit)
	if v.protocol.named {
		stands, s, err = v.fetchCommit(ctx, "want-ref "+pushed.Ref, pushed.Ref, haves)
	} else {
		stands, s, err = v.askBoth(ctx, want, pushed.Ref, haves)
	}
	if err == nil && (stands.IsZero() || (!v.protocol.named && stands != want)) {
		err = errMoved
	}
	return stands, s, err
}

// errMoved means that a branch is not at the commit of an event.
var errMoved = errors.New("the branch is not at the commit that the event names")

// errNoPack means that an answer ended before the objects came.
var errNoPack = errors.New("the answer has no objects")

// moved returns the tips with one branch at another commit.
func moved(tips []tip, head, ref string, to plumbing.Hash) []tip {
	out := slices.Clone(tips)
	found := false
	for i := range out {
		if out[i].name == ref || out[i].name == "HEAD" && head == ref {
			out[i].hash, out[i].peeled = to, plumbing.ZeroHash
			found = found || out[i].name == ref
		}
	}
	if !found {
		out = append(out, tip{name: ref, hash: to})
		sortTips(out)
	}
	return out
}

// havesOf are the commits that the server may build upon: the branch itself
// first, then the others.
func (v *visit) havesOf(tips []tip, ref string) ([]plumbing.Hash, error) {
	now := *v
	now.tips = slices.DeleteFunc(slices.Clone(tips), func(t tip) bool { return t.name == ref })
	return now.haves(tips)
}

// readCapabilities reads, at most once per protocolKept, what the server can
// do. A server without version 2 is listed completely, as before.
func (v *visit) readCapabilities(ctx context.Context) error {
	at := v.address("")
	if v.protocol.url == at && v.clock.Now().Sub(v.protocol.known) < protocolKept {
		return nil
	}
	limit, cancel := context.WithTimeout(ctx, v.cfg.ListTimeout)
	defer cancel()
	limit, _ = begin(limit, 1<<16)
	body, err := v.speak(limit, http.MethodGet, "/info/refs?service=git-upload-pack", nil)
	if err != nil {
		return err
	}
	defer body.Close()
	p := protocol{url: at, known: v.clock.Now()}
	sha1 := true
	lines := packets{r: body}
	for lines.next() {
		name, values, _ := strings.Cut(lines.text, "=")
		switch {
		case lines.text == "version 2":
			p.v2 = true
		case !p.v2 && lines.text != "" && !strings.HasPrefix(lines.text, "# service="):
			v.protocol = p // it lists its branches: an older server
			return nil
		case name == "fetch":
			p.named = slices.Contains(strings.Fields(values), "ref-in-want")
		case name == "object-format":
			sha1 = values == "sha1"
		}
	}
	p.v2 = p.v2 && sha1 && lines.err == nil
	v.protocol = p
	return nil
}

// askBoth requests in parallel the commit of a branch and the objects of a
// commit. Neither is worth anything without the other.
func (v *visit) askBoth(ctx context.Context, want plumbing.Hash, ref string, haves []plumbing.Hash) (stands plumbing.Hash, s *packstore.Spool, err error) {
	var both sync.WaitGroup
	var wrong error
	both.Go(func() {
		wrong = lifecycle.Safely(ctx, "branch asked for", func(ctx context.Context) (err error) {
			stands, err = v.where(ctx, ref)
			return err
		})
	})
	_, s, err = v.fetchCommit(ctx, "want "+want.String(), ref, haves)
	both.Wait()
	return stands, s, errors.Join(err, wrong)
}

// where requests the commit of one branch.
func (v *visit) where(ctx context.Context, ref string) (found plumbing.Hash, err error) {
	began := time.Now()
	defer func() { v.cfg.Observe("ls-remote", v.repo.URL, err, time.Since(began)) }()
	limit, cancel := context.WithTimeout(ctx, v.cfg.ListTimeout)
	defer cancel()
	limit, _ = begin(limit, v.cfg.MaxListBytes)
	body, err := v.speak(limit, http.MethodPost, "/git-upload-pack", command("ls-refs", "ref-prefix "+ref))
	if err != nil {
		return found, err
	}
	defer body.Close()
	lines := packets{r: body}
	for lines.next() {
		if hash, name, _ := strings.Cut(lines.text, " "); name == ref && plumbing.IsHash(hash) {
			found = plumbing.NewHash(hash)
		}
	}
	return found, lines.err
}

// fetchCommit fetches the objects of one want, and returns the commit of the
// branch if the answer has it.
func (v *visit) fetchCommit(ctx context.Context, want, ref string, haves []plumbing.Hash) (stands plumbing.Hash, s *packstore.Spool, err error) {
	began := time.Now()
	defer func() { v.cfg.Observe("fetch", v.repo.URL, err, time.Since(began)) }()
	lifecycle.Expect(ctx, v.cfg.FetchTimeout)
	limit, cancel := context.WithTimeout(ctx, v.cfg.FetchTimeout)
	defer cancel()
	limit, _ = begin(limit, v.cfg.MaxBytes+v.cfg.MaxBytes/64+1<<16)
	args := []string{"no-progress", "ofs-delta", want}
	for _, h := range haves {
		args = append(args, "have "+h.String())
	}
	body, err := v.speak(limit, http.MethodPost, "/git-upload-pack", command("fetch", append(args, "done")...))
	if err != nil {
		return stands, nil, err
	}
	defer body.Close()
	section := ""
	lines := packets{r: body}
	for lines.next() {
		switch hash, name, _ := strings.Cut(lines.text, " "); {
		case lines.text == "": // the end of a section
			section = ""
		case lines.text == "packfile":
			s, err = v.objects.Spool(sideband.NewDemuxer(sideband.Sideband64k, body), v.cfg.MaxBytes)
			return stands, s, err
		case section == "":
			section = lines.text
		case section == "wanted-refs" && name == ref && plumbing.IsHash(hash):
			stands = plumbing.NewHash(hash)
		}
	}
	return stands, nil, errors.Join(lines.err, errNoPack)
}

// packets reads the lines of an answer of version 2. The end of a section, and
// that of the answer, are empty lines.
type packets struct {
	r    io.Reader
	text string
	err  error // nil: the answer came to its end
	size [4]byte
}

func (p *packets) next() bool {
	if _, err := io.ReadFull(p.r, p.size[:]); err != nil {
		if !errors.Is(err, io.EOF) {
			p.err = fmt.Errorf("%w: %w", errProtocol, err)
		}
		return false
	}
	n, err := strconv.ParseUint(string(p.size[:]), 16, 16)
	switch {
	case err != nil || n == 3 || n > 65520:
		p.err = fmt.Errorf("%w: a line of no length", errProtocol)
		return false
	case n <= 4:
		p.text = ""
		return true
	}
	line := make([]byte, n-4)
	if _, err := io.ReadFull(p.r, line); err != nil {
		p.err = fmt.Errorf("%w: %w", errProtocol, err)
		return false
	}
	if p.text = strings.TrimSuffix(string(line), "\n"); strings.HasPrefix(p.text, "ERR ") {
		p.err = fmt.Errorf("%w: the server refuses it", errProtocol) // its text may repeat what it was sent
		return false
	}
	return true
}

// command writes one command of version 2.
func command(name string, args ...string) []byte {
	var b bytes.Buffer
	line := func(s string) { fmt.Fprintf(&b, "%04x%s\n", len(s)+5, s) }
	line("command=" + name)
	line("agent=capstan")
	line("object-format=sha1")
	b.WriteString("0001")
	for _, a := range args {
		line(a)
	}
	b.WriteString("0000")
	return b.Bytes()
}

// address is where a part of the repository is.
func (v *visit) address(part string) string {
	u, err := url.Parse(v.repo.URL)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host + u.EscapedPath() + v.suffix + part
}

// speak makes one request of version 2. Redirections are left to the listing.
func (v *visit) speak(ctx context.Context, method, part string, body []byte) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, v.address(part), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("request to the Git server: %w", err)
	}
	req.Header.Set("Git-Protocol", gitProtocol)
	req.Header.Set("User-Agent", "git/capstan")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-git-upload-pack-request")
		req.Header.Set("Accept", "application/x-git-upload-pack-result")
	}
	if a, ok := auth(v.cred).(githttp.AuthMethod); ok {
		a.SetAuth(req)
	}
	res, err := watched{v.remote.http}.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("request to the Git server: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("%w: status %d", errProtocol, res.StatusCode), res.Body.Close())
	}
	return res.Body, nil
}
