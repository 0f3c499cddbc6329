package link_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/agent/link"
)

// hubProcess is set for the process that TestHubProcess runs in.
const hubProcess = "CAPSTAN_LINK_HUB_PROCESS"

// memory is what a hub process uses.
type memory struct {
	Heap, Stack, RSS uint64 // bytes
	Goroutines       int
}

// TestHubProcess is a hub in a process of its own, for the benchmark: it
// prints a join token for each line with a number of them, and its memory for
// a line that says "memory".
func TestHubProcess(t *testing.T) {
	if os.Getenv(hubProcess) == "" {
		t.Skip("it runs only for the benchmark")
	}
	w := newWorld(t)
	r := w.start()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if n, err := strconv.Atoi(in.Text()); err == nil {
			org := tenant()
			for range n {
				token, _, _ := w.token(r, r.addr, org)
				fmt.Println(token)
			}
			continue
		}
		line, err := json.Marshal(measure(t))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(string(line))
	}
}

func measure(t testing.TB) memory {
	t.Helper()
	for range 5 { // each round halves stacks that were larger once
		runtime.GC()
	}
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	out := memory{Heap: m.HeapAlloc, Stack: m.StackInuse, Goroutines: runtime.NumGoroutine()}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return out
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kb, _ := strconv.ParseUint(f[1], 10, 64)
			out.RSS = kb << 10
		}
	}
	return out
}

// child is the hub process as the benchmark sees it.
type child struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func startChild(b *testing.B) *child {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHubProcess$")
	cmd.Env = append(os.Environ(), hubProcess+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	c := &child{in: in, out: bufio.NewReader(out)}
	b.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, c.out)
		_ = cmd.Wait()
	})
	return c
}

func (c *child) request(b *testing.B, what string) string {
	b.Helper()
	if _, err := fmt.Fprintln(c.in, what); err != nil {
		b.Fatal(err)
	}
	return c.line(b)
}

func (c *child) line(b *testing.B) string {
	b.Helper()
	s, err := c.out.ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(s)
}

func (c *child) memory(b *testing.B) memory {
	b.Helper()
	var m memory
	if err := json.Unmarshal([]byte(c.request(b, "memory")), &m); err != nil {
		b.Fatal(err)
	}
	return m
}

// BenchmarkAgents attaches 100 agents of one process to a hub in another and
// prints what each costs the hub, with heartbeat, desired state and reports
// open, and how fast all of them come back after a cut.
func BenchmarkAgents(b *testing.B) {
	const agents = 100
	hub := startChild(b)
	w := newWorld(b)
	tokens := []string{hub.request(b, strconv.Itoa(agents+1))}
	for len(tokens) < agents+1 {
		tokens = append(tokens, hub.line(b))
	}
	// The hub lets a host enrol 5 agents a second after the first 20; the
	// enrolments share one vault's worth of time and are not measured.
	vaults := enrolAll(b, w, tokens)
	warm := w.run(vaults[agents], nil) // what the first agent makes the hub allocate is not counted
	warm.sessions.awaitOpened(1)
	before := hub.memory(b)
	b.ResetTimer()
	for range b.N {
		all := make([]*agent, agents)
		began := time.Now()
		for i := range all {
			all[i] = w.run(vaults[i], nil)
		}
		for _, a := range all {
			a.sessions.awaitOpened(1)
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/all-attached")
		for _, a := range all {
			a.reports.make(100)
			a.reports.await(func() bool { return a.reports.acked == 1 })
		}
		after := hub.memory(b)
		kb := func(after, before uint64) float64 { return (float64(after) - float64(before)) / agents / 1024 }
		b.ReportMetric(kb(after.Heap, before.Heap), "heap-KB/agent")
		b.ReportMetric(kb(after.Stack, before.Stack), "stack-KB/agent")
		b.ReportMetric(kb(after.RSS, before.RSS), "RSS-KB/agent")
		b.ReportMetric(float64(after.Goroutines-before.Goroutines)/agents, "goroutines/agent")
		for _, a := range all {
			a.stop()
		}
	}
}

func enrolAll(b *testing.B, w *world, tokens []string) []*vault {
	b.Helper()
	out := make([]*vault, len(tokens))
	var wait sync.WaitGroup
	for i, token := range tokens {
		out[i] = &vault{}
		wait.Go(func() {
			_, err := link.Enroll(b.Context(), token, link.EnrolConfig{Vault: out[i], Cluster: someFacts(), Log: w.log.logger()})
			if err != nil {
				b.Errorf("Enroll() = %v", err)
			}
		})
	}
	wait.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return out
}
