package harness

import "syscall"

// attributes put a process into a group of its own, so that a Ctrl-C in the
// terminal reaches only us, and let the kernel end it when we are gone.
func attributes(orphan syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: orphan}
}
