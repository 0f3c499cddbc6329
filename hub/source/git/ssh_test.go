package git_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
)

// sshCredentials are what a test's tenant has stored.
type sshCredentials struct {
	mu   sync.Mutex
	keys []hub.HostKey
	cred hub.Credential
}

func (c *sshCredentials) Credential(context.Context, hub.TenantID, hub.RepositoryID) (hub.Credential, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cred, nil
}

func (c *sshCredentials) Authorities(context.Context, hub.TenantID, string) (string, error) {
	return "", nil
}

func (c *sshCredentials) HostKeys(context.Context, hub.TenantID) ([]hub.HostKey, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys, nil
}

func (c *sshCredentials) trust(tb testing.TB, lines string) {
	tb.Helper()
	keys, err := hub.ParseKnownHosts(lines)
	if err != nil {
		tb.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys = keys
}

// A sshWorld is a real OpenSSH server beside a Git server, and mirrors.
type sshWorld struct {
	*gittest.Server
	ssh   *gitserver.SSH
	creds *sshCredentials
	m     *git.Mirrors
	log   *bytes.Buffer
	mu    sync.Mutex
}

func newSSHWorld(tb testing.TB, cfg git.Config, hostKeys ...string) *sshWorld {
	tb.Helper()
	s := gittest.New(tb)
	w := &sshWorld{Server: s, ssh: gitserver.NewSSH(tb, gitserver.SSHOptions{Repositories: s.Dir, HostKeys: hostKeys}), creds: &sshCredentials{}, log: &bytes.Buffer{}}
	w.creds.trust(tb, w.knownHosts(tb))
	w.m = sshMirrors(tb, cfg, w.creds, slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})))
	return w
}

func (w *sshWorld) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

func sshMirrors(tb testing.TB, cfg git.Config, creds git.Credentials, log *slog.Logger) *git.Mirrors {
	tb.Helper()
	if cfg.Dir == "" {
		cfg.Dir = tb.TempDir()
	}
	if cfg.AllowedNetworks == nil {
		cfg.AllowedNetworks = gittest.Loopback()
	}
	if cfg.ListTimeout == 0 {
		cfg.ListTimeout = gittest.AnswerTimeout
	}
	m, err := git.New(cfg, creds, lifecycle.System{}, log)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { gittest.CloseMirrors(tb, m) })
	return m
}

func (w *sshWorld) knownHosts(tb testing.TB) string {
	tb.Helper()
	lines, err := w.ssh.KnownHosts()
	if err != nil {
		tb.Fatal(err)
	}
	return lines
}

func (w *sshWorld) key(tb testing.TB, kind string) string {
	tb.Helper()
	key, err := w.ssh.NewKey(kind)
	if err != nil {
		tb.Fatal(err)
	}
	w.creds.mu.Lock()
	defer w.creds.mu.Unlock()
	w.creds.cred = hub.Credential{SSHPrivateKey: key}
	return key
}

// repository is one as the hub knows it, by an address as a person writes it.
func sshRepository(tb testing.TB, address string) hub.Repository {
	tb.Helper()
	url, err := repourl.Normalize(address)
	if err != nil {
		tb.Fatal(err)
	}
	return hub.Repository{ID: hub.NewID[hub.RepositoryID](), Tenant: tenant, URL: url, Type: "git", Username: repourl.SSHUser(address)}
}

func (w *sshWorld) fetch(tb testing.TB, repo hub.Repository) (map[string]string, error) {
	tb.Helper()
	refs, err := w.m.Fetch(gittest.Context(tb), tenant, repo, w.creds.cred)
	return gittest.ByName(refs), err
}

func TestFetchOverSSH(t *testing.T) {
	t.Parallel()
	w := newSSHWorld(t, git.Config{}, "ed25519", "ecdsa", "rsa")
	origin := w.Repo("team's app.git")
	first := origin.Commit("refs/heads/main", "first", gittest.Files{"a.yaml": "a: 1\n", "big": strings.Repeat("0123456789abcdef\n", 20000)})
	for _, kind := range []string{"ed25519", "ecdsa", "rsa"} {
		t.Run("CRED-07 a key of type "+kind, func(t *testing.T) {
			w.key(t, kind)
			repo := sshRepository(t, strings.ReplaceAll(w.ssh.URL("team's app.git"), " ", "%20"))
			got, err := w.fetch(t, repo)
			if err != nil || got["HEAD"] != first || got["refs/heads/main"] != first {
				t.Fatalf("Fetch() = %v, %v", got, err)
			}
			if got := gittest.Content(t, w.m, repo, first, "a.yaml"); got != "a: 1\n" {
				t.Errorf("content = %q", got)
			}
		})
	}
	repo := sshRepository(t, strings.ReplaceAll(w.ssh.URL("team's app"), " ", "%20"))
	if _, err := w.fetch(t, repo); err != nil {
		t.Fatal(err)
	}
	t.Run("a push costs one program and little more than the commit", func(t *testing.T) {
		before := w.calls(t)
		second := origin.Commit("refs/heads/main", "second", gittest.Files{"a.yaml": "a: 2\n"})
		got, err := w.fetch(t, repo)
		if err != nil || got["HEAD"] != second {
			t.Fatalf("Fetch() = %v, %v", got, err)
		}
		if n := w.calls(t) - before; n != 1 {
			t.Errorf("%d programs, want one for listing and transfer", n)
		}
		if got := gittest.Content(t, w.m, repo, second, "a.yaml") + gittest.Content(t, w.m, repo, first, "a.yaml"); got != "a: 2\na: 1\n" {
			t.Errorf("content of the new and the old commit = %q", got)
		}
		if got, err := w.fetch(t, repo); err != nil || got["HEAD"] != second {
			t.Errorf("nothing new: %v, %v", got, err)
		}
	})
	t.Run("FT-G1 a force push, a deleted branch and a tag", func(t *testing.T) {
		rewritten := origin.CommitOn("refs/heads/main", first, "rewritten", gittest.Files{"a.yaml": "a: 3\n"})
		origin.Git("", "tag", "-a", "-m", "x", "v1", rewritten)
		got, err := w.fetch(t, repo)
		if err != nil || got["refs/heads/main"] != rewritten || got["refs/tags/v1"] != rewritten {
			t.Fatalf("Fetch() = %v, %v", got, err)
		}
	})
	t.Run("SRC-01 a commit that no ref names is fetched by its name", func(t *testing.T) {
		origin.Git("", "config", "uploadpack.allowAnySHA1InWant", "true")
		loose := origin.Commit("refs/heads/gone", "loose", gittest.Files{"a.yaml": "a: loose\n"})
		origin.Git("", "update-ref", "-d", "refs/heads/gone")
		if got := gittest.Content(t, w.m, repo, loose, "a.yaml"); got != "a: loose\n" {
			t.Errorf("content = %q", got)
		}
		none := strings.Repeat("ab", 20)
		if _, err := w.m.Tree(gittest.Context(t), tenant, repo, none); fault.KindOf(err) != fault.Missing {
			t.Errorf("Tree() of a commit that is nowhere = %v", err)
		}
	})
	t.Run("CRED-16 a path that counts from the home of the user", func(t *testing.T) {
		relative := sshRepository(t, strings.ReplaceAll(w.ssh.RelativeURL("team's app.git"), " ", "%20"))
		if got, err := w.fetch(t, relative); err != nil || got["HEAD"] == "" {
			t.Fatalf("Fetch() = %v, %v", got, err)
		}
		before := w.calls(t)
		if _, err := w.fetch(t, relative); err != nil || w.calls(t) != before+1 {
			t.Errorf("the spelling is not remembered: %d programs, %v", w.calls(t)-before, err)
		}
	})
	t.Run("2,000 branches", func(t *testing.T) {
		many := w.Repo("many.git")
		base := many.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
		var b strings.Builder
		for i := range 2000 {
			fmt.Fprintf(&b, "create refs/heads/b%d %s\n", i, base)
		}
		many.Git(b.String(), "update-ref", "--stdin")
		if got, err := w.fetch(t, sshRepository(t, w.ssh.URL("many.git"))); err != nil || len(got) != 2002 {
			t.Errorf("%d refs, %v", len(got), err)
		}
	})
	t.Run("a damaged mirror is fetched again in the same visit or the next", func(t *testing.T) {
		if err := w.m.Remove(gittest.Context(t), tenant, repo.ID); err != nil {
			t.Fatal(err)
		}
		if got, err := w.fetch(t, repo); err != nil || got["HEAD"] == "" {
			t.Errorf("Fetch() = %v, %v", got, err)
		}
	})
}

func (w *sshWorld) calls(tb testing.TB) int {
	tb.Helper()
	calls, err := w.ssh.Calls()
	if err != nil {
		tb.Fatal(err)
	}
	return len(calls)
}

func TestHostKeysAreChecked(t *testing.T) {
	t.Parallel()
	w := newSSHWorld(t, git.Config{}, "ed25519", "rsa")
	w.Repo("app.git").Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	w.key(t, "ed25519")
	repo := sshRepository(t, w.ssh.URL("app.git"))
	lines := w.knownHosts(t)
	keys, err := hub.ParseKnownHosts(lines)
	if err != nil {
		t.Fatal(err)
	}
	fingerprint := keys[0].Fingerprint()

	t.Run("CRED-07 an unknown server is refused with fingerprint and fix", func(t *testing.T) {
		w.creds.trust(t, "")
		before := w.calls(t)
		_, err := w.fetch(t, repo)
		sentence := fault.Sentence(err)
		for _, part := range []string{"not known", fingerprint, "ssh-keyscan -t ed25519 -p ", "| capstan cert add-ssh --batch --fingerprint " + fingerprint} {
			if !strings.Contains(sentence, part) {
				t.Errorf("sentence %q lacks %q", sentence, part)
			}
		}
		if strings.Contains(sentence, "--upsert") || w.calls(t) != before {
			t.Errorf("sentence %q, %d programs ran", sentence, w.calls(t)-before)
		}
	})
	t.Run("a server that is known by one of its keys shows that one", func(t *testing.T) {
		w.creds.trust(t, strings.Split(lines, "\n")[1])
		if _, err := w.fetch(t, repo); err != nil {
			t.Error(err)
		}
	})
	t.Run("a hashed name and a pattern are names too", func(t *testing.T) {
		w.creds.trust(t, "[127.0.0.*]:* "+strings.SplitN(lines, " ", 2)[1])
		if _, err := w.fetch(t, repo); err != nil {
			t.Error(err)
		}
	})
	t.Run("SEC-A a changed key is refused loudly, with both fingerprints", func(t *testing.T) {
		w.creds.trust(t, lines)
		if _, err := w.fetch(t, repo); err != nil {
			t.Fatal(err)
		}
		if err := w.ssh.ChangeHostKeys(); err != nil {
			t.Fatal(err)
		}
		if err := w.ssh.Restart(gittest.Context(t)); err != nil {
			t.Fatal(err)
		}
		_, err := w.fetch(t, repo)
		sentence := fault.Sentence(err)
		changed, _ := hub.ParseKnownHosts(w.knownHosts(t))
		for _, part := range []string{"HAS CHANGED", fingerprint, changed[0].Fingerprint(), "--upsert"} {
			if !strings.Contains(sentence, part) {
				t.Errorf("sentence %q lacks %q", sentence, part)
			}
		}
		t.Run("insecure skips the check, and only while it is set", func(t *testing.T) {
			open := repo
			open.Insecure = true
			if _, err := w.fetch(t, open); err != nil {
				t.Error(err)
			}
			if _, err := w.fetch(t, repo); err == nil {
				t.Error("the check is off for good")
			}
		})
		t.Run("a known server of another kind of key is another server", func(t *testing.T) {
			w.creds.trust(t, strings.Replace(keys[0].Line(), keys[0].Host, "[127.0.0.1]:"+strings.Split(w.ssh.Address(), ":")[1], 1))
			if _, err := w.fetch(t, repo); err == nil || !strings.Contains(fault.Sentence(err), "HAS CHANGED") {
				t.Errorf("Fetch() = %v", err)
			}
		})
		w.creds.trust(t, w.knownHosts(t))
		if _, err := w.fetch(t, repo); err != nil {
			t.Errorf("after the new keys were trusted: %v", err)
		}
	})
}

func TestSSHErrors(t *testing.T) {
	t.Parallel()
	w := newSSHWorld(t, git.Config{})
	w.Repo("app.git").Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	w.Repo("empty.git")
	good := w.key(t, "ed25519")
	other := gitserver.NewSSH(t, gitserver.SSHOptions{Repositories: t.TempDir()})
	stranger, err := other.NewKey("ed25519")
	if err != nil {
		t.Fatal(err)
	}
	address := w.ssh.URL("app.git")
	for name, c := range map[string]struct {
		url, key string
		kind     fault.Kind
		want     string
	}{
		"no such repository":         {w.ssh.URL("none.git"), good, fault.Missing, "knows no such repository"},
		"an empty repository":        {w.ssh.URL("empty.git"), good, fault.Invalid, "is empty"},
		"a key that has no right":    {address, stranger, fault.Invalid, "does not accept the SSH key"},
		"no key":                     {address, "", fault.Invalid, "requires a key and none is stored"},
		"a wrong user":               {strings.Replace(address, "ssh://", "ssh://nosuchuser@", 1), good, fault.Invalid, "does not accept the SSH key"},
		"SEC-A a path that is shell": {w.ssh.URL("x';touch${IFS}pwned;'"), good, fault.Missing, "knows no such repository"},
		"SEC-A6 a private address":   {"ssh://10.255.255.1/repo", good, fault.Invalid, "loopback, link-local or private"},
		"SEC-A6 IPv6 loopback":       {"ssh://[::1]:22/repo", good, fault.Invalid, "loopback, link-local or private"},
		"SEC-A8 a host that is text": {"ssh://a$(id)b/repo", good, fault.Invalid, "has invalid characters"},
		"nobody listens":             {"ssh://" + runtest.Refusing(t) + "/repo", good, fault.Offline, "refuses the connection"},
		"no such host":               {"ssh://no-such-host.invalid/repo", good, fault.Offline, "host name cannot be"},
		"a web server":               {strings.Replace(w.HTTP.URL, "http://", "ssh://", 1) + "/repo", good, fault.Offline, "broke off"},
		"a key that is none":         {address, "-----BEGIN OPENSSH PRIVATE KEY-----\n" + secret + "\n", fault.Invalid, "private key is not usable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo := sshRepository(t, c.url)
			if strings.Contains(c.url, "nosuchuser") {
				repo.Username = "nosuchuser"
			}
			_, err := w.m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{SSHPrivateKey: c.key})
			sentence := fault.Sentence(err)
			if fault.KindOf(err) != c.kind || !strings.Contains(sentence, c.want) {
				t.Fatalf("Fetch(%s) = kind %q, %v; want kind %q and %q", c.url, fault.KindOf(err), err, c.kind, c.want)
			}
			if strings.Contains(sentence+err.Error(), secret) || strings.Contains(sentence+err.Error(), "PRIVATE KEY") {
				t.Errorf("SEC-C3 the error holds the key: %v", err)
			}
		})
	}
	t.Run("SEC-C3 no line of the log holds a key", func(t *testing.T) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if strings.Contains(w.log.String(), strings.Split(good, "\n")[2]) {
			t.Error("it does")
		}
	})
}
