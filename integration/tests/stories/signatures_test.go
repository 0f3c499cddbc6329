package stories_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// A project whose commits have to be signed, with git and gpg as people use
// them.
func TestSignedCommits(t *testing.T) {
	ctx := within(t, 4*waitLimit)
	repo, err := s.Repository(ctx, "signed", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	key := newKey(t, repo)
	if _, err := repo.Commit(ctx, "signed", map[string]string{"app/a.yaml": configMap("a", "one")}); err != nil {
		t.Fatal(err)
	}
	if out, err := s.API.CLI(ctx, key.public, "gpg", "add"); err != nil || !strings.Contains(out, key.id) {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := s.API.Apply(ctx, fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: signed}
spec:
  sourceRepos: ["*"]
  destinations: [{name: in-cluster, namespace: "*"}]
  sourceIntegrity: {git: {policies: [{repos: [{url: "*"}], gpg: {mode: strict, keys: [%[2]q]}}]}}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: signed, namespace: argocd}
spec:
  project: signed
  source: {repoURL: %[1]q, path: app, targetRevision: main}
  destination: {name: in-cluster, namespace: signed}
  syncPolicy: {automated: {prune: true, selfHeal: true}, syncOptions: [CreateNamespace=true]}
`, repo.URL(), key.id)); err != nil {
		t.Fatal(err)
	}
	cluster := s.Clusters["in-cluster"]
	deployed := func(t *testing.T, want string) {
		t.Helper()
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "signed", "a", value(want)); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(t *testing.T, says ...string) {
		t.Helper()
		if _, err := s.API.Wait(within(t, waitLimit), "signed", func(x stack.App) error {
			for _, c := range x.Status.Conditions {
				if c.Type == "ComparisonError" && !lacks(c.Message, says...) {
					return nil
				}
			}
			return fmt.Errorf("no condition says %q: %+v", says, x.Status.Conditions)
		}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("PROJ-16 CRED-19 a commit of a trusted key is deployed", func(t *testing.T) {
		deployed(t, "one")
	})
	t.Run("FT-G12 an unsigned commit is refused, and the last good one stays", func(t *testing.T) {
		if _, err := repo.Run(ctx, "config", "commit.gpgsign", "false"); err != nil {
			t.Fatal(err)
		}
		if _, err := repo.Commit(ctx, "unsigned", map[string]string{"app/a.yaml": configMap("a", "two")}); err != nil {
			t.Fatal(err)
		}
		refused(t, "it is not signed")
		deployed(t, "one")
		if out, err := s.API.CLI(ctx, "", "app", "sync", "signed", "--revision", "main"); err == nil {
			t.Errorf("a person syncs to it:\n%s", out)
		}
	})
	t.Run("PROJ-16 a sealing commit vouches for it", func(t *testing.T) {
		if _, err := repo.Run(ctx, "config", "commit.gpgsign", "true"); err != nil {
			t.Fatal(err)
		}
		if _, err := repo.Commit(ctx, "Vouch\n\nArgocd-gpg-seal: reviewed", map[string]string{"app/a.yaml": configMap("a", "three")}); err != nil {
			t.Fatal(err)
		}
		deployed(t, "three")
	})
	t.Run("CRED-19 without the key nothing new is deployed, and what runs keeps running", func(t *testing.T) {
		if out, err := s.API.CLI(ctx, "", "gpg", "rm", key.id, "--yes"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		refused(t, "is not among the public keys", key.id)
		deployed(t, "three")
	})
}

// lacks reports whether a text lacks one of the words.
func lacks(text string, words ...string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return true
		}
	}
	return false
}

type signingKey struct{ id, public, program string }

// signWith has the commits of a repository signed with a key.
func signWith(t *testing.T, repo *gitserver.Repository, key signingKey) {
	t.Helper()
	for k, v := range map[string]string{"gpg.program": key.program, "user.signingkey": key.id, "commit.gpgsign": "true"} {
		if _, err := repo.Run(within(t, waitLimit), "config", k, v); err != nil {
			t.Fatal(err)
		}
	}
}

// signWithSSH has the commits of a repository signed with a new SSH key, which
// Git itself trusts.
func signWithSSH(t *testing.T, repo *gitserver.Repository) {
	t.Helper()
	dir := t.TempDir()
	key, signers := filepath.Join(dir, "key"), filepath.Join(dir, "signers")
	if out, err := exec.CommandContext(within(t, waitLimit), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "release", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("make an SSH key: %v\n%s", err, out)
	}
	public, err := os.ReadFile(key + ".pub")
	if err == nil {
		err = os.WriteFile(signers, []byte("* "+string(public)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{"gpg.format": "ssh", "user.signingkey": key, "gpg.ssh.allowedSignersFile": signers, "commit.gpgsign": "true"} {
		if _, err := repo.Run(within(t, waitLimit), "config", k, v); err != nil {
			t.Fatal(err)
		}
	}
}

// newKey makes a key of gpg and has the repository's commits signed with it.
func newKey(t *testing.T, repo *gitserver.Repository) signingKey {
	t.Helper()
	home, err := os.MkdirTemp("", "gpg") // its name must be short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	gpg := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(within(t, waitLimit), "gpg", append([]string{"--homedir", home, "--batch"}, args...)...).Output()
		if err != nil {
			t.Fatalf("gpg %v: %v", args, err)
		}
		return string(out)
	}
	gpg("--passphrase", "", "--quick-generate-key", "Release <release@example.com>", "rsa3072", "sign", "never")
	t.Cleanup(func() {
		_ = exec.CommandContext(context.WithoutCancel(t.Context()), "gpgconf", "--homedir", home, "--kill", "gpg-agent").Run()
	})
	program := home + "/sign"
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexec gpg --homedir "+home+" \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	id := strings.Split(strings.Split(gpg("--list-keys", "--with-colons"), "\npub:")[1], ":")[3]
	key := signingKey{id, gpg("--armor", "--export", id), program}
	signWith(t, repo, key)
	return key
}
