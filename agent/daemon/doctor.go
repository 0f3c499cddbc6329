package daemon

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/capstan-cd/capstan/agent/apply"
	"github.com/capstan-cd/capstan/agent/doctor"
	"github.com/capstan-cd/capstan/agent/inventory"
	"github.com/capstan-cd/capstan/agent/link"
	"github.com/capstan-cd/capstan/agent/upgrade"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/tunnel"
	"github.com/capstan-cd/capstan/shared/version"
)

// Doctor checks, step by step, everything that an agent with this configuration
// needs, and writes a line for each check. It works before enrolment and while
// an agent runs, and changes nothing. The error says only that a check failed.
func Doctor(ctx context.Context, c Config, out io.Writer) error {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	r := doctor.NewReport(out)
	r.OK("agent", "version %s", version.String())
	proxy, err := c.Proxy()
	if err != nil {
		r.Fail("configuration", err)
	}
	hub := doctor.Hub{Proxy: proxy, Dial: c.Dial, Log: c.Log, Version: version.String()}
	id := c.examineCluster(ctx, r, &hub)
	if c.examineIdentity(r, id, &hub) && err == nil {
		hub.Check(ctx, r)
	}
	return r.Err()
}

// examineCluster checks the cluster and returns the identity that is stored
// there.
func (c Config) examineCluster(ctx context.Context, r *doctor.Report, hub *doctor.Hub) link.Identity {
	conf, err := c.rest()
	if err != nil {
		r.Fail("Kubernetes API", err)
		return link.Identity{}
	}
	k, err := connect(conf)
	if err != nil {
		r.Fail("Kubernetes API", err)
		return link.Identity{}
	}
	defer k.http.CloseIdleConnections()
	deployment := ""
	if c.Upgrades {
		deployment = upgrade.Deployment
	}
	hub.Fingerprint = doctor.Cluster{
		Dynamic: k.dynamic, Text: k.api.Text, Namespace: c.Namespace, Secret: inventory.SecretName, Lease: apply.LeaseName,
		Observe: c.Mode == ModeObserve, Namespaces: c.Namespaces, Deployment: deployment,
	}.Check(ctx, r)
	if hub.Fingerprint == "" {
		return link.Identity{}
	}
	secret, err := inventory.OpenSecret(ctx, newVault(k.dynamic, c.Namespace), c.Log)
	if err != nil {
		r.Fail("identity", err)
		return link.Identity{}
	}
	id, err := identities{secret}.Load(ctx)
	if err != nil && fault.KindOf(err) != fault.Missing {
		r.Fail("identity", err)
	}
	return id
}

// examineIdentity finds out how the hub is reached, from the identity or from
// the join token.
func (c Config) examineIdentity(r *doctor.Report, id link.Identity, hub *doctor.Hub) bool {
	if id.Enrolled() {
		return enrolled(r, id, hub)
	}
	text, err := c.token()
	if err != nil {
		r.Fail("join token", err)
		return false
	}
	if text == "" {
		r.Fail("enrolment", fault.With(fault.New(fault.Unknown, "the agent is not enrolled and has no join token"), "", "create one with `capstan cluster enroll NAME`"))
		return false
	}
	token, err := tunnel.ParseJoinToken(text)
	if err != nil {
		r.Fail("join token", err)
		return false
	}
	r.OK("enrolment", "not enrolled yet; the join token leads to %s", token.Addresses[0])
	hub.Addresses, hub.Pins, hub.Token = token.Addresses, []tunnel.Pin{token.Pin}, token.Secret
	return true
}

func enrolled(r *doctor.Report, id link.Identity, hub *doctor.Hub) bool {
	cert, err := id.Certificate()
	if err == nil {
		hub.Pins, err = id.PinnedKeys()
	}
	if err != nil {
		r.Fail("identity", err)
		return false
	}
	hub.Addresses, hub.Certificate, hub.AgentID = id.Addresses, cert, id.AgentID
	until := cert.Leaf.NotAfter.UTC().Format(time.RFC3339)
	if time.Now().After(cert.Leaf.NotAfter) {
		r.Fail("identity", fault.With(fault.New(fault.Unknown, "the certificate of agent %s expired at %s", id.AgentID, until), "", "enrol again with a new join token"))
		return true
	}
	r.OK("identity", "agent %s of cluster %q, certificate until %s", id.AgentID, id.ClusterName, until)
	return true
}
