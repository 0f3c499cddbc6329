package exchange

import (
	"net/url"

	"github.com/capstan-cd/capstan/shared/fault"
)

// The names of RFC 8693.
const (
	GrantType       = "urn:ietf:params:oauth:grant-type:token-exchange"
	TypeIDToken     = "urn:ietf:params:oauth:token-type:id_token"
	TypeJWT         = "urn:ietf:params:oauth:token-type:jwt"
	TypeAccessToken = "urn:ietf:params:oauth:token-type:access_token"
)

// A Request is a request to the token endpoint.
type Request struct {
	Connector string // id of the connector whose issuer the token is of
	Token     string // of the machine
}

// ReadRequest reads the form of a request, with the parameters that Dex has.
// The error is fault.Invalid and names the parameter.
func ReadRequest(form url.Values) (Request, error) {
	for name, values := range form {
		if len(values) > 1 {
			return Request{}, fault.New(fault.Invalid, "%s is given twice", name)
		}
	}
	subject, requested := form.Get("subject_token_type"), form.Get("requested_token_type")
	switch {
	case form.Get("grant_type") != GrantType:
		return Request{}, fault.New(fault.Invalid, "grant_type is not %s", GrantType)
	case form.Get("subject_token") == "":
		return Request{}, fault.New(fault.Invalid, "subject_token is missing")
	case subject != TypeIDToken && subject != TypeJWT:
		return Request{}, fault.New(fault.Invalid, "subject_token_type is not %s", TypeIDToken)
	case requested != "" && requested != TypeAccessToken && requested != TypeIDToken:
		return Request{}, fault.New(fault.Invalid, "requested_token_type is not %s", TypeAccessToken)
	case form.Get("connector_id") == "":
		return Request{}, fault.New(fault.Invalid, "connector_id is missing: the id of the connector in dex.config")
	case form.Has("actor_token"):
		return Request{}, fault.New(fault.Invalid, "actor_token is not supported: nobody acts for others")
	}
	return Request{Connector: form.Get("connector_id"), Token: form.Get("subject_token")}, nil
}

// A Response is the answer to a request (RFC 8693, 2.2.1).
type Response struct {
	AccessToken     string `json:"access_token"`
	IssuedTokenType string `json:"issued_token_type"`
	TokenType       string `json:"token_type"`
	ExpiresIn       int64  `json:"expires_in"` // seconds
}

// ErrorCode is the code of an error in an answer (RFC 6749, 5.2).
func ErrorCode(err error) string {
	switch fault.KindOf(err) {
	case fault.Invalid:
		return "invalid_request"
	case fault.Unknown, fault.Denied:
		return "invalid_grant"
	case fault.Offline, fault.Exceeded:
		return "temporarily_unavailable"
	}
	return "server_error"
}
