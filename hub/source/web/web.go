// Package web reads single files by their address for the renderers, such as
// value files of Helm. It uses the same guard as connections to repositories,
// sends no credential, and reads no more than a limit. Files are cached in
// memory, separately for each tenant. A file that was read before is requested
// conditionally, so that an unchanged one is not sent again.
//
// The daemon runs one Client per replica; the render stage calls Get.
package web

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/lru"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/hub/source"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Config sets what may be read. Zero values mean the defaults.
type Config struct {
	AllowedNetworks []netip.Prefix // internal networks that files may be in nevertheless; default: none
	RootCAs         *x509.CertPool // authorities of servers; default: the system's
	Timeout         time.Duration  // one file with all redirects; default 10 s
	Fresh           time.Duration  // a file is not requested again within; default 5 s
	CacheBytes      int64          // memory for files of all tenants; default 16 MiB
	Now             func() time.Time
}

// A Client reads files. It is safe for many goroutines.
type Client struct {
	cfg    Config
	http   *http.Client
	files  *lru.Cache[key, file]
	failed *lru.Cache[key, failure]
	flight singleflight.Group
}

// A key is an address, or a host, of one tenant. Nothing is shared between
// tenants: one could learn from it what another one reads.
type key struct {
	tenant hub.TenantID
	name   string
}

// A file is what was at an address, with the validators of a conditional
// request.
type file struct {
	body           []byte
	etag, modified string
	checked        time.Time
}

// A failure is that of a host that could not be reached.
type failure struct {
	err error
	at  time.Time
}

const (
	maxAddress   = 2048
	maxRedirects = 5
)

// New makes a client.
func New(cfg Config) *Client {
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.Fresh == 0 {
		cfg.Fresh = 5 * time.Second
	}
	if cfg.CacheBytes == 0 {
		cfg.CacheBytes = 16 << 20
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Client{cfg: cfg, files: lru.New[key, file](cfg.CacheBytes), failed: lru.New[key, failure](1 << 20)}
	c.http = &http.Client{
		Transport:     source.GuardedTransport(cfg.AllowedNetworks, cfg.RootCAs),
		CheckRedirect: redirect,
	}
	return c
}

// schemesKey is where the schemes of one request travel to its redirects.
type schemesKey struct{}

func redirect(req *http.Request, via []*http.Request) error {
	schemes, _ := req.Context().Value(schemesKey{}).([]string)
	switch {
	case len(via) > maxRedirects:
		return fault.New(fault.Invalid, "its server redirects more than %d times", maxRedirects)
	case !slices.Contains(schemes, strings.ToLower(req.URL.Scheme)):
		return fault.New(fault.Invalid, "its server redirects to an address with the scheme %q, which is not allowed", req.URL.Scheme)
	case via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme != "https":
		return fault.New(fault.Invalid, "its server redirects from https to http")
	}
	req.Header.Del("Referer") // the address may hold a secret
	return nil
}

// Get returns the file at an address of one of the schemes, of at most so many
// bytes. The error names the address without what may be secret in it.
func (c *Client) Get(ctx context.Context, tenant hub.TenantID, address string, schemes []string, most int64) ([]byte, error) {
	if err := check(address, schemes); err != nil {
		return nil, err
	}
	k := key{tenant, address}
	if f, ok := c.files.Get(k); ok && c.cfg.Now().Sub(f.checked) < c.cfg.Fresh {
		return bounded(f.body, address, most)
	}
	// A caller that is cancelled does not cancel the request of the others that
	// wait.
	result := c.flight.DoChan(string(tenant)+"\n"+strings.Join(schemes, ",")+"\n"+fmt.Sprint(most)+"\n"+address, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Timeout)
		defer cancel()
		return c.fetch(context.WithValue(ctx, schemesKey{}, schemes), k, most)
	})
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("read %s: %w", repourl.Redact(address), ctx.Err())
	case r := <-result:
		if r.Err != nil {
			return nil, r.Err
		}
		body, _ := r.Val.([]byte)
		return bounded(body, address, most)
	}
}

func check(address string, schemes []string) error {
	shown := repourl.Redact(address)
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || len(address) > maxAddress {
		return fault.With(fault.New(fault.Invalid, "the address %q cannot be parsed", shown), "", "write it like https://example.com/values.yaml")
	}
	scheme := strings.ToLower(u.Scheme)
	switch {
	case !slices.Contains(schemes, scheme):
		return fault.With(fault.New(fault.Invalid, "the address %s has the scheme %q, which is not allowed", shown, scheme), "",
			"use one of "+strings.Join(schemes, ", ")+", or change "+hub.ValueSchemesKey+" of "+hub.SettingsMap)
	case scheme != "http" && scheme != "https":
		return fault.With(fault.New(fault.Invalid, "files are not read with the scheme %q: %s", scheme, shown), "", "use an https address, or commit the file to a Git repository")
	case u.User != nil:
		return fault.With(fault.New(fault.Invalid, "the address %s contains a user name or password", shown), "",
			"take it out of the address; a file that needs a credential belongs into a Git repository")
	}
	return nil
}

func bounded(body []byte, address string, most int64) ([]byte, error) {
	if int64(len(body)) > most {
		return nil, tooLarge(address, most)
	}
	return body, nil
}

func tooLarge(address string, most int64) error {
	return fault.New(fault.Exceeded, "the file at %s has more than %d bytes", repourl.Redact(address), most)
}

func (c *Client) fetch(ctx context.Context, k key, most int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.name, nil)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the address %q cannot be parsed", repourl.Redact(k.name))
	}
	host := key{k.tenant, req.URL.Host}
	if f, ok := c.failed.Get(host); ok && c.cfg.Now().Sub(f.at) < c.cfg.Fresh {
		return nil, explain(k.name, f.err)
	}
	old, known := c.files.Get(k)
	if known && old.etag != "" {
		req.Header.Set("If-None-Match", old.etag)
	}
	if known && old.modified != "" {
		req.Header.Set("If-Modified-Since", old.modified)
	}
	res, err := c.http.Do(req)
	if err != nil {
		if unreachable(err, host.name) {
			c.failed.Put(host, failure{err, c.cfg.Now()}, 1024)
		}
		return nil, explain(k.name, err)
	}
	defer func() { _ = res.Body.Close() }() // nothing was written
	switch {
	case res.StatusCode == http.StatusNotModified && known:
		old.checked = c.cfg.Now()
		c.files.Put(k, old, int64(len(old.body)))
		return old.body, nil
	case res.StatusCode != http.StatusOK:
		return nil, answered(k.name, res.StatusCode)
	case res.ContentLength > most:
		return nil, tooLarge(k.name, most)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	if err == nil {
		err = ctx.Err() // a server that notices it may end its answer in good order
	}
	if err != nil {
		return nil, explain(k.name, err)
	}
	if int64(len(body)) <= most {
		c.files.Put(k, file{body, res.Header.Get("ETag"), res.Header.Get("Last-Modified"), c.cfg.Now()}, int64(len(body)))
	}
	return body, nil
}

// unreachable reports whether an error is about the connection to a host, and
// not about its answer or its redirect.
func unreachable(err error, host string) bool {
	var request *url.Error
	var refused *fault.Error
	if !errors.As(err, &request) || errors.As(err, &refused) {
		return false
	}
	at, parsed := url.Parse(request.URL)
	return parsed == nil && at.Host == host
}

// answered explains an answer that is not the file.
func answered(address string, status int) error {
	shown := repourl.Redact(address)
	switch {
	case status == http.StatusNotFound || status == http.StatusGone:
		return fault.With(fault.New(fault.Invalid, "there is no file at %s (status %d)", shown, status), "", "correct the address")
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fault.With(fault.New(fault.Invalid, "the server of %s refuses the file (status %d)", shown, status), "",
			"make the file public, or commit it to a Git repository; no credential is sent")
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		return fault.With(fault.New(fault.Offline, "the server of %s answers with status %d", shown, status), "", "it is retried automatically")
	}
	return fault.With(fault.New(fault.Invalid, "the server of %s answers with status %d", shown, status), "", "correct the address")
}

// explain returns why a file could not be read. It repeats no text of the
// network's own errors: they hold the address as it was sent.
func explain(address string, err error) error {
	shown := repourl.Redact(address)
	const again = "it is retried automatically"
	var refused *fault.Error
	var timeout net.Error
	var dns *net.DNSError
	switch {
	case errors.As(err, &refused):
		return fault.With(fault.New(refused.Kind, "the file at %s cannot be read: %s", shown, refused.Cause), "", "correct the address")
	case source.Blocked(err):
		return fault.With(fault.New(fault.Invalid, "the address %s leads into an internal network", shown), "", "use a public address, or let the operator add the network to sources.allowPrivate")
	case errors.As(err, &dns) && dns.IsNotFound:
		return fault.With(fault.New(fault.Offline, "the host of %s cannot be found", shown), "", "check the host name in the address")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fault.With(fault.New(fault.Offline, "the server of %s did not answer in time", shown), "", again)
	}
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	if errors.As(err, &unknown) || errors.As(err, &name) || errors.As(err, &invalid) {
		return fault.With(fault.New(fault.Offline, "the certificate of the server of %s is not trusted", shown), "", "use a certificate of the server that the hub trusts")
	}
	return fault.With(fault.New(fault.Offline, "the server of %s cannot be reached", shown), "", again)
}

// Forget drops what was read for a tenant.
func (c *Client) Forget(tenant hub.TenantID) {
	of := func(k key) bool { return k.tenant == tenant }
	c.files.Drop(of)
	c.failed.Drop(of)
}
