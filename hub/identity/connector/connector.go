// Package connector defines how people prove who they are to an identity
// provider of their tenant. Each protocol is a package below this one. A
// connector keeps no state between the steps of a sign-in: what one step must
// remember for the next is in the Request, which the caller stores.
package connector

import (
	"context"
	"net/url"
)

// An Identity is a person as a provider describes them. It holds no rights.
type Identity struct {
	Subject       string // what the provider never gives to anybody else
	Username      string
	Email         string
	EmailVerified bool
	Name          string // of the person, for display
	Groups        []string
	// Claims are the claims that policies may name besides groups, by name;
	// what is no text or list of texts is left out.
	Claims map[string][]string
	// Proof is what the provider wants back when the person signs out there; a
	// secret, and empty if it wants nothing.
	Proof string
}

// A Request is one sign-in that has begun. All its secrets are random, of at
// least 128 bits, and used once.
type Request struct {
	State    string // comes back with the answer, and finds this request again
	Nonce    string
	Verifier string // of PKCE
	Callback string // where the provider sends the browser to
	Hint     string // who wants to sign in, if known; may be empty
}

// A Redirect connector sends the browser to the provider and reads what it
// comes back with.
type Redirect interface {
	// Begin returns the address to send the browser to.
	Begin(ctx context.Context, r Request) (string, error)
	// Finish checks the parameters that the browser came back with, of the query
	// or of the form. The error is fault.Unknown if they prove nothing,
	// fault.Denied if the person is proven but not admitted, and
	// fault.Offline if the provider does not answer.
	Finish(ctx context.Context, r Request, answer url.Values) (Identity, error)
}

// A Password connector checks a name and a password itself.
type Password interface {
	// Check returns who it is. The error is fault.Unknown if name or password is
	// wrong.
	Check(ctx context.Context, username, password string) (Identity, error)
}

// A SessionEnder knows where to send the browser of a person who signs
// out, so that the session with the provider ends as well.
type SessionEnder interface {
	// SignOut returns that address, or an empty text if there is none. proof is
	// that of the Identity; the provider sends the browser back to the address
	// that is given.
	SignOut(proof, back string) string
}

// A Cause in the chain of an error says what the console has words of its own
// for.
type Cause string

// Overage means that somebody is in so many groups that the provider leaves
// them out.
const Overage Cause = "groups"

// Error returns the word.
func (c Cause) Error() string { return string(c) }
