package faults_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A daemon is a process that can be started again.
type daemon interface {
	Start(ctx context.Context) error
	Ended() <-chan struct{}
	PID() int
	LogFile() string
}

// A victim is a process that dies at failpoints and is started again at once,
// as an init system would.
type victim struct {
	name    string
	points  []string // all that the binary has
	armFile string
	hitLog  string
	process daemon

	mu      sync.Mutex
	armed   map[string]string // point → action
	before  map[string]string // armed before that: a process may just have died there
	kills   []string          // points at which it died, in order
	strange []string          // ends that no point explains
	paused  bool              // a test stops and starts it itself
	done    chan struct{}
	over    sync.WaitGroup
}

func newVictim(ctx context.Context, name, bin, dir string) (*victim, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "capstan-"+name), "failpoints").Output()
	if err != nil {
		return nil, fmt.Errorf("ask %s for its points: %w", name, err)
	}
	v := &victim{
		name: name, points: strings.Fields(string(out)), armed: map[string]string{}, done: make(chan struct{}),
		armFile: filepath.Join(dir, name+".points"), hitLog: filepath.Join(dir, name+".hits"),
	}
	return v, os.WriteFile(v.armFile, nil, 0o600)
}

func (v *victim) env() []string {
	return []string{"CAPSTAN_FAILPOINTS_FILE=" + v.armFile, "CAPSTAN_FAILPOINTS_LOG=" + v.hitLog}
}

// arm sets what happens at points; it replaces what was set.
func (v *victim) arm(t testing.TB, terms map[string]string) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.armed, v.before = terms, v.armed
	if err := v.write(); err != nil {
		t.Fatal(err)
	}
}

// write puts the terms into the file in one step, so that the process never
// reads half of them. The caller holds mu.
func (v *victim) write() error {
	var b strings.Builder
	for point, action := range v.armed {
		fmt.Fprintf(&b, "%s=%s\n", point, action)
	}
	if err := os.WriteFile(v.armFile+".new", []byte(b.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(v.armFile+".new", v.armFile)
}

// left returns the points that are still armed.
func (v *victim) left() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []string
	for p := range v.armed {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

func (v *victim) killed() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.kills)
}

// watch starts the process again whenever it ends.
func (v *victim) watch() {
	v.over.Go(func() {
		for {
			select {
			case <-v.process.Ended():
			case <-v.done:
				return
			}
			v.mu.Lock()
			paused := v.paused
			v.mu.Unlock()
			select {
			case <-v.process.Ended():
			default:
				continue // the test has started it again, and given it back
			}
			if paused {
				select {
				case <-time.After(20 * time.Millisecond):
				case <-v.done:
					return
				}
				continue
			}
			v.died()
			ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
			err := v.process.Start(ctx)
			cancel()
			if err != nil {
				// It may have died again while it started: that is the next turn's.
				select {
				case <-v.process.Ended():
				default:
					v.mu.Lock()
					v.strange = append(v.strange, "cannot be started: "+err.Error())
					v.mu.Unlock()
					return
				}
			}
		}
	})
}

// died notes at which point, and disarms it.
func (v *victim) died() {
	v.mu.Lock()
	defer v.mu.Unlock()
	point, known := v.ending(v.process.PID())
	if !known {
		v.strange = append(v.strange, "ended without a reason; its log is "+v.process.LogFile())
		return
	}
	delete(v.armed, point)
	delete(v.before, point)
	v.kills = append(v.kills, point)
	if err := v.write(); err != nil {
		v.strange = append(v.strange, err.Error())
	}
}

// ending is the armed point that ended a process. It need not be the last that
// was passed: until the signal arrives other threads go on, and may come to
// another one that ends it. The caller holds mu.
func (v *victim) ending(pid int) (point string, known bool) {
	for _, h := range v.hits() {
		_, armed := v.armed[h.point]
		if _, before := v.before[h.point]; (armed || before) && h.pid == pid && slices.Contains([]string{"exit", "panic"}, h.action) {
			return h.point, true
		}
	}
	return "", false
}

type hit struct {
	point, action string
	pid           int
}

// hits reads the log of hits.
func (v *victim) hits() []hit {
	text, err := os.ReadFile(v.hitLog)
	if err != nil {
		return nil
	}
	var out []hit
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 4 {
			pid, _ := strconv.Atoi(f[3]) // zero is no process of ours
			out = append(out, hit{f[0], f[2], pid})
		}
	}
	return out
}

// visited counts the points that were passed at least once.
func (v *victim) visited() map[string]int {
	out := map[string]int{}
	for _, h := range v.hits() {
		out[h.point]++
	}
	return out
}

// pause lets a test stop the process itself; the returned function gives it
// back to the watch.
func (v *victim) pause() func() {
	v.mu.Lock()
	v.paused = true
	v.mu.Unlock()
	return func() {
		v.mu.Lock()
		v.paused = false
		v.mu.Unlock()
	}
}

// sane fails the test if the process ended without being told to.
func (v *victim) sane(t *testing.T) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, text := range v.strange {
		t.Errorf("%s %s", v.name, text)
	}
	v.strange = nil
}

func (v *victim) close() {
	close(v.done)
	v.over.Wait()
}
