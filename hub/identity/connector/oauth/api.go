package oauth

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	// MaxAnswer is the largest answer that is read, in bytes.
	MaxAnswer = 1 << 20
	// MaxPages is how many pages of one list are read.
	MaxPages = 50
	// timeLimit bounds one request and its answer.
	timeLimit = 15 * time.Second
)

// An API is a provider's API, asked with the token of one person.
type API struct {
	Provider string // what errors call it
	Base     string // URL without a slash at its end; nothing else is sent the token
	Token    string // empty: none is sent
	Client   *http.Client
	Header   http.Header // added to each request
	// Permission says what to do when the provider denies access.
	Permission string
}

// Client is a client like the given one that follows no redirect, has a time
// limit, and reads no more than MaxAnswer and a byte of an answer. Whoever a
// provider redirects to would get to see tokens.
func Client(given *http.Client) *http.Client {
	c := *given
	if c.Transport == nil {
		c.Transport = http.DefaultTransport
	}
	c.Transport = limited{c.Transport}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if c.Timeout == 0 || c.Timeout > timeLimit {
		c.Timeout = timeLimit
	}
	return &c
}

// limited bounds answers, also those that libraries read.
type limited struct{ http.RoundTripper }

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = body{io.LimitReader(resp.Body, MaxAnswer+1), resp.Body}
	return resp, nil
}

// A body ends early.
type body struct {
	io.Reader
	io.Closer
}

// WithAuthorities is a client like the given one that trusts only the
// authorities in a PEM text. The error is fault.Invalid if the text has none.
func WithAuthorities(given *http.Client, field string, pem []byte) (*http.Client, error) {
	if len(pem) == 0 {
		return given, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fault.New(fault.Invalid, "%s: it has no certificate in PEM", field)
	}
	transport, ok := given.Transport.(*http.Transport)
	if !ok {
		return nil, errors.New("the transport of the given client takes no authorities")
	}
	transport = transport.Clone()
	if transport.TLSClientConfig == nil {
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	transport.TLSClientConfig.RootCAs = pool
	c := *given
	c.Transport = transport
	return &c, nil
}

// An Answer is what a provider said. The error of a status that is none of
// 200 to 299 is classified already.
type Answer struct {
	Status int
	Next   string // the next page, by the header Link
	Err    error
}

// Get reads the answer to a path or to an address that an answer named. An
// address that is not below Base is refused.
func (a API) Get(ctx context.Context, target string, into any) (Answer, error) {
	return a.do(ctx, http.MethodGet, target, nil, into)
}

// Post sends a value and reads the answer, as Get does.
func (a API) Post(ctx context.Context, target string, value, into any) (Answer, error) {
	sent, err := json.Marshal(value)
	if err != nil {
		return Answer{}, err
	}
	return a.do(ctx, http.MethodPost, target, sent, into)
}

func (a API) do(ctx context.Context, method, target string, sent []byte, into any) (Answer, error) {
	address, err := a.address(target)
	if err != nil {
		return Answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(sent))
	if err != nil {
		return Answer{}, fault.With(fault.Wrap(fault.Offline, err, "its address is not valid"), a.Provider, "check the connector's configuration")
	}
	for name, values := range a.Header {
		req.Header[name] = values
	}
	req.Header.Set("Accept", "application/json")
	if sent != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if a.Token != "" {
		req.Header.Set("Authorization", "Bearer "+a.Token)
	}
	resp, err := Client(a.Client).Do(req)
	if err != nil {
		return Answer{}, connector.Unreachable(a.Provider, err)
	}
	defer resp.Body.Close()
	out := Answer{Status: resp.StatusCode, Next: nextPage(resp.Header)}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		out.Err = a.statusError(resp)
		return out, out.Err
	}
	if into == nil || resp.StatusCode == http.StatusNoContent {
		return out, nil
	}
	return out, a.decode(resp.Body, into)
}

func (a API) decode(answer io.Reader, into any) error {
	text, err := io.ReadAll(answer)
	switch {
	case err != nil:
		return connector.Unreachable(a.Provider, err)
	case len(text) > MaxAnswer:
		return a.offline("its answer is larger than %d bytes", MaxAnswer)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return a.offline("its answer is not the JSON that its API documents")
	}
	return nil
}

func (a API) offline(format string, args ...any) error {
	return fault.With(fault.New(fault.Offline, format, args...), a.Provider, "check that the address in the connector's configuration is that of the provider")
}

// address is where to send a request: a path below Base, or an address below
// it.
func (a API) address(target string) (string, error) {
	base, err := url.Parse(a.Base)
	if err != nil {
		return "", a.offline("its address is not valid")
	}
	if len(target) > 0 && target[0] == '/' {
		return a.Base + target, nil
	}
	to, err := url.Parse(target)
	if err != nil || to.Scheme != base.Scheme || to.Host != base.Host || to.User != nil {
		return "", a.offline("it names another host for the next page")
	}
	return to.String(), nil
}

// statusError explains a status that is no success.
func (a API) statusError(resp *http.Response) error {
	after := retryAfter(resp.Header, time.Now())
	limited := resp.StatusCode == http.StatusTooManyRequests ||
		resp.StatusCode == http.StatusForbidden && (after > 0 || resp.Header.Get("X-Ratelimit-Remaining") == "0")
	switch {
	case limited:
		return &fault.Error{Kind: fault.Offline, Object: a.Provider, Cause: "it has reached the limit of requests that the provider accepts",
			Fix: "try again later", RetryAfter: after}
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return fault.With(fault.New(fault.Offline, "it redirects a request of the API, which the hub does not follow"),
			a.Provider, "check that the address in the connector's configuration is the one of the API, with https")
	case resp.StatusCode == http.StatusUnauthorized:
		return fault.With(fault.New(fault.Unknown, "it does not accept the token of the sign-in; the access may have been revoked"), a.Provider, "sign in again")
	case resp.StatusCode == http.StatusForbidden:
		return fault.With(fault.New(fault.Denied, "it does not let the hub read what decides about the sign-in"), a.Provider, a.Permission)
	}
	return fault.With(fault.New(fault.Offline, "it answers with status %d", resp.StatusCode), a.Provider, "try again")
}

// retryAfter is how long to wait by the headers of an answer; zero: unknown.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if s, err := strconv.Atoi(h.Get("Retry-After")); err == nil && s > 0 {
		return min(time.Duration(s)*time.Second, time.Hour)
	}
	if s, err := strconv.ParseInt(h.Get("X-Ratelimit-Reset"), 10, 64); err == nil && h.Get("X-Ratelimit-Remaining") == "0" {
		return max(0, min(time.Unix(s, 0).Sub(now), time.Hour))
	}
	return 0
}

var linkNext = regexp.MustCompile(`<([^<>]+)>\s*;[^,]*\brel="?next"?`)

// nextPage is the next page that a header Link names (RFC 8288).
func nextPage(h http.Header) string {
	for _, link := range h.Values("Link") {
		if m := linkNext.FindStringSubmatch(link); m != nil {
			return m[1]
		}
	}
	return ""
}

// Pages reads a list page by page, by the header Link. More than MaxPages are
// refused, because a part of the list could lack what a policy denies.
func Pages[T any](ctx context.Context, a API, target string, each func([]T)) error {
	for range MaxPages {
		var items []T
		answer, err := a.Get(ctx, target, &items)
		if err != nil {
			return err
		}
		each(items)
		if answer.Next == "" {
			return nil
		}
		target = answer.Next
	}
	return a.TooMany()
}

// TooMany is the error for a list with more pages than are read.
func (a API) TooMany() error {
	return fault.With(fault.New(fault.Denied, "the person's groups have more than %d pages", MaxPages), a.Provider,
		"let the person leave groups, or let the provider pass on fewer")
}
