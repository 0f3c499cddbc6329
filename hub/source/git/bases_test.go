package git_test

import (
	"context"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// baseContent reads a file of a base.
func baseContent(t *testing.T, m *git.Mirrors, parent hub.Repository, project, address, revision, name string) (string, error) {
	t.Helper()
	tree, err := m.Base(gittest.Context(t), tenant, parent, project, address, revision, time.Time{}, nil)
	if err != nil {
		return "", err
	}
	text, err := tree.ReadFile(name)
	return string(text), err
}

// authorizations collects what a server is sent.
func authorizations(s *gittest.Server, path string) func() string {
	var sent atomic.Value
	sent.Store("")
	s.Set("", func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, path) {
			sent.Store(sent.Load().(string) + r.Header.Get("Authorization"))
		}
		return false
	})
	return func() string { return sent.Load().(string) }
}

func TestBases(t *testing.T) {
	t.Parallel()
	cred := hub.Credential{Username: "bob", Password: "canary-of-bases"}
	private := func(t *testing.T) (s *gittest.Server, app, lib *gittest.Repo, first string) {
		t.Helper()
		s = gittest.New(t)
		app, lib = s.Repo("app"), s.Repo("lib")
		app.Commit("refs/heads/main", "base", gittest.Files{"f": "app"})
		first = lib.Commit("refs/heads/main", "base", gittest.Files{"base/f.yaml": "one"})
		lib.Git("", "tag", "v1", first)
		lib.Commit("refs/heads/main", "later", gittest.Files{"base/f.yaml": "two"})
		s.Set("canary-of-bases", nil)
		return s, app, lib, first
	}
	t.Run("KUST-10 a private base over HTTPS of the same host is fetched with the repository's credential, at a branch, a tag or a commit", func(t *testing.T) {
		t.Parallel()
		_, app, lib, first := private(t)
		m, parent := openWith(t, cred, git.Config{}), app.Hub()
		for revision, want := range map[string]string{"": "two", "main": "two", "v1": "one", first: "one"} {
			if got, err := baseContent(t, m, parent, "shop", lib.Hub().URL, revision, "base/f.yaml"); err != nil || got != want {
				t.Errorf("at %q: %q, %v", revision, got, err)
			}
		}
		if _, err := baseContent(t, m, parent, "shop", lib.Hub().URL, "none", "base/f.yaml"); fault.KindOf(err) != fault.Missing || !strings.Contains(fault.Sentence(err), "none") {
			t.Error(err)
		}
	})
	t.Run("KUST-10 a private base over SSH of the same host is fetched with the repository's key", func(t *testing.T) {
		t.Parallel()
		w := newSSHWorld(t, git.Config{}, "ed25519")
		app, lib := w.Repo("app.git"), w.Repo("lib.git")
		app.Commit("refs/heads/main", "base", gittest.Files{"f": "app"})
		lib.Commit("refs/heads/main", "base", gittest.Files{"base/f.yaml": "by-ssh"})
		w.key(t, "ed25519")
		parent := sshRepository(t, w.ssh.URL("app.git"))
		if got, err := baseContent(t, w.m, parent, "shop", w.ssh.URL("lib.git"), "main", "base/f.yaml"); err != nil || got != "by-ssh" {
			t.Errorf("%q, %v", got, err)
		}
		if err := w.ssh.CloseToAll(); err != nil {
			t.Fatal(err)
		}
		if _, err := baseContent(t, w.m, parent, "other", w.ssh.URL("lib.git"), "main", "base/f.yaml"); err == nil {
			t.Error("a key that the server does not take opens the base for another project")
		}
	})
	t.Run("KUST-10 SEC-C3 another host is sent nothing of the repository's credential, and its own where there is one", func(t *testing.T) {
		t.Parallel()
		_, app, _, _ := private(t)
		other := gittest.New(t)
		lib := other.Repo("lib")
		lib.Commit("refs/heads/main", "base", gittest.Files{"f": "other"})
		sent := authorizations(other, "/lib")
		m, parent := openWith(t, cred, git.Config{}), app.Hub()
		if got, err := baseContent(t, m, parent, "shop", lib.Hub().URL, "main", "f"); err != nil || got != "other" || sent() != "" {
			t.Errorf("%q, %v, sent %q", got, err, sent())
		}
		other.Set("own-of-the-other", nil)
		if _, err := baseContent(t, m, parent, "closed", lib.Hub().URL, "main", "f"); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("a closed server: %v", err)
		}
		m.Opens(func(_ context.Context, of hub.TenantID, project, address string) (hub.Credential, bool, error) {
			if of == tenant && project == "own" && address == lib.Hub().URL {
				return hub.Credential{Username: "bob", Password: "own-of-the-other"}, false, nil
			}
			return hub.Credential{}, false, nil
		})
		if got, err := baseContent(t, m, parent, "own", lib.Hub().URL, "main", "f"); err != nil || got != "other" {
			t.Errorf("%q, %v", got, err)
		}
		if _, err := baseContent(t, m, parent, "stranger", lib.Hub().URL, "main", "f"); err == nil {
			t.Error("what a project may read is there for another one")
		}
	})
	t.Run("KUST-10 SEC-C2 an address that leads to the hub's own machine or network is refused", func(t *testing.T) {
		t.Parallel()
		_, app, lib, _ := private(t)
		for _, address := range []string{"file:///etc", "/etc", "ext::sh -c id", "-upload-pack=id", "https://"} {
			if _, err := openWith(t, cred, git.Config{}).Base(gittest.Context(t), tenant, app.Hub(), "shop", address, "", time.Time{}, nil); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%s: %v", address, err)
			}
		}
		closed := openWith(t, cred, git.Config{AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
		if _, err := closed.Base(gittest.Context(t), tenant, app.Hub(), "shop", lib.Hub().URL, "", time.Time{}, nil); err == nil {
			t.Error("an internal address is reached")
		}
	})
	t.Run("KUST-10 SEC-B4 a repository names no more bases than a limit, and a removed one leaves none", func(t *testing.T) {
		t.Parallel()
		_, app, lib, _ := private(t)
		dir := t.TempDir()
		m, parent := openWith(t, cred, git.Config{Dir: dir}), app.Hub()
		if _, err := baseContent(t, m, parent, "shop", lib.Hub().URL, "main", "base/f.yaml"); err != nil {
			t.Fatal(err)
		}
		if made, err := filepath.Glob(filepath.Join(dir, "*", string(parent.ID)+"*", "base-*")); err != nil || len(made) != 1 {
			t.Fatalf("the base is in %v, %v", made, err)
		}
		var last error
		for i := range 70 {
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			_, last = m.Base(ended, tenant, parent, "shop", lib.Hub().URL+strings.Repeat("x", i+1), "main", time.Time{}, nil)
		}
		if fault.KindOf(last) != fault.Exceeded {
			t.Errorf("base number 71: %v", last)
		}
		if err := m.Remove(gittest.Context(t), tenant, parent.ID); err != nil {
			t.Fatal(err)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "*", string(parent.ID)+"*")); err != nil || len(left) != 0 {
			t.Errorf("%v is left, %v", left, err)
		}
	})
}

func TestPushesToBases(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	app, lib := s.Repo("app"), s.Repo("lib")
	app.Commit("refs/heads/main", "base", gittest.Files{"f": "app"})
	lib.Commit("refs/heads/main", "base", gittest.Files{"f": "one"})
	m, parent := openWith(t, hub.Credential{}, git.Config{}), app.Hub()
	at := func(t *testing.T, since time.Time) string {
		t.Helper()
		tree, err := m.Base(gittest.Context(t), tenant, parent, "shop", lib.Hub().URL, "main", since, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := tree.ReadFile("f")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := at(t, time.Time{}); got != "one" {
		t.Fatal(got)
	}
	t.Run("KUST-10 HOOKW-04 a listing from before a push is not used after it", func(t *testing.T) {
		lib.Commit("refs/heads/main", "next", gittest.Files{"f": "two"})
		if got := at(t, time.Now()); got != "two" {
			t.Errorf("it is %q", got)
		}
	})
	t.Run("KUST-10 HOOKW-04 nor is one that was under way at the push", func(t *testing.T) {
		lib.Commit("refs/heads/main", "next", gittest.Files{"f": "three"})
		var pushed time.Time
		var once sync.Once
		s.Set("", func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost { // the branches are listed, their objects are requested
				once.Do(func() {
					lib.Commit("refs/heads/main", "next", gittest.Files{"f": "four"})
					pushed = time.Now()
				})
			}
			return false
		})
		if got := at(t, time.Now()); got != "three" || pushed.IsZero() {
			t.Fatalf("it is %q, pushed at %v", got, pushed)
		}
		if got := at(t, pushed); got != "four" {
			t.Errorf("it is %q", got)
		}
	})
}

func TestSignaturesOfBases(t *testing.T) {
	t.Parallel()
	release, other := newSigner(t, "Release", nil), newSigner(t, "Other", nil)
	demand := &hub.SignatureDemand{Policy: hub.SignaturePolicy{Mode: hub.SignatureHead, Keys: []string{release.id}}, Keys: []string{release.public, other.public}}
	s := gittest.New(t)
	app, h := s.Repo("app"), history{t, s.Repo("lib")}
	app.Commit("refs/heads/main", "base", gittest.Files{"f": "app"})
	m := gittest.NewMirrors(t, git.Config{})
	open := func(revision string, d *hub.SignatureDemand) error {
		_, err := m.Base(gittest.Context(t), tenant, app.Hub(), "shop", h.Hub().URL, revision, time.Time{}, d)
		return err
	}
	signed := h.commit(release, "signed")
	t.Run("KUST-10 PROJ-15 a base that an allowed key signed is opened, by its branch and by its commit", func(t *testing.T) {
		for _, revision := range []string{"", "main", signed} {
			if err := open(revision, demand); err != nil {
				t.Errorf("%q: %v", revision, err)
			}
		}
	})
	for name, c := range map[string]struct{ commit, says string }{
		"unsigned":       {h.store("commit", h.payload("unsigned"), "refs/heads/unsigned"), "it is not signed"},
		"of another key": {h.store("commit", withSignature(h.payload("other"), other.sign(t, h.payload("other"))), "refs/heads/other"), "not allowed by the project"},
		"signed by SSH":  {h.store("commit", withSignature(h.payload("ssh"), "-----BEGIN SSH SIGNATURE-----\nU1NIU0lH\n-----END SSH SIGNATURE-----\n"), "refs/heads/ssh"), "its signature"},
	} {
		t.Run("KUST-10 FT-G12 a base is refused with commit and cause: "+name, func(t *testing.T) {
			refused(t, open(c.commit, demand), c.commit[:10], c.says, "lib")
			if err := open(c.commit, nil); err != nil {
				t.Errorf("where nothing is demanded: %v", err)
			}
		})
	}
	t.Run("KUST-10 FT-G12 a later commit of a base that was verified is verified itself", func(t *testing.T) {
		refused(t, open(h.commit(nil, "later"), demand), "it is not signed")
	})
}
