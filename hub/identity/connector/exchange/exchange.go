// Package exchange accepts ID tokens of machines, such as jobs of GitHub
// Actions and GitLab CI, so that no secret of the hub has to be stored there
// (RFC 8693). It decides who a token is of, by issuer, signature, audience,
// time and rules; what the machine may do is up to the tenant's policies. It
// makes no sessions or tokens itself. The hub's sign-in calls it.
package exchange

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	// maxToken is the longest token in bytes, maxClaim the longest value.
	maxToken = 16 << 10
	maxClaim = 1024
	// skew is how much the clocks of hub and issuer may differ.
	skew = time.Minute
	// maxAge is how long after its issue a token is accepted, whatever it says.
	maxAge = 24 * time.Hour
)

// algorithms are those of signatures with a public key.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// A Verifier checks tokens. It remembers the public keys of issuers.
type Verifier struct {
	now  func() time.Time
	keys *keys
}

// New returns a verifier.
func New(now func() time.Time) *Verifier {
	return &Verifier{now: now, keys: &keys{now: now, sets: map[keyID]keySet{}}}
}

// Verify returns whose token it is, as a tenant sees it. The error is
// fault.Unknown if the token proves nothing, fault.Denied if no rule accepts
// it, fault.Offline if the keys of the issuer cannot be read, and
// fault.Invalid if the issuer is configured wrongly. Requests are sent with the
// client.
func (v *Verifier) Verify(ctx context.Context, client *http.Client, tenant string, issuer Issuer, token string) (connector.Identity, error) {
	if err := issuer.Validate(); err != nil {
		return connector.Identity{}, err
	}
	object := "issuer " + issuer.Issuer
	payload, err := v.payload(ctx, client, keyID{tenant, issuer.Issuer}, token)
	if err != nil {
		return connector.Identity{}, err
	}
	claims, err := v.check(issuer, payload)
	if err != nil {
		return connector.Identity{}, err
	}
	if len(issuer.Rules) > 0 && !slices.ContainsFunc(issuer.Rules, func(r Rule) bool { return r.matches(claims) }) {
		return connector.Identity{}, fault.With(fault.New(fault.Denied, "no rule accepts the token"), object,
			"compare the claims of the token with the rules of the connector "+issuer.ID)
	}
	id := connector.Identity{Subject: only(claims, issuer.SubjectClaim), Username: only(claims, issuer.UsernameClaim), Claims: claims}
	if id.Subject == "" || id.Username == "" {
		return connector.Identity{}, unknown(object, nil, "the token does not say whose it is", "name another claim in userIDKey or userNameKey")
	}
	if issuer.GroupsClaim != "" {
		id.Groups, err = connector.Groups(object, claims[issuer.GroupsClaim])
	}
	return id, err
}

// only is the value of a claim that has one; the claim is sub if it is empty.
func only(claims map[string][]string, name string) string {
	if name == "" {
		name = "sub"
	}
	if values := claims[name]; len(values) == 1 {
		return strings.TrimSpace(values[0])
	}
	return ""
}

func unknown(object string, err error, cause, fix string) error {
	return fault.With(fault.Wrap(fault.Unknown, err, "%s", cause), object, fix)
}

// payload verifies the signature of a token. What the token itself says about
// keys, by address or in full, is not used.
func (v *Verifier) payload(ctx context.Context, client *http.Client, id keyID, token string) ([]byte, error) {
	object := "issuer " + id.issuer
	if len(token) > maxToken {
		return nil, unknown(object, nil, "the token is longer than "+strconv.Itoa(maxToken)+" bytes", "send an ID token")
	}
	signed, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil || len(signed.Signatures) != 1 {
		return nil, unknown(object, nil, "it is no token with a signature that is accepted", "send an ID token")
	}
	header := signed.Signatures[0].Protected
	if typ, _ := header.ExtraHeaders[jose.HeaderType].(string); typ != "" && !strings.EqualFold(typ, "JWT") {
		return nil, unknown(object, nil, "it is another kind of token", "send an ID token")
	}
	candidates, err := v.keys.find(ctx, client, id, header.KeyID)
	if errors.Is(err, errUnknownKey) {
		return nil, unknown(object, err, "the token is signed with a key that the issuer does not have", "send a token of this issuer")
	}
	if err != nil {
		return nil, err
	}
	for _, key := range candidates {
		if key.Algorithm != "" && key.Algorithm != header.Algorithm {
			continue
		}
		if payload, err := signed.Verify(key.Key); err == nil {
			return payload, nil
		}
	}
	return nil, unknown(object, nil, "the signature of the token is not valid", "send a token of this issuer")
}

// standard are the claims that every token needs.
type standard struct {
	issuer, subject         string
	audience                []string
	expires, issued, before float64
}

// readStandard reads the standard claims by their exact names: the JSON library
// would also take others that differ in case.
func readStandard(claims map[string]json.RawMessage) (s standard, err error) {
	for name, into := range map[string]any{
		"iss": &s.issuer, "sub": &s.subject, "exp": &s.expires, "iat": &s.issued, "nbf": &s.before,
	} {
		if raw, there := claims[name]; there {
			err = errors.Join(err, json.Unmarshal(raw, into))
		}
	}
	var one string
	if json.Unmarshal(claims["aud"], &one) == nil {
		s.audience = []string{one}
		return s, err
	}
	return s, errors.Join(err, json.Unmarshal(claims["aud"], &s.audience))
}

// check checks the standard claims, and returns all.
func (v *Verifier) check(issuer Issuer, payload []byte) (map[string][]string, error) {
	object := "issuer " + issuer.Issuer
	var all map[string]json.RawMessage
	if err := json.Unmarshal(payload, &all); err != nil {
		return nil, unknown(object, nil, "the claims of the token are not readable", "send an ID token")
	}
	s, err := readStandard(all)
	if err != nil {
		return nil, unknown(object, nil, "the claims of the token are not readable", "send an ID token")
	}
	now := v.now()
	expires, issued, before := instant(s.expires), instant(s.issued), instant(s.before)
	foreign := slices.ContainsFunc(s.audience, func(a string) bool { return !slices.Contains(issuer.Audiences, a) })
	switch {
	case s.issuer != issuer.Issuer:
		return nil, unknown(object, nil, "the token is of another issuer", "name the connector of the token's issuer")
	case len(s.audience) == 0 || foreign:
		return nil, unknown(object, nil, "the token is for another audience", "request a token whose audience is only "+strings.Join(issuer.Audiences, " or "))
	case strings.TrimSpace(s.subject) == "":
		return nil, unknown(object, nil, "the token does not say whose it is", "send an ID token")
	case s.expires <= 0 || s.issued <= 0:
		return nil, unknown(object, nil, "the token does not say when it was issued or ends", "send an ID token")
	case !now.Add(-skew).Before(expires), now.Sub(issued) > maxAge:
		return nil, unknown(object, nil, "the token has expired", "request a new one in the same job")
	case now.Add(skew).Before(issued), now.Add(skew).Before(before):
		return nil, unknown(object, nil, "the token is not valid yet", "compare the clocks of hub and issuer")
	}
	return texts(all), nil
}

func instant(seconds float64) time.Time {
	const most = 1 << 40
	return time.Unix(int64(max(0, min(seconds, most))), 0)
}

// texts are the claims that are texts, numbers, truths, or lists of texts.
func texts(all map[string]json.RawMessage) map[string][]string {
	out := map[string][]string{}
	for name, raw := range all {
		var list []string
		if json.Unmarshal(raw, &list) != nil {
			list = []string{scalar(raw)}
		}
		for _, value := range list {
			if value != "" && len(value) <= maxClaim {
				out[name] = append(out[name], value)
			}
		}
	}
	return out
}

// scalar is a text, or a number or truth as it is written; empty for others.
func scalar(raw json.RawMessage) string {
	var text string
	switch {
	case json.Unmarshal(raw, &text) == nil:
		return text
	case len(raw) > 0 && raw[0] != '{' && raw[0] != '[':
		return string(raw)
	}
	return ""
}
