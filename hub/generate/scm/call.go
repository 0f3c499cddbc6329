package scm

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/shared/fault"
)

// The bounds of one list. A list that exceeds one is an error.
const (
	longestList = 10 * time.Minute
	mostCalls   = 20_000  // requests that are sent
	mostPages   = 200     // of one list of the host
	mostBytes   = 8 << 20 // of one answer
	longestCall = 30 * time.Second
)

// An ask is a request for a document, or for the first page of a list.
type ask struct {
	endpoint string // the path without names, for metrics
	path     string // below the base, escaped
	query    url.Values
	commit   bool // the answer is of one commit, and never changes
	// absent are texts of the host that prove that the commit lacks a path. A host
	// without any answers so where the token may not read, too.
	absent []string
	// mayBeEmpty means that an answer without content is notFound{noContent}.
	mayBeEmpty bool
	// pushed is when something was last pushed to the repository that the answer
	// depends on, and on nothing else; zero: unknown.
	pushed time.Time
}

// A notFound is the error of an answer with status 404 in the host's own words.
// An answer of something before the host is never one.
type notFound struct{ message string }

func (notFound) Error() string { return "the host does not find it" }

// noContent is the message of a notFound without an answer.
const noContent = "no content"

// errorAnswer is how hosts say what is wrong.
type errorAnswer struct {
	Message string          `json:"message"` // GitHub, GitLab, Gitea, Azure DevOps
	TypeKey string          `json:"typeKey"` // Azure DevOps
	Error   json.RawMessage `json:"error"`   // Bitbucket Cloud, GitLab
	Errors  []struct {      // Bitbucket Server
		Message   string `json:"message"`
		Exception string `json:"exceptionName"`
	} `json:"errors"`
}

// get returns a document of the host. The answer may be one that is shared.
func get[T any](ctx context.Context, c *caller, a ask) (T, error) {
	var out T
	found, err := c.answers.find(ctx, c, a, func(ctx context.Context, known answer) (answer, error) {
		began := c.answers.now()
		var former page
		if len(known.pages) > 0 {
			former = known.pages[0]
		}
		p, fetched, err := c.call(ctx, a, former, func(body []byte, _ http.Header) (page, error) {
			var v T
			if err := decode(body, &v); err != nil {
				return page{}, err
			}
			reduced, err := json.Marshal(v)
			return page{body: reduced}, err
		})
		return answer{pages: []page{p}, began: began, fetched: fetched}, err
	})
	if err != nil {
		return out, err
	}
	p := found.pages[0]
	if p.status == http.StatusNotFound {
		return out, notFound{p.message}
	}
	if err := json.Unmarshal(p.body, &out); err != nil {
		return out, fmt.Errorf("decode a stored answer: %w", err)
	}
	return out, nil
}

// decode reads a document, which is not null.
func decode(body []byte, into any) error {
	if bytes.Equal(bytes.TrimSpace(body), []byte("null")) {
		return errors.New("the document is null")
	}
	return json.Unmarshal(body, into)
}

// call makes one request, and returns the host's time of the answer. What is
// known of the answer makes it conditional.
func (c *caller) call(ctx context.Context, a ask, known page, reduce func(body []byte, h http.Header) (page, error)) (page, time.Time, error) {
	none := time.Time{}
	if wait := c.answers.blocked(c); wait > 0 {
		return page{}, none, limitError(c.base.Host, c.answers.now().Add(wait), wait)
	}
	if c.left.Add(-1) < 0 {
		return page{}, none, fault.With(fault.New(fault.Exceeded, "the list needs more than %d requests to %s", mostCalls, c.base.Host), "", "narrow it with filters.repositoryMatch, or leave out allBranches")
	}
	ctx, cancel := context.WithTimeout(ctx, longestCall)
	defer cancel()
	req, err := c.request(ctx, a, known)
	if err != nil {
		return page{}, none, err
	}
	began := c.answers.now()
	res, err := c.client.Do(req)
	if err != nil {
		c.answers.called(c, a, 0, http.Header{}, began)
		return page{}, none, c.explain(err)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, mostBytes+1))
	_ = res.Body.Close() // it was read, or its error counts
	c.answers.called(c, a, res.StatusCode, res.Header, began)
	if err != nil {
		return page{}, none, c.explain(err)
	}
	if len(body) > mostBytes {
		return page{}, none, fault.With(fault.New(fault.Exceeded, "%s sends an answer of more than %d MiB", c.base.Host, mostBytes>>20), "", "check the address, and the proxies before it")
	}
	p, err := c.read(a, res, body, known, reduce)
	return p, dateOf(res.Header), err
}

func (c *caller) request(ctx context.Context, a ask, known page) (*http.Request, error) {
	address := strings.TrimRight(c.base.String(), "/") + a.path
	if len(a.query) > 0 {
		address += "?" + a.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fault.With(fault.New(fault.Invalid, "the generator %s names something that is no part of a URL", c.kind), "", "check its names")
	}
	req.Header.Set("User-Agent", "capstan")
	req.Header.Set("Accept", "application/json")
	if c.kind == gitHubKind {
		req.Header.Set("Accept", "application/vnd.github+json")
		req.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	}
	if c.value != "" {
		req.Header.Set(c.header, c.value)
	}
	if known.etag != "" {
		req.Header.Set("If-None-Match", known.etag)
	}
	return req, nil
}

// read checks an answer. Only a complete document of the host is one.
func (c *caller) read(a ask, res *http.Response, body []byte, known page, reduce func(body []byte, h http.Header) (page, error)) (page, error) {
	switch {
	case res.StatusCode == http.StatusNotModified && known.etag != "":
		return known, nil
	case res.StatusCode == http.StatusNoContent && a.mayBeEmpty:
		return page{status: http.StatusNotFound, message: noContent}, nil
	case !isJSON(res.Header):
		return page{}, c.refused(res, errorAnswer{})
	case res.StatusCode == http.StatusOK:
		if strings.HasPrefix(res.Header.Get("X-GitHub-SSO"), "partial-results") {
			return page{}, fault.With(fault.New(fault.Invalid, "%s lists only a part: the token is not authorised for single sign-on of the organisation", c.base.Host), "", "authorise the token for the organisation")
		}
		p, err := reduce(body, res.Header)
		if err != nil {
			return page{}, c.garbled()
		}
		p.status = res.StatusCode
		if !p.volatile {
			p.etag = res.Header.Get("ETag")
		}
		return p, nil
	}
	var message errorAnswer
	if err := json.Unmarshal(body, &message); err != nil {
		message = errorAnswer{}
	}
	if res.StatusCode == http.StatusNotFound && message.text() != "" {
		return page{status: res.StatusCode, message: message.text()}, nil
	}
	return page{}, c.refused(res, message)
}

// text is what the host says. It is compared, and never shown.
func (a errorAnswer) text() string {
	switch {
	case a.TypeKey != "":
		return a.TypeKey
	case a.Message != "":
		return a.Message
	case len(a.Errors) > 0:
		return a.Errors[0].Exception + " " + a.Errors[0].Message
	}
	return string(a.Error)
}

func isJSON(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}

// hasNext reports whether headers name a further page (RFC 8288).
func hasNext(h http.Header) bool {
	for _, link := range strings.Split(strings.Join(h.Values("Link"), ","), ",") {
		if strings.Contains(link, `rel="next"`) {
			return true
		}
	}
	return false
}

// garbled is the error of an answer that is no document of the host.
func (c *caller) garbled() error {
	return fault.With(fault.New(fault.Offline, "%s sends an answer that cannot be understood", c.base.Host), "", "check the address, and the proxies before it")
}

// refused is the error of an answer with another status, or of another type.
// The host's text stays out of it: it may repeat what it was sent.
func (c *caller) refused(res *http.Response, message errorAnswer) error {
	host := c.base.Host
	switch wait := c.answers.limited(c, res, message); {
	case wait > 0:
		return limitError(host, c.answers.now().Add(wait), wait)
	case res.StatusCode == http.StatusUnauthorized:
		return fault.With(fault.New(fault.Invalid, "%s does not accept the token (status 401)", host), "", "check that it is not revoked or expired")
	case res.StatusCode == http.StatusForbidden:
		return fault.With(fault.New(fault.Invalid, "%s does not permit what the generator asks for (status 403)", host), "", "check the rights of the token")
	case res.StatusCode == http.StatusNotFound:
		return fault.With(fault.New(fault.Offline, "%s answers with status 404, and not as the API of %s does", host, c.kind), "", "check the generator's api")
	case res.StatusCode == http.StatusNotModified:
		return c.garbled()
	case res.StatusCode >= 300 && res.StatusCode < 400:
		return fault.With(fault.New(fault.Invalid, "%s redirects to another address (status %d)", host, res.StatusCode), "", "correct the generator's api, owner or repository: tokens do not follow redirects")
	case res.StatusCode == http.StatusOK, res.StatusCode == http.StatusNonAuthoritativeInfo:
		return c.garbled()
	}
	return fault.With(fault.New(fault.Offline, "%s answers with status %d", host, res.StatusCode), "", "it is retried automatically")
}

func limitError(host string, until time.Time, wait time.Duration) error {
	return &fault.Error{
		Kind: fault.Offline, RetryAfter: wait,
		Cause: fmt.Sprintf("%s limits requests with this credential until %s", host, until.UTC().Format("15:04:05 UTC")),
		Fix:   "it is retried automatically; raise requeueAfterSeconds, or use a webhook",
	}
}

// explain is a sentence about a request without an answer.
func (c *caller) explain(err error) error {
	host := c.base.Host
	sentence, fix := guard.ExplainProxy(err)
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("request to %s: %w", host, context.Canceled)
	case sentence != "":
		return fault.With(fault.New(fault.Invalid, "%s cannot be reached: %s", host, sentence), "", fix)
	case guard.Blocked(err):
		return fault.With(fault.New(fault.Invalid, "%s is at a loopback, link-local or private address, which the hub does not connect to", host), "",
			"use a public address, or ask the operator of the hub to allow this network")
	case errors.Is(err, context.DeadlineExceeded):
		return fault.With(fault.New(fault.Offline, "%s did not answer in time", host), "", "it is retried automatically")
	}
	return explainTLS(host, err)
}

// explainTLS is a sentence about a connection that was not made.
func explainTLS(host string, err error) error {
	var dns *net.DNSError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &unknown), errors.As(err, &name), errors.As(err, &invalid):
		return fault.With(fault.New(fault.Invalid, "the certificate of %s is not trusted", host), "", "set the generator's caRef, or store the authority's certificate: capstan cert add-tls "+host+" --from ca.crt")
	case errors.As(err, &dns) && dns.IsNotFound:
		return fault.With(fault.New(fault.Offline, "the host name %s cannot be found", host), "", "check the generator's api")
	}
	return fault.With(fault.New(fault.Offline, "%s cannot be reached, or ends its answer early", host), "", "it is retried automatically")
}
