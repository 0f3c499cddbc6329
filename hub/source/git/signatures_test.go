package git_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A signer is a person with a key.
type signer struct {
	entity *openpgp.Entity
	id     string
	public string
	at     time.Time // of the person's clock; zero: now
}

func newSigner(t *testing.T, name string, change func(*packet.Config)) *signer {
	t.Helper()
	cfg := &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA}
	if change != nil {
		change(cfg)
	}
	e, err := openpgp.NewEntity(name, "", strings.ToLower(name)+"@example.com", cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &signer{entity: e, id: fmt.Sprintf("%016X", e.PrimaryKey.KeyId)}
	s.export(t)
	return s
}

func (s *signer) export(t *testing.T) {
	t.Helper()
	var b bytes.Buffer
	w, err := armor.Encode(&b, openpgp.PublicKeyType, nil)
	if err == nil {
		err = s.entity.Serialize(w)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	s.public = b.String()
}

func (s *signer) sign(t *testing.T, payload string) string {
	t.Helper()
	var b bytes.Buffer
	cfg := &packet.Config{}
	if !s.at.IsZero() {
		cfg.Time = func() time.Time { return s.at }
	}
	if err := openpgp.ArmoredDetachSign(&b, s.entity, strings.NewReader(payload), cfg); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(b.String(), "\n") + "\n"
}

// A history makes signed commits in a repository.
type history struct {
	t *testing.T
	*gittest.Repo
}

// commit makes a commit on main; nobody signs it if by is nil.
func (h history) commit(by *signer, message string, on ...string) string {
	h.t.Helper()
	payload := h.payload(message, on...)
	if by == nil {
		return h.store("commit", payload, "refs/heads/main")
	}
	return h.store("commit", withSignature(payload, by.sign(h.t, payload)), "refs/heads/main")
}

func (h history) payload(message string, on ...string) string {
	blob := h.Git(message, "hash-object", "-w", "--stdin")
	tree := h.Git(fmt.Sprintf("100644 blob %s\tf\n", blob), "mktree")
	var b strings.Builder
	fmt.Fprintf(&b, "tree %s\n", tree)
	for _, p := range on {
		fmt.Fprintf(&b, "parent %s\n", p)
	}
	fmt.Fprintf(&b, "author Alma <alma@example.com> 1767323045 +0000\ncommitter Alma <alma@example.com> 1767323045 +0000\n\n%s\n", message)
	return b.String()
}

// withSignature puts a signature into the head of a commit.
func withSignature(payload, signature string) string {
	head, message, _ := strings.Cut(payload, "\n\n")
	return head + "\ngpgsig " + strings.ReplaceAll(strings.TrimSuffix(signature, "\n"), "\n", "\n ") + "\n\n" + message
}

func (h history) store(kind, text, ref string) string {
	h.t.Helper()
	name := h.Git(text, "hash-object", "-t", kind, "-w", "--stdin", "--literally")
	h.Git("", "update-ref", ref, name)
	return name
}

// tag makes an annotated tag under a name; its object says inside.
func (h history) tag(by *signer, name, inside, commit string) {
	h.t.Helper()
	payload := fmt.Sprintf("object %s\ntype commit\ntag %s\ntagger Alma <alma@example.com> 1767323045 +0000\n\nrelease\n", commit, inside)
	if by != nil {
		payload += by.sign(h.t, payload)
	}
	h.store("tag", payload, "refs/tags/"+name)
}

// A verifier verifies in fresh mirrors, or again in the same ones.
type verifier struct {
	t    *testing.T
	m    *git.Mirrors
	repo hub.Repository
}

func newVerifier(t *testing.T, h history) verifier {
	t.Helper()
	v := verifier{t, gittest.NewMirrors(t, git.Config{}), h.Hub()}
	gittest.Fetched(t, v.m, v.repo)
	return v
}

func (v verifier) check(mode, revision, commit string, keys []*signer, allowed ...string) error {
	v.t.Helper()
	d := hub.SignatureDemand{Revision: revision, Commit: commit, Policy: hub.SignaturePolicy{Mode: mode, Keys: allowed}}
	for _, k := range keys {
		d.Keys = append(d.Keys, k.public)
	}
	err := v.m.Verify(gittest.Context(v.t), tenant, v.repo, d)
	if known := v.m.Verified(tenant, v.repo.ID, d); known != (err == nil && mode != hub.SignatureNone) {
		v.t.Errorf("Verified() = %t after %v", known, err)
	}
	return err
}

// refused fails the test unless the error says so.
func refused(t *testing.T, err error, says ...string) {
	t.Helper()
	if fault.KindOf(err) != fault.Invalid {
		t.Fatalf("the error is %v", err)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
}

func TestVerifyHead(t *testing.T) {
	t.Parallel()
	h := history{t, gittest.New(t).Repo("app")}
	release, other := newSigner(t, "Release", nil), newSigner(t, "Other", nil)
	keys := []*signer{release, other}
	t.Run("PROJ-15 a commit that an allowed key signed", func(t *testing.T) {
		c := h.commit(release, "signed")
		v := newVerifier(t, h)
		for _, allowed := range []string{release.id, strings.ToLower(release.id), "0x" + release.id, fmt.Sprintf("%X", release.entity.PrimaryKey.Fingerprint)} {
			if err := v.check(hub.SignatureHead, "main", c, keys, allowed); err != nil {
				t.Errorf("%s: %v", allowed, err)
			}
		}
		if err := v.check(hub.SignatureHead, c, c, keys, release.id); err != nil {
			t.Errorf("by its name: %v", err)
		}
		if err := v.check(hub.SignatureHead, "", c, keys, release.id); err != nil {
			t.Errorf("of HEAD: %v", err)
		}
		if err := v.check(hub.SignatureHead, c[:12], c, keys, release.id); err != nil {
			t.Errorf("abbreviated: %v", err)
		}
	})
	t.Run("FT-G12 unsigned, of another key, of a key that is not stored", func(t *testing.T) {
		c := h.commit(nil, "unsigned")
		refused(t, newVerifier(t, h).check(hub.SignatureHead, "main", c, keys, release.id), c[:10], "Alma", "it is not signed")
		c = h.commit(other, "of another")
		refused(t, newVerifier(t, h).check(hub.SignatureHead, "main", c, keys, release.id), "is not allowed by the project", other.id)
		c = h.commit(release, "signed")
		refused(t, newVerifier(t, h).check(hub.SignatureHead, "main", c, []*signer{other}, release.id), "is not among the public keys", release.id)
	})
	t.Run("FT-G12 content that was changed after it was signed", func(t *testing.T) {
		payload := h.payload("innocent")
		c := h.store("commit", withSignature(h.payload("changed"), release.sign(t, payload)), "refs/heads/main")
		refused(t, newVerifier(t, h).check(hub.SignatureHead, "main", c, keys, release.id), "does not fit its content")
	})
	t.Run("FT-G12 two signatures, a broken one, one of SSH", func(t *testing.T) {
		payload := h.payload("x")
		twice := withSignature(withSignature(payload, release.sign(t, payload)), other.sign(t, payload))
		for text, says := range map[string]string{
			twice: "cannot be read",
			withSignature(payload, "-----BEGIN PGP SIGNATURE-----\n\nnonsense\n-----END PGP SIGNATURE-----\n"):       "cannot be read",
			withSignature(payload, "-----BEGIN SSH SIGNATURE-----\nU1NIU0lH\n-----END SSH SIGNATURE-----\n"):         "another kind",
			withSignature(payload, "") + "gpgsig " + release.sign(t, payload):                                        "it is not signed",
			strings.Replace(payload, "\n\n", "\nnote "+strings.TrimSuffix(release.sign(t, payload), "\n")+"\n\n", 1): "it is not signed",
		} {
			c := h.store("commit", text, "refs/heads/main")
			err := newVerifier(t, h).check(hub.SignatureHead, "main", c, keys, release.id)
			if err == nil {
				t.Errorf("passes: %q", text)
				continue
			}
			if !strings.Contains(err.Error(), says) && !strings.Contains(err.Error(), "cannot be read") {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
	t.Run("FT-G12 an expired key, a revoked key", func(t *testing.T) {
		old := newSigner(t, "Old", func(c *packet.Config) {
			c.KeyLifetimeSecs, c.Time = 3600, func() time.Time { return time.Now().Add(-48 * time.Hour) }
		})
		old.at = time.Now().Add(-48*time.Hour + time.Minute)
		c := h.commit(old, "by a key that has expired since")
		refused(t, newVerifier(t, h).check(hub.SignatureHead, "main", c, []*signer{old}, old.id), "has expired")
		gone := newSigner(t, "Gone", nil)
		c = h.commit(gone, "by a key that is revoked afterwards")
		v := newVerifier(t, h)
		if err := v.check(hub.SignatureHead, "main", c, []*signer{gone}, gone.id); err != nil {
			t.Fatal(err)
		}
		if err := gone.entity.RevokeKey(packet.KeyCompromised, "lost", nil); err != nil {
			t.Fatal(err)
		}
		gone.export(t)
		refused(t, v.check(hub.SignatureHead, "main", c, []*signer{gone}, gone.id), "is revoked")
	})
	t.Run("PROJ-16 mode none checks nothing", func(t *testing.T) {
		c := h.commit(nil, "unsigned")
		if err := newVerifier(t, h).check(hub.SignatureNone, "main", c, nil); err != nil {
			t.Error(err)
		}
	})
}

func TestVerifyTags(t *testing.T) {
	t.Parallel()
	h := history{t, gittest.New(t).Repo("app")}
	release, other := newSigner(t, "Release", nil), newSigner(t, "Other", nil)
	keys := []*signer{release, other}
	unsigned := h.commit(nil, "unsigned")
	signed := h.commit(release, "signed", unsigned)
	h.tag(release, "v1", "v1", unsigned)
	h.tag(nil, "v2", "v2", signed)
	h.tag(other, "v3", "v3", signed)
	h.tag(release, "v4", "v1", signed) // an object of another tag
	h.Git("", "tag", "light", signed)
	v := newVerifier(t, h)
	t.Run("PROJ-16 an annotated tag is verified instead of its commit", func(t *testing.T) {
		if err := v.check(hub.SignatureHead, "v1", unsigned, keys, release.id); err != nil {
			t.Error(err)
		}
		refused(t, v.check(hub.SignatureHead, "v2", signed, keys, release.id), "tag v2: it is not signed")
		refused(t, v.check(hub.SignatureHead, "refs/tags/v3", signed, keys, release.id), "tag v3", "not allowed", other.id)
	})
	t.Run("PROJ-16 a plain tag is a name for its commit", func(t *testing.T) {
		if err := v.check(hub.SignatureHead, "light", signed, keys, release.id); err != nil {
			t.Error(err)
		}
	})
	t.Run("FT-G12 the object of another tag", func(t *testing.T) {
		refused(t, v.check(hub.SignatureHead, "v4", signed, keys, release.id), "tag v4", `another tag, "v1"`)
	})
	t.Run("PROJ-16 strict verifies tag and history", func(t *testing.T) {
		refused(t, v.check(hub.SignatureStrict, "v1", unsigned, keys, release.id), "commit "+unsigned[:10], "it is not signed")
		refused(t, v.check(hub.SignatureStrict, "v3", signed, keys, release.id), "tag v3", "commit "+unsigned[:10])
	})
	t.Run("FT-G12 a tag that was moved since its commit was found", func(t *testing.T) {
		if err := v.check(hub.SignatureHead, "v1", signed, keys, release.id); fault.KindOf(err) != fault.Offline {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestVerifyHistory(t *testing.T) {
	t.Parallel()
	release, other := newSigner(t, "Release", nil), newSigner(t, "Other", nil)
	keys := []*signer{release, other}
	t.Run("PROJ-16 strict finds an unsigned commit behind a merge", func(t *testing.T) {
		t.Parallel()
		h := history{t, gittest.New(t).Repo("app")}
		root := h.commit(release, "root")
		left := h.commit(release, "left", root)
		hidden := h.commit(nil, "hidden", root)
		right := h.commit(release, "right", hidden)
		merge := h.commit(release, "merge", left, right)
		v := newVerifier(t, h)
		if err := v.check(hub.SignatureHead, "main", merge, keys, release.id); err != nil {
			t.Error(err)
		}
		refused(t, v.check(hub.SignatureStrict, "main", merge, keys, release.id), "commit "+hidden[:10])
		if err := v.check(hub.SignatureStrict, left, left, keys, release.id); err != nil {
			t.Errorf("the signed branch: %v", err)
		}
	})
	t.Run("PROJ-16 a sealing commit ends the history, if an allowed key signed it", func(t *testing.T) {
		t.Parallel()
		h := history{t, gittest.New(t).Repo("app")}
		root := h.commit(nil, "unsigned root")
		seal := h.commit(release, "Vouch for the past\n\nArgocd-gpg-seal: signing begins here", root)
		tip := h.commit(release, "after", seal)
		v := newVerifier(t, h)
		if err := v.check(hub.SignatureStrict, "main", tip, keys, release.id); err != nil {
			t.Error(err)
		}
		forged := h.commit(release, "after", h.commit(other, "Vouch\n\nArgocd-gpg-seal: trust me", root))
		refused(t, newVerifier(t, h).check(hub.SignatureStrict, "main", forged, keys, release.id), "not allowed", "commit "+root[:10])
		for _, message := range []string{"Argocd-gpg-seal: as a title", "x\n\nArgocd-gpg-seal:\n", "x\n\nArgocd-gpg-seal: first\n\nmore text"} {
			weak := h.commit(release, message, root)
			refused(t, newVerifier(t, h).check(hub.SignatureStrict, "main", weak, keys, release.id), "commit "+root[:10])
		}
	})
	t.Run("PROJ-16 ten problems are listed, not all", func(t *testing.T) {
		t.Parallel()
		h := history{t, gittest.New(t).Repo("app")}
		tip := h.commit(nil, "0")
		for i := range 30 {
			tip = h.commit(nil, fmt.Sprint(i+1), tip)
		}
		err := newVerifier(t, h).check(hub.SignatureStrict, "main", tip, keys, release.id)
		refused(t, err)
		if n := strings.Count(err.Error(), "commit "); n < 10 || n > 12 {
			t.Errorf("%d problems: %v", n, err)
		}
	})
	t.Run("PROJ-16 keys that are gone make a verified history unverified", func(t *testing.T) {
		t.Parallel()
		h := history{t, gittest.New(t).Repo("app")}
		tip := h.commit(release, "two", h.commit(other, "one"))
		v := newVerifier(t, h)
		if err := v.check(hub.SignatureStrict, "main", tip, keys, release.id, other.id); err != nil {
			t.Fatal(err)
		}
		refused(t, v.check(hub.SignatureStrict, "main", tip, keys, release.id), "not allowed")
		refused(t, v.check(hub.SignatureStrict, "main", tip, []*signer{release}, release.id, other.id), "not among the public keys")
	})
}

// What git and gpg themselves sign is what users have.
func TestVerifyWhatGitSigns(t *testing.T) {
	t.Parallel()
	r := gittest.New(t).Repo("app")
	home, work := shortDir(t), t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = work, append(gittest.Env(work), "GNUPGHOME="+home)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", "Release <release@example.com>", "rsa3072", "sign", "never")
	t.Cleanup(func() { run("gpgconf", "--kill", "gpg-agent") })
	run("git", "clone", "--quiet", r.Path, "app")
	work = filepath.Join(work, "app")
	if err := os.WriteFile(filepath.Join(work, "f"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	run("git", "config", "user.signingkey", "release@example.com")
	run("git", "add", "f")
	run("git", "commit", "--quiet", "--gpg-sign", "--message", "signed", "--trailer", "Argocd-gpg-seal: the beginning")
	run("git", "tag", "--sign", "--message", "release", "v1")
	run("git", "push", "--quiet", "origin", "HEAD:refs/heads/main", "v1")
	public := &signer{public: run("gpg", "--armor", "--export")}
	id := strings.Split(run("gpg", "--list-keys", "--with-colons"), "\npub:")
	long := strings.Split(id[len(id)-1], ":")[3]
	v := newVerifier(t, history{t, r})
	commit := r.Git("", "rev-parse", "main")
	t.Run("PROJ-15 a commit", func(t *testing.T) {
		if err := v.check(hub.SignatureHead, "main", commit, []*signer{public}, long); err != nil {
			t.Error(err)
		}
	})
	t.Run("PROJ-16 a tag, and the history", func(t *testing.T) {
		if err := v.check(hub.SignatureStrict, "v1", commit, []*signer{public}, long); err != nil {
			t.Error(err)
		}
	})
}

// shortDir is a directory whose name is short enough for a socket of gpg.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gpg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
