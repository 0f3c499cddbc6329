package gitserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
)

// waitLimit is the most that a test waits for something that must happen.
const waitLimit = 3 * time.Minute

func TestGit(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g := gitserver.New(t, gitserver.Options{})
	shop, err := g.Create(ctx, "team/shop", gitserver.RepositoryOptions{Username: "reader", Password: "right"})
	if err != nil {
		t.Fatal(err)
	}
	first, err := shop.Commit(ctx, "first", map[string]string{"deploy/web.yaml": "a: 1\n", "run.sh": "#!/bin/sh\n"})
	if err != nil {
		t.Fatal(err)
	}

	t.Run("a push over HTTP can be cloned by who has the password", func(t *testing.T) {
		into := t.TempDir()
		if out, err := git(t, "clone", "--quiet", withPassword(t, shop.URL(), "reader", "right"), into); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got, err := os.ReadFile(filepath.Join(into, "deploy/web.yaml")); err != nil || string(got) != "a: 1\n" {
			t.Errorf("the clone holds %q, %v", got, err)
		}
		if info, err := os.Stat(filepath.Join(into, "run.sh")); err != nil || info.Mode()&0o100 == 0 {
			t.Errorf("the script is not executable: %v", err)
		}
		if out, _ := git(t, "-C", into, "rev-parse", "HEAD"); strings.TrimSpace(out) != first {
			t.Errorf("the clone is at %s, want %s", out, first)
		}
	})

	t.Run("a wrong password is refused and counted, and Break can refuse everyone", func(t *testing.T) {
		before := shop.Requests()
		if out, err := git(t, "ls-remote", withPassword(t, shop.URL(), "reader", "wrong")); err == nil {
			t.Errorf("a wrong password was accepted: %s", out)
		}
		if shop.Requests().Refused == before.Refused {
			t.Error("the refusal was not counted")
		}
		shop.Break(gitserver.Fault{Status: http.StatusServiceUnavailable})
		if out, err := git(t, "ls-remote", withPassword(t, shop.URL(), "reader", "right")); err == nil {
			t.Errorf("a broken repository answered: %s", out)
		}
		shop.Break(gitserver.Fault{})
	})

	t.Run("listings and fetches are counted in both versions of the protocol", func(t *testing.T) {
		for _, version := range []string{"0", "2"} {
			before := shop.Requests()
			if out, err := git(t, "-c", "protocol.version="+version, "clone", "--quiet", withPassword(t, shop.URL(), "reader", "right"), t.TempDir()); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			after := shop.Requests()
			got := gitserver.RequestCount{Listings: after.Listings - before.Listings, Fetches: after.Fetches - before.Fetches}
			if got.Listings != 1 || got.Fetches < 1 {
				t.Errorf("version %s: counted %+v, want one listing and a fetch", version, got)
			}
		}
	})

	t.Run("branches and tags can be pushed, and files removed", func(t *testing.T) {
		commit, err := shop.Push(ctx, gitserver.Change{Message: "second", Branch: "next", Tag: "v1.0.0", Remove: []string{"run.sh"}})
		if err != nil {
			t.Fatal(err)
		}
		out, err := git(t, "ls-remote", withPassword(t, shop.URL(), "reader", "right"))
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, want := range []string{first + "\trefs/heads/main", commit + "\trefs/heads/next", commit + "\trefs/tags/v1.0.0"} {
			if !strings.Contains(out, want) {
				t.Errorf("refs are\n%s\nwant %q", out, want)
			}
		}
		if _, err := shop.Commit(ctx, "third", map[string]string{"deploy/web.yaml": "a: 2\n"}); err != nil {
			t.Errorf("back to the main branch: %v", err)
		}
	})

	t.Run("bad names and files outside the clone are refused", func(t *testing.T) {
		for _, name := range []string{"", "../x", "/x", "a b", "a/../b"} {
			if _, err := g.Create(ctx, name, gitserver.RepositoryOptions{}); err == nil {
				t.Errorf("%q was accepted", name)
			}
		}
		if _, err := shop.Commit(ctx, "escape", map[string]string{"../outside": "x"}); err == nil {
			t.Error("a file outside the clone was written")
		}
	})
}

func TestGitWebhook(t *testing.T) {
	t.Parallel()
	const secret = "not told"
	type call struct {
		Event, Ref, After, CloneURL string
		Added                       []string
		Signed                      bool
	}
	calls := make(chan call, 4)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var p struct {
			Ref, After string
			Repository struct {
				CloneURL string `json:"clone_url"`
			}
			Commits []struct{ Added []string }
		}
		if err := json.Unmarshal(body, &p); err != nil || len(p.Commits) != 1 {
			t.Errorf("body %s: %v", body, err)
			return
		}
		calls <- call{r.Header.Get("X-GitHub-Event"), p.Ref, p.After, p.Repository.CloneURL, p.Commits[0].Added, r.Header.Get("X-Hub-Signature-256") == gitserver.Sign(secret, body)}
	}))
	defer receiver.Close()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	g := gitserver.New(t, gitserver.Options{TLS: true})
	r, err := g.Create(ctx, "hooked", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.SetWebhook(gitserver.Webhook{URL: receiver.URL, Secret: secret})
	commit, err := r.Commit(ctx, "first", map[string]string{"a.yaml": "a: 1\n"})
	if err != nil {
		t.Fatal(err)
	}
	want := call{"push", "refs/heads/main", commit, r.URL(), []string{"a.yaml"}, true}
	select {
	case got := <-calls:
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the call differs (-want +got):\n%s", diff)
		}
	case <-ctx.Done():
		t.Fatal("the webhook was not called")
	}
	err = poll.Until(ctx, func(context.Context) error {
		if d := r.Deliveries(); len(d) != 1 || d[0].Status != http.StatusOK {
			return errors.New("no delivery was recorded")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func withPassword(t *testing.T, address, user, password string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

func git(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
