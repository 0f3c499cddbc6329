package tunnel

import (
	"net"

	"golang.org/x/sys/unix"
)

// notSent is how many bytes may wait unsent in the kernel. More would only
// delay what comes after them.
const notSent = 128 << 10

// tuneSocket limits the kernel's queue of unsent bytes. It is an optimisation:
// a connection that is no TCP socket stays as it is.
func tuneSocket(c net.Conn) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, notSent)
	})
}
