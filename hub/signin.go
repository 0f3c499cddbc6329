package hub

import "time"

// A SignIn has begun at an identity provider and waits for its answer.
type SignIn struct {
	Hash      [32]byte     // of the state
	Browser   [32]byte     // hash of the secret that only the browser has which began
	Provider  string       // id within the tenant
	Callback  string       // where the provider sends the browser to
	ReturnTo  string       // path of the console to go to then
	Client    string       // loopback address of a command line; empty: a browser signs in
	Challenge string       // of the PKCE of the command line
	Test      SignInTestID // it is one of these; empty: somebody signs in
	ExpiresAt time.Time
}

// SessionClaims are what a provider said of a person at a sign-in, for as long
// as the session lasts.
type SessionClaims struct {
	Hash      [32]byte // of the session's secret, or of a command line's code
	User      UserID
	Provider  string
	Groups    []string // what policies may name as a subject
	Proof     string   // what the provider wants at sign-out; stored encrypted
	Challenge string   // of a code; empty for a session
	ExpiresAt time.Time
}

// A Person is somebody as a provider of a tenant identifies them.
type Person struct {
	Provider string // id within the tenant
	Realm    string // who issued the subject: another issuer's subjects are others
	Subject  string // unique within the realm, for ever
	Label    string // for the name of a new account
}

// SignInSettings are what a tenant has set about sign-ins.
type SignInSettings struct {
	Values  map[string]string // of argocd-cm, by key
	Scopes  string            // of argocd-rbac-cm
	Secrets map[string]string // by reference, without the $
}

// SecretsMap is the map of a Secret that settings may refer to, other than
// argocd-secret (AUTH-13).
func SecretsMap(name string) string { return SecretPrefix + name }

// SecretPrefix begins the names of such maps. No ConfigMap has a colon in its
// name.
const SecretPrefix = "secret:"
