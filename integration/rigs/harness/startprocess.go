package harness

import (
	"syscall"
	"time"
)

// A Process is a program that a test runs.
type Process struct{ *process }

// StartProcess starts a program that ends with this process.
func StartProcess(name, path, log string, args ...string) (*Process, error) {
	p, err := start(command{name: name, path: path, args: args, log: log, orphan: syscall.SIGKILL})
	if err != nil {
		return nil, err
	}
	return &Process{p}, nil
}

// Stop asks the program to end, and kills it when the grace is over.
func (p *Process) Stop(sig syscall.Signal, grace time.Duration) error { return p.stop(sig, grace) }
