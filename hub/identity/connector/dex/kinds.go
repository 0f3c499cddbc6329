package dex

import (
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/hub/identity/connector/exchange"
	"github.com/capstan-cd/capstan/hub/identity/connector/github"
	"github.com/capstan-cd/capstan/hub/identity/connector/gitlab"
	"github.com/capstan-cd/capstan/hub/identity/connector/google"
	"github.com/capstan-cd/capstan/hub/identity/connector/ldap"
	"github.com/capstan-cd/capstan/hub/identity/connector/microsoft"
	"github.com/capstan-cd/capstan/hub/identity/connector/saml"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/yamltext"
)

type ldapDial = func(ctx context.Context, network, address string) (net.Conn, error)

type build = func(client *http.Client) (connector.Redirect, connector.Password, error)

// A kind is a type of connectors.
type kind struct {
	read func(part) (made, error)
	// ignored are fields without effect, with the reason; refused are fields
	// that the hub does not do, with what to do instead.
	ignored, refused map[string]string
}

// A part is the configuration of one connector.
type part struct {
	id       string
	node     *yaml.Node
	path     string
	open     bool // its secrets are not resolved
	builders Builders
}

// made is what a configuration becomes.
type made struct {
	build    build
	prompt   string
	exchange *exchange.Issuer
	machine  bool
	warnings []string
}

const (
	noFiles  = "the hub reads no files of its own disk for a tenant; write the content in "
	callback = "the hub's own callback address is used"
)

var kinds = map[string]kind{
	"oidc": {
		read:    readOIDC,
		ignored: map[string]string{"redirectURI": callback},
		refused: map[string]string{
			"insecureSkipVerify": "write the authority of the provider's certificate in rootCAs",
			"hostedDomains":      "use a connector of type google, which knows hosted domains",
		},
	},
	"github": {
		read: redirects(github.Config.Validate, func(c github.Config, client *http.Client) (connector.Redirect, error) {
			return github.New(c, client)
		}),
		ignored: map[string]string{"redirectURI": callback},
		refused: map[string]string{"rootCA": noFiles + "rootCAData, as base64"},
	},
	"gitlab": {
		read: redirects(gitlab.Config.Validate, func(c gitlab.Config, client *http.Client) (connector.Redirect, error) {
			return gitlab.New(c, client)
		}),
		ignored: map[string]string{"redirectURI": callback},
	},
	"google": {
		read: redirects(google.Config.Validate, func(c google.Config, client *http.Client) (connector.Redirect, error) {
			return google.New(c, client)
		}),
		ignored: map[string]string{"redirectURI": callback},
		refused: map[string]string{"serviceAccountFilePath": noFiles + "serviceAccountJSON, such as $dex.google.serviceAccount"},
	},
	"microsoft": {
		read: redirects(microsoft.Config.Validate, func(c microsoft.Config, client *http.Client) (connector.Redirect, error) {
			return microsoft.New(c, client)
		}),
		ignored: map[string]string{"redirectURI": callback},
		refused: map[string]string{"clientAssertion": noFiles + "clientSecret"},
	},
	"saml": {
		read:    readSAML,
		ignored: map[string]string{"redirectURI": callback},
		refused: map[string]string{
			"ca":                              noFiles + "caData, as base64",
			"insecureSkipSignatureValidation": "without signatures anybody can sign in as anybody",
		},
	},
	"ldap": {
		read: readLDAP,
		refused: map[string]string{
			"rootCA":             noFiles + "rootCAData, as base64",
			"clientCert":         noFiles + "clientCertData, as base64",
			"clientKey":          noFiles + "clientKeyData, as base64",
			"insecureSkipVerify": "write the authority of the directory's certificate in rootCAData",
			"kerberos":           "people sign in with name and password",
		},
	},
}

func kindNames() []string { return slices.Sorted(maps.Keys(kinds)) }

// decode reads and checks a configuration. Without its secrets only names and
// types are checked.
func decode[C any](p part, validate func(C) error) (C, error) {
	var c C
	if p.open {
		return c, yamltext.CheckNode(file, p.node, p.path, c)
	}
	if err := yamltext.DecodeNode(file, p.node, p.path, &c); err != nil {
		return c, err
	}
	if err := validate(c); err != nil {
		e, ok := fault.As(err)
		if !ok {
			return c, err
		}
		return c, fault.With(mistake(p.node.Line, "%s: %s", p.path, e.Cause), "", e.Fix)
	}
	return c, nil
}

// unresolved is what a connector without its secrets builds.
func unresolved(*http.Client) (connector.Redirect, connector.Password, error) {
	return nil, nil, fault.New(fault.Invalid, "%s: secrets of the connector are not resolved", file)
}

// redirects reads connectors that send the browser elsewhere.
func redirects[C any](validate func(C) error, open func(C, *http.Client) (connector.Redirect, error)) func(part) (made, error) {
	return func(p part) (made, error) {
		c, err := decode(p, validate)
		if err != nil || p.open {
			return made{build: unresolved}, err
		}
		return made{build: func(client *http.Client) (connector.Redirect, connector.Password, error) {
			r, err := open(c, client)
			if err != nil {
				return nil, nil, err
			}
			return r, nil, nil
		}}, nil
	}
}

func readOIDC(p part) (made, error) {
	if p.builders.OIDC == nil {
		return made{}, mistake(p.node.Line, "%s: connectors of type oidc are not supported here", p.path)
	}
	c, err := decode(p, OIDCConfig.Validate)
	if err != nil || p.open {
		issuer := field(p.node, "issuer")
		return made{build: unresolved, machine: issuer != nil && exchange.Machine(issuer.Value)}, err
	}
	out := made{exchange: c.exchange(p.id), machine: exchange.Machine(c.Issuer), build: func(client *http.Client) (connector.Redirect, connector.Password, error) {
		r, err := p.builders.OIDC(c, client)
		if err != nil {
			return nil, nil, err
		}
		return r, nil, nil
	}}
	if out.machine && out.exchange == nil {
		out.warnings = append(out.warnings, "no job can exchange its token: add tokenExchange with rules that say whose jobs may")
	}
	return out, nil
}

func readLDAP(p part) (made, error) {
	c, err := decode(p, ldap.Config.Validate)
	if err != nil || p.open {
		return made{build: unresolved}, err
	}
	out := made{prompt: c.UsernamePrompt, build: func(*http.Client) (connector.Redirect, connector.Password, error) {
		d, err := ldap.New(c, p.builders.Dial)
		if err != nil {
			return nil, nil, err
		}
		return nil, d, nil
	}}
	if c.InsecureNoSSL {
		out.warnings = append(out.warnings, "insecureNoSSL sends passwords in clear text; use startTLS or the port for TLS")
	}
	return out, nil
}

func readSAML(p part) (made, error) {
	c, err := decode(p, saml.Config.Validate)
	if err != nil || p.open {
		return made{build: unresolved}, err
	}
	out := made{build: func(*http.Client) (connector.Redirect, connector.Password, error) {
		r, err := saml.New(c, time.Now)
		if err != nil {
			return nil, nil, err
		}
		return r, nil, nil
	}}
	if c.Transient() {
		out.warnings = append(out.warnings, "nameIDPolicyFormat transient asks for a new name at each sign-in, so the hub takes each for a new person")
	}
	return out, nil
}
