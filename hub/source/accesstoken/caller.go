package accesstoken

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A caller makes the requests of one grant.
type caller struct {
	issuer *Issuer
	tenant hub.TenantID
	way    hub.Credential
	own    bool
}

// errNotFound means that an issuer does not know what it is asked about.
var errNotFound = errors.New("the issuer does not know it")

// do makes a request and decodes the answer. Redirects are not followed: what is
// sent is for this host only.
func (c *caller) do(ctx context.Context, what string, req *http.Request, into any) error {
	client, done, err := c.client(ctx, req.URL)
	if err != nil {
		return explain(what, req.URL, err)
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, c.issuer.cfg.Timeout)
	defer cancel()
	req.Header.Set("User-Agent", "capstan")
	res, err := client.Do(req.WithContext(ctx))
	if err != nil {
		return explain(what, req.URL, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case res.StatusCode == http.StatusNotFound:
		return errNotFound
	case res.StatusCode == http.StatusTooManyRequests || res.StatusCode >= 500:
		return fault.With(fault.New(fault.Offline, "%s %s answers with status %d", what, req.URL.Host, res.StatusCode), "", "it is retried automatically")
	case res.StatusCode < 200 || res.StatusCode > 299:
		return fault.With(fault.New(fault.Invalid, "%s %s refuses the identity (status %d)", what, req.URL.Host, res.StatusCode), "", "check the ids and the key, and that it is not revoked or expired")
	case err != nil:
		return explain(what, req.URL, err)
	case len(body) > maxAnswer || json.Unmarshal(body, into) != nil:
		return garbled(what, req.URL)
	}
	return nil
}

// garbled is the error of an answer without a token in it.
func garbled(what string, u *url.URL) error {
	return fault.With(fault.New(fault.Offline, "%s %s sent an answer that cannot be understood", what, u.Host), "", "check the address, and the proxies before it")
}

// post sends a form.
func (c *caller) post(ctx context.Context, what, address string, form url.Values, into any) error {
	req, err := http.NewRequest(http.MethodPost, address, strings.NewReader(form.Encode())) //nolint:noctx // do adds it
	if err != nil {
		return fmt.Errorf("request of a token: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	return c.do(ctx, what, req, into)
}

// client is one for requests to one host, with the tenant's authorities of it.
func (c *caller) client(ctx context.Context, u *url.URL) (client *http.Client, done func(), err error) {
	dialer, err := c.issuer.cfg.Ways.Via(c.way.Proxy, c.way.NoProxy)
	if err != nil {
		return nil, nil, err
	}
	pool := c.issuer.cfg.RootCAs
	text := ""
	if c.issuer.authorities != nil && !c.own {
		if text, err = c.issuer.authorities(ctx, c.tenant, strings.ToLower(u.Hostname())); err != nil {
			return nil, nil, fmt.Errorf("read authorities: %w", err)
		}
	}
	if text != "" {
		pool = x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(text))
	}
	transport := guard.TransportOver(dialer, pool)
	return &http.Client{Transport: transport, CheckRedirect: noRedirect}, transport.CloseIdleConnections, nil
}

// explain is a sentence about a request without an answer. Texts of libraries
// stay out of it.
func explain(what string, u *url.URL, err error) error {
	const again = "it is retried automatically"
	var dns *net.DNSError
	var timeout net.Error
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	sentence, fix := guard.ExplainProxy(err)
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("request of a token: %w", context.Canceled)
	case sentence != "":
		return fault.With(fault.Wrap(fault.Invalid, err, "%s %s cannot be reached: %s", what, u.Host, sentence), "", fix)
	case guard.Blocked(err):
		return fault.With(fault.Wrap(fault.Invalid, err, "%s %s is at a loopback, link-local or private address, which the hub does not connect to", what, u.Host), "",
			"use a public address, or ask the operator of the hub to allow this network")
	case errors.As(err, &unknown), errors.As(err, &host), errors.As(err, &invalid):
		return fault.With(fault.Wrap(fault.Invalid, err, "the certificate of %s %s is not trusted", what, u.Host), "",
			"store the authority's certificate for the host: capstan cert add-tls "+u.Hostname()+" --from ca.crt")
	case errors.As(err, &dns) && dns.IsNotFound:
		return fault.With(fault.Wrap(fault.Offline, err, "the host name of %s %s cannot be found", what, u.Host), "", "check the address")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fault.With(fault.Wrap(fault.Offline, err, "%s %s did not answer in time", what, u.Host), "", again)
	}
	return fault.With(fault.Wrap(fault.Offline, err, "%s %s cannot be reached", what, u.Host), "", again)
}
