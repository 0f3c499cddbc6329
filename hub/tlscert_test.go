package hub_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

func authority(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestAuthorities(t *testing.T) {
	t.Parallel()
	one, two := authority(t, "one"), authority(t, "two")
	t.Run("CRED-18 several certificates with text between them are read", func(t *testing.T) {
		t.Parallel()
		got, err := hub.ParseAuthorities("h", "subject=one\n"+one+"\n# two\n"+two)
		if err != nil || len(got) != 2 {
			t.Fatal(len(got), err)
		}
		if got[0].PEM() != one || got[1].Cert.Subject.CommonName != "two" || got[0].KeyType() != "ecdsa" || got[0].Fingerprint() == got[1].Fingerprint() {
			t.Errorf("%+v", got)
		}
	})
	const canary = "c2VjcmV0IG1hdGVyaWFs"
	for name, c := range map[string]struct{ text, says string }{
		"text":                           {"hunter2 " + canary, "no certificate that can be read"},
		"nothing":                        {"", "no certificate that can be read"},
		"a private key":                  {one + "-----BEGIN PRIVATE KEY-----\n" + canary + "\n-----END PRIVATE KEY-----\n", "entry 2 is a PRIVATE KEY"},
		"no certificate":                 {one + two + "-----BEGIN CERTIFICATE-----\n" + canary + "\n-----END CERTIFICATE-----\n", "entry 3 is no certificate"},
		"half of one":                    {one + two[:len(two)-60], "entry 2 is cut off"},
		"half of one before a whole one": {two[:len(two)-60] + "\n" + one, "entry 1 is cut off"},
		"too many":                       {strings.Repeat(one, 201), "more than 200"},
	} {
		t.Run("CRED-18(refused) "+name, func(t *testing.T) {
			t.Parallel()
			_, err := hub.ParseAuthorities("h", c.text)
			if err == nil || !strings.Contains(fault.Sentence(err), c.says) || strings.Contains(err.Error(), canary) {
				t.Errorf("error %v, want %q", err, c.says)
			}
		})
	}
	for in, want := range map[string]string{
		"Git.Example.com": "git.example.com", " 10.0.0.1 ": "10.0.0.1", "git.example.com:8443": "has a port", "https://h": "is no host name", "": "is no host name",
		"../x": "is no host name", "[::1]": "is no host name", "*.example.com": "is no host name", "-x": "is no host name",
	} {
		got, err := hub.AuthorityServer(in)
		if err != nil {
			got = fault.Sentence(err)
		}
		if !strings.Contains(got, want) {
			t.Errorf("CRED-18 server %q: %q, want %q", in, got, want)
		}
	}
}
