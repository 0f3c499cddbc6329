// Package worker is the process in which manifests are rendered. The hub's
// main calls Main when it is started as render.WorkerCommand; nothing else
// does. It enters the sandbox before it reads a byte of a tenant. It requests
// every file from the hub, and never writes, connects or starts anything. When
// the hub's end of the wire closes, it ends, whatever it was doing.
package worker

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/sandbox"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	wireFile  = 3 // the file descriptor that the hub passes
	openFiles = 64
	maxStack  = 64 << 20
	// garbage is how much of it may be kept, in percent of what is in use: a
	// render makes much more of it than it ever holds (decision 0187).
	garbage = 400
	// roomForRuntime is what Go maps beyond what it uses.
	roomForRuntime = 512 << 20
	executable     = "/proc/self/exe"
)

// Main runs a worker. args are the arguments after render.WorkerCommand; the
// result is the exit status.
func Main(args []string) int { return run(args, renderSource) }

type options struct {
	memory  int64
	sandbox string
	abi     int    // the newest version of Landlock to use; 0: the kernel's
	held    string // the active restrictions; set for the second stage
}

func parse(args []string) (options, error) {
	var o options
	set := flag.NewFlagSet(render.WorkerCommand, flag.ContinueOnError)
	set.SetOutput(io.Discard) // the hub sets the arguments; there is no user to report to
	set.Int64Var(&o.memory, "memory", 512<<20, "bytes of memory that rendering may need")
	set.StringVar(&o.sandbox, "sandbox", "", "how the process is caged")
	set.IntVar(&o.abi, "landlock-abi", 0, "the newest version of Landlock that is used, to try what holds on older kernels; 0: the kernel's own")
	set.StringVar(&o.held, "held", "", "what the first stage did; for the second stage only")
	if err := set.Parse(args); err != nil {
		return o, fmt.Errorf("render-worker: %w", err)
	}
	return o, nil
}

func run(args []string, how renderer) int {
	o, err := parse(args)
	if err != nil {
		return 2
	}
	wire, err := openWire()
	if err != nil {
		fmt.Fprintln(os.Stderr, "render-worker: this process is started by the hub only:", err)
		return 2
	}
	if o.held == "" {
		if o.held, err = cage(o); err != nil {
			_ = wire.Send(render.FrameFailed, render.Fail(uncaged(err)))
			return 1
		}
	}
	if o.sandbox != render.SandboxNone {
		if err := sandbox.Seal(); err != nil {
			_ = wire.Send(render.FrameFailed, render.Fail(uncaged(err)))
			return 1
		}
	}
	// Logs and requests of libraries are not needed here, and may contain
	// values.
	log.SetOutput(io.Discard)
	http.DefaultTransport = offline{}
	debug.SetMemoryLimit(o.memory / 8 * 7)
	debug.SetGCPercent(garbage)
	debug.SetMaxStack(maxStack)
	if err := wire.Send(render.FrameHello, render.Hello{Version: render.Version, Sandbox: o.held}); err != nil {
		return 1
	}
	newServer(wire, how).serve()
	return 0
}

// offline is the network that renderers have, sandboxed or not.
type offline struct{}

// RoundTrip refuses.
func (offline) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("%s is not fetched: renderers have no network", r.URL.Host)
}

func openWire() (*render.Wire, error) {
	var st unix.Stat_t
	if err := unix.Fstat(wireFile, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, errors.New("there is no connection to it")
	}
	if err := unix.SetNonblock(wireFile, true); err != nil {
		return nil, fmt.Errorf("open wire: %w", err)
	}
	return render.NewWire(os.NewFile(wireFile, "hub")), nil
}

// cage is the first stage. It returns only if it fails or if there is to be no
// sandbox; otherwise the process executes itself again with restrictions.
func cage(o options) (string, error) {
	if o.sandbox == render.SandboxNone {
		return "none: renderers can read what the hub can read", nil
	}
	// Landlock and seccomp hold one thread and what it becomes; it is this
	// thread that becomes the new program. It is never unlocked.
	runtime.LockOSThread()
	// If the machine runs out of memory, a renderer goes before the hub. A
	// kernel that has no such file kills by its own choice.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0)
	limits := sandbox.Limits{Data: uint64(2*o.memory + roomForRuntime), Files: openFiles, ABI: o.abi}
	if raceDetector {
		limits.Data = 0 // it maps terabytes
	}
	held, err := sandbox.Enter(executable, limits, wireFile)
	if err != nil {
		return "", err
	}
	env := []string{
		"GOMEMLIMIT=" + strconv.FormatInt(o.memory/8*7, 10), "GOMAXPROCS=" + strconv.Itoa(min(2, runtime.NumCPU())),
		"GOTRACEBACK=single", "TZ=UTC",
	}
	err = syscall.Exec(executable, append(os.Args[:len(os.Args):len(os.Args)], "--held="+held), env) //nolint:gosec // ourselves
	return "", fmt.Errorf("start second stage: %w", err)
}

func uncaged(err error) error {
	return fault.With(fault.Wrap(fault.Offline, err, "nothing is rendered, because renderers cannot be caged: %s", err),
		"", "use a kernel with Landlock, or set the render sandbox to none")
}

// A server answers the hub's requests one after the other.
type server struct {
	wire    *render.Wire
	how     renderer
	asks    chan render.Frame
	replies chan render.Frame
	dog     *time.Timer   // ends the process, if the hub does not
	within  time.Duration // of a render
}

func newServer(wire *render.Wire, how renderer) *server {
	return &server{wire: wire, how: how, asks: make(chan render.Frame), replies: make(chan render.Frame)}
}

// serve works until the hub disconnects.
func (s *server) serve() {
	// The listener is separate so that the end of the hub also ends a render
	// that reads nothing.
	go s.listen()
	for frame := range s.asks {
		s.one(frame)
	}
}

func (s *server) listen() {
	for {
		frame, err := s.wire.Receive(1 << 32)
		if err != nil {
			os.Exit(0)
		}
		if frame.Kind == render.FrameReply {
			s.replies <- frame
		} else {
			s.asks <- frame
		}
	}
}

func (s *server) one(frame render.Frame) {
	ask, err := render.Decode[render.Ask](frame, render.FrameAsk)
	if err != nil {
		os.Exit(1)
	}
	// The hub's clock decides; this one is for a hub that cannot.
	s.within = ask.Limits.Timeout + 10*time.Second
	s.dog = time.AfterFunc(s.within, func() { os.Exit(1) })
	defer func() { s.dog.Stop() }()
	made, end, err := s.render(ask)
	if err != nil {
		s.send(render.FrameFailed, render.Fail(err))
		return
	}
	var total int
	for _, o := range made {
		s.send(render.FrameMade, o.Ref, o.JSON)
		total += len(o.JSON)
	}
	s.send(render.FrameFinished, end)
	if total > 4<<20 {
		debug.FreeOSMemory()
	}
}

func (s *server) send(kind render.FrameKind, head any, bodies ...[]byte) {
	if err := s.wire.Send(kind, head, bodies...); err != nil {
		os.Exit(1)
	}
}

// render recovers a panic of a renderer: the tenant gets its location, without
// any value.
func (s *server) render(ask render.Ask) (made []render.Object, end render.Finished, err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		what := fmt.Sprintf("%T", p)
		var re runtime.Error
		if e, ok := p.(error); ok && errors.As(e, &re) {
			what = re.Error()
		}
		fmt.Fprintf(os.Stderr, "render-worker: panic: %s\n%s", what, debug.Stack())
		err = fault.New(fault.Invalid, "the renderer crashed on this source (%s)", what)
	}()
	return renderAll(context.Background(), ask, s, s.how)
}

// Ask sends a question to the hub; it makes the server a render.Access.
func (s *server) Ask(_ context.Context, q render.Question) (render.Answer, error) {
	if q.Op == render.OpPlugin { // the hub has a limit of its own for it
		s.dog.Stop()
		defer func() { s.dog.Reset(s.within) }()
	}
	s.send(render.FrameQuery, q)
	frame := <-s.replies
	reply, err := render.Decode[render.Reply](frame, render.FrameReply)
	if err != nil {
		return render.Answer{}, err
	}
	if reply.Failure != nil {
		return render.Answer{}, reply.Failure.Err()
	}
	rest := frame.Body
	for i := range reply.Files {
		f := &reply.Files[i]
		if f.Size < 0 || f.Size > int64(len(rest)) {
			return render.Answer{}, fmt.Errorf("render-worker: file of %d bytes, %d came", f.Size, len(rest))
		}
		f.Data, rest = rest[:f.Size:f.Size], rest[f.Size:]
	}
	return reply.Answer, nil
}
