// Package guard refuses connections of the hub into the operator's own network.
// It checks the address that is really dialled, after names were resolved and
// redirects followed. Neither a name nor a redirect can therefore bypass it.
// Every kind of source connects through it and in no other way.
package guard

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// A guard refuses connections to internal addresses that are not allowed.
type guard struct {
	allowed []netip.Prefix
}

// A blockedError means that an address is not allowed for repositories. It does
// not print the address: what an internal name resolves to is confidential.
type blockedError struct{ addr netip.Addr }

func (blockedError) Error() string { return "the address is not allowed" }

// Dialer returns a dialer that refuses addresses inside the operator's network
// but for some.
func Dialer(allowed []netip.Prefix) *net.Dialer {
	g := guard{allowed}
	return &net.Dialer{
		Timeout:   10 * time.Second,
		KeepAlive: 30 * time.Second,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			return g.check(address)
		},
	}
}

func (g guard) check(address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dial %q: %w", address, err)
	}
	if addr := ap.Addr().Unmap().WithZone(""); !g.allows(addr) {
		return blockedError{addr}
	}
	return nil
}

func (g guard) allows(addr netip.Addr) bool {
	for _, p := range g.allowed {
		if p.Contains(addr) {
			return true
		}
	}
	for _, p := range internalNetworks() {
		if p.Contains(addr) {
			return false
		}
	}
	if inner, ok := embedded(addr); ok {
		return g.allows(inner)
	}
	return addr.IsGlobalUnicast()
}

// internalNetworks are the ranges that no public host is in (RFC 6890 and
// its successors).
func internalNetworks() []netip.Prefix {
	var all []netip.Prefix
	for _, s := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
		"192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/3",
		"::/128", "::1/128", "100::/64", "2001::/23", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
	} {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// embedded is the IPv4 address that an IPv6 address leads to through a
// translator: NAT64, 6to4, and IPv4-compatible addresses.
func embedded(addr netip.Addr) (netip.Addr, bool) {
	if !addr.Is6() {
		return netip.Addr{}, false
	}
	b := addr.As16()
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(addr), netip.MustParsePrefix("::/96").Contains(addr):
		return netip.AddrFrom4([4]byte(b[12:])), true
	case netip.MustParsePrefix("2002::/16").Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case netip.MustParsePrefix("64:ff9b:1::/48").Contains(addr):
		return netip.AddrFrom4([4]byte(b[12:])), true
	}
	return netip.Addr{}, false
}
