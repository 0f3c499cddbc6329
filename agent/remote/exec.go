package remote

import (
	"context"
	"errors"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	maxCommands = 10
	maxArgv     = 64 << 10 // bytes of a command
)

type execStream = grpc.BidiStreamingServer[linkv1.ExecInput, linkv1.ExecOutput]

// Exec runs a command in a container.
func (s *Server) Exec(stream execStream) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if err := checkCommands(start.GetCommands()); err != nil {
		return err
	}
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	t, err := s.find(stream.Context(), start.GetAppId(), start.GetNamespace(), start.GetPod(), start.GetUid(), start.GetContainer())
	if err != nil {
		return err
	}
	permitted := func() error {
		if !s.cfg.Cluster.Belongs(t.app, t.key) {
			return fault.With(fault.New(fault.Missing, "it does not belong to the application any more"), t.key.Describe(), "")
		}
		return fault.With(s.cfg.Policy.Executes(t.key.Namespace, t.container), t.key.Describe(), "")
	}
	if err := permitted(); err != nil {
		return err
	}
	conf, err := s.as(t.app)
	if err != nil {
		return err
	}
	x := &execution{s: s, t: t, start: start, conf: conf, out: &output{stream: stream}, in: newInput(start.GetSize())}
	return x.run(stream, permitted)
}

func checkCommands(commands []*linkv1.Command) error {
	if len(commands) == 0 || len(commands) > maxCommands {
		return fault.New(fault.Invalid, "a session names one to %d commands", maxCommands)
	}
	size := 0
	for _, c := range commands {
		if len(c.GetArgv()) == 0 || c.GetArgv()[0] == "" {
			return fault.New(fault.Invalid, "a command is empty")
		}
		for _, a := range c.GetArgv() {
			size += len(a)
		}
	}
	if size > maxArgv {
		return fault.New(fault.Exceeded, "the command has more than %d bytes", maxArgv)
	}
	return nil
}

// An execution is one session.
type execution struct {
	s     *Server
	t     target
	start *linkv1.ExecStart
	conf  *rest.Config
	in    *input
	out   *output
}

// run runs the session until the command ends, or it must end.
func (x *execution) run(stream execStream, permitted func() error) error {
	most, idle := x.s.cfg.Policy.Limits()
	if !x.start.GetTty() {
		idle = most
	}
	ctx, cancel := context.WithTimeoutCause(stream.Context(), most,
		fault.New(fault.Exceeded, "the session has lasted %s, which is the longest that the cluster's owner permits", most))
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	quiet := time.AfterFunc(idle, func() {
		end(fault.New(fault.Exceeded, "nothing was typed for %s", idle))
	})
	defer quiet.Stop()
	go func() { // ends with the stream, which ends when its handler returns
		end(x.receive(stream, func() { quiet.Reset(idle) }))
	}()
	started := &linkv1.ExecStarted{Container: x.t.container, Uid: x.t.uid, MaxSeconds: uint32(most / time.Second)}
	if x.start.GetTty() {
		started.IdleSeconds = uint32(idle / time.Second)
	}
	var code int32
	err := whilePermitted(ctx, permitted, func(ctx context.Context) (err error) {
		code, err = x.attempts(ctx, started)
		return err
	})
	if cause := context.Cause(ctx); cause != nil {
		if _, classified := fault.As(cause); classified {
			return cause
		}
	}
	if stream.Context().Err() != nil {
		return stream.Context().Err()
	}
	if err != nil {
		return err
	}
	return x.out.send(&linkv1.ExecOutput{Message: &linkv1.ExecOutput_End{End: &linkv1.ExecEnd{Code: code}}})
}

// receive takes what is typed, until the client ends the stream.
func (x *execution) receive(stream execStream, typed func()) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			x.in.close()
			return context.Canceled
		}
		if err != nil {
			return err
		}
		switch {
		case m.GetResize() != nil:
			x.in.resize(m.GetResize())
		case m.GetCloseStdin():
			x.in.close()
		case len(m.GetStdin()) > 0:
			typed()
			if err := x.in.write(stream.Context(), m.GetStdin()); err != nil {
				return err
			}
		}
	}
}

// attempts runs the first of the commands that the container has.
func (x *execution) attempts(ctx context.Context, started *linkv1.ExecStarted) (code int32, err error) {
	commands := x.start.GetCommands()
	for i, c := range commands {
		started.Argv = c.GetArgv()
		x.out.announce(started)
		if len(commands) == 1 {
			if err := x.out.begin(); err != nil {
				return 0, err
			}
		}
		err = x.attempt(ctx, c.GetArgv())
		var exit exec.CodeExitError
		last := i == len(commands)-1
		switch {
		case err == nil:
			return 0, x.out.begin()
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case !last && unknownCommand(err) && x.in.rewind():
			continue
		case errors.As(err, &exit):
			return int32(exit.Code), x.out.begin()
		case unknownCommand(err):
			return 0, fault.With(fault.Wrap(fault.Conflict, err, "the container has none of the commands that may be run: %s", names(commands)), x.t.key.Describe(), "")
		}
		return 0, explain(err, x.t, "pods/exec")
	}
	return 0, nil
}

func names(commands []*linkv1.Command) string {
	var out []string
	for _, c := range commands {
		out = append(out, c.GetArgv()[0])
	}
	return strings.Join(out, ", ")
}

// unknownCommand reports whether a command was not started because the
// container does not have it.
func unknownCommand(err error) bool {
	var exit exec.CodeExitError
	if errors.As(err, &exit) && (exit.Code == 126 || exit.Code == 127) {
		return true
	}
	text := err.Error()
	return strings.Contains(text, "executable file not found") || strings.Contains(text, "no such file or directory")
}

// attempt runs one command.
func (x *execution) attempt(ctx context.Context, argv []string) error {
	tty := x.start.GetTty()
	q := url.Values{"command": argv, "container": {x.t.container}, "stdout": {"true"}, "tty": {strconv.FormatBool(tty)}}
	q.Set("stdin", strconv.FormatBool(x.start.GetStdin()))
	q.Set("stderr", strconv.FormatBool(!tty))
	executor, err := x.executor(x.s.address(x.t, "exec", q))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options := remotecommand.StreamOptions{Stdout: writer{x.out, stdoutMessage}, Tty: tty}
	if x.start.GetStdin() {
		options.Stdin = reader{x.in, ctx}
	}
	if tty {
		options.TerminalSizeQueue = sizes{x.in, ctx, new(bool)}
	} else {
		options.Stderr = writer{x.out, stderrMessage}
	}
	return executor.StreamWithContext(ctx, options)
}

// executor prefers WebSockets, as API servers since 1.30 speak them.
func (x *execution) executor(u *url.URL) (remotecommand.Executor, error) {
	socket, err := remotecommand.NewWebSocketExecutor(x.conf, "GET", u.String())
	if err != nil {
		return nil, err
	}
	spdy, err := remotecommand.NewSPDYExecutor(x.conf, "POST", u)
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(socket, spdy, fallsBack)
}

// fallsBack reports whether the API server, or something before it, does not
// speak WebSockets.
func fallsBack(err error) bool {
	return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
}

// output sends what the command writes. Many goroutines may use it.
type output struct {
	mu      sync.Mutex
	stream  execStream
	started *linkv1.ExecStarted // not sent yet; nil: sent
}

// announce sets what is sent before the first output.
func (o *output) announce(started *linkv1.ExecStarted) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.started = started
}

func (o *output) begin() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.beginLocked()
}

func (o *output) beginLocked() error {
	if o.started == nil {
		return nil
	}
	m := &linkv1.ExecOutput{Message: &linkv1.ExecOutput_Started{Started: o.started}}
	o.started = nil
	return o.stream.Send(m)
}

func (o *output) send(m *linkv1.ExecOutput) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.beginLocked(); err != nil {
		return err
	}
	return o.stream.Send(m)
}

func stdoutMessage(data []byte) *linkv1.ExecOutput {
	return &linkv1.ExecOutput{Message: &linkv1.ExecOutput_Stdout{Stdout: data}}
}

func stderrMessage(data []byte) *linkv1.ExecOutput {
	return &linkv1.ExecOutput{Message: &linkv1.ExecOutput_Stderr{Stderr: data}}
}

// A writer sends one of the streams. It waits for the hub, which stops the
// command's output.
type writer struct {
	out  *output
	wrap func([]byte) *linkv1.ExecOutput
}

func (w writer) Write(p []byte) (int, error) {
	for at := 0; at < len(p); at += chunk {
		if err := w.out.send(w.wrap(p[at:min(at+chunk, len(p))])); err != nil {
			return at, err
		}
	}
	return len(p), nil
}

// input is what the client types. What a command has read that is not there, the
// next one reads again.
type input struct {
	data chan []byte

	mu      sync.Mutex
	rest    []byte
	taken   []byte // what the command has read
	large   bool   // taken does not have everything
	ended   chan struct{}
	once    sync.Once
	size    *linkv1.TerminalSize
	changed chan struct{} // closed when the size changes
}

func newInput(size *linkv1.TerminalSize) *input {
	return &input{data: make(chan []byte), ended: make(chan struct{}), size: size, changed: make(chan struct{})}
}

func (i *input) close() { i.once.Do(func() { close(i.ended) }) }

// write waits until the command has read what came before.
func (i *input) write(ctx context.Context, p []byte) error {
	select {
	case i.data <- p:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// maxTaken bounds what is held of the input for another command, in bytes.
const maxTaken = 64 << 10

// rewind has the next command read what the one before has read; false: that was
// too much.
func (i *input) rewind() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.rest, i.taken = append(i.taken, i.rest...), nil
	return !i.large
}

// resize keeps only the newest size, however many come.
func (i *input) resize(size *linkv1.TerminalSize) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.size = size
	close(i.changed)
	i.changed = make(chan struct{})
}

// A reader reads the input for one command.
type reader struct {
	in  *input
	ctx context.Context //nolint:containedctx // io.Reader has none
}

func (r reader) Read(p []byte) (int, error) {
	r.in.mu.Lock()
	rest := r.in.rest
	r.in.mu.Unlock()
	if len(rest) == 0 {
		select {
		case rest = <-r.in.data:
		case <-r.ctx.Done():
			return 0, io.EOF
		case <-r.in.ended:
			return 0, io.EOF
		}
	}
	r.in.mu.Lock()
	defer r.in.mu.Unlock()
	n := copy(p, rest)
	r.in.rest = rest[n:]
	if r.in.large = r.in.large || len(r.in.taken)+n > maxTaken; r.in.large {
		r.in.taken = nil
	} else {
		r.in.taken = append(r.in.taken, rest[:n]...)
	}
	return n, nil
}

// sizes are those of the terminal for one command.
type sizes struct {
	in    *input
	ctx   context.Context //nolint:containedctx // remotecommand.TerminalSizeQueue has none
	begun *bool
}

// Next returns the next size; nil: there is none any more.
func (s sizes) Next() *remotecommand.TerminalSize {
	s.in.mu.Lock()
	size, changed := s.in.size, s.in.changed
	s.in.mu.Unlock()
	if *s.begun || size == nil {
		select {
		case <-changed:
		case <-s.ctx.Done():
			return nil
		}
		s.in.mu.Lock()
		size = s.in.size
		s.in.mu.Unlock()
	}
	*s.begun = true
	return &remotecommand.TerminalSize{Width: uint16(min(size.GetColumns(), 1<<16-1)), Height: uint16(min(size.GetRows(), 1<<16-1))}
}
