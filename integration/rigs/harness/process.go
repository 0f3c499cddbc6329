package harness

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

// A command says how to start one process.
type command struct {
	name   string   // what people call it
	path   string   // the binary
	argv0  string   // the name it is started under; empty: path
	args   []string // without argv[0]
	env    []string // added to the environment of this process
	dir    string   // working folder; empty: that of this process
	log    string   // file that receives both outputs, appended to
	as     *account // who runs it; nil: the user of this process
	orphan syscall.Signal
}

// An account is the user under whom a process runs.
type account struct {
	name     string
	uid, gid int
}

// A process is one that this package started. It is stopped by its handle
// only, and it gets its orphan signal when this process ends in any way.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // why it ended; read after done
}

// start runs a command. The process has an operating system thread of its own
// as its parent, because the kernel sends the parent-death signal when that
// thread ends, and Go ends threads as it likes.
func start(c command) (*process, error) {
	out, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", c.name, err)
	}
	cmd := exec.Command(c.path)
	if c.argv0 != "" {
		cmd.Args[0] = c.argv0
	}
	cmd.Args = append(cmd.Args, c.args...)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Dir = c.dir
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = attributes(c.orphan)
	if c.as != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(c.as.uid), Gid: uint32(c.as.gid)}
	}
	p := &process{name: c.name, log: c.log, cmd: cmd, done: make(chan struct{})}
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
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	return p, nil
}

// ready waits until check has no complaint. It ends early when the process
// does, or one that it needs, and says in every failure what the log says.
func (p *process) ready(ctx context.Context, check func(context.Context) error, needs ...*process) error {
	for {
		for _, other := range needs {
			if other.ended() {
				return other.explain(fmt.Errorf("%s ended while %s started: %w", other.name, p.name, other.ending()))
			}
		}
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return p.explain(fmt.Errorf("%s ended while it started: %w", p.name, p.ending()))
		case <-ctx.Done():
			return p.explain(fmt.Errorf("%s is not ready in time: %w", p.name, err))
		case <-time.After(readyEvery):
		}
	}
}

// stop asks the process to end and kills it when it has not done so within
// the grace. Stopping twice, or after it ended by itself, is fine.
func (p *process) stop(sig syscall.Signal, grace time.Duration) error {
	if p.ended() {
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

// pid is the number of the process.
func (p *process) pid() int { return p.cmd.Process.Pid }

// signal sends the process a signal, such as SIGSTOP and SIGCONT.
func (p *process) signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// wait returns a channel that is closed when the process has ended.
func (p *process) wait() <-chan struct{} { return p.done }

// ended reports whether the process is gone.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// failure is the error with which the process has ended; nil: it succeeded.
func (p *process) failure() error { return p.err }

// ending is why the process is gone.
func (p *process) ending() error {
	if p.err != nil {
		return p.err
	}
	return errors.New("exit status 0")
}

// explain adds the name and the end of the log to an error.
func (p *process) explain(err error) error { return explain(err, p.log) }

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

// firstAccount is the first of the named users that this machine has.
func firstAccount(names ...string) (*account, error) {
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
		return &account{name: name, uid: uid, gid: gid}, nil
	}
	return nil, fmt.Errorf("this machine has none of the users %v", names)
}
