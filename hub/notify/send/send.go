// Package send delivers messages to services of notifications: one file for each
// type of service, by the protocol that the service publishes. It decides
// nothing and stores nothing: hub/notify/stage calls it once for each attempt.
//
// What always holds: every connection goes through hub/source/guard, so a tenant
// reaches no address of the operator's own network. A redirect is not followed,
// so no credential reaches another host. What is recorded of an attempt has none
// of the tenant's secrets. A service acts with the credentials of the tenant,
// never with those of the hub's machine.
package send

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/notify"
	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Config is what all services need.
type Config struct {
	Allowed []netip.Prefix // internal networks that may be reached nevertheless
	// Authorities returns certificates in PEM that a tenant trusts for a host;
	// empty: those of the machine.
	Authorities func(ctx context.Context, tenant hub.TenantID, host string) (string, error)
	Threads
}

// Threads remember where conversations began, by service, recipient and key.
type Threads interface {
	Thread(ctx context.Context, tenant hub.TenantID, t hub.Thread) (hub.Thread, error)
	PutThread(ctx context.Context, tenant hub.TenantID, t hub.Thread) error
}

// A Letter is one message for one recipient.
type Letter struct {
	Tenant    hub.TenantID
	ID        hub.DeliveryID // the same in all attempts
	Service   notify.Service // with the values of secrets in its options
	Secrets   []string       // values that are not recorded
	Message   notify.Message
	Recipient string
	At        time.Time // when it was decided that the message is sent
}

// A Failure says whether a message may be sent once more.
type Failure struct {
	Permanent  bool
	RetryAfter time.Duration // 0: the service does not say
	Err        error
}

// Error is a sentence without secrets.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns the reason.
func (f *Failure) Unwrap() error { return f.Err }

const (
	timeout   = 15 * time.Second // of one attempt
	maxAnswer = 16 << 10         // bytes of an answer that are read
	maxRecord = 16 << 10         // bytes of a request that are recorded
)

// A call is one attempt.
type call struct {
	Config
	Letter
	ctx     context.Context //nolint:containedctx // of this one attempt
	attempt *hub.DeliveryAttempt
	mask    *strings.Replacer
	close   []func()
}

// Send delivers a letter, and returns what was sent and answered. The error of an
// attempt that failed is a *Failure.
func Send(ctx context.Context, cfg Config, l Letter) (hub.DeliveryAttempt, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	begun := time.Now()
	c := &call{Config: cfg, Letter: l, ctx: ctx, attempt: &hub.DeliveryAttempt{At: begun}, mask: notify.Mask(l.Secrets)}
	defer func() {
		for _, end := range c.close {
			end()
		}
	}()
	err := c.deliver()
	c.attempt.TookMS = time.Since(begun).Milliseconds()
	if err != nil {
		var f *Failure
		if !errors.As(err, &f) {
			f = &Failure{Permanent: permanent(err), Err: err}
		}
		c.attempt.Error = c.mask.Replace(sentence(f.Err))
		return *c.attempt, f
	}
	return *c.attempt, nil
}

// permanent reports whether the same message would fail in the same way again.
func permanent(err error) bool {
	kind := fault.KindOf(err)
	return guard.Blocked(err) || kind == fault.Invalid || kind == fault.Denied || kind == fault.Missing
}

// sentence is what people may read of an error.
func sentence(err error) string {
	if _, ok := fault.As(err); ok {
		return fault.Sentence(err)
	}
	var dns *net.DNSError
	var network *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded) || isTimeout(err):
		return "the service did not answer in time"
	case guard.Blocked(err):
		return "the address of the service is not allowed: it is in the operator's own network"
	case errors.As(err, &dns):
		return "the name of the service's host cannot be resolved"
	case errors.As(err, &network):
		return "the service cannot be reached: " + network.Op + " " + rootCause(network)
	}
	return "the service cannot be used: " + rootCause(err)
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

func rootCause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

func invalid(format string, args ...any) error { return fault.New(fault.Invalid, format, args...) }

// options reads the options of the service.
func (c *call) options(into any) error {
	if err := json.Unmarshal(c.Service.Options, into); err != nil {
		return invalid("the options of the service %s cannot be read: %s", c.Service.Name, rootCause(err))
	}
	return nil
}

// part reads the part of the message for the type of the service; there may be
// none.
func (c *call) part(into any) (found bool, err error) {
	part, ok := c.Message[c.Service.Type]
	if !ok || part == nil {
		return false, nil
	}
	text, err := json.Marshal(part)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return false, invalid("the part %s of the template cannot be read: %s", c.Service.Type, rootCause(err))
	}
	return true, nil
}

// text is the message for people.
func (c *call) text() string {
	s, _ := c.Message["message"].(string)
	return s
}

// A request is one that is sent to a service.
type request struct {
	method, url string
	header      map[string]string
	user        *url.Userinfo
	body        any  // a string is sent as it is, anything else as JSON
	insecure    bool // any certificate is accepted
}

// A response is what a service answered.
type response struct {
	status int
	body   []byte
}

// do sends a request. An answer that is none of success is an error.
func (c *call) do(r request) (response, error) {
	u, err := url.Parse(r.url)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return response{}, invalid("the address of the service %s is none of http or https", c.Service.Name)
	}
	body, kind, err := encode(r.body)
	if err != nil {
		return response{}, err
	}
	client, err := c.client(u.Hostname(), r.insecure)
	if err != nil {
		return response{}, err
	}
	req, err := http.NewRequestWithContext(c.ctx, r.method, r.url, strings.NewReader(body))
	if err != nil {
		return response{}, invalid("the request cannot be made: %s", rootCause(err))
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	req.Header.Set("User-Agent", "capstan")
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	if r.user != nil {
		password, _ := r.user.Password()
		req.SetBasicAuth(r.user.Username(), password)
	}
	c.record(r.method+" "+u.Scheme+"://"+u.Host+c.path(u), body)
	res, err := client.Do(req)
	if err != nil {
		return response{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	c.attempt.Status, c.attempt.Answer = res.StatusCode, c.mask.Replace(strings.ToValidUTF8(string(text), "�"))
	if err != nil {
		return response{}, err
	}
	return response{res.StatusCode, text}, checkStatus(res)
}

// path is the path of an address, which may itself be a secret that is nowhere
// else: only its length is recorded then.
func (c *call) path(u *url.URL) string {
	switch c.Service.Type {
	case "teams", "teams-workflows", "googlechat", "webhook", "telegram":
		return "/…"
	}
	return c.mask.Replace(u.EscapedPath())
}

func encode(body any) (text, kind string, err error) {
	switch b := body.(type) {
	case nil:
		return "", "", nil
	case string:
		return b, "", nil
	case url.Values:
		return b.Encode(), "application/x-www-form-urlencoded", nil
	}
	out, err := json.Marshal(body)
	if err != nil {
		return "", "", invalid("the message cannot be written as JSON: %s", rootCause(err))
	}
	return string(out), "application/json", nil
}

// checkStatus turns the status of an answer into what it means for the message.
func checkStatus(res *http.Response) error {
	status := res.StatusCode
	if status >= 200 && status < 300 {
		return nil
	}
	f := &Failure{Err: fault.New(fault.Offline, "the service answered %d %s", status, http.StatusText(status))}
	f.RetryAfter = retryAfter(res.Header.Get("Retry-After"))
	switch {
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status == http.StatusTooEarly || status >= 500:
	case status >= 300 && status < 400:
		f.Permanent, f.Err = true, invalid("the service answered %d, and redirects are not followed: set its present address", status)
	default:
		f.Permanent = true
	}
	return f
}

// retryAfter reads the header, of seconds or of a date.
func retryAfter(value string) time.Duration {
	if n, err := strconv.Atoi(value); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// client is one whose connections go through the guard, and which follows no
// redirect.
func (c *call) client(host string, insecure bool) (*http.Client, error) {
	authorities, err := c.Authorities(c.ctx, c.Tenant, host)
	if err != nil {
		return nil, err
	}
	client, err := guard.Client(c.Allowed, authorities, insecure)
	if err != nil {
		return nil, invalid("the certificates for %s cannot be read", host)
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.close = append(c.close, client.CloseIdleConnections)
	return client, nil
}

// record notes a request.
func (c *call) record(head, body string) {
	text := c.mask.Replace(head + "\n" + body)
	if len(text) > maxRecord {
		text = strings.ToValidUTF8(text[:maxRecord], "") + "…"
	}
	c.attempt.Requests = append(c.attempt.Requests, strings.TrimSpace(text))
}

// post sends JSON.
func (c *call) post(address string, header map[string]string, body any, insecure bool) (response, error) {
	return c.do(request{method: http.MethodPost, url: address, header: header, body: body, insecure: insecure})
}

// bearer is the header of a token.
func bearer(token string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + token}
}

// raw reads JSON that a template has made; empty: there is none.
func raw(what, text string) (json.RawMessage, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if !json.Valid([]byte(text)) {
		var v any
		err := json.Unmarshal([]byte(text), &v)
		return nil, invalid("%s of the template is not valid JSON: %s", what, rootCause(err))
	}
	return json.RawMessage(text), nil
}

// choose returns what is set for the recipient.
func choose(what string, all map[string]string, recipient string) (string, error) {
	if v := all[recipient]; v != "" {
		return v, nil
	}
	return "", fault.With(invalid("the service has no %s for the recipient %q", what, recipient), "", "add it to the options of the service")
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func base(address, otherwise string) string { return strings.TrimSuffix(or(address, otherwise), "/") }

// clip cuts a text to a number of characters.
func clip(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most-1]) + "…"
}

// deliver sends the letter to its service.
func (c *call) deliver() error {
	services := map[string]func(*call) error{
		"alertmanager": (*call).alertmanager, "awssqs": (*call).sqs, "email": (*call).email, "gcppubsub": (*call).pubsub, "github": (*call).github,
		"googlechat": (*call).googleChat, "grafana": (*call).grafana, "mattermost": (*call).mattermost, "nats": (*call).nats, "newrelic": (*call).newRelic,
		"opsgenie": (*call).opsgenie, "pagerduty": (*call).pagerDuty, "pagerdutyv2": (*call).pagerDutyEvent, "pushover": (*call).pushover,
		"rocketchat": (*call).rocketChat, "slack": (*call).slack, "teams": (*call).teams, "teams-workflows": (*call).teamsWorkflows,
		"telegram": (*call).telegram, "webex": (*call).webex, "webhook": (*call).webhook,
	}
	do, ok := services[c.Service.Type]
	if !ok {
		return invalid("there is no service of the type %q", c.Service.Type)
	}
	if err := do(c); err != nil {
		return fmt.Errorf("service %s: %w", c.Service.Name, err)
	}
	return nil
}
