package git_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// authorities are what one tenant has stored, by host.
type authorities struct {
	gittest.NoCredentials
	of map[string]string
}

func (a authorities) Authorities(_ context.Context, _ hub.TenantID, host string) (string, error) {
	return a.of[host], nil
}

// mirrorsTrusting makes mirrors of a tenant that has stored authorities.
func mirrorsTrusting(t *testing.T, of map[string]string) *git.Mirrors {
	t.Helper()
	cfg := git.Config{Dir: t.TempDir(), AllowedNetworks: gittest.Loopback(), ListTimeout: gittest.AnswerTimeout}
	m, err := git.New(cfg, authorities{of: of}, lifecycle.System{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gittest.CloseMirrors(t, m) })
	return m
}

// keyPair makes a certificate that signs itself, and its key, in PEM.
func keyPair(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "capstan"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return inPEM("CERTIFICATE", der), inPEM("PRIVATE KEY", raw)
}

func inPEM(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func TestAuthoritiesOfTenants(t *testing.T) {
	t.Parallel()
	s := gittest.Start(t, (*httptest.Server).StartTLS)
	origin := s.Repo("app")
	origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	repo := origin.Hub()
	own := inPEM("CERTIFICATE", s.HTTP.Certificate().Raw)
	other, _ := keyPair(t)
	for name, c := range map[string]struct {
		of   map[string]string
		says string
	}{
		"CRED-08 a certificate that the tenant has stored for the host is taken": {map[string]string{"127.0.0.1": own}, ""},
		"CRED-08 several of them": {map[string]string{"127.0.0.1": other + own}, ""},
		"CRED-08 one that is stored for another host counts for nothing": {map[string]string{"git.example.com": own}, "signed by an authority"},
		"CRED-08 one that did not sign it":                               {map[string]string{"127.0.0.1": other}, "signed by an authority"},
		"CRED-08 text that is no certificate":                            {map[string]string{"127.0.0.1": "none"}, "argocd-tls-certs-cm"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := mirrorsTrusting(t, c.of).Fetch(gittest.Context(t), tenant, repo, hub.Credential{})
			if c.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), c.says) {
				t.Errorf("Fetch() = %v; want %q", err, c.says)
			}
		})
	}
	t.Run("CRED-08 a stored certificate is effective at the next fetch", func(t *testing.T) {
		t.Parallel()
		of := map[string]string{}
		m := mirrorsTrusting(t, of)
		if _, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{}); err == nil {
			t.Fatal("it is trusted before it is stored")
		}
		of["127.0.0.1"] = own
		if _, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{}); err != nil {
			t.Fatal(err)
		}
		delete(of, "127.0.0.1")
		if _, err := m.Fetch(gittest.Context(t), tenant, repo, hub.Credential{}); err == nil {
			t.Error("it is trusted still")
		}
	})
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	cert, key := keyPair(t)
	otherCert, otherKey := keyPair(t)
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM([]byte(cert))
	s := gittest.Start(t, func(h *httptest.Server) {
		h.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients, MinVersion: tls.VersionTLS12}
		h.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		h.StartTLS()
	})
	origin := s.Repo("app")
	origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	repo := origin.Hub()
	m := mirrorsTrusting(t, map[string]string{"127.0.0.1": inPEM("CERTIFICATE", s.HTTP.Certificate().Raw)})
	for _, c := range []struct {
		name string
		cred hub.Credential
		ok   bool
	}{
		{"CRED-08 a server that asks is shown the client's certificate", hub.Credential{TLSClientCert: cert, TLSClientKey: key}, true},
		{"CRED-08 without one it is refused, and no connection is used again", hub.Credential{}, false},
		{"CRED-08 another one is refused", hub.Credential{TLSClientCert: otherCert, TLSClientKey: otherKey}, false},
		{"CRED-08 a key that does not belong to it", hub.Credential{TLSClientCert: cert, TLSClientKey: otherKey}, false},
		{"CRED-08 and the right one again", hub.Credential{TLSClientCert: cert, TLSClientKey: key}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := m.Fetch(gittest.Context(t), tenant, repo, c.cred)
			if (err == nil) != c.ok {
				t.Fatalf("Fetch() = %v", err)
			}
			if err != nil && (strings.Contains(err.Error(), "PRIVATE KEY") || strings.Contains(err.Error(), "BEGIN")) {
				t.Errorf("SEC-C3 the error holds the credential: %v", err)
			}
		})
	}
}

// What forceHttpBasicAuth enables in Argo CD is always done.
func TestBasicAuthUpFront(t *testing.T) {
	t.Parallel()
	s := gittest.New(t)
	origin := s.Repo("app")
	origin.Commit("refs/heads/main", "base", gittest.Files{"f": "x"})
	var asked, bare atomic.Int64
	s.Set(secret, func(_ http.ResponseWriter, r *http.Request) bool {
		asked.Add(1)
		if user, pass, ok := r.BasicAuth(); !ok || user != "bob" || pass != secret {
			bare.Add(1)
		}
		return false
	})
	t.Run("CRED-05 user name and password are sent with the first request", func(t *testing.T) {
		if _, err := gittest.NewMirrors(t, git.Config{}).Fetch(gittest.Context(t), tenant, origin.Hub(), hub.Credential{Username: "bob", Password: secret}); err != nil {
			t.Fatal(err)
		}
		if asked.Load() == 0 || bare.Load() != 0 {
			t.Errorf("%d of %d requests came without them", bare.Load(), asked.Load())
		}
	})
}
