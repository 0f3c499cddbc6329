package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

const (
	// readyEvery is how often a starting process is asked whether it is ready.
	readyEvery = 25 * time.Millisecond
	// tailBytes is how much of a log goes into an error.
	tailBytes = 2048
)

// A Command says how to start one process.
type Command struct {
	Name   string   // what people call it
	Path   string   // the binary
	Argv0  string   // the name it is started under; empty: path
	Args   []string // without argv[0]
	Env    []string // added to the environment of this process
	Dir    string   // working folder; empty: that of this process
	Log    string   // file that receives both outputs, appended to
	As     *Account // who runs it; nil: the user of this process
	Orphan syscall.Signal
}

// An Account is the user under whom a process runs.
type Account struct {
	Name     string
	UID, GID int
}

// A Process is one that this package started. It is stopped by its handle
// only, and it gets its orphan signal when this process ends in any way.
type Process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // why it ended; read after done
}

// Start runs a command. The process has an operating system thread of its own
// as its parent, because the kernel sends the parent-death signal when that
// thread ends, and Go ends threads as it likes.
func Start(c Command) (*Process, error) {
	out, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", c.Name, err)
	}
	cmd := exec.Command(c.Path)
	if c.Argv0 != "" {
		cmd.Args[0] = c.Argv0
	}
	cmd.Args = append(cmd.Args, c.Args...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Dir = c.Dir
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = attributes(c.Orphan)
	if c.As != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(c.As.UID), Gid: uint32(c.As.GID)}
	}
	p := &Process{name: c.Name, log: c.Log, cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		_ = out.Close()
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	return p, nil
}

// Ready waits until check has no complaint. It ends early when the process
// does, or one that it needs, and says in every failure what the log says.
func (p *Process) Ready(ctx context.Context, check func(context.Context) error, needs ...*Process) error {
	for {
		for _, other := range needs {
			if other.Ended() {
				return other.Explain(fmt.Errorf("%s ended while %s started: %w", other.name, p.name, other.ending()))
			}
		}
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return p.Explain(fmt.Errorf("%s ended while it started: %w", p.name, p.ending()))
		case <-ctx.Done():
			return p.Explain(fmt.Errorf("%s is not ready in time: %w", p.name, err))
		case <-time.After(readyEvery):
		}
	}
}

// Stop asks the process to end and kills it when it has not done so within
// the grace. Stopping twice, or after it ended by itself, is fine.
func (p *Process) Stop(sig syscall.Signal, grace time.Duration) error {
	if p.Ended() {
		return nil
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// PID is the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends the process a signal, such as SIGSTOP and SIGCONT.
func (p *Process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports whether the process is gone.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Err is the error with which the process has ended; nil: it succeeded.
func (p *Process) Err() error { return p.err }

// ending is why the process is gone.
func (p *Process) ending() error {
	if p.err != nil {
		return p.err
	}
	return errors.New("exit status 0")
}

// Explain adds the name and the end of the log to an error.
func (p *Process) Explain(err error) error { return explain(err, p.log) }

func explain(err error, log string) error {
	end := tail(log)
	if end == "" {
		return fmt.Errorf("%w (its log %s is empty)", err, log)
	}
	return fmt.Errorf("%w\nend of its log %s:\n%s", err, log, end)
}

// tail is the end of a file, in whole lines.
func tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	from := max(0, info.Size()-tailBytes)
	data, err := io.ReadAll(io.NewSectionReader(f, from, tailBytes))
	if err != nil {
		return ""
	}
	if from > 0 {
		if _, rest, ok := bytes.Cut(data, []byte("\n")); ok {
			data = rest
		}
	}
	return string(bytes.TrimSpace(data))
}

// FirstAccount is the first of the named users that this machine has.
func FirstAccount(names ...string) (*Account, error) {
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(u.Uid)
		if err != nil {
			continue
		}
		gid, err := strconv.Atoi(u.Gid)
		if err != nil {
			continue
		}
		return &Account{Name: name, UID: uid, GID: gid}, nil
	}
	return nil, fmt.Errorf("this machine has none of the users %v", names)
}
