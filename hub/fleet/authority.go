package fleet

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

const (
	rootLife  = 20 * 365 * 24 * time.Hour
	hubLife   = 365 * 24 * time.Hour // agents pin the key: this date matters to browsers only
	agentLife = 7 * 24 * time.Hour
	backdate  = time.Hour // clocks of clusters are wrong now and then
)

// An Authority is the installation's private certificate authority together
// with the key of the hub itself. Agents pin that key, so it is generated once.
type Authority struct {
	clock   lifecycle.Clock
	names   []string
	root    *x509.Certificate
	rootKey *ecdsa.PrivateKey
	hubKey  *ecdsa.PrivateKey

	mu     sync.Mutex
	server *tls.Certificate // replaced after half its lifetime
}

// OpenAuthority loads the authority, or makes it if the installation has
// none. names are the host names and addresses that the hub's certificate
// carries for browsers; they may be empty.
func OpenAuthority(ctx context.Context, v Vault, clock lifecycle.Clock, names []string) (*Authority, error) {
	secret, err := v.Authority(ctx)
	if fault.KindOf(err) == fault.Missing {
		secret, err = createAuthority(ctx, v, clock)
	}
	if err != nil {
		return nil, fmt.Errorf("open the private authority: %w", err)
	}
	a, err := decodeAuthority(secret)
	if err != nil {
		return nil, fmt.Errorf("open the private authority: %w", err)
	}
	a.clock, a.names = clock, names
	return a, nil
}

// createAuthority generates and stores one, or loads that of a replica that was
// faster.
func createAuthority(ctx context.Context, v Vault, clock lifecycle.Clock) ([]byte, error) {
	secret, err := newAuthority(clock.Now())
	if err != nil {
		return nil, err
	}
	err = v.PutAuthority(ctx, secret)
	if fault.KindOf(err) == fault.Conflict {
		return v.Authority(ctx)
	}
	return secret, err
}

func newAuthority(now time.Time) ([]byte, error) {
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	hubKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	root := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "Capstan private authority"},
		NotBefore:    now.Add(-backdate), NotAfter: now.Add(rootLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, rootKey.Public(), rootKey)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	blocks := []*pem.Block{{Type: "CERTIFICATE", Bytes: der}}
	for _, k := range []*ecdsa.PrivateKey{rootKey, hubKey} {
		b, err := x509.MarshalPKCS8PrivateKey(k)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, &pem.Block{Type: "PRIVATE KEY", Bytes: b})
	}
	for _, b := range blocks {
		if err := pem.Encode(&out, b); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// errDamaged says nothing of the content: it is made of keys.
var errDamaged = errors.New("what is stored is damaged")

func decodeAuthority(secret []byte) (*Authority, error) {
	var blocks []*pem.Block
	for b, rest := pem.Decode(secret); b != nil; b, rest = pem.Decode(rest) {
		blocks = append(blocks, b)
	}
	if len(blocks) != 3 {
		return nil, errDamaged
	}
	root, err := x509.ParseCertificate(blocks[0].Bytes)
	if err != nil {
		return nil, errDamaged
	}
	var keys []*ecdsa.PrivateKey
	for _, b := range blocks[1:] {
		k, err := x509.ParsePKCS8PrivateKey(b.Bytes)
		key, ok := k.(*ecdsa.PrivateKey)
		if err != nil || !ok {
			return nil, errDamaged
		}
		keys = append(keys, key)
	}
	if !keys[0].PublicKey.Equal(root.PublicKey) {
		return nil, errDamaged
	}
	return &Authority{root: root, rootKey: keys[0], hubKey: keys[1]}, nil
}

// Root is the authority's certificate, DER.
func (a *Authority) Root() []byte { return a.root.Raw }

// Pin identifies the hub for agents. It stays for the life of the installation.
func (a *Authority) Pin() (tunnel.Pin, error) {
	c, err := a.Certificate()
	if err != nil {
		return tunnel.Pin{}, err
	}
	return tunnel.PinOf(c.Leaf), nil
}

// Certificate is the hub's own, for agents and, without another one in the
// configuration, for browsers.
func (a *Authority) Certificate() (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	if a.server != nil && now.Before(a.server.Leaf.NotAfter.Add(-hubLife/2)) {
		return a.server, nil
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "Capstan hub"},
		NotBefore:    now.Add(-backdate), NotAfter: now.Add(hubLife),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, n := range a.names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, n)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, a.hubKey.Public(), a.rootKey)
	if err != nil {
		return nil, fmt.Errorf("issue the hub's certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("issue the hub's certificate: %w", err)
	}
	a.server = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.hubKey, Leaf: leaf}
	return a.server, nil
}

// TLS is the configuration of the link: TLS 1.3, the hub's key, and an optional
// client certificate. An invalid one is accepted in the handshake and then
// ignored, so that its owner can be told why.
func (a *Authority) TLS() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             tls.RequestClientCert,
		SessionTicketsDisabled: true, // each connection proves its key again
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.Certificate() },
	}
}

// identify returns the agent that a certificate names, and until when it may.
func (a *Authority) identify(certs []*x509.Certificate) (tunnel.Peer, time.Time, error) {
	if len(certs) == 0 {
		return tunnel.Peer{}, time.Time{}, fault.With(fault.New(fault.Unknown, "no client certificate was presented"), "", "enrol with a join token")
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.root)
	leaf := certs[0]
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: a.clock.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return tunnel.Peer{}, time.Time{}, fault.With(
			fault.New(fault.Unknown, "the agent's certificate was good from %s to %s; the hub's time is %s",
				leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339), a.clock.Now().UTC().Format(time.RFC3339)),
			"", "enrol again with a new join token")
	}
	if err != nil {
		return tunnel.Peer{}, time.Time{}, fault.With(
			fault.Wrap(fault.Unknown, err, "the client certificate was not issued to an agent by this hub"), "", "enrol with a join token of this hub")
	}
	p, err := tunnel.ParsePeer(leaf)
	if err == nil && (!hub.ValidID(p.Tenant) || !hub.ValidID(p.Cluster) || !hub.ValidID(p.AgentID)) {
		err = fault.New(fault.Unknown, "the client certificate does not name an agent")
	}
	return p, leaf.NotAfter, err
}

// issue signs a certificate for an agent's key.
func (a *Authority) issue(p tunnel.Peer, key *ecdsa.PublicKey) ([][]byte, hub.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, hub.Certificate{}, err
	}
	now := a.clock.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "Capstan agent"},
		NotBefore:    now.Add(-backdate), NotAfter: now.Add(agentLife),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	template.URIs = append(template.URIs, p.URI())
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, key, a.rootKey)
	if err != nil {
		return nil, hub.Certificate{}, fmt.Errorf("issue a certificate for agent %q: %w", p.AgentID, err)
	}
	return [][]byte{der}, hub.Certificate{
		Tenant: hub.TenantID(p.Tenant), Cluster: hub.ClusterID(p.Cluster), AgentID: p.AgentID,
		Serial: serial.Text(16), NotBefore: template.NotBefore, NotAfter: template.NotAfter,
	}, nil
}

// sign makes a keyed hash over a revocation. The key follows from the
// authority's own, which every backup of the hub has.
func (a *Authority) sign(tenant hub.TenantID, agent string, until int64) []byte {
	key := sha256.Sum256(append([]byte("capstan revocation proof v1"), a.rootKey.D.Bytes()...)) //nolint:staticcheck // a secret that never changes is what is wanted
	h := hmac.New(sha256.New, key[:])
	_, _ = fmt.Fprintf(h, "%s\x00%s\x00%d", tenant, agent, until)
	return h.Sum(nil)
}

// newSerial returns 127 random bits.
func newSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	return n.Add(n, big.NewInt(1)), nil
}
