//go:build unix && !linux

package harness

import "syscall"

// attributes put a process into a group of its own, so that a Ctrl-C in the
// terminal reaches only us. Only Linux can also end it when we are killed.
func attributes(syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
