package scheduler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	step         = 25 * time.Millisecond // between checks of a busy worker
	startTimeout = 20 * time.Second
	dying        = 5 * time.Second // within which a worker that closed its connection must end, on a busy machine
	maxQuestion  = 8 << 20         // bytes of one message of a worker, objects apart
	maxRenders   = 5_000           // after which a worker is replaced, because its memory may have grown
)

// A process is one worker and the hub's end of its wire. One goroutine at a
// time uses it.
type process struct {
	tenant        hub.TenantID
	cmd           *exec.Cmd
	wire          *render.Wire
	stderr        *tail
	quit          <-chan struct{} // closed when the pool is
	hello         render.Hello
	idle          time.Time // since when
	renders       int
	spent         time.Duration // processor time when it became idle
	deprioritized bool          // it has a low priority, which cannot be raised again
	reap          sync.Once
	state         string // how it ended
	killed        bool   // it was ended by SIGKILL
}

// start makes a worker and waits until it reports its sandbox.
func start(ctx context.Context, cfg render.Config, quit <-chan struct{}, tenant hub.TenantID) (*process, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, unstarted(fmt.Errorf("socket pair: %w", err))
	}
	theirs := os.NewFile(uintptr(pair[1]), "renderer's end")
	if err := unix.SetNonblock(pair[0], true); err != nil {
		_, _ = unix.Close(pair[0]), theirs.Close()
		return nil, fmt.Errorf("start renderer: %w", err)
	}
	p := &process{tenant: tenant, quit: quit, stderr: &tail{}, wire: render.NewWire(os.NewFile(uintptr(pair[0]), "renderer"))}
	p.cmd = exec.Command(cfg.Executable, append(cfg.Arguments[:len(cfg.Arguments):len(cfg.Arguments)], //nolint:noctx // our own binary; ended by Close
		"--memory="+strconv.FormatInt(cfg.Limits.Memory, 10), "--sandbox="+cfg.Sandbox)...)
	p.cmd.Env = []string{}
	p.cmd.Dir = "/"
	p.cmd.Stderr = p.stderr
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = time.Second
	err = p.cmd.Start()
	_ = theirs.Close() // the child has its own; only then its end is seen
	if err != nil {
		_ = p.wire.Close()
		return nil, unstarted(err)
	}
	if err := p.greet(ctx); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

// unstarted is for a machine that cannot start one more process: neither the
// source nor the hub's own binary is the cause.
func unstarted(err error) error {
	for _, short := range [...]error{unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.ENOSPC} {
		if errors.Is(err, short) {
			return fault.With(fault.Wrap(fault.Offline, err, "the hub cannot start a renderer at the moment, because its machine has no memory or processes left for one"),
				"", "it is retried automatically; give the hub more memory, processes and open files if this stays")
		}
	}
	return fmt.Errorf("start renderer: %w", err)
}

func (p *process) greet(ctx context.Context) error {
	p.limitStart(ctx)
	frame, err := p.wire.Receive(maxQuestion)
	if err != nil {
		return p.startFailed(ctx, err)
	}
	if frame.Kind == render.FrameFailed {
		failure, err := render.Decode[render.Failure](frame, render.FrameFailed)
		if err != nil {
			return err
		}
		return failure.Err()
	}
	if p.hello, err = render.Decode[render.Hello](frame, render.FrameHello); err != nil {
		return err
	}
	if p.hello.Version != render.Version {
		return fmt.Errorf("start renderer: it is version %q, not %q", p.hello.Version, render.Version)
	}
	return nil
}

// limitStart ends the wait for the first frame after startTimeout.
func (p *process) limitStart(ctx context.Context) {
	until := time.Now().Add(startTimeout)
	p.wire.OnWait(func() error {
		if err := p.stopped(ctx); err != nil {
			return err
		}
		if time.Now().After(until) {
			return fault.New(fault.Offline, "the renderer did not start within %s", startTimeout)
		}
		return p.wire.ReadWithin(step)
	})
}

// startFailed ends the process and returns why its first frame did not come.
func (p *process) startFailed(ctx context.Context, err error) error {
	alone := broke(err) && waitForExit(p.cmd.Process.Pid, dying)
	p.kill()
	if alone && p.killed {
		return whenKilled(err)
	}
	if _, classified := fault.As(err); classified || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("start renderer: it ended at once (%s): %s: %w", p.state, p.stderr.safe(), err)
}

// stopped returns why this worker is no longer needed.
func (p *process) stopped(ctx context.Context) error {
	select {
	case <-p.quit:
		return errStopping
	case <-ctx.Done():
		return fmt.Errorf("render: %w", ctx.Err())
	default:
		return nil
	}
}

// stepBack lowers the worker's priority. It cannot be raised again, so the
// worker ends when its render is over.
func (p *process) stepBack() {
	if !p.deprioritized {
		p.deprioritized = true
		deprioritize(p.cmd.Process.Pid)
	}
}

// stirs reports whether an idle worker works without a request: then it cannot
// be trusted.
func (p *process) stirs(limit int64) bool {
	spent := processor(p.cmd.Process.Pid)
	if p.spent == 0 {
		p.spent = spent
	}
	return spent-p.spent > idleCPULimit || anonymous(p.cmd.Process.Pid) > limit
}

// kill ends the worker and waits until it is gone.
func (p *process) kill() {
	p.reap.Do(func() {
		_ = p.wire.Close()
		_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL) // its group; it may be gone already
		_ = p.cmd.Process.Kill()
		err := p.cmd.Wait()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			p.state = exit.String()
			status, ok := exit.Sys().(syscall.WaitStatus)
			p.killed = ok && status.Signaled() && status.Signal() == syscall.SIGKILL
		} else if err != nil {
			p.state = err.Error()
		} else {
			p.state = "exit status 0"
		}
	})
}

// errLost means that the worker ended before its first question. It may have
// ended while it was idle, so another one can do the work.
var errLost = errors.New("the renderer had ended")

// render runs one request. Only a worker that answered in order can be used
// again; keep reports whether it did.
func (p *process) render(ctx context.Context, req render.Request, limits render.Limits) (res render.Result, keep bool, err error) {
	p.renders++
	run := &run{process: p, limits: limits, recorder: render.NewRecorder(req, limits), began: time.Now()}
	run.checkedAt = run.began
	p.wire.OnWait(func() error { return run.tick(ctx) })
	defer func() {
		if !keep {
			alone := broke(err) && waitForExit(p.cmd.Process.Pid, dying)
			p.kill()
			err = run.explain(err, alone && p.killed)
		}
		if trouble := run.recorder.Trouble(); trouble != nil {
			err = trouble
		}
		if err != nil {
			res = render.Result{Inputs: run.causes()}
		}
	}()
	if err := p.wire.WriteUntil(run.began.Add(limits.Timeout)); err != nil {
		return render.Result{}, false, fmt.Errorf("render: %w", err)
	}
	ask := render.Ask{Application: req.Application, Namespace: req.Namespace, Sources: req.Sources, Limits: limits, Describe: req.Describe}
	if err := p.wire.Send(render.FrameAsk, ask); err != nil {
		return render.Result{}, false, fmt.Errorf("%w: %w", errLost, err)
	}
	return run.serve(ctx)
}

// A run is one render as the hub sees it.
type run struct {
	*process
	limits    render.Limits
	recorder  *render.Recorder
	began     time.Time
	paused    time.Duration // in which the worker waited for a plugin
	before    time.Duration // processor time of the worker at the first check
	checkedAt time.Time     // at the worker's memory and processor time
	asked     bool
	refused   bool // a question has no answer: the error may depend on what is not recorded
	objects   []render.Object
	bytes     int64
}

// tick is called while the worker is busy.
func (r *run) tick(ctx context.Context) error {
	now := time.Now()
	if err := r.stopped(ctx); err != nil {
		return err
	}
	if now.After(r.deadline()) {
		return r.tooLong()
	}
	if now.Sub(r.checkedAt) >= step {
		r.checkedAt = now
		if used := anonymous(r.cmd.Process.Pid); used > r.limits.Memory {
			return r.tooLarge()
		}
		used := processor(r.cmd.Process.Pid)
		if r.before == 0 {
			r.before = used
		}
		if used-r.before > r.limits.CPU {
			return fault.With(fault.New(fault.Exceeded, "rendering used more than %s of processor time and was stopped", r.limits.CPU),
				"", "look for a loop in the templates, or split the application")
		}
	}
	return r.wire.ReadWithin(step)
}

func (r *run) tooLong() error {
	return fault.With(fault.New(fault.Exceeded, "rendering took more than %s and was stopped", r.limits.Timeout),
		"", "look for a loop in the templates, or split the application")
}

func (r *run) tooLarge() error {
	return fault.With(fault.New(fault.Exceeded, "rendering needed more than %d MiB of memory and was stopped", r.limits.Memory>>20),
		"", "look for a template that grows without end, or split the application")
}

func (r *run) serve(ctx context.Context) (render.Result, bool, error) {
	for {
		frame, err := r.wire.Receive(max(maxQuestion, r.limits.ObjectBytes+1<<20))
		if err != nil {
			return render.Result{}, false, err
		}
		switch frame.Kind {
		case render.FrameQuery:
			r.asked = true
			if err := r.respond(ctx, frame); err != nil {
				return render.Result{}, false, err
			}
		case render.FrameMade:
			if err := r.acceptObject(frame); err != nil {
				return render.Result{}, false, err
			}
		case render.FrameFailed:
			failure, err := render.Decode[render.Failure](frame, render.FrameFailed)
			if err != nil {
				return render.Result{}, false, err
			}
			return render.Result{}, true, sanitized(&failure)
		case render.FrameFinished:
			return r.finish(frame)
		case render.FrameHello, render.FrameAsk, render.FrameReply:
			return render.Result{}, false, fmt.Errorf("the renderer sent %q", frame.Kind)
		default:
			return render.Result{}, false, fmt.Errorf("the renderer sent %q", frame.Kind)
		}
	}
}

func (r *run) respond(ctx context.Context, frame render.Frame) error {
	q, err := render.Decode[render.Question](frame, render.FrameQuery)
	if err != nil {
		return err
	}
	within, cancel := r.within(ctx, q)
	defer cancel()
	asked := time.Now()
	var reply render.Reply
	if reply.Answer, err = r.recorder.Ask(within, q); err != nil {
		r.refused = true
		if within.Err() != nil && ctx.Err() == nil {
			return r.tooLong()
		}
		if r.recorder.Trouble() != nil || ctx.Err() != nil {
			return err
		}
		reply = render.Reply{Failure: render.Fail(err)}
	}
	if q.Op == render.OpPlugin {
		r.paused += time.Since(asked)
		if err := r.wire.WriteUntil(r.deadline()); err != nil {
			return err
		}
	}
	bodies := make([][]byte, len(reply.Files))
	for i, f := range reply.Files {
		bodies[i] = f.Data
	}
	return r.wire.Send(render.FrameReply, reply, bodies...)
}

// deadline is the end of the render's time. Plugins have limits of their own.
func (r *run) deadline() time.Time { return r.began.Add(r.paused + r.limits.Timeout) }

// within bounds an answer. What the hub does for a render is a part of it.
func (r *run) within(ctx context.Context, q render.Question) (context.Context, context.CancelFunc) {
	if q.Op == render.OpPlugin {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, r.deadline())
}

// causes are all inputs that the error of a render depends on; nil: they are
// not known.
func (r *run) causes() []hub.Input {
	if r.refused || r.recorder.Trouble() != nil {
		return nil
	}
	return r.recorder.Inputs()
}

// acceptObject validates one object and counts it.
func (r *run) acceptObject(frame render.Frame) error {
	ref, err := render.Decode[hub.ObjectRef](frame, render.FrameMade)
	if err != nil {
		return err
	}
	ref.Digest = hub.Digest{}
	if len(r.objects) >= r.limits.Objects {
		return fault.New(fault.Exceeded, "the source makes more than %d objects", r.limits.Objects)
	}
	if int64(len(frame.Body)) > r.limits.ObjectBytes {
		return fault.New(fault.Exceeded, "an object has more than %d bytes", r.limits.ObjectBytes)
	}
	if r.bytes += int64(len(frame.Body)); r.bytes > r.limits.OutputBytes {
		return fault.New(fault.Exceeded, "the objects have more than %d bytes together", r.limits.OutputBytes)
	}
	if err := render.CheckObject(ref, frame.Body); err != nil {
		return err
	}
	r.objects = append(r.objects, render.Object{Ref: ref, JSON: frame.Body})
	return nil
}

func (r *run) finish(frame render.Frame) (render.Result, bool, error) {
	end, err := render.Decode[render.Finished](frame, render.FrameFinished)
	if err != nil {
		return render.Result{}, false, err
	}
	if end.Objects != len(r.objects) {
		return render.Result{}, false, fmt.Errorf("the renderer made %d objects and sent %d", end.Objects, len(r.objects))
	}
	const most, maxSourceTypes = 200, 10_000 // "Kustomize," for each source
	if len(end.Warnings) > most {
		end.Warnings = append(end.Warnings[:most:most], fmt.Sprintf("and %d more warnings", len(end.Warnings)-most))
	}
	for i, w := range end.Warnings {
		end.Warnings[i] = readable(w, 2_000)
	}
	return render.Result{
		Objects: r.objects, SourceType: readable(end.SourceType, maxSourceTypes), Inputs: r.recorder.Inputs(),
		Impure: end.Impure, Warnings: end.Warnings, Details: end.Details,
	}, true, nil
}

// broke reports whether an error is the end of the connection to a worker.
func broke(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)
}

// whenKilled is for a worker that somebody else killed: the machine's kernel
// in need of memory, or a person. Nothing speaks against another try.
func whenKilled(err error) error {
	return fault.With(fault.Wrap(fault.Offline, err, "the renderer was killed before it was done, perhaps because the hub's machine ran out of memory"),
		"", "it is retried automatically; give the hub more memory if this stays")
}

// explain returns why a worker was lost. killed means that it was killed, and
// not by the hub.
func (r *run) explain(err error, killed bool) error {
	if _, classified := fault.As(err); classified || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	text := r.stderr.String()
	switch {
	case strings.Contains(text, "goroutine stack exceeds") || strings.Contains(text, "stack overflow"):
		return fault.With(fault.Wrap(fault.Exceeded, err, "rendering went too deep and was stopped"),
			"", "look for a template or a schema that includes itself")
	case strings.Contains(text, "cannot allocate memory") || strings.Contains(text, "out of memory"):
		return r.tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return r.tooLong()
	case broke(err):
		if !r.asked && len(r.objects) == 0 {
			err = fmt.Errorf("%w: %w", errLost, err)
		}
		if killed {
			return whenKilled(err)
		}
		return fault.Wrap(fault.Exceeded, fmt.Errorf("%s: %s: %w", r.state, r.stderr.safe(), err), "the renderer broke off at this source (%s)", r.state)
	}
	return err
}

// sanitized limits what a worker can put into errors of the hub.
func sanitized(f *render.Failure) error {
	kind := f.Kind
	cause := readable(f.Cause, 3_000)
	if kind != fault.Exceeded && kind != fault.Invalid {
		return fmt.Errorf("renderer: %s", cause)
	}
	return &fault.Error{Kind: kind, Object: readable(f.Object, 500), Cause: cause, Fix: readable(f.Fix, 500)}
}

// readable cuts a text and drops control characters, those that turn the
// direction of text around among them.
func readable(s string, limit int) string {
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return strings.Map(func(c rune) rune {
		if c != '\n' && c != '\t' && unicode.In(c, unicode.Cc, unicode.Bidi_Control) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// A tail stores the beginning of a worker's standard error.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write stores the first 8 KiB and drops the rest.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if room := 8<<10 - t.text.Len(); room > 0 {
		t.text.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// String is all of it; it may hold values of templates.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// safe is the part for the log: the runtime's own words, without what a panic
// was called with.
func (t *tail) safe() string {
	var lines []string
	for line := range strings.Lines(t.String()) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "runtime: ") ||
			strings.HasPrefix(line, "signal: ") || strings.HasPrefix(line, "SIG") || strings.HasPrefix(line, "panic: runtime error: ") ||
			strings.HasPrefix(line, "render-worker: ") {
			lines = append(lines, readable(line, 300))
		}
	}
	if len(lines) > 8 {
		lines = lines[:8]
	}
	return strings.Join(lines, "; ")
}
