package hub

import "slices"

// Capabilities of accounts, under the names of Argo CD (AUTH-01).
const (
	CanSignIn    = "login"  // by password, or by an identity provider
	CanUseTokens = "apiKey" // API tokens of the account are accepted
)

// Capabilities returns all that there are.
func Capabilities() []string { return []string{CanSignIn, CanUseTokens} }

// An Origin is what made an account, and decides when it ends.
type Origin string

// The origins of accounts.
const (
	OriginPeople   Origin = ""         // somebody with the right to
	OriginSettings Origin = "settings" // a key accounts.<name> of argocd-cm
	OriginSCIM     Origin = "scim"     // an identity provider, by SCIM
)

// Can reports whether the account has a capability.
func (u User) Can(capability string) bool { return slices.Contains(u.Capabilities, capability) }

// Names of argocd-cm and argocd-secret about accounts.
const (
	AccountPrefix      = "accounts."     // and a name; in SecretMap a name and PasswordSuffix
	EnabledSuffix      = ".enabled"      // after AccountPrefix and a name
	PasswordSuffix     = ".password"     // after AccountPrefix and a name
	AdminEnabledKey    = "admin.enabled" // of SettingsMap
	AdminPasswordKey   = "admin.password"
	AdminName          = "admin" // the account that the two keys before are about
	PasswordPatternKey = "passwordPattern"
	AnonymousKey       = "users.anonymous.enabled"
)
