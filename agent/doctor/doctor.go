// Package doctor diagnoses an agent that does not work. It checks the
// connections to cluster and hub step by step, and prints one line per check
// with the finding and the fix. It changes nothing: it does not enrol, uses no
// token and replaces no running agent. agent/daemon runs it for `capstan-agent
// doctor`. No line contains a secret.
package doctor

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"
	"unicode"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

const (
	callTime = 20 * time.Second
	mostSkew = 2 * time.Minute // between the clocks of agent and hub
)

// A Report contains the findings so far.
type Report struct {
	out    io.Writer
	failed int
}

// NewReport makes a report that writes each line at once.
func NewReport(out io.Writer) *Report { return &Report{out: out} }

// Failed is the number of failed checks.
func (r *Report) Failed() int { return r.failed }

// Err reports the number of failed checks; nil: none.
func (r *Report) Err() error {
	switch r.failed {
	case 0:
		return nil
	case 1:
		return fault.New(fault.Invalid, "1 check failed")
	}
	return fault.New(fault.Invalid, "%d checks failed", r.failed)
}

// OK reports a successful check.
func (r *Report) OK(check, format string, args ...any) {
	r.line("ok", check, fmt.Sprintf(format, args...))
}

// Warn reports something that may be intended.
func (r *Report) Warn(check, format string, args ...any) {
	r.line("warn", check, fmt.Sprintf(format, args...))
}

// Skip reports a check that was not possible because of an earlier one.
func (r *Report) Skip(check, format string, args ...any) {
	r.line("skip", check, fmt.Sprintf(format, args...))
}

// Fail reports a failed check, with what to do.
func (r *Report) Fail(check string, err error) {
	r.failed++
	text := err.Error()
	if f, ok := fault.As(err); ok && f.Kind != fault.Internal {
		text = fault.Sentence(err)
	}
	r.line("FAIL", check, text)
}

// line writes one line, also for a text with line breaks.
func (r *Report) line(mark, check, text string) {
	text = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, text)
	_, _ = fmt.Fprintf(r.out, "%-4s  %-14s  %s\n", mark, check, text)
}

// A Hub is what the agent's identity or a join token contains about its hub.
type Hub struct {
	Addresses []string
	Pins      []tunnel.Pin
	// Certificate is the agent's; nil before enrolment.
	Certificate *tls.Certificate
	// Token is the secret of a join token, before enrolment.
	Token tunnel.Secret
	// AgentID, Fingerprint and Version are those of Hello.
	AgentID, Fingerprint, Version string
	// Proxy describes the proxies in between.
	Proxy tunnel.ProxyConfig
	// Dial opens connections; nil: TCP.
	Dial tunnel.Dialer
	Log  *slog.Logger
}

// Check checks the connection to each of the hub's addresses.
func (h Hub) Check(ctx context.Context, r *Report) {
	for _, address := range h.Addresses {
		if len(h.Addresses) > 1 {
			r.OK("hub address", "%s", address)
		}
		h.checkAddress(ctx, r, address)
	}
}

func (h Hub) checkAddress(ctx context.Context, r *Report, address string) {
	if h.Dial == nil && h.Proxy.Proxy.For(address) == nil && !resolve(ctx, r, address) {
		return
	}
	var steps []tunnel.Step
	session, err := tunnel.Dial(ctx, address, tunnel.DialConfig{
		Lane: tunnel.Control(), Pins: h.Pins, Certificate: h.Certificate, Proxy: h.Proxy, Dial: h.Dial, Log: h.Log, Clock: lifecycle.System{},
		Trace: func(s tunnel.Step) { steps = append(steps, s) },
	})
	r.steps(address, steps, err)
	if err != nil {
		return
	}
	defer session.Close(errDone)
	h.greet(ctx, r, session)
}

// steps reports those of a dial. A failed step is only a warning if another
// carrier succeeded.
func (r *Report) steps(address string, steps []tunnel.Step, dial error) {
	var printed bool
	for _, s := range steps {
		switch {
		case s.Err == nil:
			r.OK(s.Name, "%s", s.Detail)
		case dial == nil:
			r.Warn(s.Name, "%s; another carrier is tried", fault.Sentence(s.Err))
		default:
			r.Fail(s.Name, fault.With(s.Err, address, ""))
			printed = true
		}
	}
	if dial != nil && !printed {
		r.Fail("link", dial)
	}
}

var errDone = fault.New(fault.Offline, "the check is over")

func resolve(ctx context.Context, r *Report, address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	found, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		r.Fail("name", fault.With(fault.Wrap(fault.Offline, err, "the name of the hub, %s, cannot be resolved", host),
			"", "check the cluster's DNS, or set HTTPS_PROXY if only a proxy resolves names"))
		return false
	}
	r.OK("name", "%s is %s", host, strings.Join(found, ", "))
	return true
}

// greet checks whether the hub would admit this agent.
func (h Hub) greet(ctx context.Context, r *Report, session *tunnel.Session) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	conn, err := session.Conn()
	if err != nil {
		r.Fail("hub", err)
		return
	}
	if h.Certificate == nil {
		res, err := linkv1.NewIdentityClient(conn).Enroll(ctx, &linkv1.EnrollRequest{
			Token: string(h.Token), Fingerprint: h.Fingerprint, AgentVersion: h.Version, Probe: true,
		})
		if err != nil {
			r.Fail("join token", err)
			return
		}
		r.OK("join token", "good for cluster %q, and not used yet", res.GetClusterName())
		return
	}
	sent := time.Now()
	res, err := linkv1.NewSessionClient(conn).Hello(ctx, &linkv1.HelloRequest{
		AgentId: h.AgentID, AgentVersion: h.Version, Epoch: "doctor", Fingerprint: h.Fingerprint, Probe: true,
	})
	if err != nil {
		r.Fail("hub", err)
		return
	}
	trip := time.Since(sent)
	r.OK("hub", "version %s lets this agent in as cluster %q; round trip %s", res.GetHubVersion(), res.GetClusterName(), trip.Round(time.Millisecond))
	if skew := time.Since(time.Unix(0, res.GetNowUnixNano())) - trip/2; skew.Abs() > mostSkew {
		r.Warn("clock", "this clock differs from the hub's by %s; the agent uses the hub's, but certificates are checked against this one", skew.Round(time.Second))
	}
}
