package guard

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/netip"
	"time"
)

// Transport is an HTTP transport that refuses addresses inside the operator's
// network, as for repositories. It uses no proxy of the environment: the guard
// must see the real address.
func Transport(allowed []netip.Prefix, authorities *x509.CertPool) *http.Transport {
	return TransportOver(Dialer(allowed), authorities)
}

// TransportOver is Transport over another dialer of this package.
func TransportOver(dialer ContextDialer, authorities *x509.CertPool) *http.Transport {
	return &http.Transport{
		DialContext:            dialer.DialContext,
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
