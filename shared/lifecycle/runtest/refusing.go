package runtest

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// Refusing returns the address of a port that refuses connections during the
// test. The port stays bound, so that no other process gets it.
func Refusing(tb testing.TB) string {
	tb.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		tb.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		tb.Fatal(err)
	}
	at, ok := name.(*unix.SockaddrInet4)
	if !ok {
		tb.Fatalf("the address of the port is a %T", name)
	}
	return (&net.TCPAddr{IP: at.Addr[:], Port: at.Port}).String()
}
