package dex

import (
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/integration/rigs/pki"
	"github.com/capstan-cd/capstan/shared/fault"
)

func secrets(values map[string]string) Secret {
	return func(ref string) (string, error) {
		value, ok := values[ref]
		if !ok {
			return "", errors.New("there is no key")
		}
		return value, nil
	}
}

// given remembers what the builder of OIDC connectors was given.
func given(into *OIDCConfig) Builders {
	return Builders{
		OIDC: func(c OIDCConfig, _ *http.Client) (connector.Redirect, error) {
			*into = c
			return struct{ connector.Redirect }{}, nil
		},
		Dial: (&net.Dialer{}).DialContext,
	}
}

func TestParseGuide(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../../integration/testdata/guide/17*.yaml")
	if err != nil || len(files) != 1 {
		t.Fatalf("%v %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Data map[string]string `yaml:"data"`
	}
	if err := yaml.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	t.Run("AUTH-08 reads dex.config of the guide", func(t *testing.T) {
		t.Parallel()
		got, warnings, err := Parse(m.Data["dex.config"], secrets(map[string]string{"dex.github.clientID": "id", "dex.github.clientSecret": "s"}), Builders{})
		if err != nil || len(warnings) != 0 || len(got) != 1 {
			t.Fatalf("%v %v %v", got, warnings, err)
		}
		if got[0].Type != "github" || got[0].ID != "github" || got[0].Name != "GitHub" {
			t.Errorf("%+v", got[0])
		}
		redirect, password, err := got[0].Build(http.DefaultClient)
		if err != nil || redirect == nil || password != nil {
			t.Fatalf("%v %v %v", redirect, password, err)
		}
		to, err := redirect.Begin(t.Context(), connector.Request{State: "state", Verifier: "verifier", Callback: "https://hub.example.com/callback"})
		if err != nil || !strings.HasPrefix(to, "https://github.com/login/oauth/authorize?") || !strings.Contains(to, "client_id=id&") {
			t.Errorf("%q %v", to, err)
		}
	})
}

const all = `
issuer: https://argocd.example.com/api/dex
logger: {level: debug}
staticClients:
- {id: argo-workflows, secretEnv: X}
connectors:
- type: oidc
  id: okta
  name: Okta
  config:
    issuer: https://example.okta.com
    clientID: a
    clientSecret: $okta:clientSecret
    redirectURI: https://argocd.example.com/api/dex/callback
    insecureEnableGroups: true
    claimMapping: {groups: roles}
- type: gitlab
  id: gitlab
  config: {baseURL: https://gitlab.example.com, clientID: a, clientSecret: b, groups: [shop/sre], useLoginAsID: yes}
- type: google
  id: google
  config: {clientID: a, clientSecret: b, hostedDomains: [example.com]}
- type: microsoft
  id: entra
  config: {clientID: a, clientSecret: b, tenant: example.com, groups: [sre], onlySecurityGroups: true}
- type: ldap
  id: ldap
  config:
    host: ldap.example.com:389
    insecureNoSSL: true
    usernamePrompt: Corporate name
    bindDN: cn=reader,dc=example,dc=com
    bindPW: $ldap.bindPW
    rootCA: ""
    insecureSkipVerify: false
    userSearch: {baseDN: "dc=example,dc=com", username: uid, idAttr: uid, emailAttr: mail, nameAttr: cn}
    groupSearch: {baseDN: "dc=example,dc=com", nameAttr: cn, userMatchers: [{userAttr: DN, groupAttr: member}]}
- type: saml
  id: saml
  config: {ssoURL: "https://idp.example.com/sso", caData: $saml.ca, usernameAttr: name, emailAttr: mail, ca: "", nameIDPolicyFormat: transient}
- type: github
  id: ghe
  config: {clientID: a, clientSecret: b, hostName: ghe.example.com, loadAllGroups: true, teamNameField: slug}
`

func TestParseEveryType(t *testing.T) {
	t.Parallel()
	var oidc OIDCConfig
	got, warnings, err := Parse(all, secrets(map[string]string{"okta:clientSecret": "$dollar: #1\n", "ldap.bindPW": "0123", "saml.ca": base64.StdEncoding.EncodeToString(certificate(t))}), given(&oidc))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("AUTH-08 builds a connector of each type", func(t *testing.T) {
		var built []string
		for _, c := range got {
			redirect, password, err := c.Build(http.DefaultClient)
			if err != nil || (redirect == nil) == (password == nil) {
				t.Fatalf("%s: %v %v %v", c.ID, redirect, password, err)
			}
			built = append(built, c.Type+" "+c.Name+" "+c.Prompt)
		}
		want := []string{"oidc Okta ", "gitlab gitlab ", "google google ", "microsoft entra ", "ldap ldap Corporate name", "saml saml ", "github ghe "}
		if diff := cmp.Diff(want, built); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("AUTH-13 puts secrets where references are, as they are", func(t *testing.T) {
		if oidc.ClientSecret != "$dollar: #1\n" || oidc.ClaimMapping.Groups != "roles" || !oidc.InsecureEnableGroups {
			t.Errorf("%+v", oidc)
		}
	})
	t.Run("AUTH-08 warns of what has no effect", func(t *testing.T) {
		for i, part := range []string{"line 2: issuer", "line 3: logger", "line 4: staticClients", "line 14: connectors[0].config.redirectURI", "insecureNoSSL", "transient"} {
			if i >= len(warnings) || !strings.Contains(warnings[i], part) {
				t.Fatalf("%q has no warning %q", warnings, part)
			}
		}
	})
	t.Run("AUTH-08 checks names and types without secrets", func(t *testing.T) {
		open, _, err := Parse(all, nil, given(new(OIDCConfig)))
		if err != nil || len(open) != len(got) {
			t.Fatalf("%v %v", open, err)
		}
		if _, _, err := open[0].Build(http.DefaultClient); fault.KindOf(err) != fault.Invalid {
			t.Errorf("a connector without its secrets was built: %v", err)
		}
	})
}

// The examples of the documentation are right.
func TestParseDocumentation(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../../../docs/single-sign-on/*.md")
	if err != nil || len(pages) < 8 {
		t.Fatalf("%v %v", pages, err)
	}
	for _, page := range pages {
		if filepath.Base(page) == "ci-jobs.md" {
			continue // its example is no connector
		}
		t.Run("AUTH-08 reads the example of "+filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			_, example, found := strings.Cut(string(text), "    connectors:\n")
			if !found {
				t.Fatal("there is none")
			}
			indent := "    "
			if strings.Contains(string(text), "  dex.config: |\n      connectors:") {
				indent = "      "
			}
			config := "connectors:\n"
			for _, line := range strings.Split(example, "\n") {
				if !strings.HasPrefix(line, indent) {
					break
				}
				config += strings.TrimPrefix(line, indent) + "\n"
			}
			config = strings.ReplaceAll(config, "HUB", "hub.example.com")
			got, warnings, err := Parse(config, nil, given(new(OIDCConfig)))
			if err != nil || len(got) != 1 || len(warnings) != 0 {
				t.Errorf("%d %v %v in\n%s", len(got), warnings, err, config)
			}
		})
	}
}

func TestParseExchange(t *testing.T) {
	t.Parallel()
	const text = `
connectors:
- type: oidc
  id: github-actions
  name: GitHub Actions
  config:
    issuer: https://token.actions.githubusercontent.com
    clientID: https://hub.example.com
    scopes: [openid]
    userNameKey: sub
    insecureSkipEmailVerified: true
`
	t.Run("reads a connector of GitHub Actions as Argo CD documents it, and says where its tokens are exchanged", func(t *testing.T) {
		t.Parallel()
		got, warnings, err := Parse(text, secrets(nil), given(new(OIDCConfig)))
		if err != nil || len(got) != 1 || !got[0].Machine {
			t.Fatalf("%+v %v", got, err)
		}
		if len(warnings) != 1 || !strings.Contains(warnings[0], "tokenExchange of argocd-cm") {
			t.Errorf("%v", warnings)
		}
	})
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	github := "connectors:\n- type: github\n  id: a\n  config:\n    clientID: canary\n    clientSecret: canary\n"
	for name, c := range map[string]struct{ text, says string }{
		"no YAML":                      {"connectors: [", "dex.config, line 1: it is not valid YAML"},
		"a list at the top":            {"- a", "dex.config, line 1"},
		"an unknown field at the top":  {"\nconectors: []", `dex.config, line 2: there is no field "conectors"`},
		"connectors twice":             {"connectors: []\nconnectors: []", `line 2: the field "connectors" is given twice`},
		"connectors as a map":          {"connectors: {a: b}", "connectors: it must be a list"},
		"an unknown type":              {"connectors:\n- type: bitbucket-cloud\n  id: a", `line 2: connectors[0]: there is no connector of type "bitbucket-cloud"; there are github`},
		"an unknown field":             {github + "    teamNameFeld: slug\n", `dex.config, line 7: there is no field "teamNameFeld" in connectors[0].config; did you mean "teamNameField"?`},
		"an unknown field below":       {github + "    orgs:\n    - nam: x\n", `line 8: there is no field "nam" in connectors[0].config.orgs[0]`},
		"an unknown field beside":      {github + "  cfg: {}\n", `line 7: there is no field "cfg" in connectors[0]`},
		"a wrong type":                 {github + "    loadAllGroups: canary\n", "line 7: connectors[0].config.loadAllGroups: it must be true or false"},
		"no id":                        {"connectors:\n- type: github\n  config: {}", "connectors[0]: id is needed"},
		"an id that is a path":         {"connectors:\n- type: github\n  id: ../a\n  config: {}", "connectors[0]: id is needed"},
		"an id twice":                  {github + "- type: github\n  id: a\n  config: {clientID: a, clientSecret: b}\n", `line 7: connectors[1]: the id "a" is used twice`},
		"no configuration":             {"connectors:\n- type: github\n  id: a\n", "connectors[0].config: clientID"},
		"a configuration that is text": {"connectors:\n- type: github\n  id: a\n  config: canary\n", "connectors[0].config: it must hold fields"},
		"a missing secret":             {"connectors:\n- type: github\n  id: a\n  config: {clientID: a, clientSecret: $none}\n", `line 4: connectors[0].config.clientSecret refers to the secret "none"`},
		"a file of the hub":            {github + "    hostName: ghe.example.com\n    rootCA: /etc/passwd\n", "line 8: connectors[0].config.rootCA is not supported"},
		"no check of certificates":     {"connectors:\n- type: ldap\n  id: a\n  config: {host: a, insecureSkipVerify: true}\n", "insecureSkipVerify is not supported"},
		"no check of signatures":       {"connectors:\n- type: saml\n  id: a\n  config: {ssoURL: 'https://a', insecureSkipSignatureValidation: true}\n", "anybody can sign in as anybody"},
		"a filter that is none":        {"connectors:\n- type: ldap\n  id: a\n  config: {host: a, userSearch: {baseDN: dc=a, username: uid, filter: canary}}\n", "userSearch.filter"},
		"oidc without https":           {"connectors:\n- type: oidc\n  id: a\n  config: {issuer: 'http://a', clientID: a}\n", "issuer is an address with https"},
		"authorities in a file":        {"connectors:\n- type: oidc\n  id: a\n  config: {issuer: 'https://a', clientID: a, rootCAs: [/etc/ca.pem]}\n", "rootCAs"},
		"groups of unknown people":     {"connectors:\n- type: google\n  id: a\n  config: {clientID: a, clientSecret: b, groups: [a@example.com]}\n", "serviceAccountJSON"},
		"an anchor in itself":          {"connectors:\n- type: github\n  id: a\n  config: &c {orgs: [*c]}\n", "dex.config, line 2"},
		"a bomb of anchors":            {bomb(), "too large"},
		"a huge text":                  {strings.Repeat("#", 2<<20), "larger than"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			got, _, err := Parse(c.text, secrets(nil), given(new(OIDCConfig)))
			if fault.KindOf(err) != fault.Invalid {
				t.Fatalf("%v %v", got, err)
			}
			if !strings.Contains(fault.Sentence(err), c.says) {
				t.Errorf("%q does not say %q", fault.Sentence(err), c.says)
			}
			if strings.Contains(err.Error(), "canary") {
				t.Errorf("%q prints a value", err)
			}
		})
	}
}

// bomb is a text whose anchors grow tenfold with each line.
func bomb() string {
	var b strings.Builder
	b.WriteString("connectors:\n- type: github\n  id: a\n  config:\n    orgs:\n    - name: a\n      teams: &l0 [x]\n")
	for i := range 9 {
		name := string(rune('0' + i))
		next := string(rune('1' + i))
		b.WriteString("    - name: a\n      teams: &l" + next + " [" + strings.TrimSuffix(strings.Repeat("*l"+name+",", 10), ",") + "]\n")
	}
	return b.String()
}

func TestAuthorities(t *testing.T) {
	t.Parallel()
	const pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"
	got, err := OIDCConfig{RootCAs: []string{pem, base64.StdEncoding.EncodeToString([]byte(pem))}}.Authorities()
	if err != nil || string(got) != pem+"\n"+pem+"\n" {
		t.Errorf("%q %v", got, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(all)
	f.Add("connectors:\n- &a {type: ldap, id: x, config: &b {host: *a, <<: *b}}\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, _, err := Parse(text, func(string) (string, error) { return "value", nil }, given(new(OIDCConfig)))
		if err != nil && fault.KindOf(err) != fault.Invalid {
			t.Errorf("%v", err)
		}
	})
}

// certificate is one in PEM.
func certificate(t *testing.T) []byte {
	authority, err := pki.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return authority.PEM
}
