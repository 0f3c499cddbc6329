package process

import (
	"errors"
	"fmt"
	"syscall"
)

// attributes put a process into a group of its own, so that a Ctrl-C in the
// terminal reaches only us, and let the kernel end it when we are gone.
func attributes(orphan syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: orphan}
}

// reserve keeps a port for this process: no other one that asks here gets it,
// and this one gets it once. The name of a socket stands for the port, which
// has one holder and is free again when this process ends.
func reserve(port int) (ours bool, err error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("reserve port %d: %w", port, err)
	}
	err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: fmt.Sprintf("@capstan-harness-port-%d", port)})
	if err == nil {
		return true, nil // the socket stays open as long as this process lives
	}
	_ = syscall.Close(fd)
	if errors.Is(err, syscall.EADDRINUSE) {
		return false, nil
	}
	return false, fmt.Errorf("reserve port %d: %w", port, err)
}
