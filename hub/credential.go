package hub

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"net/url"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A Credential opens a repository. It never leaves the hub and is never printed.
type Credential struct {
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"` // or a token
	// BearerToken is sent as "Authorization: Bearer" instead of the two
	// above, for hosts that ask for it (CRED-06).
	BearerToken string `json:"bearerToken,omitempty"`
	// SSHPrivateKey opens repositories over SSH (CRED-07).
	SSHPrivateKey string `json:"sshPrivateKey,omitempty"`
	// TLSClientCert and TLSClientKey, both PEM, are shown to a server over
	// HTTPS that asks who connects (CRED-08).
	TLSClientCert string `json:"tlsClientCert,omitempty"`
	TLSClientKey  string `json:"tlsClientKey,omitempty"`
	// Exchanged is an identity that tokens are requested with. None of it is
	// sent to the repository's server.
	Exchanged
	// Proxy is the URL of the proxy with its user name and password; NoProxy
	// are the hosts that are reached without it (CRED-12).
	Proxy   string `json:"proxy,omitempty"`
	NoProxy string `json:"noProxy,omitempty"`
}

// Exchanged is an identity that is exchanged for tokens of short life. At most
// one of them is set.
type Exchanged struct {
	GitHubApp GitHubApp `json:"githubApp,omitzero"`
	// GoogleKey is the JSON key of a Google service account (CRED-10).
	GoogleKey string        `json:"gcpServiceAccountKey,omitempty"`
	Azure     AzureIdentity `json:"azure,omitzero"`
}

// A GitHubApp is an app that is installed where a repository is (CRED-09).
type GitHubApp struct {
	ID             int64  `json:"id,omitempty"`
	InstallationID int64  `json:"installationId,omitempty"` // 0: it is found by the repository
	PrivateKey     string `json:"privateKey,omitempty"`     // RSA in PEM
	BaseURL        string `json:"baseUrl,omitempty"`        // of the API of GitHub Enterprise; empty: github.com
}

// An AzureIdentity is a service principal, or with Workload the identity of the
// hub itself (CRED-11).
type AzureIdentity struct {
	Workload     bool   `json:"workload,omitempty"`
	ClientID     string `json:"clientId,omitempty"`
	ClientSecret string `json:"clientSecret,omitempty"`
	TenantID     string `json:"tenantId,omitempty"`
	Endpoint     string `json:"endpoint,omitempty"` // of Active Directory; empty: login.microsoftonline.com
}

// String hides the secret from every formatter.
func (Credential) String() string { return "(credential)" }

// GoString hides the secret from %#v too.
func (Credential) GoString() string { return "(credential)" }

// LogValue hides the secret from logs, those in JSON too.
func (Credential) LogValue() slog.Value { return slog.StringValue("(credential)") }

// Empty reports whether nothing proves who fetches. A user name or a proxy
// alone prove nothing.
func (c Credential) Empty() bool {
	c.Username, c.Proxy, c.NoProxy = "", "", ""
	return c == (Credential{})
}

// Way is the proxy of a credential without anything else.
func (c Credential) Way() Credential { return Credential{Proxy: c.Proxy, NoProxy: c.NoProxy} }

// Check reports what is wrong with the identity. The error repeats none of its
// secrets.
func (e Exchanged) Check() error {
	set := 0
	for _, there := range []bool{e.GitHubApp != (GitHubApp{}), e.GoogleKey != "", e.Azure != (AzureIdentity{})} {
		if there {
			set++
		}
	}
	if set > 1 {
		return fault.With(fault.New(fault.Invalid, "it has several of a GitHub App, a Google service account and an Azure identity"), "", "set one of them")
	}
	switch {
	case e.GitHubApp != (GitHubApp{}):
		return e.GitHubApp.check()
	case e.GoogleKey != "":
		_, err := ReadGoogleKey(e.GoogleKey)
		return err
	case e.Azure != (AzureIdentity{}):
		return e.Azure.check()
	}
	return nil
}

func (a GitHubApp) check() error {
	if a.ID <= 0 || a.InstallationID < 0 {
		return fault.With(fault.New(fault.Invalid, "githubAppID is no positive number"), "", "copy the App ID from the settings of the GitHub App")
	}
	if err := checkEndpoint("githubAppEnterpriseBaseUrl", a.BaseURL); err != nil {
		return err
	}
	_, err := ReadRSAKey("githubAppPrivateKey", a.PrivateKey)
	return err
}

func (a AzureIdentity) check() error {
	if a.Workload {
		if a.ClientID+a.ClientSecret+a.TenantID+a.Endpoint != "" {
			return fault.With(fault.New(fault.Invalid, "useAzureWorkloadIdentity is set together with a service principal"), "", "set one of them")
		}
		return nil
	}
	for key, v := range map[string]string{"ClientId": a.ClientID, "ClientSecret": a.ClientSecret, "TenantId": a.TenantID} {
		if v == "" {
			return fault.With(fault.New(fault.Invalid, "azureServicePrincipal%s is missing", key), "", "a service principal needs client id, client secret and tenant id")
		}
	}
	if strings.ContainsFunc(a.TenantID, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.'
	}) {
		return fault.With(fault.New(fault.Invalid, "azureServicePrincipalTenantId is no id of a tenant"), "", "set it to the id or the domain of the Azure tenant")
	}
	return checkEndpoint("azureActiveDirectoryEndpoint", a.Endpoint)
}

// checkEndpoint accepts the address of a server over HTTPS. Nothing means the
// usual one.
func checkEndpoint(key, address string) error {
	if address == "" {
		return nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fault.With(fault.New(fault.Invalid, "%s is no address of a server over HTTPS", key), "", "write it like https://host.example.com")
	}
	return nil
}

// ReadRSAKey reads a private key in PEM, in the form of PKCS #1 or PKCS #8. The
// error repeats nothing of it.
func ReadRSAKey(key, text string) (*rsa.PrivateKey, error) {
	const fix = "give the whole file in PEM, without a passphrase"
	block, _ := pem.Decode([]byte(strings.ReplaceAll(text, "\r\n", "\n")))
	if block == nil {
		return nil, fault.With(fault.New(fault.Invalid, "%s is no private key in PEM", key), "", fix)
	}
	if k, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return k, nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	k, ok := parsed.(*rsa.PrivateKey)
	if err != nil || !ok {
		return nil, fault.With(fault.New(fault.Invalid, "%s is no RSA private key that can be read", key), "", fix)
	}
	return k, nil
}

// A GoogleKey is what the JSON key of a service account says.
type GoogleKey struct {
	Type       string `json:"type"`
	Email      string `json:"client_email"`
	KeyID      string `json:"private_key_id"`
	PrivateKey string `json:"private_key"`
	TokenURI   string `json:"token_uri"`
}

// String hides the key from every formatter.
func (GoogleKey) String() string { return "(credential)" }

// GoString hides the key from %#v too.
func (GoogleKey) GoString() string { return "(credential)" }

// LogValue hides the key from logs, those in JSON too.
func (GoogleKey) LogValue() slog.Value { return slog.StringValue("(credential)") }

// googleTokens is where tokens come from if the key names no other place.
const googleTokens = "https://oauth2.googleapis.com/token"

// ReadGoogleKey reads the JSON key of a service account. The error repeats
// nothing of it.
func ReadGoogleKey(text string) (GoogleKey, error) {
	const fix = "give the JSON file that Google Cloud made for a key of the service account"
	var k GoogleKey
	if json.Unmarshal([]byte(text), &k) != nil || k.Type != "service_account" || k.Email == "" {
		return GoogleKey{}, fault.With(fault.New(fault.Invalid, "gcpServiceAccountKey is no key of a service account"), "", fix)
	}
	if k.TokenURI == "" {
		k.TokenURI = googleTokens
	}
	if err := checkEndpoint("token_uri of gcpServiceAccountKey", k.TokenURI); err != nil {
		return GoogleKey{}, err
	}
	_, err := ReadRSAKey("private_key of gcpServiceAccountKey", k.PrivateKey)
	return k, err
}

// ReadProxy checks the URL of a proxy, and returns it without user name and
// password. The error repeats nothing of it.
func ReadProxy(raw string) (shown string, err error) {
	if raw == "" {
		return "", nil
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return "", fault.With(fault.New(fault.Invalid, "the proxy is no address of an HTTP proxy"), "", "write it like http://proxy.example.com:3128")
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	host := strings.ToLower(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return u.Scheme + "://" + host + ":" + port, nil
}
