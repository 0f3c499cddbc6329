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
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(w.token), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "run", "--kubeconfig", shared.Kubeconfig(), "--namespace", w.home, "--state-dir", w.state, "--join-token-file", token)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}()
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
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", cmd.Process.Pid))
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
