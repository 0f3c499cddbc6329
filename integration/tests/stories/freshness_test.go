package stories_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// exitAway is the exit code of a wait that nobody can confirm.
const exitAway = 8

// waits runs `capstan app wait` and returns its exit code.
func waits(t *testing.T, args ...string) (code int, text string) {
	t.Helper()
	out, err := s.API.CLI(within(t, waitLimit), "", append([]string{"app", "wait"}, args...)...)
	var failed *stack.CLIError
	if errors.As(err, &failed) {
		return failed.Code, failed.Text
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, out
}

func TestFreshness(t *testing.T) {
	repo := repository(t, "fresh", map[string]string{"app/a.yaml": configMap("a", "one")})
	deploy(t, "fresh", repo.URL(), "app", "")
	settled(t, "fresh")
	agent := s.Agents["in-cluster"]
	t.Run("INV-6 a wait succeeds on what the agent confirms", func(t *testing.T) {
		for _, what := range []string{"--sync", "--health", "--operation"} {
			if code, text := waits(t, "fresh", what); code != 0 {
				t.Errorf("wait %s ends with %d: %s", what, code, text)
			}
		}
	})
	t.Run("INV-6 a wait does not succeed while the agent hangs and the hub has not noticed", func(t *testing.T) {
		if err := syscall.Kill(agent.PID(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		code, text := waits(t, "fresh", "--health", "--agent-timeout", "1s")
		if err := syscall.Kill(agent.PID(), syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if code != exitAway {
			t.Errorf("wait ends with %d: %s", code, text)
		}
		if code, text = waits(t, "fresh"); code != 0 {
			t.Errorf("afterwards it ends with %d: %s", code, text)
		}
	})
	if err := agent.Kill(); err != nil {
		t.Fatal(err)
	}
	t.Run("INV-6 while the agent is disconnected wait, sync, list and get show it", func(t *testing.T) {
		condition(t, "fresh", func(stack.App) error {
			if out := cli(t, "app", "list", "--name", "fresh"); !strings.Contains(out, "agent away") {
				return fmt.Errorf("the list has no mark:\n%s", out)
			}
			return nil
		})
		for _, what := range []string{"--sync", "--health"} {
			code, text := waits(t, "fresh", what, "--agent-timeout", "1s")
			if code != exitAway || !strings.Contains(text, "in-cluster") {
				t.Errorf("wait %s ends with %d: %s", what, code, text)
			}
		}
		if out := cli(t, "app", "get", "fresh"); !strings.Contains(out, "Not current: the agent of cluster in-cluster is not connected") {
			t.Errorf("get prints\n%s", out)
		}
		_, err := s.API.CLI(within(t, waitLimit), "", "app", "sync", "fresh", "--agent-timeout", "1s")
		if failed := (*stack.CLIError)(nil); !errors.As(err, &failed) || failed.Code != exitAway {
			t.Errorf("sync ends with %v", err)
		}
	})
	t.Run("INV-6 a wait succeeds once the agent has reconnected and confirmed the state", func(t *testing.T) {
		if err := agent.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if code, text := waits(t, "fresh", "--agent-timeout", "2m"); code != 0 {
			t.Fatalf("wait ends with %d: %s", code, text)
		}
		settled(t, "fresh")
	})
}

// unknown waits until the sync state of an application is not known any more.
func unknown(t *testing.T, name, why string) {
	t.Helper()
	var x struct {
		Status struct {
			Sync, Health struct{ Status string }
			Capstan      struct {
				Stale struct{ Reason, Message, Since, Sync string }
			}
		}
	}
	if err := poll.Until(within(t, waitLimit), func(ctx context.Context) error {
		if err := s.API.Do(ctx, http.MethodGet, "/api/v1/applications/argocd/"+name, nil, &x); err != nil {
			return err
		}
		st := x.Status
		if st.Sync.Status != "Unknown" || st.Health.Status != "Healthy" || st.Capstan.Stale.Reason != "SourceError" || st.Capstan.Stale.Since == "" || st.Capstan.Stale.Sync != "Synced" ||
			!strings.Contains(st.Capstan.Stale.Message, why) {
			return fmt.Errorf("it is %+v", st)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if code, text := waits(t, name, "--sync", "--timeout", "3s"); code != exitTimeout || !strings.Contains(text, why) {
		t.Errorf("wait --sync ends with %d: %s", code, text)
	}
}

// exitTimeout is the exit code of a wait that took too long.
const exitTimeout = 7

func TestBrokenSource(t *testing.T) {
	repo := repository(t, "branch", map[string]string{"app/a.yaml": configMap("a", "one")})
	push := func(t *testing.T, c gitserver.Change) {
		t.Helper()
		if _, err := repo.Push(within(t, waitLimit), c); err != nil {
			t.Fatal(err)
		}
	}
	git := func(t *testing.T, args ...string) {
		t.Helper()
		if _, err := repo.Run(within(t, waitLimit), args...); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("APP-17 INV-6 a deleted path makes sync unknown, and a wait does not succeed", func(t *testing.T) {
		deploy(t, "path-gone", repo.URL(), "app", "")
		settled(t, "path-gone")
		push(t, gitserver.Change{Message: "gone", Remove: []string{"app"}})
		unknown(t, "path-gone", "app")
		push(t, gitserver.Change{Message: "back", Write: map[string]string{"app/a.yaml": configMap("a", "one")}})
		settled(t, "path-gone")
		if code, text := waits(t, "path-gone"); code != 0 {
			t.Errorf("afterwards wait ends with %d: %s", code, text)
		}
	})
	t.Run("APP-17 INV-6 a deleted branch makes sync unknown, and a wait does not succeed", func(t *testing.T) {
		git(t, "push", "origin", "HEAD:refs/heads/release")
		manifest := fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: branch-gone, namespace: argocd}
spec:
  project: default
  source: {repoURL: %q, path: app, targetRevision: release}
  destination: {name: in-cluster, namespace: branch-gone}
  syncPolicy: {automated: {}, syncOptions: [CreateNamespace=true]}
`, repo.URL())
		if _, err := s.API.Apply(within(t, waitLimit), manifest); err != nil {
			t.Fatal(err)
		}
		settled(t, "branch-gone")
		git(t, "push", "origin", ":refs/heads/release")
		cli(t, "app", "refresh", "branch-gone")
		unknown(t, "branch-gone", "release")
		for line := range strings.Lines(cli(t, "app", "list", "--sync", "Unknown")) {
			if strings.HasPrefix(line, "branch-gone") && strings.Contains(line, "source error") {
				return
			}
		}
		t.Error("the list of what is Unknown lacks it, or does not say why")
	})
}
