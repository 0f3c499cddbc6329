package hub

import "time"

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
	Claims  map[string]string // patterns: * is text without / and :, ** without :
	Account string
	Project string
	Role    string
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
