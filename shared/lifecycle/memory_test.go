package lifecycle

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// The limit is one of the process: these tests do not run beside others.
func TestBoundMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	none := func() (uint64, error) { return 0, memlimit.ErrNoLimit }
	away := func() (uint64, error) { return 0, errors.New("no control groups here") }
	for name, c := range map[string]struct {
		allowed memlimit.Provider
		alone   float64
		variable,
		output string
		want int64
	}{
		"a part of what the group may use":              {allowed: memlimit.Limit(1 << 30), want: 3 << 28},
		"a group without a limit":                       {allowed: none, want: math.MaxInt64},
		"a group that goes before the machine's memory": {allowed: memlimit.Limit(1 << 30), alone: 0.25, want: 3 << 28},
		"the machine's memory without a limit":          {allowed: none, alone: 0.25, want: 1 << 30},
		"the machine's memory without a group":          {allowed: away, alone: 0.25, want: 1 << 30},
		"no group":                                      {allowed: away, want: 42, output: "no control groups here"},
		"GOMEMLIMIT takes precedence":                   {allowed: memlimit.Limit(1 << 30), variable: "42", want: 42},
	} {
		t.Run(name, func(t *testing.T) {
			debug.SetMemoryLimit(42)
			if c.variable != "" {
				t.Setenv("GOMEMLIMIT", c.variable)
			}
			var gotText bytes.Buffer
			boundMemory(c.allowed, memlimit.Limit(1<<32), 0.75, c.alone, slog.New(slog.NewTextHandler(&gotText, nil)))
			if got := debug.SetMemoryLimit(-1); got != c.want {
				t.Errorf("the process may use %d bytes, want %d", got, c.want)
			}
			if c.output == "" && gotText.Len() > 0 || !strings.Contains(gotText.String(), c.output) {
				t.Errorf("it says %q", gotText.String())
			}
		})
	}
}
