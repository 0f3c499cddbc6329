package guard

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"
)

const (
	clientTimeout = 15 * time.Second // of one request, its answer included
	maxRedirects  = 3
)

// Client is an HTTP client with the transport of Transport. authorities are in
// PEM; empty: those of the machine. A redirect to another host is refused: the
// request may carry a secret. skipVerify accepts every certificate.
func Client(allowed []netip.Prefix, authorities string, skipVerify bool) (*http.Client, error) {
	var pool *x509.CertPool
	if authorities != "" {
		pool = x509.NewCertPool()
		if !pool.AppendCertsFromPEM([]byte(authorities)) {
			return nil, errors.New("the authorities contain no certificate in PEM")
		}
	}
	transport := Transport(allowed, pool)
	transport.TLSClientConfig.InsecureSkipVerify = skipVerify
	return &http.Client{Transport: transport, Timeout: clientTimeout, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if r.URL.Host != via[0].URL.Host || r.URL.Scheme != via[0].URL.Scheme || len(via) > maxRedirects {
			return fmt.Errorf("%s redirects to another host, or too often", via[0].URL.Host)
		}
		return nil
	}}, nil
}
