// Package oauth is what the connectors of OAuth providers share: the code flow
// with PKCE, and requests to a provider's API that are bounded in size, time
// and hosts. It knows no provider. The connectors beside it call it. It keeps
// nothing between two calls.
package oauth

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/oauth2"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A Flow is the code flow of one provider.
type Flow struct {
	Provider     string // what errors call it, such as "GitHub at github.com"
	AuthURL      string
	TokenURL     string
	ClientID     string
	ClientSecret string
	Scopes       []string
}

// Begin is the address to send the browser to. Parameters are added to it.
func (f Flow) Begin(r connector.Request, parameters ...oauth2.AuthCodeOption) string {
	return f.config(r).AuthCodeURL(r.State, append(parameters, oauth2.S256ChallengeOption(r.Verifier))...)
}

func (f Flow) config(r connector.Request) *oauth2.Config {
	return &oauth2.Config{
		ClientID: f.ClientID, ClientSecret: f.ClientSecret, Scopes: f.Scopes, RedirectURL: r.Callback,
		// A fixed style: with another, the library sends the code twice.
		Endpoint: oauth2.Endpoint{AuthURL: f.AuthURL, TokenURL: f.TokenURL, AuthStyle: oauth2.AuthStyleInParams},
	}
}

// Finish exchanges the code that the browser came back with for a token. The
// errors have the kinds of connector.Redirect.
func (f Flow) Finish(ctx context.Context, client *http.Client, r connector.Request, answer url.Values, parameters ...oauth2.AuthCodeOption) (*oauth2.Token, error) {
	if subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(r.State)) != 1 {
		return nil, f.unknown("the answer belongs to another sign-in", "sign in again")
	}
	if code := answer.Get("error"); code != "" {
		return nil, f.refusal(code)
	}
	code := answer.Get("code")
	if code == "" {
		return nil, f.unknown("the answer has no code", "sign in again")
	}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, Client(client))
	token, err := f.config(r).Exchange(ctx, code, append(parameters, oauth2.VerifierOption(r.Verifier))...)
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused):
		return nil, f.tokenError(refused, r)
	case err != nil && strings.Contains(err.Error(), "server response missing access_token"):
		return nil, f.unknown("its answer has no access token", "try again")
	case err != nil:
		return nil, connector.Unreachable(f.Provider, err)
	case token.AccessToken == "":
		return nil, f.unknown("its answer has no access token", "try again")
	}
	return token, nil
}

func (f Flow) unknown(cause, fix string) error {
	return fault.With(fault.New(fault.Unknown, "%s", cause), f.Provider, fix)
}

// refusal explains the error that the browser came back with.
func (f Flow) refusal(code string) error {
	switch code {
	case "access_denied":
		return f.unknown("the sign-in was cancelled, or the provider does not let the person use this client", "sign in again, or ask who manages the client at the provider")
	case "temporarily_unavailable", "server_error":
		return fault.With(fault.New(fault.Offline, "it has a failure of its own"), f.Provider, "try again")
	case "redirect_uri_mismatch":
		return f.unknown("the callback address is not registered for the client", "register the callback address at the provider")
	}
	return f.unknown("it refuses the sign-in ("+Printable(code)+")", "check client, scopes and callback address at the provider")
}

// tokenError explains why there is no token for a code. It never prints the
// body of the answer.
func (f Flow) tokenError(e *oauth2.RetrieveError, r connector.Request) error {
	status := 0
	if e.Response != nil {
		status = e.Response.StatusCode
	}
	switch {
	case slices.Contains([]string{"invalid_client", "unauthorized_client", "incorrect_client_credentials"}, e.ErrorCode):
		return f.unknown("it refuses the client ID or the client secret", "check clientID and clientSecret of the connector; make a new secret if the old one has expired")
	case slices.Contains([]string{"invalid_grant", "bad_verification_code"}, e.ErrorCode):
		return f.unknown("it does not accept the code; codes are valid once and for a short time", "sign in again")
	case e.ErrorCode == "redirect_uri_mismatch":
		return f.unknown("the callback address is not registered for the client", "register "+r.Callback+" at the provider")
	case status >= 500, status == http.StatusTooManyRequests:
		return fault.With(fault.New(fault.Offline, "its token endpoint answers with status %d", status), f.Provider, "try again")
	case e.ErrorCode != "":
		return f.unknown("its token endpoint answers "+Printable(e.ErrorCode), "check the client at the provider")
	}
	return fault.With(fault.New(fault.Offline, "its token endpoint answers with status %d", status), f.Provider, "check the address of the provider")
}

// Printable is the start of a foreign text, in printable characters.
func Printable(s string) string {
	const most = 80
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most])
	}
	return s
}
