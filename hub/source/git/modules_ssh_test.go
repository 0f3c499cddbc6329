package git_test

import (
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
	"github.com/capstan-cd/capstan/integration/rigs/lfsserver"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestSubmodulesOverSSH(t *testing.T) {
	t.Parallel()
	w, stranger := newSSHWorld(t, git.Config{}, "ed25519"), newSSHWorld(t, git.Config{}, "ed25519")
	lib, app, theirs := w.Repo("lib.git"), w.Repo("app.git"), stranger.Repo("theirs.git")
	ours, foreign := lib.Commit("refs/heads/main", "base", gittest.Files{"f": "by-ssh"}), theirs.Commit("refs/heads/main", "base", gittest.Files{"f": "foreign"})
	commit := app.Commit("refs/heads/main", "base", gittest.Files{
		".gitmodules":  modules("relative", "../lib.git", "whole", w.ssh.URL("lib.git"), "foreign", stranger.ssh.URL("theirs.git")),
		"160000 whole": ours, "160000 relative": ours, "160000 foreign": foreign,
	})
	w.key(t, "ed25519")
	w.creds.trust(t, w.knownHosts(t)+stranger.knownHosts(t))
	repo := sshRepository(t, w.ssh.URL("app.git"))
	if _, err := w.fetch(t, repo); err != nil {
		t.Fatal(err)
	}
	t.Run("SRC-23 submodules over SSH are fetched with the repository's key, by relative and by whole URLs", func(t *testing.T) {
		for _, name := range []string{"relative/f", "whole/f"} {
			if got := gittest.Content(t, w.m, repo, commit, name); got != "by-ssh" {
				t.Errorf("%s = %q", name, got)
			}
		}
	})
	t.Run("SRC-23 SEC-C3 the key opens nothing on another server", func(t *testing.T) {
		if got, err := treeAt(t, w.m, repo, commit).ReadFile("foreign/f"); err == nil {
			t.Errorf("%q", got)
		}
		if calls, err := stranger.ssh.Calls(); err != nil || len(calls) != 0 {
			t.Errorf("the other server was asked %v, %v", calls, err)
		}
	})
	t.Run("SRC-23 SEC-C5 a server of a submodule with another host key than is known is refused", func(t *testing.T) {
		w.creds.trust(t, w.knownHosts(t))
		other := sshRepository(t, w.ssh.URL("app.git"))
		if _, err := w.fetch(t, other); err != nil {
			t.Fatal(err)
		}
		if _, err := treeAt(t, w.m, other, commit).ReadFile("foreign/f"); err == nil || !strings.Contains(err.Error(), "host key") {
			t.Error(err)
		}
	})
}

func TestLargeFilesOverSSH(t *testing.T) {
	t.Parallel()
	const content = "kind: ConfigMap\n"
	authorization := "RemoteAuth " + rand.Text()
	files := lfsserver.NewTLS(t, authorization)
	pool := x509.NewCertPool()
	pool.AddCert(files.HTTP.Certificate())
	w := newSSHWorld(t, git.Config{RootCAs: pool}, "ed25519")
	origin := w.Repo("team's app.git")
	commit := origin.Commit("refs/heads/main", "base", gittest.Files{"large.yaml": files.Put(content), "f": "x"})
	w.key(t, "ed25519")
	read := func(t *testing.T, answer string) (string, error) {
		t.Helper()
		if answer != "" {
			if err := w.ssh.AnswerLFS(answer); err != nil {
				t.Fatal(err)
			}
		}
		repo := sshRepository(t, strings.ReplaceAll(w.ssh.URL("team's app.git"), " ", "%20"))
		repo.LFS = true
		if _, err := w.fetch(t, repo); err != nil {
			t.Fatal(err)
		}
		b, err := fs.ReadFile(treeAt(t, w.m, repo, commit), "large.yaml")
		return string(b), err
	}
	at := func(address, header string) string {
		return fmt.Sprintf(`{"href":%q,"header":{"Authorization":%q},"expires_in":3600}`, address, header)
	}
	address := files.HTTP.URL + "/team/app.git/info/lfs"
	t.Run("SRC-24 a server that names no LFS server over SSH is one sentence", func(t *testing.T) {
		if _, err := read(t, ""); fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "does not say over SSH") {
			t.Error(err)
		}
	})
	t.Run("SRC-24 the content comes from the LFS server that the Git server names over SSH, with the token that it gives", func(t *testing.T) {
		if got, err := read(t, at(address, authorization)); err != nil || got != content {
			t.Fatalf("%q, %v", got, err)
		}
		calls, err := w.ssh.Calls()
		if all := strings.Join(calls, "\n"); err != nil || !strings.Contains(all, "git-lfs-authenticate '") || !strings.Contains(all, `team'\''s app' download`) {
			t.Errorf("calls %q, %v", calls, err)
		}
		for _, h := range files.Headers() {
			if got := h.Get("Authorization"); got != files.Token {
				t.Errorf("a download was sent %q", got)
			}
		}
	})
	for name, c := range map[string]struct {
		answer string
		kind   fault.Kind
	}{
		"SEC-C3 an address without TLS, which would show the token": {at("http://127.0.0.1:1/info/lfs", authorization), fault.Invalid},
		"SEC-A6 an address inside of the hub's network":             {at("https://10.1.2.3/info/lfs", authorization), fault.Invalid},
		"SEC-A6 a file":                      {at("file:///etc/passwd", authorization), fault.Invalid},
		"SEC-A9 a token that is not taken":   {at(address, "canary-guess"), fault.Invalid},
		"SEC-A9 text that is no answer":      {"<html>canary", fault.Offline},
		"SEC-A9 an answer without end":       {at(address, strings.Repeat("canary", 100_000)), fault.Offline},
		"SEC-A9 an address with a user name": {at("https://canary:pw@127.0.0.1/info/lfs", authorization), fault.Invalid},
	} {
		t.Run("SRC-24 refused: "+name, func(t *testing.T) {
			if got, err := read(t, c.answer); fault.KindOf(err) != c.kind || strings.Contains(fault.Sentence(err), "canary") || strings.Contains(fault.Sentence(err), authorization) {
				t.Errorf("%q, %v (%s)", got, err, fault.KindOf(err))
			}
		})
	}
}
