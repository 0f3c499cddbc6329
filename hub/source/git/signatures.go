package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/signature"
	"github.com/capstan-cd/capstan/hub/source/git/packstore"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

const (
	maxSigned   = 1 << 20 // bytes of a commit or tag that is verified
	maxWalked   = 100_000 // commits of a history that one verification reads
	maxProblems = 10      // that one error lists
	maxVerified = 16_384  // verifiedDemands that are remembered
	beatEvery   = 256     // commits
)

// sealTrailer marks a commit whose author vouches for everything before it
// (PROJ-16).
const sealTrailer = "argocd-gpg-seal:"

// verifiedDemands remember what was verified. Only good verifiedDemands are in it.
type verifiedDemands struct {
	mu   sync.Mutex
	good map[verifiedKey]time.Time // until when it holds; zero: always
}

// A verifiedKey is a demand by its identity, or a commit of a history that was
// verified whole under a scope.
type verifiedKey struct {
	tenant hub.TenantID
	repo   hub.RepositoryID
	what   string
}

func (v *verifiedDemands) has(k verifiedKey, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	until, there := v.good[k]
	return there && (until.IsZero() || now.Before(until))
}

func (v *verifiedDemands) add(k verifiedKey, until time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.good == nil || len(v.good) >= maxVerified {
		v.good = map[verifiedKey]time.Time{}
	}
	v.good[k] = until
}

// Verified reports whether Verify has found the demand fulfilled before, with
// the same keys. It costs nothing.
func (m *Mirrors) Verified(tenant hub.TenantID, repo hub.RepositoryID, d hub.SignatureDemand) bool {
	id := d.Identity()
	return m.verified.has(verifiedKey{tenant, repo, string(id[:])}, m.clock.Now())
}

// Verify checks the signatures that a demand asks for (PROJ-15, PROJ-16). The
// error lists what is wrong, with commits and keys.
func (m *Mirrors) Verify(ctx context.Context, tenant hub.TenantID, repo hub.Repository, d hub.SignatureDemand) error {
	if m.Verified(tenant, repo.ID, d) || d.Policy.Mode == hub.SignatureNone {
		return nil
	}
	mir, err := m.mirror(tenant, repo.ID)
	if err != nil {
		return err
	}
	id := d.Identity()
	return m.verify(ctx, mir, repo, d, verifiedKey{tenant, repo.ID, string(id[:])})
}

// verify checks a demand in a mirror, and remembers under a key that it is
// fulfilled.
func (m *Mirrors) verify(ctx context.Context, mir *mirror, repo hub.Repository, d hub.SignatureDemand, key verifiedKey) error {
	c, err := mir.have(ctx, repo, d.Commit)
	if err != nil {
		return about(repo, err)
	}
	check := &signatureCheck{
		mirror: mir, repo: repo, scope: d.Scope(), now: m.clock.Now(), keys: signature.NewKeyring(d.Keys), beat: func() { lifecycle.Beat(ctx) },
	}
	for _, k := range d.Policy.Keys {
		if normal, ok := hub.NormalKeyID(k); ok {
			check.allowed = append(check.allowed, normal)
		}
	}
	tagged, err := check.tag(ctx, d)
	if err == nil && (!tagged || d.Policy.Mode == hub.SignatureStrict) {
		err = check.history(ctx, c.Hash, d.Policy.Mode == hub.SignatureStrict)
	}
	if err == nil {
		err = check.result()
	}
	if err != nil {
		return about(repo, err)
	}
	m.verified.add(key, check.keys.Until(check.now))
	return nil
}

// A signatureCheck is the check of one demand.
type signatureCheck struct {
	*mirror
	repo     hub.Repository
	scope    string
	now      time.Time
	keys     *signature.Keyring
	allowed  []string
	problems []string
	beat     func()
}

// result is the error that lists the problems.
func (s *signatureCheck) result() error {
	if len(s.problems) == 0 {
		return nil
	}
	return fault.With(fault.New(fault.Invalid, "the project demands signatures of commits: %s", strings.Join(s.problems, "; ")), "",
		"sign with one of the project's keys, whose public part `capstan gpg list` shows")
}

func (s *signatureCheck) problem(what string, r signature.Result) {
	text := what + ": " + string(r.Outcome)
	if r.KeyID != "" {
		text += " (key " + r.KeyID + ")"
	}
	s.problems = append(s.problems, text)
}

// tag verifies the annotated tag that a revision names, if it names one. It
// must have the name under which it is found, and lead to the commit: what a
// server lists about a tag proves nothing.
func (s *signatureCheck) tag(ctx context.Context, d hub.SignatureDemand) (tagged bool, err error) {
	if isCommit(d.Revision) || d.Revision == "" || d.Revision == "HEAD" {
		return false, nil
	}
	t, name, err := s.tip(ctx, d)
	if err != nil || !strings.HasPrefix(name, "refs/tags/") {
		return false, err
	}
	obj, err := s.objects.Read(t.hash, maxSigned)
	if err != nil {
		return false, s.broken(err)
	}
	if obj.Kind != plumbing.TagObject {
		return false, nil // a name for a commit, which is verified itself
	}
	c, err := s.objects.Commit(t.hash)
	if err != nil {
		return false, s.broken(err)
	}
	short := strings.TrimPrefix(name, "refs/tags/")
	switch {
	case c.Hash.String() != d.Commit:
		return true, errRevisionMoved(short)
	case header(obj.Data, "tag") != short:
		s.problems = append(s.problems, fmt.Sprintf("tag %s: the object behind it is of another tag, %q", cut(short, 120), cut(header(obj.Data, "tag"), 120)))
		return true, nil
	}
	if r := s.keys.Verify(signature.Tag(obj.Data), s.allowed, s.now); r.Outcome != signature.Good {
		s.problem("tag "+cut(short, 120), r)
	}
	return true, nil
}

// tip finds what a revision names, as the demand's commit was found: in the
// stored listing, or in that of a fetch that has just ended.
func (s *signatureCheck) tip(ctx context.Context, d hub.SignatureDemand) (tip, string, error) {
	tips, err := s.stored()
	if err == nil {
		if t, name, ok := resolved(tips, d); ok {
			return t, name, nil
		}
	}
	if len(d.Revision) >= minShort && isHex(d.Revision) && strings.HasPrefix(d.Commit, strings.ToLower(d.Revision)) {
		return tip{}, "", nil // an abbreviated commit
	}
	if err := s.enter(ctx); err != nil {
		return tip{}, "", err
	}
	defer s.leave()
	if tips, err = s.load(); err != nil {
		return tip{}, "", s.broken(err)
	}
	if t, name, ok := resolved(tips, d); ok {
		return t, name, nil
	}
	return tip{}, "", errRevisionMoved(d.Revision)
}

func resolved(tips []tip, d hub.SignatureDemand) (tip, string, bool) {
	commit, name, err := Resolve(refs(tips), d.Revision, d.TagPrefix)
	if err != nil || commit != d.Commit {
		return tip{}, "", false
	}
	for _, t := range tips {
		if t.name == name {
			return t, name, true
		}
	}
	return tip{}, "", false
}

// errRevisionMoved means that the listing changes at this moment.
func errRevisionMoved(revision string) error {
	return fault.With(fault.New(fault.Offline, "the revision %q has moved while its signature was verified", cut(revision, 120)), "", "it is retried automatically")
}

// history verifies a commit, and with strict all that lead to it: back to the
// beginning, to commits that seal what is before them, and to those whose
// history was verified before.
func (s *signatureCheck) history(ctx context.Context, from plumbing.Hash, strict bool) error {
	seen := map[plumbing.Hash]bool{from: true}
	for next := []plumbing.Hash{from}; len(next) > 0; next = next[1:] {
		if len(s.problems) >= maxProblems || s.whole(next[0], strict) {
			continue
		}
		if len(seen) > maxWalked {
			return fault.With(fault.New(fault.Exceeded, "the history to verify has more than %d commits", maxWalked), "", "sign a commit with the trailer Argocd-gpg-seal, which ends the verification there")
		}
		if len(seen)%beatEvery == 0 {
			s.beat()
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		obj, err := s.objects.Read(next[0], maxSigned)
		if err == nil && obj.Kind != plumbing.CommitObject {
			err = packstore.ErrNotCommit
		}
		if errors.Is(err, packstore.ErrNoObject) && s.repo.Depth > 0 {
			return fault.With(fault.New(fault.Invalid, "the history to verify is deeper than the %d commits that are fetched", s.repo.Depth), "", "set the repository's depth to 0, or the mode of the policy to head")
		}
		if err != nil {
			return s.broken(err)
		}
		good := s.commit(next[0], obj.Data)
		if !strict || good && sealed(obj.Data) {
			continue
		}
		for _, p := range parents(obj.Data) {
			if !seen[p] {
				seen[p] = true
				next = append(next, p)
			}
		}
	}
	if strict && len(s.problems) == 0 {
		s.verified.add(s.wholeKey(from), s.keys.Until(s.now))
	}
	return nil
}

func (s *signatureCheck) whole(h plumbing.Hash, strict bool) bool {
	return strict && s.verified.has(s.wholeKey(h), s.now)
}

func (s *signatureCheck) wholeKey(h plumbing.Hash) verifiedKey {
	return verifiedKey{s.tenant, s.repo.ID, s.scope + h.String()}
}

func (s *signatureCheck) commit(h plumbing.Hash, data []byte) bool {
	r := s.keys.Verify(signature.Commit(data), s.allowed, s.now)
	if r.Outcome != signature.Good {
		s.problem(fmt.Sprintf("commit %s by %s", h.String()[:10], cut(author(data), 120)), r)
	}
	return r.Outcome == signature.Good
}

// author is the name of a commit's author, as the commit says.
func author(data []byte) string {
	name, _, _ := strings.Cut(header(data, "author"), " <")
	if name == "" {
		return "nobody"
	}
	return strings.ToValidUTF8(name, "\uFFFD")
}

// header is the value of the first header of a name.
func header(data []byte, name string) string {
	for line := range bytes.Lines(data) {
		if len(line) <= 1 {
			return ""
		}
		if value, ok := bytes.CutPrefix(line, []byte(name+" ")); ok {
			return strings.TrimSuffix(string(value), "\n")
		}
	}
	return ""
}

func parents(data []byte) []plumbing.Hash {
	var out []plumbing.Hash
	for line := range bytes.Lines(data) {
		if len(line) <= 1 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("parent ")); ok {
			if text := strings.TrimSpace(string(value)); plumbing.IsHash(text) {
				out = append(out, plumbing.NewHash(text))
			}
		}
	}
	return out
}

// sealed reports whether a commit has the sealing trailer: in the last
// paragraph of its message, and with a reason.
func sealed(data []byte) bool {
	_, message, _ := bytes.Cut(data, []byte("\n\n"))
	paragraphs := bytes.Split(bytes.TrimSpace(message), []byte("\n\n"))
	if len(paragraphs) < 2 {
		return false // the title is no trailer
	}
	for line := range bytes.Lines(paragraphs[len(paragraphs)-1]) {
		if rest, ok := strings.CutPrefix(strings.ToLower(string(line)), sealTrailer); ok && strings.TrimSpace(rest) != "" {
			return true
		}
	}
	return false
}
