package agenttest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/build"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// TestMemory measures the real binary, and asserts nothing. It runs only when
// CAPSTAN_AGENT_BIN names it.
func TestMemory(t *testing.T) {
	bin := os.Getenv("CAPSTAN_AGENT_BIN")
	if bin == "" {
		t.Skip("set CAPSTAN_AGENT_BIN to measure")
	}
	w := newWorld(t)
	w.stop()
	p := w.process(bin)
	defer p.end(syscall.SIGTERM)
	var all []*linkv1.Row
	var ids []string
	for i := range 200 {
		a := w.application()
		var five strings.Builder
		for j := range 3 {
			five.WriteString(configMap(fmt.Sprintf("app-%d-%d", i, j), "red"))
		}
		fmt.Fprintf(&five, "---\napiVersion: v1\nkind: Service\nmetadata: {name: app-%d, namespace: NS}\nspec: {selector: {app: a%d}, ports: [{port: 80}]}\n", i, i)
		fmt.Fprintf(&five, "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: app-%d, namespace: NS}\nspec: {replicas: 2, selector: {matchLabels: {app: a%d}}, template: {metadata: {labels: {app: a%d}}, spec: {containers: [{name: c, image: nginx}]}}}\n", i, i, i)
		a.target = a.snapshot(five.String())
		a.accepted = a.target
		state := a.stateRow()
		id, op := a.operation(nil)
		all, ids = append(all, state, op), append(ids, id)
	}
	begin := time.Now()
	w.append(all...)
	for _, id := range ids {
		w.ended(id, "Succeeded")
	}
	t.Logf("deployed in %s", time.Since(begin))
	for range 6 {
		time.Sleep(10 * time.Second)
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for line := range strings.Lines(string(raw)) {
			if strings.HasPrefix(line, "Pss") || strings.HasPrefix(line, "Rss") {
				out = append(out, strings.Join(strings.Fields(line), " "))
			}
		}
		w.mu.Lock()
		n := len(w.resources)
		w.mu.Unlock()
		t.Log(n, "resources;", strings.Join(out, ", "))
	}
}

// agentProcess is the agent's binary with the state of a world.
type agentProcess struct{ cmd *exec.Cmd }

func (w *world) process(bin string) agentProcess {
	w.t.Helper()
	return w.processAs(bin, shared.Kubeconfig())
}

// processAs is process for an agent that reaches the cluster with another
// kubeconfig than an admin's.
func (w *world) processAs(bin, kubeconfig string) agentProcess {
	w.t.Helper()
	token := filepath.Join(w.t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(w.token), 0o600); err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(bin, "run", "--kubeconfig", kubeconfig, "--namespace", w.home, "--state-dir", w.state, "--join-token-file", token, "--log-level", "error")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	return agentProcess{cmd}
}

func (p agentProcess) end(how syscall.Signal) {
	_ = p.cmd.Process.Signal(how)
	_ = p.cmd.Wait()
}

// agentBinary builds the agent, unless CAPSTAN_AGENT_BIN names one.
func agentBinary(t *testing.T) string {
	t.Helper()
	if bin := os.Getenv("CAPSTAN_AGENT_BIN"); bin != "" {
		return bin
	}
	dir := t.TempDir()
	if err := build.Product(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "capstan-agent")
}

// TestKill kills the real binary again and again.
func TestKill(t *testing.T) {
	bin := agentBinary(t)
	w := newWorld(t)
	w.stop()
	p := w.process(bin)
	defer func() { p.end(syscall.SIGTERM) }()
	a := w.application()
	t.Run("FT-A1 INV-2 kill -9 while a hook runs: it is resumed and not created again", func(t *testing.T) {
		id := a.begin(hookJob("hold", "PreSync", "BeforeHookCreation")+configMap("web", "red"), nil)
		uid := w.live(jobs, "hold", exists).GetUID()
		for range 3 {
			p.end(syscall.SIGKILL)
			p = w.process(bin)
		}
		w.finish("hold", "Complete")
		w.ended(id, "Succeeded")
		if w.get(jobs, "hold").GetUID() != uid {
			t.Error("the hook was made twice")
		}
	})
	t.Run("FT-A1 kill -9 in the middle of many applies and prunes", func(t *testing.T) {
		many := func(color string, n int) string {
			var b strings.Builder
			for i := range n {
				b.WriteString(configMap(fmt.Sprintf("m-%d", i), color))
			}
			return b.String()
		}
		for round := range 6 {
			n := 300 - 40*round
			id := a.begin(many(fmt.Sprint("c", round), n), nil)
			w.live(configMaps, fmt.Sprintf("m-%d", round*7), data("color", fmt.Sprint("c", round)))
			p.end(syscall.SIGKILL)
			p = w.process(bin)
			w.ended(id, "Succeeded")
			w.waitDeleted(configMaps, fmt.Sprintf("m-%d", n+1))
		}
		a.synced()
	})
}
