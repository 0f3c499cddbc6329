// Package dex reads the configuration of Dex that tenants bring from Argo CD's
// dex.config, and makes its connectors. No Dex runs: the hub's own connectors
// do what its connectors do. What the hub does not do is refused by name and
// line, and never ignored, except for settings of Dex's own server, which give
// warnings. The hub's sign-in and its settings call it.
package dex

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/hub/identity/connector/exchange"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/yamltext"
)

const (
	file = "dex.config"
	// maxText is the largest configuration in bytes, maxConnectors the most
	// connectors.
	maxText       = 1 << 20
	maxConnectors = 50
)

// A Connector is one entry of connectors.
type Connector struct {
	Type, ID, Name string
	// Prompt is the label of the field for the name, of connectors that ask for
	// a password; empty: the usual one.
	Prompt string
	// Exchange is the issuer whose tokens machines may exchange; nil: none.
	Exchange *exchange.Issuer
	// Machine reports that only machines have tokens of the issuer, so that no
	// person signs in with the connector.
	Machine bool
	// Build makes the connector; exactly one of both is not nil. It sends HTTP
	// requests with the client and makes none before a sign-in.
	Build func(client *http.Client) (connector.Redirect, connector.Password, error)
}

// A Secret returns the value of a reference: "key" of $key, or "secret:key" of
// $secret:key.
type Secret func(ref string) (string, error)

// withoutEffect are settings of Dex's own server.
var withoutEffect = map[string]string{
	"issuer": "", "storage": "", "web": "", "telemetry": "", "oauth2": "", "grpc": "", "logger": "", "frontend": "", "signer": "",
	"expiry":           "how long a session lasts is set by users.session.duration",
	"staticClients":    "other programs cannot sign people in through the hub",
	"enablePasswordDB": "local users are accounts, see accounts.<name>",
	"staticPasswords":  "local users are accounts, see accounts.<name>",
	"sessions":         "how long a session lasts is set by users.session.duration",
	"mfa":              "a second factor is asked for by the identity provider",
}

// An entry is one of connectors, before its configuration is read.
type entry struct {
	Type   string `json:"type"`
	ID     string `json:"id"`
	Name   string `json:"name"`
	Config any    `json:"config"`
}

// Parse reads a configuration. The error is fault.Invalid and names line and
// field of what is wrong, and never a value. Warnings are sentences about what
// has no effect. With a nil secret, references are not resolved: names and
// types are checked, and what is built of them fails.
func Parse(text string, secret Secret, b Builders) (connectors []Connector, warnings []string, err error) {
	if len(text) > maxText {
		return nil, nil, fault.New(fault.Invalid, "%s: it is larger than %d bytes", file, maxText)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		line, cause := yamltext.Place([]byte(text), err)
		return nil, nil, mistake(line, "it is not valid YAML: %s", cause)
	}
	if len(doc.Content) == 0 {
		return nil, nil, nil
	}
	p := parser{secret: secret, builders: b, resolved: map[*yaml.Node]bool{}}
	if err := p.top(doc.Content[0]); err != nil {
		return nil, nil, err
	}
	return p.connectors, p.warnings, nil
}

// mistake is an error about a line.
func mistake(line int, format string, args ...any) error {
	return &fault.Error{Kind: fault.Invalid, Object: fmt.Sprintf("%s, line %d", file, line), Cause: fmt.Sprintf(format, args...), Line: line}
}

type parser struct {
	secret     Secret
	builders   Builders
	connectors []Connector
	warnings   []string
	// resolved are the values that were looked at for references, and whether
	// there were some: an anchor may be named several times, and a secret may
	// look like a reference.
	resolved map[*yaml.Node]bool
}

func (p *parser) warn(line int, format string, args ...any) {
	p.warnings = append(p.warnings, fmt.Sprintf("%s, line %d: %s", file, line, fmt.Sprintf(format, args...)))
}

// top reads the fields of the configuration.
func (p *parser) top(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return mistake(n.Line, "it must hold fields, such as connectors")
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if seen[key.Value] {
			return mistake(key.Line, "the field %q is given twice", key.Value)
		}
		seen[key.Value] = true
		reason, known := withoutEffect[key.Value]
		switch {
		case key.Value == "connectors":
			if err := p.list(value); err != nil {
				return err
			}
		case !known:
			return mistake(key.Line, "there is no field %q; connectors are listed in connectors", key.Value)
		case reason == "":
			p.warn(key.Line, "%s has no effect: no Dex runs", key.Value)
		default:
			p.warn(key.Line, "%s has no effect: %s", key.Value, reason)
		}
	}
	return nil
}

func (p *parser) list(n *yaml.Node) error {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return nil
	case n.Kind != yaml.SequenceNode:
		return mistake(n.Line, "connectors: it must be a list")
	case len(n.Content) > maxConnectors:
		return mistake(n.Line, "connectors: there are more than %d", maxConnectors)
	}
	for i, item := range n.Content {
		if err := p.connector(item, fmt.Sprintf("connectors[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

var idText = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// connector reads one entry.
func (p *parser) connector(n *yaml.Node, path string) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	var e entry
	if err := yamltext.DecodeNode(file, n, path, &e); err != nil {
		return err
	}
	switch {
	case !idText.MatchString(e.ID):
		return mistake(n.Line, "%s: id is needed, with at most 63 letters, digits, dots and dashes", path)
	case slices.ContainsFunc(p.connectors, func(c Connector) bool { return c.ID == e.ID }):
		return mistake(n.Line, "%s: the id %q is used twice", path, e.ID)
	}
	if e.Name == "" {
		e.Name = e.ID
	}
	k, known := kinds[e.Type]
	if !known {
		return mistake(n.Line, "%s: there is no connector of type %q; there are %s", path, e.Type, strings.Join(kindNames(), ", "))
	}
	config := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: n.Line}
	if found := field(n, "config"); found != nil {
		config = found
	}
	if config.Kind != yaml.MappingNode {
		return mistake(config.Line, "%s.config: it must hold fields", path)
	}
	if err := p.drop(config, k, path+".config"); err != nil {
		return err
	}
	references, err := p.resolve(config, path+".config")
	if err != nil {
		return err
	}
	made, err := k.read(part{id: e.ID, node: config, path: path + ".config", open: p.secret == nil && references, builders: p.builders})
	if err != nil {
		return err
	}
	for _, w := range made.warnings {
		p.warn(config.Line, "%s: %s", path, w)
	}
	p.connectors = append(p.connectors, Connector{Type: e.Type, ID: e.ID, Name: e.Name, Prompt: made.prompt, Exchange: made.exchange, Machine: made.machine, Build: made.build})
	return nil
}

// field is the value of a field, with aliases followed.
func field(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if strings.EqualFold(n.Content[i].Value, name) {
			value := n.Content[i+1]
			if value.Kind == yaml.AliasNode {
				value = value.Alias
			}
			return value
		}
	}
	return nil
}

// drop takes out the fields that have no effect, and refuses those that mean
// something that the hub does not do.
func (p *parser) drop(n *yaml.Node, k kind, path string) error {
	var left []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		reason, ignored := k.ignored[key.Value]
		fix, refused := k.refused[key.Value]
		switch {
		case refused && !off(value):
			return fault.With(mistake(key.Line, "%s.%s is not supported", path, key.Value), "", fix)
		case refused:
		case ignored:
			p.warn(key.Line, "%s.%s has no effect: %s", path, key.Value, reason)
		default:
			left = append(left, key, value)
		}
	}
	n.Content = left
	return nil
}

// off reports whether a value says the same as an absent one.
func off(n *yaml.Node) bool {
	switch n.Kind {
	case yaml.ScalarNode:
		return n.Tag == "!!null" || n.Value == "" || strings.EqualFold(n.Value, "false")
	case yaml.SequenceNode, yaml.MappingNode:
		return len(n.Content) == 0
	}
	return false
}

// resolve puts secrets where references are, which are texts that begin with $.
func (p *parser) resolve(n *yaml.Node, path string) (references bool, err error) {
	if found, before := p.resolved[n]; before {
		return found, nil
	}
	p.resolved[n] = false
	defer func() { p.resolved[n] = references }()
	switch n.Kind {
	case yaml.AliasNode:
		return p.resolve(n.Alias, path)
	case yaml.ScalarNode:
		return p.resolveText(n, path)
	}
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		if n.Kind == yaml.MappingNode {
			if i%2 == 0 {
				continue // a key
			}
			at = path + "." + n.Content[i-1].Value
		}
		found, err := p.resolve(item, at)
		if err != nil {
			return false, err
		}
		references = references || found
	}
	return references, nil
}

func (p *parser) resolveText(n *yaml.Node, path string) (bool, error) {
	ref, is := strings.CutPrefix(n.Value, "$")
	if !is || ref == "" || n.Tag != "!!str" {
		return false, nil
	}
	if p.secret == nil {
		return true, nil
	}
	value, err := p.secret(ref)
	if err != nil {
		return false, fault.With(&fault.Error{
			Kind: fault.Invalid, Object: fmt.Sprintf("%s, line %d", file, n.Line), Line: n.Line, Err: err,
			Cause: fmt.Sprintf("%s refers to the secret %q, which cannot be read", path, ref),
		}, "", "add the key to argocd-secret, or to a secret with the label app.kubernetes.io/part-of: argocd")
	}
	n.SetString(value)
	n.Style = yaml.DoubleQuotedStyle
	return true, nil
}
