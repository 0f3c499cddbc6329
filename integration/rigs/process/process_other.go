//go:build unix && !linux

package process

import "syscall"

// attributes put a process into a group of its own, so that a Ctrl-C in the
// terminal reaches only us. Only Linux can also end it when we are killed.
func attributes(syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// reserve keeps nothing: only Linux has names of sockets that end with their
// process. Two processes may then be given the same port.
func reserve(int) (ours bool, err error) { return true, nil }
