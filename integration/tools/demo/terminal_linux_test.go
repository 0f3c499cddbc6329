package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capstan-cd/capstan/integration/rigs/machine"
)

// Ctrl-C is a byte that the terminal turns into a signal for all processes of
// the group that has it, and "make" is one of them.
func TestCtrlCEndsMakeDemo(t *testing.T) {
	if _, err := os.Stat("../../../web/dist/index.html"); err != nil {
		machine.Lacks(t, "the console is not built (make build): %v", err)
	}
	for name, moment := range map[string]struct{ seen, output string }{
		"while it is built": {"all on this machine", "Stopped. What is compiled is kept"},
		"while it starts":   {"hub, agent and CLI", "Stopped"},
		"while it runs":     {"Ctrl-C ends everything. What happens", "Stopped: all processes have ended"},
	} {
		t.Run(name, func(t *testing.T) {
			d, keyboard := inTerminal(t, exec.Command("make", "demo"))
			d.await(moment.seen)
			below := descendants(t, d.cmd.Process.Pid)
			if _, err := keyboard.Write([]byte{3}); err != nil {
				t.Fatal(err)
			}
			if err := d.wait(); err != nil {
				t.Errorf("make demo ended with %v:\n%s", err, d.text())
			}
			d.await(moment.output)
			for _, pid := range below {
				if alive(pid) {
					t.Errorf("process %d still runs: %s", pid, commandLine(pid))
				}
			}
		})
	}
}

// A signal to the whole group, without a terminal, ends "make" itself by that
// signal, as it does with every command; nothing else is an error.
func TestASignalEndsMakeDemo(t *testing.T) {
	if _, err := os.Stat("../../../web/dist/index.html"); err != nil {
		machine.Lacks(t, "the console is not built (make build): %v", err)
	}
	cmd := exec.Command("make", "demo")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	d := start(t, cmd)
	d.await("ready after")
	below := descendants(t, cmd.Process.Pid)
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = d.wait()
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !s.Signaled() || strings.Contains(d.text(), "Error") {
		t.Errorf("make ended with %v:\n%s", cmd.ProcessState, d.text())
	}
	d.await("Stopped")
	for _, pid := range below {
		if alive(pid) {
			t.Errorf("process %d still runs: %s", pid, commandLine(pid))
		}
	}
}

// inTerminal starts a command in a terminal of its own and gives its keyboard.
func inTerminal(t *testing.T, cmd *exec.Cmd) (*running, *os.File) {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		machine.Lacks(t, "there are no terminals: %v", err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Dir = root
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	d := &running{t: t, cmd: cmd, done: make(chan error, 1), more: make(chan struct{}, 1)}
	d.begin(master, slave)
	return d, master
}
