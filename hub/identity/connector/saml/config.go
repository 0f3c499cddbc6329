package saml

import (
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// Config is the configuration with the fields of Dex. Where Dex reads a file of
// its own disk, there is a field with the content instead.
type Config struct {
	SSOURL string `json:"ssoURL"` // where the browser is sent to, with the binding HTTP-Redirect
	// CAData are the certificates that the provider signs with, in PEM, as
	// base64. They are compared, not used to verify others.
	CAData       []byte `json:"caData"`
	EntityIssuer string `json:"entityIssuer"` // the hub's name at the provider, and the audience; empty: the callback address
	SSOIssuer    string `json:"ssoIssuer"`    // the provider's name; empty: any, because the certificate proves it

	UsernameAttr string `json:"usernameAttr"`
	EmailAttr    string `json:"emailAttr"`
	GroupsAttr   string `json:"groupsAttr"`
	GroupsDelim  string `json:"groupsDelim"` // divides groups in one value; empty: one group per value
	// AllowedGroups are those whose members sign in; with FilterGroups only
	// these are passed on.
	AllowedGroups      []string `json:"allowedGroups"`
	FilterGroups       bool     `json:"filterGroups"`
	NameIDPolicyFormat string   `json:"nameIDPolicyFormat"` // a URI or its last part; empty: persistent
}

// nameFormats are the formats of names that may be asked for.
var nameFormats = []string{
	"urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress",
	"urn:oasis:names:tc:SAML:1.1:nameid-format:unspecified",
	"urn:oasis:names:tc:SAML:1.1:nameid-format:X509SubjectName",
	"urn:oasis:names:tc:SAML:1.1:nameid-format:WindowsDomainQualifiedName",
	"urn:oasis:names:tc:SAML:2.0:nameid-format:encrypted",
	"urn:oasis:names:tc:SAML:2.0:nameid-format:entity",
	"urn:oasis:names:tc:SAML:2.0:nameid-format:kerberos",
	"urn:oasis:names:tc:SAML:2.0:nameid-format:persistent",
	"urn:oasis:names:tc:SAML:2.0:nameid-format:transient",
}

// Validate returns the first mistake as fault.Invalid.
func (c Config) Validate() error {
	if u, err := url.Parse(c.SSOURL); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return fault.New(fault.Invalid, "ssoURL is the address of the provider's sign-in page")
	}
	if c.UsernameAttr == "" || c.EmailAttr == "" {
		return fault.New(fault.Invalid, "usernameAttr and emailAttr are needed")
	}
	if len(c.AllowedGroups) > 0 && c.GroupsAttr == "" {
		return fault.New(fault.Invalid, "allowedGroups need groupsAttr: without it nobody's groups are known")
	}
	if _, ok := c.nameFormat(); !ok {
		return fault.New(fault.Invalid, "nameIDPolicyFormat: there is no format of this name; emailAddress and persistent are usual")
	}
	_, err := c.certificates()
	return err
}

func (c Config) nameFormat() (string, bool) {
	name := c.NameIDPolicyFormat
	if name == "" {
		name = "persistent"
	}
	i := slices.IndexFunc(nameFormats, func(f string) bool { return f == name || strings.HasSuffix(f, ":"+name) })
	if i < 0 {
		return "", false
	}
	return nameFormats[i], true
}

// Transient reports whether the configuration asks for names that are new at
// each sign-in, so that nobody is recognized.
func (c Config) Transient() bool {
	format, _ := c.nameFormat()
	return strings.HasSuffix(format, ":transient")
}

func (c Config) certificates() ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	rest := c.CAData
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fault.New(fault.Invalid, "caData: a certificate cannot be read")
		}
		out = append(out, cert)
	}
	if len(out) == 0 || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, fault.New(fault.Invalid, "caData holds the certificates that the provider signs with, in PEM, as base64")
	}
	return out, nil
}
