// Package clientip determines the client of a connection or a request: the
// address that rate limits use, and the one that trusted proxies report. It
// opens no connection and has no state. hub and shared/tunnel call it. What an
// untrusted peer claims is ignored.
package clientip

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// ipv6Site is how much of an IPv6 address names one site. Its hosts choose the
// rest freely, so limits treat them as one client.
const ipv6Site = 64

// Key is the key of an address, with or without a port, in rate limits: an IPv4
// address itself, the /64 network of an IPv6 address. Other text is its own
// key.
func Key(address string) string {
	a, ok := parse(address)
	if !ok {
		return address
	}
	if a.Is4() {
		return a.String()
	}
	p, err := a.WithZone("").Prefix(ipv6Site)
	if err != nil { // cannot be: every IPv6 address has 64 bits
		return a.String()
	}
	return p.String()
}

// parse reads an address with or without a port. An IPv4 address that is
// written as an IPv6 one counts as IPv4.
func parse(address string) (netip.Addr, bool) {
	address = strings.TrimSpace(address)
	if a, err := netip.ParseAddrPort(address); err == nil {
		return a.Addr().Unmap(), true
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(address, "["), "]"))
	return a.Unmap(), err == nil
}

// Host is an address without its port.
func Host(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// Proxies are the networks of the trusted proxies.
type Proxies []netip.Prefix

// ParseProxies reads networks (10.0.0.0/8) and single addresses.
func ParseProxies(texts []string) (Proxies, error) {
	var out Proxies
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
			a = a.Unmap()
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q is neither a network nor an address; write it like 10.0.0.0/8 or 192.0.2.7", text)
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// Trust reports whether an address, with or without a port, is that of a
// trusted proxy.
func (p Proxies) Trust(address string) bool {
	a, ok := parse(address)
	if !ok {
		return false
	}
	for _, network := range p {
		if network.Contains(a.WithZone("")) {
			return true
		}
	}
	return false
}

// Client is the address, without a port, that a request comes from. It is the
// peer's, unless the peer is a trusted proxy. Then it is the last address of
// X-Forwarded-For that is not a trusted proxy's.
func (p Proxies) Client(r *http.Request) string {
	client := Host(r.RemoteAddr)
	if len(p) == 0 {
		return client
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && p.Trust(client); i-- {
		a, ok := parse(hops[i])
		if !ok {
			break
		}
		client = a.String()
	}
	return client
}
