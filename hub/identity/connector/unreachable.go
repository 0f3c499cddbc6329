package connector

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"os"
	"syscall"

	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Unreachable explains why a provider did not answer, by the error of the
// network or of TLS. The error has kind Offline. It prints no address that
// was asked for: the query of a URL may hold what only provider and hub know.
func Unreachable(object string, err error) error {
	cause, fix := networkCause(err)
	var ofURL *url.Error
	if errors.As(err, &ofURL) {
		err = ofURL.Err
	}
	return fault.With(fault.Wrap(fault.Offline, err, "%s", cause), object, fix)
}

func networkCause(err error) (cause, fix string) {
	var (
		dns         *net.DNSError
		authority   x509.UnknownAuthorityError
		host        x509.HostnameError
		certificate *tls.CertificateVerificationError
	)
	switch {
	case guard.Blocked(err):
		return "its host is at a loopback, link-local or private address, which the hub does not connect to",
			"use a public address, or ask the operator of the hub to add the network to sources.allowPrivate"
	case errors.As(err, &dns) && dns.IsNotFound:
		return "its host name cannot be found", "check the host name in the connector's configuration"
	case errors.As(err, &authority):
		return "its certificate is signed by an authority that the hub does not know",
			"add the authority to the connector's configuration (rootCAData) or to the hub's"
	case errors.As(err, &host):
		return "its certificate is for another host", "use the host name that the certificate is for"
	case errors.As(err, &certificate):
		return "its certificate is not valid", "renew the certificate of the provider"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "its host refuses the connection", "check host and port, and that the provider runs"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), timedOut(err):
		return "it does not answer in time", "try again; check that the provider runs"
	}
	return "it cannot be reached", "check the network between the hub and the provider"
}

func timedOut(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
