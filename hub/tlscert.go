package hub

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	pemCertificate = "CERTIFICATE"
	pemBegin       = "-----BEGIN "
)

const (
	maxAuthorities     = 200
	maxAuthorityServer = 253
)

// An Authority is one certificate that certificates of a Git server must come
// from, or that the server itself shows (CRED-08, CRED-18).
type Authority struct {
	Server string // the host, without a port
	Cert   *x509.Certificate
}

// PEM is the certificate as it is stored.
func (a Authority) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: a.Cert.Raw}))
}

// Fingerprint is the SHA-256 of the certificate, written like that of a host key.
func (a Authority) Fingerprint() string { return Fingerprint(a.Cert.Raw) }

// KeyType names the kind of its public key.
func (a Authority) KeyType() string {
	switch a.Cert.PublicKey.(type) {
	case *rsa.PublicKey:
		return "rsa"
	case *ecdsa.PublicKey:
		return "ecdsa"
	case ed25519.PublicKey:
		return "ed25519"
	}
	return "unknown"
}

// AuthorityServer checks the name of a server and returns it in lower case, as
// it is looked up.
func AuthorityServer(name string) (string, error) {
	name = strings.ToLower(strings.TrimSpace(name))
	bad := name == "" || len(name) > maxAuthorityServer || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" || strings.ContainsAny(name[:1], ".-")
	if !bad {
		return name, nil
	}
	if host, _, err := net.SplitHostPort(name); err == nil && host != "" && !strings.Contains(name, "/") {
		return "", fault.With(fault.New(fault.Invalid, "the server name %q has a port", cutText(name, 120)), "",
			"leave the port out: the certificates of a host count for all its ports")
	}
	return "", fault.With(fault.New(fault.Invalid, "the server name %q is no host name", cutText(name, 120)), "",
		"write it as in the repository's URL, without scheme and port: git.example.com")
}

// ParseAuthorities reads certificates in PEM. Text between them is passed over,
// as openssl prints it; anything else that is no certificate is an error that
// names the entry, and nothing of its contents.
func ParseAuthorities(server, text string) ([]Authority, error) {
	var out []Authority
	rest := []byte(text)
	for n := 1; ; n++ {
		block, next := pem.Decode(rest)
		if block == nil {
			break
		}
		// A block that is damaged is passed over without a word.
		if bytes.Count(rest[:len(rest)-len(next)], []byte(pemBegin)) > 1 {
			return nil, damagedEntry(n)
		}
		rest = next
		if block.Type != pemCertificate {
			return nil, authorityFault(fault.New(fault.Invalid, "entry %d is a %s and no certificate", n, cutText(block.Type, 40)))
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, authorityFault(fault.Wrap(fault.Invalid, err, "entry %d is no certificate that can be read", n))
		}
		if out = append(out, Authority{server, cert}); len(out) > maxAuthorities {
			return nil, fault.New(fault.Exceeded, "there are more than %d certificates", maxAuthorities)
		}
	}
	switch {
	case bytes.Contains(rest, []byte(pemBegin)):
		return nil, damagedEntry(len(out) + 1)
	case len(out) == 0:
		return nil, authorityFault(fault.New(fault.Invalid, "it contains no certificate that can be read"))
	}
	return out, nil
}

func damagedEntry(n int) error {
	return authorityFault(fault.New(fault.Invalid, "entry %d is cut off, or is not in base64", n))
}

func authorityFault(err error) error {
	return fault.With(err, "", "give one or more certificates in PEM, each between -----BEGIN CERTIFICATE----- and -----END CERTIFICATE-----")
}
