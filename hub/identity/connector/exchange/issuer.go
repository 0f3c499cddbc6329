package exchange

import (
	"net/url"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// The issuers of CI systems that many organizations share.
const (
	GitHubActions = "https://token.actions.githubusercontent.com"
	GitLab        = "https://gitlab.com"
	Buildkite     = "https://agent.buildkite.com"
	Terraform     = "https://app.terraform.io"
	Google        = "https://accounts.google.com"
)

// An Issuer is one whose ID tokens a tenant accepts from machines.
type Issuer struct {
	ID     string // the connector's, by which a request names the issuer
	Issuer string // address, exactly as tokens name it
	// Audiences are the names of the hub in tokens: a token has one of them,
	// and no other audience.
	Audiences []string
	// Rules are whom tokens may be of; one has to match. Without rules every
	// token of the issuer is accepted, which is refused where anybody gets one.
	Rules []Rule
	// SubjectClaim and UsernameClaim identify the machine; empty: sub.
	SubjectClaim, UsernameClaim string
	GroupsClaim                 string // empty: no groups
}

// A Rule has a pattern for each of some claims, and all have to match. In a
// pattern, * stands for any text without "/" and ":", and ** for any text
// without ":". A branch or a fork with a strange name can therefore not look
// like another repository or environment. Case counts.
type Rule map[string]string

// owners are the claims of shared issuers that say whose machine it is. Texts
// are what precedes the owner in the claim, and what follows.
var owners = map[string]map[string][2]string{
	GitHubActions: {
		"sub": {"repo:", "/"}, "repository": {"", "/"}, "repository_owner": {}, "repository_owner_id": {}, "repository_id": {}, "enterprise": {}, "enterprise_id": {},
	},
	GitLab: {
		"sub": {"project_path:", "/"}, "project_path": {"", "/"}, "project_id": {}, "namespace_id": {}, "namespace_path": {},
	},
	Buildkite: {"sub": {"organization:", ":"}, "organization_slug": {}, "organization_id": {}, "pipeline_id": {}},
	Terraform: {"sub": {"organization:", ":"}, "terraform_organization_name": {}, "terraform_organization_id": {}},
	Google:    {"sub": {}, "email": {}, "hd": {}},
}

// Machine reports whether an issuer has tokens of machines only, so that no
// person can sign in with it.
func Machine(issuer string) bool {
	return issuer == GitHubActions || issuer == Buildkite || issuer == Terraform
}

// Validate returns the first mistake as fault.Invalid.
func (i Issuer) Validate() error {
	u, err := url.Parse(i.Issuer)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fault.New(fault.Invalid, "issuer is an address with https")
	}
	if len(i.Audiences) == 0 {
		return fault.New(fault.Invalid, "audiences are missing: tokens for other services would be accepted")
	}
	for _, a := range i.Audiences {
		if strings.TrimSpace(a) == "" {
			return fault.New(fault.Invalid, "an audience is empty")
		}
	}
	pins, shared := owners[strings.TrimRight(i.Issuer, "/")]
	if shared && len(i.Rules) == 0 {
		return fault.With(fault.New(fault.Invalid, "rules are missing: anybody can get a token of this issuer"), "", "name the owner of the machines, such as sub: repo:my-org/*:ref:refs/heads/main")
	}
	for _, r := range i.Rules {
		if err := r.validate(pins); err != nil {
			return err
		}
	}
	return nil
}

// validate checks a rule. Pins are the claims of which a rule has to fix one.
func (r Rule) validate(pins map[string][2]string) error {
	if len(r) == 0 {
		return fault.New(fault.Invalid, "a rule is empty")
	}
	for claim, pattern := range r {
		if claim == "" || pattern == "" {
			return fault.New(fault.Invalid, "a rule has a claim without a name or a pattern")
		}
		if strings.Contains(pattern, "***") {
			return fault.New(fault.Invalid, "the pattern of %s has ***; use * or **", claim)
		}
	}
	if len(pins) == 0 {
		return nil
	}
	for claim, around := range pins {
		if fixed(r[claim], around) {
			return nil
		}
	}
	return fault.With(fault.New(fault.Invalid, "a rule does not say whose tokens are accepted: anybody can get one of this issuer"), "",
		"write the owner without *, such as repo:my-org/*:ref:refs/heads/main for sub")
}

// fixed reports whether a pattern has an owner without a wildcard.
func fixed(pattern string, around [2]string) bool {
	rest, ok := strings.CutPrefix(pattern, around[0])
	if !ok || pattern == "" {
		return false
	}
	owner := rest
	if around[1] != "" {
		if owner, _, ok = strings.Cut(rest, around[1]); !ok {
			return false
		}
	}
	return owner != "" && !strings.Contains(owner, "*")
}

// matches reports whether all patterns of a rule match claims.
func (r Rule) matches(claims map[string][]string) bool {
	for claim, pattern := range r {
		found := false
		for _, value := range claims[claim] {
			found = found || match(pattern, value)
		}
		if !found {
			return false
		}
	}
	return true
}

// match reports whether a text has the form of a pattern. It follows all ways
// to match at once, so that no pattern takes long.
func match(pattern, text string) bool {
	at := make([]bool, len(text)+1) // where in the text the pattern so far may end
	at[0] = true
	for p := 0; p < len(pattern); p++ {
		if pattern[p] != '*' {
			for t := len(text); t > 0; t-- {
				at[t] = at[t-1] && text[t-1] == pattern[p]
			}
			at[0] = false
			continue
		}
		wide := strings.HasPrefix(pattern[p:], "**")
		if wide {
			p++
		}
		for t := range len(text) {
			at[t+1] = at[t+1] || at[t] && text[t] != ':' && (wide || text[t] != '/')
		}
	}
	return at[len(text)]
}
