//go:build soak

package live_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/process"
)

// TestLargeLog reads a log of a gibibyte through agent and hub, whose memory does not
// grow with it.
func TestLargeLog(t *testing.T) {
	const lines, length = 1 << 20, 1 << 10 // with the end of the line
	name := deploy(t, "large", 1)[0]
	var written atomic.Int64
	stamp := time.Now().UTC().Format("2006-01-02T15:04:05.000000000Z07:00")
	many := bytes.Repeat([]byte(stamp+" "+strings.Repeat("x", length-1)+"\n"), 64)
	kubelets.Container("large", name, "app").Stream(func(w io.Writer) error {
		for written.Store(0); written.Load() < lines; written.Add(64) {
			if _, err := w.Write(many); err != nil {
				return err
			}
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	hub, agent, stop := memory(ctx)
	st, status := admin().logs(ctx, t, "large", "podName="+name+"&resourceNamespace=large&container=app")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, st.refused)
	}
	got, size, skipped := 0, 0, int64(0)
	for {
		e, err := st.next()
		if err != nil {
			t.Fatalf("after %d lines: %v", got, err)
		}
		skipped += e.Skipped
		if e.Last {
			if e.Notice != "" {
				t.Errorf("it ends with %q", e.Notice)
			}
			break
		}
		if e.Notice == "" {
			got++
			size += len(e.Content) + 1
		}
	}
	stop()
	t.Run("API-11 a log of a gibibyte arrives whole, by one stream of the kubelet", func(t *testing.T) {
		if opened := kubelets.Opened("large", name, "app"); written.Load() != lines || got != lines || size != lines*length || skipped != 0 || opened != 1 {
			t.Errorf("%d lines written, %d read, %d bytes, %d skipped, %d streams", written.Load(), got, size, skipped, opened)
		}
	})
	t.Run("API-11 neither hub nor agent keeps more of it the longer it lasts", func(t *testing.T) {
		const most = 32 << 20
		for of, samples := range map[string][]int64{"hub": *hub, "agent": *agent} {
			half := len(samples) / 2
			first, second := slices.Max(samples[:max(half, 1)]), slices.Max(samples[half:])
			t.Logf("%s: %d samples of RSS, first %d, most of the first half %d, of the second %d MiB", of, len(samples), samples[0]>>20, first>>20, second>>20)
			if second-first > most {
				t.Errorf("%s: %d MiB in the first half, %d in the second", of, first>>20, second>>20)
			}
		}
	})
}

// memory samples the resident memory of hub and agent until it is stopped.
func memory(ctx context.Context) (hub, agent *[]int64, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	hub, agent = new([]int64), new([]int64)
	take := func() {
		*hub = append(*hub, resident(append(process.Children(s.Hub.PID()), s.Hub.PID())...))
		*agent = append(*agent, resident(s.Agents["in-cluster"].PID()))
	}
	take()
	var sampling sync.WaitGroup
	sampling.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				take()
			}
		}
	})
	return hub, agent, func() { cancel(); sampling.Wait() }
}

// resident is the resident memory of processes, in bytes.
func resident(pids ...int) (sum int64) {
	for _, pid := range pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue // it has ended
		}
		for text := range strings.Lines(string(status)) {
			var kb int64
			if n, _ := fmt.Sscanf(text, "VmRSS: %d kB", &kb); n == 1 {
				sum += kb << 10
			}
		}
	}
	return sum
}
