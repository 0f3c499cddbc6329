package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A Client calls the operations of one hub. Its generated methods return the
// response as it came; the caller reads and closes the body.
type Client struct {
	server string      // without a slash at its end
	header http.Header // of every request
	http   *http.Client
}

// New returns a client of the hub at the URL server. The header is sent with every
// request.
func New(server string, header http.Header) *Client {
	c := &Client{server: strings.TrimSuffix(server, "/"), header: header}
	return c.Through(http.DefaultClient)
}

// Through has requests sent by another HTTP client. It follows redirects within
// the hub alone.
func (c *Client) Through(h *http.Client) *Client {
	own := *h
	own.CheckRedirect = stay
	c.http = &own
	return c
}

// maxRedirects is how many one request follows.
const maxRedirects = 5

// stay refuses a redirect to another server, and one from https to http: each
// request has a token, and may have headers that are secret.
func stay(r *http.Request, via []*http.Request) error {
	from, to := via[0].URL, r.URL
	secured := from.Scheme == "http" && to.Scheme == "https" && from.Hostname() == to.Hostname()
	if !secured && (from.Scheme != to.Scheme || from.Host != to.Host) || len(via) > maxRedirects {
		return fault.With(fault.New(fault.Invalid, "the hub redirects to %s://%s", to.Scheme, to.Host), "", "set --server to the address of the hub itself")
	}
	return nil
}

// A Raw is a request body that is not generated from a model.
type Raw struct {
	ContentType string
	Content     io.Reader
}

// A request is one call of an operation, while its parameters are collected.
type request struct {
	method, url string
	query       url.Values
	header      http.Header
	http        *http.Client
}

// request starts a request. Each {parameter} of the path is replaced by the escaped
// value at its place.
func (c *Client) request(method, path string, values ...string) request {
	var target strings.Builder
	target.WriteString(c.server)
	for _, v := range values {
		before, rest, _ := strings.Cut(path, "{")
		_, after, _ := strings.Cut(rest, "}")
		target.WriteString(before + url.PathEscape(v))
		path = after
	}
	target.WriteString(path)
	header := c.header.Clone()
	if header == nil {
		header = http.Header{}
	}
	return request{method: method, url: target.String(), query: url.Values{}, header: header, http: c.http}
}

// Socket is what a WebSocket is opened with: its address, header and client.
func (c *Client) Socket(query url.Values, path string, values ...string) (address string, header http.Header, by *http.Client) {
	r := c.request(http.MethodGet, path, values...)
	return r.url + "?" + query.Encode(), r.header, c.http
}

// add adds an optional parameter, unless it has the zero value. A list is sent as
// one parameter for each element.
func (r request) add(name string, value any) {
	v := reflect.ValueOf(value)
	at, moment := value.(time.Time)
	switch {
	case v.IsZero():
	case moment:
		r.query.Add(name, at.UTC().Format(time.RFC3339Nano))
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			r.query.Add(name, fmt.Sprint(v.Index(i)))
		}
	default:
		r.query.Add(name, fmt.Sprint(reflect.Indirect(v)))
	}
}

// setHeader sets an optional header, unless it is empty.
func (r request) setHeader(name, value string) {
	if value != "" {
		r.header.Set(name, value)
	}
}

// send sends the request. A body is nil, a Raw, or a model that is sent as JSON.
func (r request) send(ctx context.Context, body any) (*http.Response, error) {
	raw, given := body.(Raw)
	if body != nil && !given {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		raw = Raw{ContentType: "application/json", Content: bytes.NewReader(encoded)}
	}
	target := r.url
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	out, err := http.NewRequestWithContext(ctx, r.method, target, raw.Content)
	if err != nil {
		return nil, err
	}
	if raw.ContentType != "" {
		r.header.Set("Content-Type", raw.ContentType)
	}
	out.Header = r.header
	return r.http.Do(out)
}
