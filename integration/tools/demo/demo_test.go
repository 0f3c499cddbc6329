package main_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/rigs/kube"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/suite"
)

// waitLimit is a limit for what hangs.
const waitLimit = 5 * time.Minute

// bin is where the binaries are, which all tests start.
var bin string

func TestMain(m *testing.M) { os.Exit(suite.Main(m, "demo", 30*time.Minute, begin)) }

func begin(ctx context.Context, dir string) (stop func() error, err error) {
	if bin, err = suite.Build(ctx, dir); err != nil {
		return nil, err
	}
	for _, pkg := range []string{"integration/tools/demo", "integration/tools/demo/capstan-demo"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", bin, "github.com/capstan-cd/capstan/"+pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
	}
	return func() error { return nil }, nil
}

func TestDemoOfTwoClusters(t *testing.T) {
	t.Parallel()
	d := start(t, exec.Command(filepath.Join(bin, "capstan-demo"), "-bin", bin), "DEMO_CLUSTERS=2")
	d.await("Ctrl-C ends everything")
	commands := d.commands()
	if len(commands) != 3 {
		t.Fatalf("%d commands to try are printed, want three:\n%s", len(commands), d.text())
	}
	t.Run("it says how long each part took, and where the console is", func(t *testing.T) {
		for _, want := range []string{`(?m)^Postgres +ready after [0-9.]+ s$`, `(?m)^the clusters +ready after`, `(?m)^the agents +ready after`, `console +http://127\.0\.0\.1:\d+`, `password [0-9a-f]{32}`} {
			if !regexp.MustCompile(want).MatchString(d.text()) {
				t.Errorf("nothing like %s in:\n%s", want, d.text())
			}
		}
	})
	t.Run("the list shows the second cluster and the broken application", func(t *testing.T) {
		list := d.shell(commands[:1])
		for _, want := range []string{`(?m)^guestbook-cluster-2 .*Synced +Healthy`, `(?m)^orders .*Synced +Degraded`, `(?m)^shop .*Synced +Healthy`} {
			if !regexp.MustCompile(want).MatchString(list) {
				t.Errorf("nothing like %s in:\n%s", want, list)
			}
		}
	})
	t.Run("the second command tells the cause, which the first screen says too", func(t *testing.T) {
		described := d.shell(commands[:2])
		for _, text := range []string{described, d.text()} {
			if !strings.Contains(text, `Back-off pulling image "registry.invalid/orders:2.0"`) {
				t.Errorf("the cause is not in:\n%s", text)
			}
		}
	})
	t.Run("the third command mends it", func(t *testing.T) {
		d.shell(commands)
		if list := d.shell(commands[:1]); !regexp.MustCompile(`(?m)^orders .*Synced +Healthy`).MatchString(list) {
			t.Errorf("orders is not healthy:\n%s", list)
		}
	})
	t.Run("a signal ends it without an error, and with all its processes", func(t *testing.T) {
		children := descendants(t, d.cmd.Process.Pid)
		if len(children) < 10 { // two clusters of five, Postgres, hub, agents
			t.Fatalf("only %d processes run below the demo", len(children))
		}
		if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := d.wait(); err != nil || !strings.Contains(d.text(), "Stopped: all processes have ended") {
			t.Errorf("it ended with %v:\n%s", err, d.text())
		}
		for _, pid := range children {
			if alive(pid) {
				t.Errorf("process %d still runs: %s", pid, commandLine(pid))
			}
		}
	})
}

func TestDemoInAClusterThatIsThere(t *testing.T) {
	t.Parallel()
	c := kube.New(t, "theirs", kube.Options{Nodes: true})
	// No cache, so that a Kubernetes could not be built unseen.
	d := start(t, exec.Command(filepath.Join(bin, "capstan-demo"), "-bin", bin), "DEMO_KUBECONFIG="+c.Kubeconfig(), "DEMO_ONCE=1", "XDG_CACHE_HOME="+t.TempDir())
	if err := d.wait(); err != nil || !strings.Contains(d.text(), "applications Synced and Healthy; push to applied in") {
		t.Fatalf("it ended with %v:\n%s", err, d.text())
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	resource := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	err := poll.Until(ctx, func(ctx context.Context) error {
		list, err := c.Dynamic().Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, o := range list.Items {
			if strings.HasPrefix(o.GetName(), "capstan-") {
				return fmt.Errorf("namespace %s was left behind", o.GetName())
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	resource = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}
	if _, err := c.Dynamic().Resource(resource).Get(ctx, "capstan-agent", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the agent's rights: %v, want none", err)
	}
}

func TestDemoRefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	for env, want := range map[string]string{
		"DEMO_CLUSTERS=many":                         "from 1 to 5",
		"DEMO_CLUSTERS=2 DEMO_KUBECONFIG=/somewhere": "set one of them",
		"DEMO_KUBECONFIG=/nowhere":                   "/nowhere",
	} {
		d := start(t, exec.Command(filepath.Join(bin, "capstan-demo"), "-bin", bin), strings.Fields(env)...)
		if err := d.wait(); err == nil || !strings.Contains(d.text(), want) {
			t.Errorf("with %s it ended with %v and not with %q:\n%s", env, err, want, d.text())
		}
	}
}

// A running is a process that a test looks at.
type running struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan error

	mu      sync.Mutex
	printed bytes.Buffer
	more    chan struct{}
}

// start starts a command whose output is kept, with more environment.
func start(t *testing.T, cmd *exec.Cmd, env ...string) *running {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Dir = root
	cmd.Env = append(os.Environ(), env...)
	d := &running{t: t, cmd: cmd, done: make(chan error, 1), more: make(chan struct{}, 1)}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	d.begin(out, in)
	return d
}

// begin starts the command and reads what it prints from out.
func (d *running) begin(out, in *os.File) {
	d.t.Helper()
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	_ = in.Close()
	all := make(chan struct{})
	go func() {
		defer close(all)
		d.read(out)
	}()
	go func() {
		err := d.cmd.Wait()
		<-all
		d.done <- err
	}()
	d.t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		_ = out.Close()
	})
}

func (d *running) read(from io.Reader) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		d.mu.Lock()
		d.printed.WriteString(strings.ReplaceAll(line, "\r", ""))
		d.mu.Unlock()
		select {
		case d.more <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func (d *running) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.printed.String()
}

// await waits until a text is printed.
func (d *running) await(text string) {
	d.t.Helper()
	end := time.After(waitLimit)
	for !strings.Contains(d.text(), text) {
		select {
		case <-d.more:
		case err := <-d.done:
			d.t.Fatalf("it ended (%v) before it printed %q:\n%s", err, text, d.text())
		case <-end:
			d.t.Fatalf("it does not print %q:\n%s", text, d.text())
		}
	}
}

// wait waits until it has ended.
func (d *running) wait() error {
	d.t.Helper()
	select {
	case err := <-d.done:
		return err
	case <-time.After(waitLimit):
		d.t.Fatalf("it does not end:\n%s", d.text())
		return nil
	}
}

// commands are the lines that the demo says to try.
func (d *running) commands() []string {
	_, rest, _ := strings.Cut(d.text(), "What to try next")
	rest, _, _ = strings.Cut(rest, "Ctrl-C")
	var out []string
	for line := range strings.Lines(rest) {
		if strings.HasPrefix(line, "  ") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// shell pastes lines into a shell and gives what it prints.
func (d *running) shell(lines []string) string {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), waitLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-e")
	cmd.Dir = d.t.TempDir()
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("%s: %v\n%s", strings.Join(lines, "\n"), err, out)
	}
	return string(out)
}

// descendants are the processes below one.
func descendants(t *testing.T, of int) []int {
	t.Helper()
	children := map[int][]int{}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		f := strings.Fields(rest)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		parent, err2 := strconv.Atoi(f[1])
		if errors.Join(err, err2) != nil {
			t.Fatal(errors.Join(err, err2))
		}
		children[parent] = append(children[parent], pid)
	}
	var all []int
	for next := children[of]; len(next) > 0; next = next[1:] {
		all = append(all, next[0])
		next = append(next, children[next[0]]...)
	}
	return all
}

// alive reports whether a process runs; one that only waits to be counted does
// not.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ") && syscall.Kill(pid, 0) == nil
}

func commandLine(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.ReplaceAll(string(text), "\x00", " ")
}
