//go:build !linux

package tunnel

import "net"

// tuneSocket does nothing here: the kernel's defaults stay.
func tuneSocket(net.Conn) {}
