//go:build !linux

package main

import "syscall"

// inOwnGroup does nothing: the demo runs in the process group of "make".
func inOwnGroup() (code int, done bool) { return 0, false }

// group puts the demo into a process group of its own, so that it is stopped
// by this program alone.
func group() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
