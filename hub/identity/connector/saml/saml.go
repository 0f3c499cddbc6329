// Package saml signs people in by SAML 2.0: the browser goes to the provider
// with the binding HTTP-Redirect and comes back with a signed message by the
// binding HTTP-POST. It accepts only answers to a request of its own, reads
// only what is signed, and keeps nothing between the two steps. The hub's
// sign-in calls it.
//
// Replays: the identifier of a request is derived from Request.State, and the
// signed part of an answer names it. As the caller finishes a Request once, an
// answer counts once, and no list of seen assertions is needed.
package saml

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	crewjam "github.com/crewjam/saml"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	// maxMessage is the largest answer in bytes, as base64.
	maxMessage = 1 << 20
	// skew is how much the clocks of hub and provider may differ.
	skew = time.Minute
)

// A Connector signs people in by SAML.
type Connector struct {
	cfg          Config
	certificates []*x509.Certificate
	object       string // what errors call it
	now          func() time.Time
}

// New returns a connector. The error is fault.Invalid if the configuration is
// wrong. It sends no requests itself; browsers carry all messages.
func New(cfg Config, now func() time.Time) (*Connector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	certificates, err := cfg.certificates()
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(cfg.SSOURL)
	if err != nil {
		return nil, err
	}
	return &Connector{cfg: cfg, certificates: certificates, object: "SAML provider at " + u.Host, now: now}, nil
}

// requestID identifies the message of a request (an xs:ID begins with no digit).
func requestID(r connector.Request) string {
	sum := sha256.Sum256([]byte("saml request " + r.State))
	return "_" + hex.EncodeToString(sum[:20])
}

// Begin returns the address with the request to sign in.
func (c *Connector) Begin(_ context.Context, r connector.Request) (string, error) {
	format, _ := c.cfg.nameFormat()
	create := true
	message := crewjam.AuthnRequest{
		ID: requestID(r), Version: "2.0", IssueInstant: c.now().UTC(), Destination: c.cfg.SSOURL,
		ProtocolBinding: crewjam.HTTPPostBinding, AssertionConsumerServiceURL: r.Callback,
		NameIDPolicy: &crewjam.NameIDPolicy{AllowCreate: &create, Format: &format},
		Issuer:       &crewjam.Issuer{Value: c.audience(r)},
	}
	// The library does not escape the state. The provider asks for no signature
	// of the request, as none is configured.
	to, err := message.Redirect(url.QueryEscape(r.State), &crewjam.ServiceProvider{})
	if err != nil {
		return "", err
	}
	return to.String(), nil
}

// audience is the hub's name at the provider.
func (c *Connector) audience(r connector.Request) string {
	if c.cfg.EntityIssuer != "" {
		return c.cfg.EntityIssuer
	}
	return r.Callback
}

// Finish checks the answer that the browser brings by the binding HTTP-POST.
func (c *Connector) Finish(_ context.Context, r connector.Request, answer url.Values) (connector.Identity, error) {
	if r.State == "" || subtle.ConstantTimeCompare([]byte(answer.Get("RelayState")), []byte(r.State)) != 1 {
		return connector.Identity{}, c.unknown(nil, "the answer belongs to another sign-in", "sign in again")
	}
	encoded := answer.Get("SAMLResponse")
	if encoded == "" || len(encoded) > maxMessage {
		return connector.Identity{}, c.unknown(nil, "the answer has no message, or a very large one", "let the provider answer with the binding HTTP-POST")
	}
	text, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(encoded), ""))
	if err != nil {
		return connector.Identity{}, c.unknown(err, "the answer is not encoded as base64", "let the provider answer with the binding HTTP-POST")
	}
	message, err := verify(text, c.certificates, c.now())
	if err != nil {
		return connector.Identity{}, c.invalid(err)
	}
	if err := c.checkResponse(r, message.response); err != nil {
		return connector.Identity{}, err
	}
	if err := c.checkAssertion(r, message.assertion); err != nil {
		return connector.Identity{}, err
	}
	return c.identity(message.assertion)
}

func (c *Connector) unknown(err error, cause, fix string) error {
	return fault.With(fault.Wrap(fault.Unknown, err, "%s", cause), c.object, fix)
}

// invalid explains why a message proves nothing.
func (c *Connector) invalid(err error) error {
	switch {
	case errors.Is(err, errEncrypted):
		return c.unknown(err, "its assertions are encrypted", "switch their encryption off at the provider; TLS already protects them")
	case errors.Is(err, errUnsigned):
		return c.unknown(err, "neither its response nor its assertion is signed", "let the provider sign responses or assertions")
	case errors.Is(err, errWeak):
		return c.unknown(err, "it signs with an algorithm that is not accepted", "let the provider sign with RSA or ECDSA and SHA-256")
	case strings.HasPrefix(err.Error(), "verify the signature"):
		return c.unknown(err, "its signature is not valid", "write the certificates that the provider signs with now in caData; see the hub's log")
	}
	return c.unknown(err, "its answer is not accepted", "see the hub's log for the reason")
}

// checkResponse checks what is around the assertion. If only the assertion is
// signed, this proves nothing, and helps to find mistakes.
func (c *Connector) checkResponse(r connector.Request, m response) error {
	if m.Status == nil || m.Status.Code.Value != success {
		return c.refused(m)
	}
	switch {
	case m.Version != "2.0":
		return c.unknown(nil, "its answer has another version of SAML", "let the provider use SAML 2.0")
	case m.InResponseTo != requestID(r):
		return c.unknown(nil, "its answer belongs to another sign-in", "sign in here and not from the provider's page")
	case m.Destination != "" && m.Destination != r.Callback:
		return c.unknown(nil, "its answer is for another address", "set the address for answers (ACS URL) at the provider to "+r.Callback)
	case m.Issuer != nil && c.cfg.SSOIssuer != "" && strings.TrimSpace(*m.Issuer) != c.cfg.SSOIssuer:
		return c.unknown(nil, "its name is another than ssoIssuer", "correct ssoIssuer in the connector's configuration")
	}
	return nil
}

// refused explains the status of a provider that signs nobody in.
func (c *Connector) refused(m response) error {
	code := ""
	if m.Status != nil {
		code = m.Status.Code.Value
		if m.Status.Code.Code != nil {
			code = m.Status.Code.Code.Value
		}
	}
	code = code[strings.LastIndex(code, ":")+1:]
	if code == "" || len(code) > 40 || strings.ContainsFunc(code, func(r rune) bool { return r < '0' || r > 'z' }) {
		code = "no status"
	}
	return c.unknown(nil, "it does not sign the person in ("+code+")", "let the person be assigned to the hub at the provider, and check nameIDPolicyFormat")
}

// checkAssertion checks whom, when and for which request an assertion is for
// (saml-profiles-2.0-os, 4.1.4.3).
func (c *Connector) checkAssertion(r connector.Request, a assertion) error {
	issuer := strings.TrimSpace(a.Issuer)
	switch {
	case a.XMLName.Local == "":
		return c.unknown(nil, "its answer has no assertion", "let the provider send one")
	case a.Version != "2.0":
		return c.unknown(nil, "its assertion has another version of SAML", "let the provider use SAML 2.0")
	case issuer == "" || c.cfg.SSOIssuer != "" && issuer != c.cfg.SSOIssuer:
		return c.unknown(nil, "its name is another than ssoIssuer", "correct ssoIssuer in the connector's configuration")
	case a.Subject == nil || len(a.Subject.NameIDs) != 1 || strings.TrimSpace(a.Subject.NameIDs[0]) == "":
		return c.unknown(nil, "its assertion names no person", "let the provider send a NameID")
	case a.Conditions == nil || len(a.Conditions.Restrictions) == 0:
		return c.unknown(nil, "its assertion is for no audience", "set the audience at the provider to "+c.audience(r))
	}
	for _, restriction := range a.Conditions.Restrictions {
		if !slices.ContainsFunc(restriction.Audiences, func(s string) bool { return strings.TrimSpace(s) == c.audience(r) }) {
			return c.unknown(nil, "its assertion is for another audience", "set the audience at the provider to "+c.audience(r)+", or entityIssuer to the audience that it has")
		}
	}
	if err := c.checkTimes(a); err != nil {
		return err
	}
	if !slices.ContainsFunc(a.Subject.Confirmations, func(s confirmation) bool { return c.confirms(r, s) }) {
		return c.unknown(nil, "its assertion is not for this sign-in", "sign in again; check the address for answers (ACS URL) at the provider: "+r.Callback)
	}
	return nil
}

func (c *Connector) checkTimes(a assertion) error {
	const fix = "sign in again; compare the clocks of hub and provider"
	if now := c.now(); !a.Conditions.NotBefore.IsZero() && now.Add(skew).Before(a.Conditions.NotBefore.Time) {
		return c.unknown(nil, "its assertion is not valid yet", fix)
	}
	ends := []instant{a.Conditions.NotOnOrAfter}
	for _, s := range a.Statements {
		ends = append(ends, s.SessionNotOnOrAfter)
	}
	if slices.ContainsFunc(ends, c.over) {
		return c.unknown(nil, "its assertion has expired", fix)
	}
	return nil
}

// over reports whether a time is there and has come.
func (c *Connector) over(i instant) bool {
	return !i.IsZero() && !c.now().Add(-skew).Before(i.Time)
}

// confirms reports whether a confirmation is for the bearer of an answer to
// this request.
func (c *Connector) confirms(r connector.Request, s confirmation) bool {
	if s.Method != bearer || s.Data == nil || s.Data.NotOnOrAfter.IsZero() || c.over(s.Data.NotOnOrAfter) {
		return false
	}
	if !s.Data.NotBefore.IsZero() && c.now().Add(skew).Before(s.Data.NotBefore.Time) {
		return false
	}
	return s.Data.Recipient == r.Callback && s.Data.InResponseTo == requestID(r)
}

// identity describes the person of an assertion.
func (c *Connector) identity(a assertion) (connector.Identity, error) {
	id := connector.Identity{
		Subject: strings.TrimSpace(a.Subject.NameIDs[0]), Username: first(a.values(c.cfg.UsernameAttr)), Email: first(a.values(c.cfg.EmailAttr)), EmailVerified: true,
		Claims: map[string][]string{},
	}
	for field, name := range map[string]string{"usernameAttr": c.cfg.UsernameAttr, "emailAttr": c.cfg.EmailAttr} {
		if first(a.values(name)) == "" {
			return connector.Identity{}, fault.With(fault.New(fault.Denied, "its assertion has no attribute %q", name), c.object,
				"let the provider send the attribute, or name another in "+field)
		}
	}
	for _, attr := range a.Attributes {
		id.Claims[attr.Name] = append(id.Claims[attr.Name], attr.Values...)
	}
	if c.cfg.GroupsAttr == "" {
		return id, nil
	}
	groups := a.values(c.cfg.GroupsAttr)
	if c.cfg.GroupsDelim != "" {
		groups = strings.Split(strings.Join(groups, c.cfg.GroupsDelim), c.cfg.GroupsDelim)
	}
	for i := range groups {
		groups[i] = strings.TrimSpace(groups[i])
	}
	admitted, err := connector.Admit(c.object, groups, c.cfg.AllowedGroups)
	if err != nil {
		return connector.Identity{}, err
	}
	if c.cfg.FilterGroups {
		groups = admitted
	}
	id.Groups, err = connector.Groups(c.object, groups)
	return id, err
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return strings.TrimSpace(values[0])
}
