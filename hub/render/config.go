package render

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
)

// WorkerCommand is the first argument that makes the hub's binary a worker.
// Its main hands the arguments after it to worker.Main before anything else.
const WorkerCommand = "render-worker"

// SandboxNone is the value of Config.Sandbox that lets renderers run without
// Landlock and seccomp. Users who can commit to any repository can then read
// what the hub can read.
const SandboxNone = "none"

// A Config sets the sizes of a Pool. The zero value of a field is its default.
type Config struct {
	Log *slog.Logger // required

	Workers   int           // renders at once; default: number of CPUs
	Processes int           // worker processes alive, idle ones too; what is above Workers is for long renders; default: twice Workers
	Idle      time.Duration // an idle worker ends after this; default 60 s
	Sandbox   string        // empty: Landlock and seccomp, or no rendering at all; SandboxNone

	// Executable and Arguments start a worker; the default is this binary
	// with WorkerCommand.
	Executable string
	Arguments  []string

	Limits Limits

	// Waited is called with the time that each render waited for a worker. It
	// may be nil.
	Waited func(took time.Duration)
}

// Limits bound one render. A render that exceeds one fails, and no other, with
// a sentence that names the limit.
type Limits struct {
	Timeout     time.Duration `json:"timeout"`     // wall clock; default 60 s
	CPU         time.Duration `json:"cpu"`         // processor time of all threads; default 60 s
	Memory      int64         `json:"memory"`      // bytes of a worker; default 512 MiB
	Objects     int           `json:"objects"`     // default 20,000
	ObjectBytes int64         `json:"objectBytes"` // canonical JSON of one object; default 3 MiB
	OutputBytes int64         `json:"outputBytes"` // of all objects, and of rendered text; default 64 MiB
	FileBytes   int64         `json:"fileBytes"`   // one file that is read; default 32 MiB
	InputBytes  int64         `json:"inputBytes"`  // all files that are read; default 128 MiB
	Inputs      int           `json:"inputs"`      // files, directories and names that are read; default 100,000
	Depth       int           `json:"depth"`       // nesting of one object; default 256
	// DirectoryBytes bounds the manifests of a plain directory (DIR-07);
	// default 10 MiB.
	DirectoryBytes int64 `json:"directoryBytes"`
}

func (l Limits) withDefaults() Limits {
	setDefault(&l.Timeout, 60*time.Second)
	setDefault(&l.CPU, 60*time.Second)
	setDefault(&l.Memory, 512<<20)
	setDefault(&l.Objects, 20_000)
	setDefault(&l.ObjectBytes, 3<<20)
	setDefault(&l.OutputBytes, 64<<20)
	setDefault(&l.FileBytes, 32<<20)
	setDefault(&l.InputBytes, 128<<20)
	setDefault(&l.Inputs, 100_000)
	setDefault(&l.Depth, 256)
	setDefault(&l.DirectoryBytes, 10<<20)
	return l
}

// DefaultLimits are the limits of a Config that sets none.
func DefaultLimits() Limits { return Limits{}.withDefaults() }

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// WithDefaults fills in what is not set.
func (c Config) WithDefaults() Config {
	setDefault(&c.Workers, runtime.NumCPU())
	setDefault(&c.Processes, 2*c.Workers)
	setDefault(&c.Idle, 60*time.Second)
	setDefault(&c.Executable, "/proc/self/exe")
	if c.Arguments == nil {
		c.Arguments = []string{WorkerCommand}
	}
	c.Limits = c.Limits.withDefaults()
	return c
}

// Validate reports every problem at once.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var all []error
	bad := func(ok bool, format string, args ...any) {
		if !ok {
			all = append(all, fmt.Errorf(format, args...))
		}
	}
	bad(c.Log != nil, "log is missing")
	bad(c.Workers > 0, "workers is %d, and must be above 0", c.Workers)
	bad(c.Processes >= c.Workers, "processes is %d, and must be at least workers (%d)", c.Processes, c.Workers)
	bad(c.Idle > 0, "idle is %s, and must be above 0", c.Idle)
	bad(c.Sandbox == "" || c.Sandbox == SandboxNone, "sandbox is %q, and can only be empty or %q", c.Sandbox, SandboxNone)
	l := c.Limits
	bad(l.Memory >= 64<<20, "limits.memory is %d, and must be at least 64 MiB", l.Memory)
	bad(l.Timeout > 0 && l.CPU > 0 && l.Objects > 0 && l.ObjectBytes > 0 && l.OutputBytes > 0 && l.FileBytes > 0 &&
		l.InputBytes > 0 && l.Inputs > 0 && l.Depth > 0 && l.DirectoryBytes > 0, "every limit must be above 0")
	if len(all) > 0 {
		return fault.New(fault.Invalid, "render configuration: %w", errors.Join(all...))
	}
	return nil
}
