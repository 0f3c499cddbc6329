package source

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/netip"
	"time"
)

// GuardedTransport is a way to servers over HTTP that refuses addresses inside
// the operator's network, as repositories are reached. It takes no proxy from
// the environment: the guard must see the real address.
func GuardedTransport(allowed []netip.Prefix, authorities *x509.CertPool) *http.Transport {
	return &http.Transport{
		DialContext:            guard{allowed}.dialer().DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// Blocked reports whether an error is that the guard refused an address.
func Blocked(err error) bool {
	var blocked blockedError
	return errors.As(err, &blocked)
}
