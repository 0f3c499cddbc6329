package stories_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/notifyhosts"
	"github.com/capstan-cd/capstan/integration/rigs/playwright"
)

// buildConsole builds the console where its sources are newer, so that the hub
// of these stories has it inside. The rule of the Makefile knows how.
func buildConsole(ctx context.Context) error {
	build := exec.CommandContext(ctx, "make", "web/dist/index.html")
	build.Dir = filepath.Join("..", "..", "..")
	build.Env = append(os.Environ(), "MAKEFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the console: %w\n%s", err, out)
	}
	return nil
}

func TestConsole(t *testing.T) {
	live := repository(t, "console-live", map[string]string{"app/web.yaml": web})
	manual := repository(t, "console-manual", map[string]string{"app/a.yaml": configMap("a", "one")})
	deploy(t, "console-live", live.URL(), "app", "")
	deployByHand(t, "console-manual", manual.URL(), "app")
	deploy(t, "console-bad", s.Git.URL()+"/not-there.git", "app", "")
	settled(t, "console-live")
	settled(t, "console-manual")
	if _, err := live.Commit(t.Context(), "two", map[string]string{"app/more.yaml": configMap("more", "one")}); err != nil {
		t.Fatal(err)
	}
	c := &console{live: live, manual: manual}
	report := c.run(t)
	if t.Failed() { // what the hub knew at that time
		for _, name := range []string{"console-live", "console-manual", "console-bad"} {
			x, err := s.API.Get(t.Context(), name)
			t.Logf("%s: %+v %v", name, x, err)
		}
	}
	playwright.Subtests(t, report)
}

// deployByHand applies an application that waits for people, and syncs it once.
func deployByHand(t *testing.T, name, repo, path string) {
	t.Helper()
	manifest := fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: %[1]s, namespace: argocd}
spec:
  project: default
  source: {repoURL: %[2]q, path: %[3]q, targetRevision: main}
  destination: {name: in-cluster, namespace: %[1]s}
  syncPolicy: {syncOptions: [CreateNamespace=true]}
`, name, repo, path)
	if _, err := s.API.Apply(within(t, waitLimit), manifest); err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.CLI(within(t, waitLimit), "", "app", "sync", name, "--reason", "the first time"); err != nil {
		t.Fatal(err)
	}
}

// console runs the specs of web/e2e and does for them what a person does
// outside of the console.
type console struct {
	live, manual *gitserver.Repository
	more         func(act string) (string, error) // for acts of other specs, unless it is nil
}

// run runs Playwright and returns the path of its report. Pictures of the pages are kept
// where CAPSTAN_SHOTS says, else with the test's other files.
func (c *console) run(t *testing.T) string {
	work, shots := t.TempDir(), os.Getenv("CAPSTAN_SHOTS")
	if shots == "" {
		shots = t.TempDir()
	}
	link, err := s.SetupLink(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	acts := serveActs(t)
	cmd := exec.CommandContext(within(t, 15*time.Minute), filepath.Join("node_modules", ".bin", "playwright"), "test")
	cmd.Dir = filepath.Join("..", "..", "..", "web")
	cmd.Env = append(os.Environ(), "CAPSTAN_URL="+s.Hub.URL, "CAPSTAN_SETUP_LINK="+link, "CAPSTAN_USER=browser",
		"CAPSTAN_PASSWORD=a long enough password", "CAPSTAN_APP=console-live", "CAPSTAN_MANUAL=console-manual",
		"CAPSTAN_BAD=console-bad", "CAPSTAN_SHOTS="+shots, "CAPSTAN_E2E_WORK="+work,
		"CAPSTAN_ACTS="+acts.url, "CAPSTAN_ACTS_TOKEN="+acts.token)
	log := &lineLog{t: t}
	cmd.Stdout, cmd.Stderr = log, log
	// An interrupt lets Playwright close its browser.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatalf("run the console's specs: %v", err)
	}
	ended := make(chan error, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		ended <- cmd.Wait()
	}()
	t.Cleanup(func() { <-over })
	// A spec that fails while the hub is stopped leaves it so.
	t.Cleanup(func() { _ = s.Hub.Signal(syscall.SIGCONT) })
	for {
		select {
		case a := <-acts.asked:
			text, err := c.perform(t, a.name)
			a.done <- result{text, err}
			if err != nil {
				t.Errorf("%s: %v", a.name, err)
			}
		case err := <-ended:
			if err != nil {
				t.Errorf("the console's specs failed: %v", err)
				_ = s.Hub.Signal(syscall.SIGCONT)
			}
			return filepath.Join(work, "report.json")
		}
	}
}

// perform does what a person does outside of the console.
func (c *console) perform(t *testing.T, act string) (string, error) {
	switch act {
	case "create":
		deploy(t, "console-new", c.live.URL(), "app", "")
		return "console-new", nil
	case "hang":
		return "", s.Hub.Signal(syscall.SIGSTOP)
	case "go-on":
		return "", s.Hub.Signal(syscall.SIGCONT)
	case "push":
		return c.live.Commit(t.Context(), "three", map[string]string{"app/more.yaml": configMap("more", "two")})
	case "freeze":
		w, _ := freeze(time.Hour)
		w["applications"] = []string{"console-manual"}
		projectWith(t, "default", w)
		return "", nil
	case "thaw":
		projectWith(t, "default")
		return "", nil
	case "drift":
		_, err := c.manual.Commit(t.Context(), "two", map[string]string{"app/a.yaml": configMap("a", "from-the-push")})
		return "from-the-push", err
	case "hostile":
		return hostile(t)
	case "notify":
		hosts := notifyhosts.New(t)
		notificationSettings(t, map[string]any{
			"secret:console-key":           "hook-secret-1",
			"service.webhook.console-hook": "url: " + hosts.URL + "/hook/console\nheaders: [{name: X-Key, value: $console-key}]\n",
			"template.console-said":        "webhook:\n  console-hook: {method: POST, body: 'about {{.app.metadata.name}} with {{index .secrets \"console-key\"}}'}\n",
		})
		return "", nil
	case "reader":
		password := rand.Text()
		account := map[string]any{"name": "reader", "password": password, "roles": []string{"readonly"}}
		return password, s.API.Do(within(t, waitLimit), http.MethodPost, "/api/v1/users", account, nil)
	}
	if c.more != nil {
		return c.more(act)
	}
	return "", fmt.Errorf("the specs ask for an unknown act %q", act)
}

// An act is something that a spec asks the test for. The test's own goroutine
// performs it, because only that one may end the test.
type act struct {
	name string
	done chan<- result
}

// A result is how an act ended.
type result struct {
	text string
	err  error
}

// acts is a server for acts on the loopback address.
type acts struct {
	url, token string
	asked      <-chan act
}

// serveActs serves POST /NAME to callers that have the token. The body of the
// response is the act's text.
func serveActs(t *testing.T) acts {
	asked := make(chan act)
	token := rand.Text()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+token)) != 1 {
			http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
			return
		}
		if r.Method != http.MethodPost {
			http.Error(w, "acts are asked for with POST", http.StatusMethodNotAllowed)
			return
		}
		done := make(chan result, 1)
		select {
		case asked <- act{strings.TrimPrefix(r.URL.Path, "/"), done}:
		case <-r.Context().Done():
			return
		}
		select {
		case got := <-done:
			if got.err != nil {
				http.Error(w, got.err.Error(), http.StatusInternalServerError)
				return
			}
			_, _ = io.WriteString(w, got.text)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	return acts{server.URL, token, asked}
}

// lineLog logs each line that is written to it.
type lineLog struct {
	t    *testing.T
	rest []byte
}

func (l *lineLog) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		l.t.Logf("%s", line)
		l.rest = rest
	}
}
