package settings

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/hub/identity/connector/dex"
	"github.com/capstan-cd/capstan/hub/identity/connector/oidc"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Keys of hub.SettingsMap about sign-ins.
const (
	OIDCKey       = "oidc.config"
	DexKey        = "dex.config"
	ConnectorKey  = "dex.auth.connectorId"
	URLKey        = "url"
	MoreURLsKey   = "additionalUrls"
	AdminKey      = "admin.enabled"
	NoTLSCheckKey = "oidc.tls.insecure.skip.verify"
	ButtonTextKey = "ui.loginButtonText"
)

// The policy of a tenant, and its key with the claims that it may name.
const (
	PolicyMap = rolesMap
	ScopesKey = "scopes"
)

// SignInKeys are the keys of hub.SettingsMap that sign-ins read.
func SignInKeys() []string {
	return []string{OIDCKey, DexKey, ConnectorKey, URLKey, MoreURLsKey, AdminKey, NoTLSCheckKey, ButtonTextKey}
}

// DecidesSignIn reports whether a setting decides whom the tenant lets in: by
// which providers, for tokens of which issuers, and whether by password.
func DecidesSignIn(name, key string) bool {
	return name == hub.SettingsMap && slices.Contains([]string{OIDCKey, DexKey, ConnectorKey, AdminKey, hub.FederationKey}, key)
}

// signIns are the keys about how people sign in.
func signIns() []Known {
	cm := func(key, about, sample string, read func(*set, string, text) error) Known {
		return Known{Map: hub.SettingsMap, Key: key, About: about, Sample: sample, Used: true, read: strictly(read)}
	}
	secret := func(name, key, about string) Known {
		return Known{Map: name, Key: key, About: about, Sample: "a secret text", Used: true, read: (*set).readSecret}
	}
	return []Known{
		cm(OIDCKey, "An identity provider that people sign in with by OpenID Connect.", sampleOIDC, (*set).readOIDC),
		cm(DexKey, "Identity providers that people sign in with, as connectors of Dex; the hub's own connectors do what they say, and no Dex runs.", sampleDex, (*set).readDex),
		cm(ConnectorKey, "The id of the connector of dex.config that a sign-in uses which names none.", "github", (*set).readAny),
		cm(URLKey, "An address of the console, to which identity providers may send browsers back; the hub's own is one as well.", "https://capstan.example.com", (*set).readURL),
		cm(MoreURLsKey, "Further addresses of the console to which identity providers may send browsers back.", "- https://cd.example.com\n", (*set).readURLs),
		cm(AdminKey, "Whether the account admin may be used, and local accounts sign in with a password that argocd-cm does not list with the capability login. A platform admin always may.", "true", (*set).readSwitch),
		cm(NoTLSCheckKey, "Whether certificates of identity providers are not checked. Anybody on the way could then sign in as anybody.", "false", (*set).readSwitch),
		secret(hub.SecretMap, "oidc.", "A secret that "+OIDCKey+" refers to as $oidc.NAME."),
		secret(hub.SecretMap, "dex.", "A secret that "+DexKey+" refers to as $dex.NAME."),
	}
}

// strictly checks what a person sets now. What an earlier release has stored
// unchecked must not keep other settings from the agents.
func strictly(read func(*set, string, text) error) func(*set, string, text) error {
	return func(s *set, key string, t text) error {
		if !s.strict || strings.TrimSpace(t.value) == "" {
			return nil
		}
		return read(s, key, t)
	}
}

const sampleOIDC = `name: Okta
issuer: https://example.okta.com
clientID: capstan
clientSecret: $oidc.okta.clientSecret
requestedScopes: [openid, profile, email, groups]
`

func (*set) readOIDC(_ string, t text) error {
	_, err := oidc.Parse(t.value)
	return placed(err)
}

// placed says the line of an error as other errors of settings do.
func placed(err error) error {
	e, ok := fault.As(err)
	if !ok || e.Line == 0 {
		return err
	}
	c := *e
	c.Object, c.Cause = "", fmt.Sprintf("line %d: %s", e.Line, e.Cause)
	return &c
}

const sampleDex = `connectors:
  - type: github
    id: github
    name: GitHub
    config:
      clientID: $dex.github.clientID
      clientSecret: $dex.github.clientSecret
      orgs:
        - name: my-org
`

func (*set) readDex(_ string, t text) error {
	_, _, err := dex.Parse(t.value, nil, dex.Builders{OIDC: func(dex.OIDCConfig, *http.Client) (connector.Redirect, error) { return nil, nil }})
	return placed(err)
}

// DexWarnings are what dex.config says without effect.
func DexWarnings(value string) []string {
	_, warnings, err := dex.Parse(value, nil, dex.Builders{OIDC: func(dex.OIDCConfig, *http.Client) (connector.Redirect, error) { return nil, nil }})
	if err != nil {
		return nil
	}
	return warnings
}

func (*set) readURL(_ string, t text) error {
	_, err := origin(t.value)
	return err
}

func (*set) readURLs(_ string, t text) error {
	root, err := t.yaml()
	if err != nil || root.empty() {
		return err
	}
	all, err := root.texts()
	if err != nil {
		return err
	}
	for i, address := range all {
		if _, err := origin(address); err != nil {
			return node{Node: root.Content[i], above: root.above}.or(nil, err)
		}
	}
	return nil
}

// origin is scheme and host of an address of the console.
func origin(address string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", fault.With(fault.New(fault.Invalid, "%q is no address of a console", short(address)), "", "write it like https://capstan.example.com")
	}
	return u.Scheme + "://" + strings.ToLower(u.Host), nil
}

// ConsoleURLs are the addresses that a tenant lists of the console, as scheme
// and host. Those that are none are left out.
func ConsoleURLs(values map[string]string) []string {
	all := []string{values[URLKey]}
	if root, err := (text{values[MoreURLsKey], 0}).yaml(); err == nil && !root.empty() {
		more, err := root.texts()
		if err == nil {
			all = append(all, more...)
		}
	}
	var out []string
	for _, address := range all {
		if o, err := origin(address); err == nil && !slices.Contains(out, o) {
			out = append(out, o)
		}
	}
	return out
}

// Scopes are the claims that a policy may name; groups, if none are set.
func Scopes(value string) []string {
	root, err := text{value, 0}.yaml()
	if err != nil || root.empty() {
		return []string{"groups"}
	}
	out, err := root.texts()
	if err != nil {
		return []string{"groups"}
	}
	return out
}

// Truth is the value of a switch that is off unless it says otherwise.
func Truth(value string) bool {
	on, err := text{value, 0}.truth()
	return err == nil && on
}

// LocalSignIn reports whether a local account may sign in with a password.
// Values are those of hub.SettingsMap: AdminKey, and accounts.NAME.
func LocalSignIn(values map[string]string, u hub.User) bool {
	if values[AdminKey] == "" || Truth(values[AdminKey]) || slices.Contains(u.Roles, hub.RolePlatformAdmin) {
		return true
	}
	for _, capability := range strings.Split(values[AccountKey(u.Name)], ",") {
		if strings.TrimSpace(capability) == "login" {
			return true
		}
	}
	return false
}

// AccountKey is the key of hub.SettingsMap with the capabilities of an account.
func AccountKey(name string) string { return "accounts." + name }

var reference = regexp.MustCompile(`\$([A-Za-z0-9][-A-Za-z0-9_.]*(?::[-A-Za-z0-9_.]+)?)`)

// maxReferences bounds the secrets that a tenant's providers refer to.
const maxReferences = 200

// References are the secrets that the configuration of providers may refer to,
// without the $ (AUTH-13).
func References(values map[string]string) []string {
	var out []string
	for _, key := range []string{OIDCKey, DexKey} {
		for _, found := range reference.FindAllStringSubmatch(values[key], maxReferences) {
			if !slices.Contains(out, found[1]) {
				out = append(out, found[1])
			}
		}
	}
	return out
}

// Referred is where the secret of a reference is stored: KEY is one of
// argocd-secret, SECRET:KEY one of another Secret.
func Referred(reference string) (name, key string) {
	secret, key, found := strings.Cut(reference, ":")
	switch {
	case !found:
		return hub.SecretMap, secret
	case IsSecret(secret):
		return secret, key
	}
	return hub.SecretsMap(secret), key
}
