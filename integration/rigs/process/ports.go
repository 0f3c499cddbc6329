package process

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
)

const (
	// PortAttempts is how often a server is started on another port because
	// somebody else took the one that was free.
	PortAttempts = 5
	// lowestPort is the lowest that FreePort returns. From here on there is
	// none that browsers refuse, and below are most well-known ones.
	lowestPort = 12000
)

// FreePort finds a port of 127.0.0.1 that is not in use. It is none of the
// ephemeral ports, so a server that is restarted finds its port free. No other
// caller gets it as long as this process runs, neither here nor in another
// process; a program that does not call FreePort may still use it.
func FreePort() (int, error) {
	low, err := firstEphemeral()
	if err != nil {
		return 0, err
	}
	for range PortAttempts * PortAttempts {
		port := lowestPort + rand.IntN(low-lowestPort)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("ask for a free port: %w", err)
		}
		ours, err := reserve(port)
		if err = errors.Join(err, l.Close()); err != nil {
			return 0, err
		}
		if ours {
			return port, nil
		}
	}
	return 0, fmt.Errorf("ask for a free port: between %d and %d none was found", lowestPort, low)
}

// firstEphemeral is the lowest port that the kernel gives to connections.
func firstEphemeral() (int, error) {
	const file = "/proc/sys/net/ipv4/ip_local_port_range"
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read which ports connections get: %w", err)
	}
	var low, high int
	if _, err := fmt.Sscan(string(b), &low, &high); err != nil {
		return 0, fmt.Errorf("read which ports connections get: %s: %w", file, err)
	}
	if low < lowestPort+PortAttempts*PortAttempts { // connections get nearly all of them
		return math.MaxUint16, nil
	}
	return low, nil
}
