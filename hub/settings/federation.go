package settings

import (
	"net/url"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/identity/connector/exchange"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	usualExchange = 15 * time.Minute
	mostExchange  = 12 * time.Hour
	maxTrusts     = 20
)

// federation is the key with the issuers whose tokens may be exchanged.
func federation() []Known {
	return []Known{{
		Map: hub.SettingsMap, Key: hub.FederationKey, Used: true, read: (*set).readFederation,
		About: "Issuers, such as CI systems, whose tokens may be exchanged for one that acts as an account or as a role of a project.",
		Sample: "- name: github\n  issuer: https://token.actions.githubusercontent.com\n  audience: https://capstan.example.com\n  lifetime: 15m\n" +
			"  rules:\n  - claims:\n      repository: acme/shop\n      ref: refs/heads/main\n    role: shop/deployer\n",
	}}
}

func (s *set) readFederation(_ string, t text) error {
	if !s.strict {
		return nil
	}
	_, err := readFederations(t)
	return err
}

// Federations reads the issuers whose tokens may be exchanged (AUTH-10). What
// cannot be read trusts nobody.
func Federations(value string) []hub.Federation {
	out, err := readFederations(text{value, 0})
	if err != nil {
		return nil
	}
	return out
}

func readFederations(t text) ([]hub.Federation, error) {
	root, err := t.yaml()
	if err != nil || root.empty() {
		return nil, err
	}
	items, err := root.list("the issuers")
	if err != nil {
		return nil, err
	}
	if len(items) > maxTrusts {
		return nil, root.fail("there are more than %d issuers", maxTrusts)
	}
	var out []hub.Federation
	for _, item := range items {
		f := hub.Federation{Lifetime: usualExchange}
		err := item.fields(map[string]func(node) error{
			"name":     func(n node) (err error) { f.Name, err = n.text(); return err },
			"issuer":   func(n node) (err error) { f.Issuer, err = n.text(); return err },
			"audience": func(n node) (err error) { f.Audience, err = n.text(); return err },
			"lifetime": func(n node) (err error) {
				value, err := n.text()
				if err == nil {
					f.Lifetime, err = duration(value)
				}
				return err
			},
			"rules": func(n node) (err error) { f.Rules, err = readRules(n); return err },
		})
		if err != nil {
			return nil, err
		}
		if err := checkFederation(item, f); err != nil {
			return nil, err
		}
		for _, other := range out {
			if other.Name == f.Name {
				return nil, item.fail("the name %q is there twice", short(f.Name))
			}
		}
		out = append(out, f)
	}
	return out, nil
}

func checkFederation(n node, f hub.Federation) error {
	u, err := url.Parse(f.Issuer)
	switch {
	case f.Name == "" || f.Audience == "" || len(f.Rules) == 0:
		return n.fail("an issuer needs name, issuer, audience and rules")
	case err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return n.fail("the issuer is no URL like https://token.actions.githubusercontent.com")
	case f.Lifetime <= 0 || f.Lifetime > mostExchange:
		return n.fail("the lifetime is not between 1s and %s", mostExchange)
	}
	for _, r := range f.Rules {
		if err := Issuer(f, r).Validate(); err != nil {
			e, _ := fault.As(err)
			return n.fail("%s", e.Cause)
		}
	}
	return nil
}

// Issuer is an issuer with one of its rules, as tokens are checked against it.
func Issuer(f hub.Federation, r hub.FederationRule) exchange.Issuer {
	return exchange.Issuer{ID: f.Name, Issuer: f.Issuer, Audiences: []string{f.Audience}, Rules: []exchange.Rule{r.Claims}}
}

func readRules(n node) ([]hub.FederationRule, error) {
	items, err := n.list("the rules")
	if err != nil {
		return nil, err
	}
	var out []hub.FederationRule
	for _, item := range items {
		r := hub.FederationRule{Claims: map[string]string{}}
		target := ""
		err := item.fields(map[string]func(node) error{
			"account": func(n node) (err error) { r.Account, err = n.text(); return err },
			"role":    func(n node) (err error) { target, err = n.text(); return err },
			"claims": func(n node) error {
				return n.each("the claims", func(key, value node) (err error) {
					r.Claims[key.Value], err = value.text()
					return err
				})
			},
		})
		if err != nil {
			return nil, err
		}
		if target != "" {
			if r.Project, r.Role, err = projectRoleOf(target); err != nil {
				return nil, item.fail("the role %q is not written as PROJECT/ROLE", short(target))
			}
		}
		if len(r.Claims) == 0 || (r.Account == "") == (r.Role == "") {
			return nil, item.fail("a rule needs claims, and either account or role")
		}
		out = append(out, r)
	}
	return out, nil
}

func projectRoleOf(s string) (project, role string, err error) {
	for i := range len(s) {
		if s[i] == '/' && i > 0 && i < len(s)-1 {
			return s[:i], s[i+1:], nil
		}
	}
	return "", "", fault.New(fault.Invalid, "it is no role of a project")
}
