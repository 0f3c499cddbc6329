package git

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/git/packstore"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// A mirror is the copy of one repository. Reading needs no lock; one at a time
// changes it.
type mirror struct {
	*Mirrors
	tenant  hub.TenantID
	dir     string
	parent  string // URL of the repository that this is a submodule of; empty: of none
	objects *packstore.Objects
	writer  chan struct{} // capacity 1: holds a token while somebody changes the mirror
	used    atomic.Int64  // when it was last used, Unix nanoseconds

	// damaged means that the packs cannot be trusted; the next fetch starts
	// from scratch.
	damaged atomic.Bool
	healed  atomic.Int64 // when that was last done, Unix nanoseconds

	// What follows belongs to whoever has the turn.
	remote     *remote
	suffix     string // of spellings, the one that the server takes
	last       listing
	timeouts   int       // transfers in a row that timed out
	swept      bool      // leftovers of an earlier process are gone
	protocol   protocol  // what the server can do, as far as it is known
	distrusted time.Time // until then events are no more than a reason to list

	refused refusals

	// Of a base only: what opens it, and its branches as they were last listed.
	own    func(ctx context.Context) (cred hub.Credential, insecure bool, err error)
	listed []hub.Ref
}

// A listing is what is known of the newest listing of the refs.
type listing struct {
	digest [32]byte  // of the refs that are stored; zero: not known
	at     time.Time // when all refs were last listed
	tips   []tip     // nil: only on disk
	branch string    // that HEAD stands for, with tips
	dirty  bool      // tips are newer than what is on disk
}

// unload leaves the tips to the disk.
func (l *listing) unload() { l.tips, l.branch, l.dirty = nil, "", false }

// refusals are the commits that readers asked for in vain.
type refusals struct {
	mu sync.Mutex
	of map[string]refusal
}

// A refusal is why a commit could not be fetched, and until when it is not
// tried again.
type refusal struct {
	until time.Time
	err   error
}

// find returns why a commit is not asked for now, or nil.
func (r *refusals) find(commit string, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, ok := r.of[commit]
	if !ok || now.After(found.until) {
		delete(r.of, commit)
		return nil
	}
	return found.err
}

func (r *refusals) add(commit string, now time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.of) >= maxRefused {
		clear(r.of)
	}
	r.of[commit] = refusal{now.Add(refusedFor), err}
}

func (r *refusals) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.of)
}

func newMirror(m *Mirrors, tenant hub.TenantID, dir string) *mirror {
	return &mirror{
		Mirrors: m, tenant: tenant, dir: dir, writer: make(chan struct{}, 1), refused: refusals{of: map[string]refusal{}},
		objects: m.lib.Objects(filepath.Join(dir, "objects", "pack")),
	}
}

// enter waits for the right to change the mirror.
func (m *mirror) enter(ctx context.Context) error {
	select {
	case m.writer <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the repository: %w", context.Cause(ctx))
	}
}

func (m *mirror) leave() { <-m.writer }

// prepare makes the folders of a bare repository, which git itself can read.
func (m *mirror) prepare() error {
	if _, err := os.Stat(filepath.Join(m.dir, "config")); err == nil {
		return nil
	}
	for _, d := range []string{filepath.Join("objects", "pack"), "refs"} {
		if err := os.MkdirAll(filepath.Join(m.dir, d), 0o700); err != nil {
			return fmt.Errorf("create mirror: %w", err)
		}
	}
	const config = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
	if err := os.WriteFile(filepath.Join(m.dir, "config"), []byte(config), 0o600); err != nil {
		return fmt.Errorf("create mirror: %w", err)
	}
	return nil
}

// wipe deletes the mirror's files. Readers in progress have their files open
// and can finish.
func (m *mirror) wipe() error {
	m.last.digest = [32]byte{}
	m.last.unload()
	trash := filepath.Join(m.cfg.Dir, trashDir, strconv.FormatUint(m.removed.Add(1), 10))
	if err := os.Rename(m.dir, trash); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove mirror: %w", err)
	}
	m.objects.Rest()
	m.damaged.Store(false)
	m.healed.Store(m.clock.Now().UnixNano())
	if err := os.RemoveAll(trash); err != nil {
		return fmt.Errorf("remove mirror: %w", err)
	}
	return nil
}

// rest releases files, memory and connections, unless the mirror is just
// being changed.
func (m *mirror) rest() {
	select {
	case m.writer <- struct{}{}:
		if m.remote != nil {
			m.remote.http.CloseIdleConnections()
		}
		m.save()
		m.leave()
	default:
	}
	m.objects.Rest()
	m.refused.clear()
}

// trust is how the repository's server and the hub authenticate each other.
func (m *mirror) trust(ctx context.Context, repo hub.Repository, cred hub.Credential) (trust, error) {
	t := trust{insecure: repo.Insecure, proxy: cred.Proxy, noProxy: cred.NoProxy}
	u, err := url.Parse(repo.URL)
	if err != nil || !strings.EqualFold(u.Scheme, "https") {
		return t, nil
	}
	t.cert, t.key = cred.TLSClientCert, cred.TLSClientKey
	if !repo.Insecure {
		t.authorities, err = m.creds.Authorities(ctx, m.tenant, strings.ToLower(u.Hostname()))
	}
	return t, err
}

// hostKeys returns the keys of SSH servers that the tenant has stored.
func (m *mirror) hostKeys(ctx context.Context) ([]hub.HostKey, error) {
	return m.creds.HostKeys(ctx, m.tenant)
}

func (m *mirror) disconnect() {
	if m.remote != nil {
		m.remote.http.CloseIdleConnections()
		m.remote = nil
	}
}

// A tip is the object that a name in a repository refers to.
type tip struct {
	name   string
	hash   plumbing.Hash // a commit, or the object of an annotated tag
	peeled plumbing.Hash // the commit behind an annotated tag; zero for others
}

// commit is what the tip comes down to.
func (t tip) commit() plumbing.Hash {
	if !t.peeled.IsZero() {
		return t.peeled
	}
	return t.hash
}

// refs are the tips as the rest of the hub knows them.
func refs(tips []tip) []hub.Ref {
	out := make([]hub.Ref, len(tips))
	for i, t := range tips {
		out[i] = hub.Ref{Name: t.name, Commit: t.commit().String()}
	}
	return out
}

// digest identifies a listing.
func digest(tips []tip) [32]byte {
	h := sha256.New()
	for _, t := range tips {
		_, _ = fmt.Fprintf(h, "%s %s %s\n", t.hash, t.peeled, t.name)
	}
	return [32]byte(h.Sum(nil))
}

// load returns the tips of the newest listing, from disk if need be. A new
// mirror has none.
func (m *mirror) load() ([]tip, error) {
	if m.last.tips != nil {
		return m.last.tips, nil
	}
	tips, err := m.stored()
	if tips == nil || err != nil {
		return nil, err
	}
	return m.withHead(tips), nil
}

// stored returns the tips on disk, without HEAD. It needs no turn: the file is
// put in place whole.
func (m *mirror) stored() ([]tip, error) {
	f, err := os.Open(filepath.Join(m.dir, "packed-refs"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open refs: %w", err)
	}
	defer f.Close()
	var tips []tip
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		if peeled, ok := strings.CutPrefix(line, "^"); ok && len(tips) > 0 {
			tips[len(tips)-1].peeled = plumbing.NewHash(peeled)
			continue
		}
		if hash, name, ok := strings.Cut(line, " "); ok && plumbing.IsHash(hash) {
			tips = append(tips, tip{name: name, hash: plumbing.NewHash(hash)})
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: read refs: %w", packstore.ErrDamaged, err)
	}
	if tips == nil {
		tips = []tip{}
	}
	return tips, nil
}

// withHead adds what HEAD names to tips that were read from disk. A missing or
// empty HEAD only makes a fetch offer less.
func (m *mirror) withHead(tips []tip) []tip {
	text, err := os.ReadFile(filepath.Join(m.dir, "HEAD"))
	if err != nil {
		return tips
	}
	head := strings.TrimSpace(string(text))
	if branch, ok := strings.CutPrefix(head, "ref: "); ok {
		m.last.branch = branch
		i := slices.IndexFunc(tips, func(t tip) bool { return t.name == branch })
		if i < 0 {
			return tips
		}
		head = tips[i].hash.String()
	}
	if plumbing.IsHash(head) {
		tips = append(tips, tip{name: "HEAD", hash: plumbing.NewHash(head)})
		sortTips(tips)
	}
	return tips
}

// save writes the tips to disk and releases them. What cannot be written is
// listed again some time, so that is no more than a warning.
func (m *mirror) save() {
	if m.last.dirty {
		if err := m.write(); err != nil {
			m.log.Warn("refs of a mirror not written", logkey.File, m.dir, logkey.Error, err)
		}
	}
	m.last.unload()
}

// write writes the tips in the format of git's packed-refs.
func (m *mirror) write() error {
	var b strings.Builder
	b.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	head := ""
	for _, t := range m.last.tips {
		if t.name == "HEAD" {
			head = t.hash.String()
			continue
		}
		fmt.Fprintf(&b, "%s %s\n", t.hash, t.name)
		if !t.peeled.IsZero() {
			fmt.Fprintf(&b, "^%s\n", t.peeled)
		}
	}
	if m.last.branch != "" {
		head = "ref: " + m.last.branch
	}
	for name, text := range map[string]string{"packed-refs": b.String(), "HEAD": head + "\n"} {
		at := filepath.Join(m.dir, name)
		if err := os.WriteFile(at+".tmp", []byte(text), 0o600); err != nil {
			return fmt.Errorf("write refs: %w", err)
		}
		if err := os.Rename(at+".tmp", at); err != nil {
			return fmt.Errorf("put refs in place: %w", err)
		}
	}
	return nil
}

func sortTips(tips []tip) {
	slices.SortFunc(tips, func(a, b tip) int { return strings.Compare(a.name, b.name) })
}

// sweep removes, once, what an interrupted process left in the folder of
// packs.
func (m *mirror) sweep() error {
	if m.swept {
		return nil
	}
	m.swept = true
	return m.objects.Sweep()
}
