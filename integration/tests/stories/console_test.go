package stories_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
)

// consoleSteps say which behaviour a step of web/e2e/console.mjs shows.
var consoleSteps = []struct{ id, name string }{
	{"UX-A11-7", "a used-up or wrong setup link says so"},
	{"UI-18", "the setup link makes the first account"},
	{"UI-18", "sign out leads to the sign-in"},
	{"UX-A11-7", "a wrong password is answered with one sentence"},
	{"UX-NAV-10", "a page behind the sign-in is where the sign-in leads"},
	{"UX-NAV-1", "the list shows the applications and follows changes"},
	{"UX-A11-6", "a hub that hangs is noticed, and so is that it goes on"},
	{"UX-NAV-10", "the filter is in the address, and an empty result says so"},
	{"UX-A11-4", "a phone shows the list without sideways scrolling of the page"},
	{"UI-05", "the application page shows the tree with what Kubernetes made"},
	{"UX-APP-1", "a push appears as the new revision, live"},
	{"UI-10", "the last operation lists its objects"},
	{"UX-A11-2", "the focus goes to the heading, and back to what opened a drawer"},
	{"UX-OP-7", "a rollback pauses the application, says so everywhere, and can be resumed"},
	{"UI-08", "the diff of a manual application shows the field"},
	{"UI-09", "the sync dialog brings it in sync, with the keyboard alone"},
	{"UX-APP-1", "an application whose repository cannot be read says why"},
	{"UX-A11-7", "an application that is not there says so"},
	{"UX-OP-10", "sync windows show when they open, on the application and its project"},
	{"UI-16", "the clusters show their agents"},
	{"UX-A11-7", "enrolment gives commands and waits for the agent"},
	{"UI-16", "the repositories show how their fetch went"},
	{"CFG-03", "a setting that is wrong says where, and one that is right is kept"},
	{"UX-A11-1", "no page has a serious barrier"},
}

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
	c := &console{live: live, manual: manual, passed: map[string]bool{}}
	c.run(t)
	if t.Failed() { // what the hub knew at that time
		for _, name := range []string{"console-live", "console-manual", "console-bad"} {
			x, err := s.API.Get(t.Context(), name)
			t.Logf("%s: %+v %v", name, x, err)
		}
	}
	for _, step := range consoleSteps {
		t.Run(step.id+" "+step.name, func(t *testing.T) {
			if !c.passed[step.name] {
				t.Error("the browser did not get past this; the output of TestConsole says why")
			}
		})
	}
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

// console answers what the script asks, and notes the steps it passed.
type console struct {
	live, manual *gitserver.Repository
	passed       map[string]bool
}

// run drives a browser through the console. Pictures of the pages are kept
// where CAPSTAN_SHOTS says, else with the test's other files.
func (c *console) run(t *testing.T) {
	shots := os.Getenv("CAPSTAN_SHOTS")
	if shots == "" {
		shots = t.TempDir()
	}
	link, err := s.SetupLink(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("the console's story needs node: %v", err)
	}
	cmd := exec.CommandContext(within(t, 15*time.Minute), node, filepath.Join("e2e", "console.mjs"))
	cmd.Dir = filepath.Join("..", "..", "..", "web")
	cmd.Env = append(os.Environ(), "CAPSTAN_URL="+s.Hub.URL, "CAPSTAN_SETUP_LINK="+link, "CAPSTAN_USER=browser",
		"CAPSTAN_PASSWORD=a long enough password", "CAPSTAN_APP=console-live", "CAPSTAN_MANUAL=console-manual",
		"CAPSTAN_BAD=console-bad", "CAPSTAN_SHOTS="+shots)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	answers, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	gotText, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.talk(t, gotText, answers)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the browser's story failed: %v\n%s", err, stderr.String())
	}
}

func (c *console) talk(t *testing.T, gotText io.Reader, answers io.WriteCloser) {
	defer answers.Close()
	lines := bufio.NewScanner(gotText)
	for lines.Scan() {
		line := lines.Text()
		t.Log(line)
		if name, ok := strings.CutPrefix(line, "ok "); ok {
			name, _, _ = strings.Cut(name, " (")
			c.passed[name] = true
		}
		question, ok := strings.CutPrefix(line, "? ")
		if !ok {
			continue
		}
		answer, err := c.respond(t, question)
		if err != nil {
			t.Errorf("%s: %v", question, err)
			return // the script ends when its input does
		}
		if _, err := fmt.Fprintln(answers, answer); err != nil {
			t.Errorf("answer the browser's story: %v", err)
			return
		}
	}
}

// respond does what a person does outside of the console.
func (c *console) respond(t *testing.T, question string) (string, error) {
	switch question {
	case "create":
		deploy(t, "console-new", c.live.URL(), "app", "")
		return "console-new", nil
	case "hang":
		return "", s.Hub.Signal(syscall.SIGSTOP)
	case "go on":
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
	}
	return "", fmt.Errorf("the script asks something unknown")
}
