package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// A step is a command that runs beside this program. What it prints is shown
// only if it fails.
type step struct {
	what   string
	cancel context.CancelFunc
	done   chan struct{}
	err    error // read after done
}

// begin starts a command. It and all its children end with ctx.
func begin(ctx context.Context, what string, command ...string) *step {
	ctx, cancel := context.WithCancel(ctx)
	s := &step{what: what, cancel: cancel, done: make(chan struct{})}
	begun := time.Now()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Env = withoutMake(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	go func() {
		defer close(s.done)
		defer cancel()
		if err := cmd.Run(); err != nil {
			s.err = fmt.Errorf("build %s: %s: %w\n%s", what, strings.Join(command, " "), err, bytes.TrimSpace(output.Bytes()))
			return
		}
		say(what, begun)
	}()
	return s
}

// runStep runs a command to its end.
func runStep(ctx context.Context, what string, command ...string) error {
	return begin(ctx, what, command...).wait()
}

// The methods of a step that was not needed, which is nil, do nothing.

func (s *step) wait() error {
	if s == nil {
		return nil
	}
	<-s.done
	return s.err
}

func (s *step) ended() bool {
	if s == nil {
		return true
	}
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// stop ends the command early, which is no error.
func (s *step) stop() error {
	if s == nil {
		return nil
	}
	s.cancel()
	<-s.done
	return nil
}

// withoutMake leaves out what a make above has set, so that one that is
// started here does not believe to be a part of it.
func withoutMake(env []string) []string {
	var out []string
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if name != "MAKEFLAGS" && name != "MFLAGS" && name != "MAKELEVEL" && name != "MAKEOVERRIDES" {
			out = append(out, v)
		}
	}
	return out
}
