package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	step      = 25 * time.Millisecond // between checks of a program
	diskSteps = 10                    // steps between checks of what it has written
	beatSteps = 200
	stderrMax = 16 << 10
)

// A process is one program of a plugin while it runs.
type process struct {
	limits  Limits
	scratch []string // directories that it writes in
	program program
	output  int64 // bytes that it may write
	alive   func()
	network *network // nil: it has none
	cleanup *cleanup

	stdout, stderr limited
	control        *net.UnixConn
	supervisor     *supervisor
}

// An exitError is the end of a program that reports a failure.
type exitError struct {
	state  string
	stderr string
}

func (e *exitError) Error() string { return e.state }

// run starts the program and waits until it has ended, with everything that it
// has started. The first error says why it was stopped.
func (p *process) run(ctx context.Context) ([]byte, error) {
	p.stdout.limit, p.stderr.limit, p.stderr.last = p.output, stderrMax, true
	cmd, err := p.start()
	if err != nil {
		return nil, err
	}
	group := cmd.Process.Pid
	// The first stage waits for the program, which it gets once it is registered.
	if err := p.cleanup.add(group); err != nil {
		_ = p.control.Close()
		_ = cmd.Wait() // it has failed for want of a program
		return nil, err
	}
	defer p.cleanup.remove(group)
	p.supervisor = &supervisor{group: group, limit: p.limits.Processes, network: p.network}
	over, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer p.supervisor.running.Wait()
	defer stop()
	started := make(chan error, 1)
	running.Go(func() { started <- p.begun(over) })
	ended := make(chan error, 1)
	running.Go(func() { ended <- cmd.Wait() })
	stopped := p.watch(ctx, group, ended)
	endGroup(group)
	exit := <-ended
	_ = p.control.Close() // the first stage may not have come to its end
	if failed := <-started; failed != nil && stopped == nil {
		return nil, failed
	}
	return p.result(stopped, exit)
}

func (p *process) result(stopped, exit error) ([]byte, error) {
	if stopped != nil {
		return nil, stopped
	}
	if p.stdout.over() {
		return nil, p.tooMuch()
	}
	if exit != nil && !errors.Is(exit, exec.ErrWaitDelay) {
		return nil, &exitError{exit.Error(), p.stderr.text()}
	}
	return p.stdout.buf.Bytes(), nil
}

func (p *process) start() (*exec.Cmd, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start plugin: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "program's end")
	ours := os.NewFile(uintptr(pair[0]), "supervisor's end")
	conn, err := net.FileConn(ours)
	_ = ours.Close()
	if err != nil {
		_ = theirs.Close()
		return nil, fmt.Errorf("start plugin: %w", err)
	}
	p.control = conn.(*net.UnixConn)
	cmd := exec.Command("/proc/self/exe", ProgramCommand) //nolint:noctx // our own binary; watch ends it
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = &p.stdout, &p.stderr
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	err = cmd.Start()
	_ = theirs.Close()
	if err != nil {
		_ = p.control.Close()
		return nil, fault.Wrap(fault.Offline, err, "the hub cannot start a plugin at the moment")
	}
	return cmd, nil
}

// begun sends the program to the first stage, and returns nil once it runs.
func (p *process) begun(ctx context.Context) error {
	if err := json.NewEncoder(p.control).Encode(p.program); err != nil {
		return nil //nolint:nilerr // it has ended already, which its state explains
	}
	text := make([]byte, 4<<10)
	rights := make([]byte, unix.CmsgSpace(4))
	var messages []byte
	for {
		n, oob, _, _, err := p.control.ReadMsgUnix(text, rights)
		if oob > 0 {
			if err := p.supervisor.supervise(ctx, rights[:oob]); err != nil {
				return err
			}
		}
		messages = append(messages, text[:max(n, 0)]...) // a reset connection has n below zero
		if err != nil || n <= 0 {
			break
		}
	}
	if reason, failed := strings.CutPrefix(strings.TrimPrefix(string(messages), "S"), "E"); failed {
		return &startError{reason}
	}
	return nil
}

// A startError is the reason why a program has not started.
type startError struct{ reason string }

func (e *startError) Error() string { return e.reason }

// watch returns why the program has to be stopped, or nil when it has ended.
func (p *process) watch(ctx context.Context, group int, ended chan error) error {
	tick := time.NewTicker(step)
	defer tick.Stop()
	began := time.Now()
	warned := false
	for n := 1; ; n++ {
		select {
		case err := <-ended:
			ended <- err
			if warned {
				return p.tooLong()
			}
			return nil
		case <-ctx.Done():
			return fmt.Errorf("run plugin: %w", ctx.Err())
		case now := <-tick.C:
			took := now.Sub(began)
			if took > p.limits.Timeout+p.limits.Grace {
				return p.tooLong()
			}
			if took > p.limits.Timeout && !warned {
				warned = true
				_ = unix.Kill(-group, unix.SIGTERM) // it may be gone (CMP-13)
			}
			if err := p.check(group, n); err != nil {
				return err
			}
		}
	}
}

// check measures what the program uses.
func (p *process) check(group, n int) error {
	if p.stdout.over() {
		return p.tooMuch()
	}
	u := measure(group)
	switch {
	case p.supervisor.exceeded.Load():
		return exceeded("the plugin started more than %d processes and threads, and was stopped", p.limits.Processes)
	case u.memory > p.limits.Memory:
		return exceeded("the plugin needed more than %d MiB of memory, and was stopped", p.limits.Memory>>20)
	case n%diskSteps == 0 && written(p.scratch) > p.limits.Disk:
		return exceeded("the plugin wrote more than %d MiB of files, and was stopped", p.limits.Disk>>20)
	}
	if n%beatSteps == 0 && p.alive != nil {
		p.alive()
	}
	return nil
}

func exceeded(format string, args ...any) error {
	return fault.With(fault.New(fault.Exceeded, format, args...), "", "look for a loop, have the operator raise the plugin's limits, or split the application")
}

func (p *process) tooLong() error {
	return exceeded("the plugin took more than %s, and was stopped", p.limits.Timeout)
}

func (p *process) tooMuch() error {
	return exceeded("the plugin wrote more than %d bytes of output, and was stopped", p.output)
}

// written is what is in directories, in bytes; each file counts a block at
// least. What vanishes meanwhile does not count.
func written(dirs []string) int64 {
	var sum int64
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // it vanished
			}
			sum += 4 << 10
			if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
				sum += info.Size()
			}
			return nil
		})
	}
	return sum
}

// limited stores what a program writes, up to a limit.
type limited struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	limit int64
	more  bool
	last  bool // the end is stored and the rest dropped; else more is an error
}

// Write stores what there is room for. A program that writes on without end
// gets an error.
func (l *limited) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if room := l.limit - int64(l.buf.Len()); int64(len(b)) <= room {
		return l.buf.Write(b)
	}
	l.more = true
	if !l.last {
		return 0, io.ErrShortWrite
	}
	kept := b[max(0, int64(len(b))-l.limit):]
	l.buf.Next(l.buf.Len() + len(kept) - int(l.limit))
	l.buf.Write(kept)
	return len(b), nil
}

func (l *limited) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.more && !l.last
}

func (l *limited) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
