package link

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// An Identity identifies the agent and its hub. It contains the private key,
// which never leaves the cluster.
type Identity struct {
	AgentID     string   `json:"agentId,omitempty"`
	ClusterName string   `json:"clusterName,omitempty"`
	Addresses   []string `json:"addresses,omitempty"` // of the hub, host:port
	Pins        []string `json:"pins,omitempty"`      // keys of the hub
	Key         []byte   `json:"key,omitempty"`       // PKCS#8, DER
	Chain       [][]byte `json:"chain,omitempty"`     // DER, leaf first; empty: enrolment is not finished
	CA          []byte   `json:"ca,omitempty"`        // DER
	Token       []byte   `json:"token,omitempty"`     // SHA-256 of the join token's secret that made it
}

// String hides the key.
func (Identity) String() string { return "(agent identity)" }

// GoString hides it from %#v too.
func (Identity) GoString() string { return "(agent identity)" }

// LogValue hides it from every log handler.
func (i Identity) LogValue() slog.Value { return slog.StringValue(i.String()) }

// Enrolled reports whether there is a certificate.
func (i Identity) Enrolled() bool { return len(i.Chain) > 0 && len(i.Key) > 0 && i.AgentID != "" }

// Certificate returns the certificate with its key for TLS.
func (i Identity) Certificate() (*tls.Certificate, error) {
	if !i.Enrolled() {
		return nil, fault.With(fault.New(fault.Unknown, "it is not enrolled"), "agent", "give it a join token")
	}
	key, err := parseKey(i.Key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(i.Chain[0])
	if err != nil {
		return nil, fmt.Errorf("read the agent's certificate: %w", err)
	}
	if !key.PublicKey.Equal(leaf.PublicKey) {
		return nil, errors.New("the agent's certificate and key do not belong together")
	}
	return &tls.Certificate{Certificate: i.Chain, PrivateKey: key, Leaf: leaf}, nil
}

// Tenant is the id of the tenant whose agent this is, as its certificate names
// it; empty before it is enrolled.
func (i Identity) Tenant() string {
	if !i.Enrolled() {
		return ""
	}
	leaf, err := x509.ParseCertificate(i.Chain[0])
	if err != nil {
		return ""
	}
	peer, err := tunnel.ParsePeer(leaf)
	if err != nil {
		return ""
	}
	return peer.Tenant
}

// PinnedKeys returns the keys of which the hub must prove one.
func (i Identity) PinnedKeys() ([]tunnel.Pin, error) {
	var out []tunnel.Pin
	for _, text := range i.Pins {
		p, err := tunnel.ParsePin(text)
		if err != nil {
			return nil, fmt.Errorf("read the hub's pin: %w", err)
		}
		out = append(out, p)
	}
	if len(out) == 0 {
		return nil, errors.New("the agent's identity has no pin of the hub")
	}
	return out, nil
}

// with returns the identity with a certificate that the hub issued for its key.
func (i Identity) with(chain [][]byte, ca []byte) (Identity, error) {
	i.Chain, i.CA = chain, ca
	_, err := i.Certificate()
	return i, err
}

// renewAt is when a certificate should be renewed: after half its lifetime,
// plus or minus a quarter, so that a fleet that enrolled together does not
// renew together. random is in [0, 1).
func renewAt(c *x509.Certificate, random float64) time.Time {
	life := c.NotAfter.Sub(c.NotBefore)
	return c.NotBefore.Add(lifecycle.Spread(life/2, 0.25, random))
}

func newKey() ([]byte, error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	return der, nil
}

// errKey does not contain the stored text, which is a private key.
var errKey = errors.New("the agent's stored key is damaged")

func parseKey(der []byte) (*ecdsa.PrivateKey, error) {
	k, err := x509.ParsePKCS8PrivateKey(der)
	key, ok := k.(*ecdsa.PrivateKey)
	if err != nil || !ok {
		return nil, errKey
	}
	return key, nil
}

// newCSR creates a certificate request. The hub uses only its key.
func newCSR(keyDER []byte) ([]byte, error) {
	key, err := parseKey(keyDER)
	if err != nil {
		return nil, err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "Capstan agent"}}, key)
	if err != nil {
		return nil, fmt.Errorf("create a certificate request: %w", err)
	}
	return csr, nil
}
