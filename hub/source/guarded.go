package source

import (
	"crypto/x509"
	"net/http"
	"net/netip"

	"github.com/capstan-cd/capstan/hub/source/guard"
)

// GuardedTransport is a way to servers over HTTP behind the guard that every
// source connects through.
func GuardedTransport(allowed []netip.Prefix, authorities *x509.CertPool) *http.Transport {
	return guard.Transport(allowed, authorities)
}

// Blocked reports whether an error is that the guard refused an address.
func Blocked(err error) bool { return guard.Blocked(err) }
