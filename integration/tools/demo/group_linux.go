package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"
)

// inOwnGroup runs this program once more, in a process group of its own that
// has the terminal, and gives its exit code. Without that a Ctrl-C would reach
// "make" too, which then ends with an error however well the demo ends. It
// does nothing where there is no terminal.
func inOwnGroup() (code int, done bool) {
	const terminal = 0 // standard input
	if group, err := foreground(terminal); err != nil || group != syscall.Getpgrp() {
		return 0, false
	}
	self, err := os.Executable()
	if err != nil {
		return 0, false
	}
	runtime.LockOSThread() // the child ends with this thread
	defer runtime.UnlockOSThread()
	cmd := exec.Command(self, append([]string{"-grouped"}, os.Args[1:]...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Foreground: true, Ctty: terminal, Pdeathsig: syscall.SIGTERM}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	signal.Ignore(syscall.SIGTTOU, syscall.SIGTSTP) // the terminal is taken back below
	if err := cmd.Start(); err != nil {
		return 0, false
	}
	go func() {
		for s := range signals { // from someone who does not use the terminal
			_ = cmd.Process.Signal(s)
		}
	}()
	err = cmd.Wait()
	_ = setForeground(terminal, syscall.Getpgrp())
	if err != nil && cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1, true
	}
	return exitCode(cmd), true
}

// foreground is the process group that has a terminal.
func foreground(fd int) (int, error) {
	var group int32
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&group))); errno != 0 {
		return 0, errno
	}
	return int(group), nil
}

// setForeground gives a terminal to a process group.
func setForeground(fd, group int) error {
	id := int32(group)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TIOCSPGRP, uintptr(unsafe.Pointer(&id))); errno != 0 {
		return errno
	}
	return nil
}

// group puts the demo into a process group of its own, so that it is stopped
// by this program alone, and ends it with this program.
func group() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
