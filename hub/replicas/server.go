package replicas

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	replicav1 "github.com/capstan-cd/capstan/proto/replica/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// Serve answers other replicas until ctx ends, then returns nil.
func (r *Replicas) Serve(ctx context.Context, ln net.Listener) error {
	s := tunnel.NewPeerServer(r.cfg.Server, r.pass)
	replicav1.RegisterReplicaServer(s, &server{r: r})
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(ended); s.Stop() })
	err := s.Serve(ln)
	if stop() { // Serve failed by itself
		s.Stop()
		return err
	}
	<-ended
	return nil
}

// server answers what replicas ask each other.
type server struct {
	replicav1.UnimplementedReplicaServer
	r *Replicas
}

// Hint handles a notification.
func (s *server) Hint(_ context.Context, req *replicav1.HintRequest) (*replicav1.HintResponse, error) {
	h := Notice{Work: req.GetWork(), Revoked: req.GetRevoked()}
	for _, c := range req.GetClusters() {
		h.Clusters = append(h.Clusters, hub.ClusterID(c))
	}
	for _, t := range req.GetTenants() {
		h.Tenants = append(h.Tenants, hub.TenantID(t))
	}
	for _, t := range req.GetCredentials() {
		h.Credentials = append(h.Credentials, hub.TenantID(t))
	}
	s.r.cfg.Heard(h)
	return &replicav1.HintResponse{}, nil
}

// passes reports whether a call is of the services of agents that other replicas
// may call.
func passes(method string) bool {
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	switch service {
	case linkv1.Ops_ServiceDesc.ServiceName, linkv1.Acts_ServiceDesc.ServiceName, linkv1.Live_ServiceDesc.ServiceName, linkv1.Remote_ServiceDesc.ServiceName:
		return true
	}
	return false
}

// pass forwards a call to an agent of this replica. It never forwards to a
// third replica: the caller reads the placement again.
func (r *Replicas) pass(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	if !passes(method) {
		return tunnel.Status(fault.New(fault.Invalid, "replicas pass no calls of %q on", method))
	}
	md, _ := metadata.FromIncomingContext(stream.Context())
	conn, tenant, _, ok := r.cfg.Agents.Holds(hub.ClusterID(only(md, clusterKey)))
	if !ok || string(tenant) != only(md, tenantKey) {
		return tunnel.Status(tunnel.NotHere("the agent is not attached to this replica"))
	}
	return tunnel.Status(tunnel.Pass(stream, method, conn))
}

// only returns the value of a key that has exactly one.
func only(md metadata.MD, key string) string {
	if v := md.Get(key); len(v) == 1 {
		return v[0]
	}
	return ""
}

// URI is the name of a replica in its certificate.
func URI(id string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: "capstan", Path: "/replica/" + id}
}

// TLS says how replicas prove themselves to each other: certificates of the
// private authority that name a replica. Those of agents, which are of the
// same authority, do not. certificate is asked at each handshake.
func TLS(root *x509.Certificate, certificate func() (*tls.Certificate, error)) (server, client *tls.Config) {
	roots := x509.NewCertPool()
	roots.AddCert(root)
	server = &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots, NextProtos: []string{"h2"},
		SessionTicketsDisabled: true,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate() },
		VerifyConnection: func(cs tls.ConnectionState) error {
			_, err := nameOf(cs)
			return err
		},
	}
	client = &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots, NextProtos: []string{"h2"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate() },
		// Host names mean nothing between replicas; clientFor says what does.
		InsecureSkipVerify: true, //nolint:gosec // replaced by VerifyConnection
		VerifyConnection:   func(tls.ConnectionState) error { return errStranger() },
	}
	return server, client
}

// clientFor connects to the one replica of that id only.
func clientFor(base *tls.Config, id string) *tls.Config {
	c := base.Clone()
	c.ServerName = "replica"
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) == 0 {
			return errStranger()
		}
		_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: base.RootCAs, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
		if err != nil {
			return err
		}
		name, err := nameOf(cs)
		if err == nil && name != id {
			return fault.New(fault.Unknown, "another replica answers at the address of %s", id)
		}
		return err
	}
	return c
}

// nameOf returns the replica that a certificate names.
func nameOf(cs tls.ConnectionState) (string, error) {
	if len(cs.PeerCertificates) == 0 || len(cs.PeerCertificates[0].URIs) != 1 {
		return "", errStranger()
	}
	u := cs.PeerCertificates[0].URIs[0]
	id, ok := strings.CutPrefix(u.Path, "/replica/")
	if !ok || id == "" || URI(id).String() != u.String() {
		return "", errStranger()
	}
	return id, nil
}

func errStranger() error { return fault.New(fault.Unknown, "the certificate is not that of a replica") }
