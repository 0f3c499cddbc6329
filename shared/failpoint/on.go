//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Enabled reports whether this binary contains the points.
const Enabled = true

// Here is a point at which a process may be killed, delayed or made to panic.
func Here(point string) { _ = all().hit(point) }

// Fail is a point that can also return an error.
func Fail(point string) error { return all().hit(point) }

// all is the only table of a process. It is made at the first hit, from the
// environment, because points are called from places without parameters.
var all = sync.OnceValue(func() *table {
	t := &table{file: os.Getenv("CAPSTAN_FAILPOINTS_FILE"), hits: map[string]int{}}
	t.fixed = parse(os.Getenv("CAPSTAN_FAILPOINTS"))
	if path := os.Getenv("CAPSTAN_FAILPOINTS_LOG"); path != "" {
		// Without the file the tests count no hit, and fail.
		t.log, _ = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	}
	return t
})

type term struct {
	action string
	length time.Duration
	at     int // 0: every hit
}

type table struct {
	file  string
	log   *os.File
	fixed map[string]term

	mu      sync.Mutex
	hits    map[string]int
	before  map[string]int // hits of a point before it was armed by the file
	changed time.Time
	size    int64
	loaded  map[string]term
}

// hit counts a hit and runs the action. The log is written first, so that it
// contains the hit of a process that ends here.
func (t *table) hit(point string) error {
	t.mu.Lock()
	t.hits[point]++
	n := t.hits[point]
	a, armed := t.term(point)
	act := armed && (a.at == 0 || a.at == n-t.before[point])
	if t.log != nil {
		name := "-"
		if act {
			name = a.action
		}
		fmt.Fprintf(t.log, "%s %d %s %d\n", point, n, name, os.Getpid())
	}
	t.mu.Unlock()
	if !act {
		return nil
	}
	switch a.action {
	case "exit":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal arrives
	case "panic":
		panic("failpoint " + point)
	case "error":
		return fmt.Errorf("failpoint %s", point)
	case "sleep":
		time.Sleep(a.length)
	case "pause":
		for t.still(point) {
			time.Sleep(5 * time.Millisecond)
		}
	}
	return nil
}

// still reports whether a point is armed to pause.
func (t *table) still(point string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	a, armed := t.term(point)
	return armed && a.action == "pause"
}

// term looks up a point. The caller holds mu.
func (t *table) term(point string) (term, bool) {
	if t.file != "" {
		if info, err := os.Stat(t.file); err != nil {
			t.loaded, t.size = nil, -1
		} else if !info.ModTime().Equal(t.changed) || info.Size() != t.size {
			text, err := os.ReadFile(t.file)
			if err == nil {
				t.load(parse(string(text)), point)
				t.changed, t.size = info.ModTime(), info.Size()
			}
		}
		if a, ok := t.loaded[point]; ok {
			return a, true
		}
	}
	a, ok := t.fixed[point]
	return a, ok
}

// load applies the file's current content at a hit, which is the first that
// counts. Points that were armed before keep their counts.
func (t *table) load(now map[string]term, at string) {
	if t.before == nil {
		t.before = map[string]int{}
	}
	for point, a := range now {
		if old, was := t.loaded[point]; was && old == a {
			continue
		}
		t.before[point] = t.hits[point]
		if point == at {
			t.before[point]--
		}
	}
	t.loaded = now
}

// parse reads terms. An invalid term would make a test meaningless, so it ends
// the process.
func parse(text string) map[string]term {
	out := map[string]term{}
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' || r == ' ' }) {
		point, a, err := parseTerm(word)
		if err != nil {
			fmt.Fprintln(os.Stderr, "failpoints:", err)
			os.Exit(2)
		}
		out[point] = a
	}
	return out
}

func parseTerm(word string) (string, term, error) {
	point, rest, ok := strings.Cut(word, "=")
	if !ok || !known(point) {
		return "", term{}, fmt.Errorf("%q names no point", word)
	}
	a := term{at: 1}
	if name, count, found := strings.Cut(rest, ":"); found {
		rest, a.at = name, 0
		if count != "*" {
			n, err := strconv.Atoi(count)
			if err != nil || n < 1 {
				return "", term{}, fmt.Errorf("%q has no count", word)
			}
			a.at = n
		}
	}
	if inner, found := strings.CutPrefix(rest, "sleep("); found {
		d, err := time.ParseDuration(strings.TrimSuffix(inner, ")"))
		if err != nil {
			return "", term{}, fmt.Errorf("%q has no duration", word)
		}
		rest, a.length = "sleep", d
	}
	switch rest {
	case "exit", "panic", "error", "sleep", "pause", "off":
	default:
		return "", term{}, fmt.Errorf("%q has no action of exit, panic, error, sleep, pause, off", word)
	}
	a.action = rest
	return point, a, nil
}

func known(point string) bool {
	for _, p := range Points() {
		if p == point {
			return true
		}
	}
	return false
}
