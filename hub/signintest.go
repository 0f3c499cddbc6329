package hub

import "time"

// SignInTestID identifies a SignInTest.
type SignInTestID string

// SignInTestLasts is how long the outcome of a test sign-in can be read.
const SignInTestLasts = time.Hour

// A SignInTest is a sign-in that an admin makes to see what would become of it.
// It begins no session and makes no account.
type SignInTest struct {
	ID        SignInTestID
	User      UserID // who tests, and alone reads the outcome
	Provider  string // id within the tenant
	Name      string // of the provider, for people
	Callback  string // where the provider sends the browser to
	Draft     SignInDraft
	Report    *SignInReport // nil: the browser has not come back
	StartedAt time.Time
	ExpiresAt time.Time
}

// A SignInDraft is what is tested in place of what is stored.
type SignInDraft struct {
	Values  map[string]string // of argocd-cm, by key
	Secrets map[string]string // by reference, without the $
}

// A SignInReport is what a provider has said at a test, without any token.
type SignInReport struct {
	Problem *SignInProblem // nil: the person would be signed in

	Subject, Username, Email, Name string
	EmailVerified                  bool
	Claims                         map[string][]string
	Groups                         []string
	Subjects                       []string // what policies may name of it
	Ignored                        []string // what they may not: it stands for a role or a local account
	Account                        string   // the account that the person would have
	Known                          bool     // the account is there
	Roles                          []string // of that account
	Disabled                       bool
	Scopes                         []string // claims that policies may name
	At                             time.Time
}

// A SignInProblem is why a sign-in has failed.
type SignInProblem struct{ Object, Cause, Fix string }
