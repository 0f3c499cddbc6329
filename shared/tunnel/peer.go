package tunnel

import (
	"context"
	"crypto/x509"
	"net/url"
	"strings"

	"google.golang.org/grpc/peer"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A Peer is the agent that a client certificate names. No message can change
// it.
type Peer struct {
	Tenant  string
	Cluster string
	AgentID string
	Serial  string // of the certificate, lower-case hexadecimal
}

// URI is the name of the agent in a certificate.
func (p Peer) URI() *url.URL {
	return &url.URL{
		Scheme: "spiffe", Host: "capstan",
		Path: "/tenant/" + p.Tenant + "/cluster/" + p.Cluster + "/agent/" + p.AgentID,
	}
}

// ParsePeer reads the agent from a certificate that was verified. The
// certificate names exactly one.
func ParsePeer(c *x509.Certificate) (Peer, error) {
	if len(c.URIs) != 1 {
		return Peer{}, fault.New(fault.Unknown, "the client certificate names %d agents instead of one", len(c.URIs))
	}
	u := c.URIs[0]
	part := strings.Split(u.Path, "/")
	p := Peer{Serial: Serial(c)}
	if len(part) == 7 {
		p.Tenant, p.Cluster, p.AgentID = part[2], part[4], part[6]
	}
	// The canonical text must be the same: no escapes, queries or empty parts.
	if p.Tenant == "" || p.Cluster == "" || p.AgentID == "" || p.URI().String() != u.String() {
		return Peer{}, fault.New(fault.Unknown, "the client certificate does not name an agent")
	}
	return p, nil
}

// Serial is the text form of a certificate's serial number.
func Serial(c *x509.Certificate) string { return c.SerialNumber.Text(16) }

// PeerFrom returns the agent at the other end of a call. It is false if the
// connection has no accepted certificate.
func PeerFrom(ctx context.Context) (Peer, bool) {
	s, ok := SessionFrom(ctx)
	if !ok {
		return Peer{}, false
	}
	return s.Peer()
}

// SessionFrom returns the session that a call came in on.
func SessionFrom(ctx context.Context) (*Session, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, false
	}
	info, ok := p.AuthInfo.(sessionInfo)
	return info.session, ok
}
