package worker

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
)

// processes returns the ids of the workers of one pool of this process, which is
// known by its limit of memory.
func processes(t *testing.T, memory int64) []int {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(text, fmt.Appendf(nil, "\x00--memory=%d\x00", memory)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			t.Fatal(err)
		}
		if stat := statOf(pid); len(stat) > 1 && stat[1] == strconv.Itoa(os.Getpid()) {
			out = append(out, pid)
		}
	}
	return out
}

// statOf returns what the kernel reports of a process, from its state on;
// nothing of one that is gone.
func statOf(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
}

func killAll(t *testing.T, memory int64) int {
	t.Helper()
	all := processes(t, memory)
	for _, pid := range all {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	return len(all)
}

func TestKilledWorkers(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"before it says hello", "before it reads", "while it reads", "after it read", "in the middle of its objects"} {
		t.Run("FT-H4 killed "+step, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, func(c *render.Config) { c.Arguments = []string{"rogue-worker", "killed " + step} })
			req := request(hub.Source{Path: "."}, map[string]string{"a.yaml": configMap, "large.bin": strings.Repeat("x", 4<<20)})
			res, err := p.Render(t.Context(), req)
			if fault.KindOf(err) != fault.Offline || !strings.Contains(fault.Sentence(err), "killed") || !strings.Contains(fault.Sentence(err), "retried") {
				t.Errorf("error %v (kind %q), want one that may pass", err, fault.KindOf(err))
			}
			if len(res.Objects) != 0 || p.Workers() != 0 {
				t.Errorf("INV-3 %d objects; %d workers are left", len(res.Objects), p.Workers())
			}
		})
	}
	t.Run("FT-H4 all workers end while they are idle", func(t *testing.T) {
		t.Parallel()
		memory := int64(256<<20 + 4096)
		p := newPool(t, func(c *render.Config) { c.Limits.Memory, c.Workers, c.Processes = memory, 2, 4 })
		all := func() {
			t.Helper()
			for _, tenant := range []hub.TenantID{"a", "b", "c"} {
				req := request(hub.Source{Path: "."}, map[string]string{"a.yaml": configMap})
				req.Tenant = tenant
				if res, err := p.Render(t.Context(), req); err != nil || len(res.Objects) != 1 {
					t.Errorf("tenant %s: %d objects, %v", tenant, len(res.Objects), err)
				}
			}
		}
		all()
		if n := killAll(t, memory); n != 3 {
			t.Fatalf("%d workers were alive", n)
		}
		all()
	})
	t.Run("FT-H4 all workers are killed while they render", func(t *testing.T) {
		t.Parallel()
		memory := int64(256<<20 + 8192)
		p := newPool(t, func(c *render.Config) { c.Limits.Memory, c.Workers = memory, 2 })
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			wg.Go(func() {
				req := probeRequest("spin", "")
				req.Tenant = hub.TenantID(fmt.Sprint("tenant ", i))
				_, errs[i] = p.Render(t.Context(), req)
			})
		}
		for len(spinning(t, memory)) < 2 {
			time.Sleep(time.Millisecond) // until both are at work
		}
		killAll(t, memory)
		wg.Wait()
		for _, err := range errs {
			if fault.KindOf(err) != fault.Offline || !strings.Contains(fault.Sentence(err), "killed") {
				t.Errorf("error %v (kind %q)", err, fault.KindOf(err))
			}
		}
		wellAgain(t, p)
	})
	t.Run("FT-H4 a hub that cannot start a process reports it, and continues when it can", func(t *testing.T) {
		t.Parallel()
		missing := filepath.Join(t.TempDir(), "worker")
		p := newPool(t, func(c *render.Config) { c.Executable = missing })
		req := request(hub.Source{Path: "."}, map[string]string{"a.yaml": configMap})
		if _, err := p.Render(t.Context(), req); err == nil {
			t.Fatal("a render without a worker")
		}
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(self, missing); err != nil {
			t.Fatal(err)
		}
		wellAgain(t, p)
	})
}

// spinning returns the workers that use the processor.
func spinning(t *testing.T, memory int64) (out []int) {
	t.Helper()
	for _, pid := range processes(t, memory) {
		fields := statOf(pid)
		if len(fields) < 12 {
			continue
		}
		if ticks, err := strconv.Atoi(fields[11]); err == nil && ticks > 20 {
			out = append(out, pid)
		}
	}
	return out
}

// Renders of one tenant that only loop have all places; those of another are
// done meanwhile, all of them, before the first loop is over.
func TestAHostileTenantDelaysNoOther(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *render.Config) {
		c.Workers, c.Processes = 2, 4
		c.Limits.Timeout, c.Limits.CPU = time.Hour, time.Hour // a loop is over when the pool is closed
		c.Log = slog.New(slog.DiscardHandler)
	})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var order []string
	bad := func(ctx int) {
		req := probeRequest("spin", "")
		req.Tenant = "bad"
		_, err := p.Render(t.Context(), req)
		mu.Lock()
		defer mu.Unlock()
		order = append(order, "bad")
		if fault.KindOf(err) != fault.Exceeded && fault.KindOf(err) != fault.Offline {
			t.Errorf("render %d: %v", ctx, err)
		}
	}
	for i := range 6 {
		wg.Go(func() { bad(i) })
	}
	for p.Workers() < 2 {
		time.Sleep(time.Millisecond) // until the loops have all ordinary places
	}
	for range 20 {
		req := request(hub.Source{Path: "."}, map[string]string{"a.yaml": configMap})
		req.Tenant = "good"
		if _, err := p.Render(t.Context(), req); err != nil {
			t.Error(err)
		}
		mu.Lock()
		order = append(order, "good")
		mu.Unlock()
	}
	p.Close() // ends the loops
	wg.Wait()
	t.Run("FT-G9 INV-7 LD-2 endless renders of one tenant in all slots do not delay another tenant", func(t *testing.T) {
		if len(order) != 26 || order[19] != "good" {
			t.Errorf("the order in which renders ended: %v", order)
		}
	})
}

func TestIdleWorkerThatUsesCPU(t *testing.T) {
	t.Parallel()
	memory := int64(256<<20 + 12288)
	p := newPool(t, func(c *render.Config) {
		c.Arguments, c.Limits.Memory = []string{"rogue-worker", "stirs"}, memory
		c.Idle = 60 * time.Second
	})
	res, err := p.Render(t.Context(), request(hub.Source{Path: "."}, map[string]string{"a.yaml": configMap}))
	if err != nil || len(res.Objects) != 1 {
		t.Fatalf("%d objects, %v", len(res.Objects), err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.Run(t.Context()) })
	t.Cleanup(wg.Wait)
	t.Run("SEC-B5 a worker that goes on working after its render is ended", func(t *testing.T) {
		for p.Workers() > 0 {
			time.Sleep(10 * time.Millisecond) // the test's own deadline ends a failure
		}
		p.Close()
	})
}
