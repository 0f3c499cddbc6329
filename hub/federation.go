package hub

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// FederationKey of SettingsMap lists issuers whose tokens may be exchanged for
// one of the hub (AUTH-10).
const FederationKey = "tokenExchange"

// A Federation is an issuer of tokens, such as a CI system, that a tenant
// trusts.
type Federation struct {
	Name     string
	Issuer   string
	Audience string        // that a token must have
	Lifetime time.Duration // of the hub's token, at most
	Rules    []FederationRule
}

// A FederationRule says as whom tokens with some claims act: an account, or a
// role of a project.
type FederationRule struct {
	Claims  map[string][]string // each must have one of the values
	Account string
	Project string
	Role    string
}

// Match returns the first rule whose claims a token has.
func (f Federation) Match(claims map[string]any) (FederationRule, bool) {
	for _, r := range f.Rules {
		if len(r.Claims) > 0 && r.matches(claims) {
			return r, true
		}
	}
	return FederationRule{}, false
}

func (r FederationRule) matches(claims map[string]any) bool {
	for name, allowed := range r.Claims {
		values := claimTexts(claims[name])
		if !slices.ContainsFunc(allowed, func(pattern string) bool {
			return slices.ContainsFunc(values, func(v string) bool { return claimMatches(pattern, v) })
		}) {
			return false
		}
	}
	return true
}

// claimTexts are the values of a claim: a text, a number, a truth value or a
// list of these.
func claimTexts(v any) (out []string) {
	switch v := v.(type) {
	case string:
		out = []string{v}
	case bool, float64:
		out = []string{fmt.Sprint(v)}
	case []any:
		for _, item := range v {
			if _, nested := item.([]any); !nested {
				out = append(out, claimTexts(item)...)
			}
		}
	}
	return out
}

// claimMatches compares part by part, where slashes and colons divide. A * in a
// part stands for text within that part, so that no name of a branch or a fork
// reaches beyond it.
func claimMatches(pattern, value string) bool {
	if value == "" {
		return false
	}
	for {
		p, v := strings.IndexAny(pattern, "/:"), strings.IndexAny(value, "/:")
		if (p < 0) != (v < 0) {
			return false
		}
		if p < 0 {
			return partMatches(pattern, value)
		}
		if pattern[p] != value[v] || !partMatches(pattern[:p], value[:v]) {
			return false
		}
		pattern, value = pattern[p+1:], value[v+1:]
	}
}

func partMatches(pattern, value string) bool {
	head, tail, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == value
	}
	return value != "" && len(value) >= len(head)+len(tail) && strings.HasPrefix(value, head) && strings.HasSuffix(value, tail)
}

// An ExchangedToken is one of the hub that was given for one of another issuer.
type ExchangedToken struct {
	ID         TokenID
	Hash       [32]byte
	Proof      [32]byte // hash of the other issuer's token
	Trust      string   // name of the federation
	Subject    string   // the other issuer's name for who acts
	Account    UserID   // empty: a role of a project
	ProjectID  ProjectID
	Project    string
	Role       string
	ExpiresAt  time.Time
	ProofUntil time.Time
}
