package scm

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A source is how a host is connected to, and which credential is sent.
type source struct {
	kind     string // as ClientUse has it
	base     string // of the API
	api      string // as the generator has it
	insecure bool
	ca       *configRef
	auth     authorization
	settled  settled
}

// An authorization is the credential of a request. Its zero value sends none.
type authorization struct {
	header string // default Authorization
	scheme string // before the value, with its space; Basic encodes it
	user   string // of Basic
	secret *secretRef

	app   string // name of the Secret of a GitHub App
	owner string // where it is installed
	pulls bool
}

const basicScheme = "Basic "

// bearer is a token as most hosts take it; nil: none.
func bearer(ref *secretRef) authorization { return authorization{scheme: "Bearer ", secret: ref} }

func basic(user string, ref *secretRef) authorization {
	return authorization{scheme: basicScheme, user: user, secret: ref}
}

// basicOrBearer is what generators for Bitbucket have.
func basicOrBearer(b *basicAuth, t *bearerToken) authorization {
	switch {
	case t != nil:
		return bearer(t.Token)
	case b != nil:
		return basic(b.Username, b.Password)
	}
	return authorization{}
}

// secrets are the names of the Secrets whose values are sent.
func (a authorization) secrets() []string {
	switch {
	case a.app != "":
		return []string{a.app}
	case a.secret != nil:
		return []string{a.secret.Secret}
	}
	return nil
}

// value is what the header carries; empty: the header is not sent.
func (a authorization) value(ctx context.Context, access Access, base string) (string, error) {
	if a.app != "" {
		token, err := access.App(ctx, AppUse{Secret: a.app, BaseURL: base, Owner: a.owner, Pulls: a.pulls})
		return "Bearer " + token, err
	}
	if a.secret == nil {
		return "", nil
	}
	token, err := access.Secret(ctx, SecretKind, a.secret.Secret, a.secret.Key)
	if err != nil {
		return "", err
	}
	token = strings.TrimSpace(token)
	if token == "" || strings.ContainsAny(token, "\r\n\x00") {
		return "", fault.With(fault.New(fault.Invalid, "the key %s of the Secret %s holds no token", a.secret.Key, a.secret.Secret), "", "write the token alone, on one line")
	}
	if a.scheme == basicScheme {
		token = base64.StdEncoding.EncodeToString([]byte(a.user + ":" + token))
	}
	return a.scheme + token, nil
}

// A caller makes the requests of one list.
type caller struct {
	kind     string
	base     *url.URL
	client   http.Client
	header   string
	value    string
	identity [32]byte // hash of what decides who is answered, and over which connection
	answers  *Answers
	settled  settled
	maxAge   time.Duration // of shared answers
	left     atomic.Int64  // requests that it may still send
}

// connect asks for the way to a host and for the credential. It makes no
// request.
func connect(ctx context.Context, access Access, s source, requeue time.Duration) (*caller, error) {
	base, err := url.Parse(s.base)
	if err != nil || base.Host == "" || base.Scheme != "https" && base.Scheme != "http" || base.User != nil {
		return nil, fault.With(fault.New(fault.Invalid, "the API's address of the generator %s is no URL", s.kind), "", "write api as https://host, without a user name")
	}
	use := ClientUse{Kind: s.kind, BaseURL: s.base, API: s.api, Secrets: s.auth.secrets(), Insecure: s.insecure}
	if s.ca != nil {
		if use.CA, err = access.Secret(ctx, ConfigMapKind, s.ca.ConfigMap, s.ca.Key); err != nil {
			return nil, err
		}
	}
	client, err := access.Client(ctx, use)
	if err != nil {
		return nil, err
	}
	c := &caller{kind: s.kind, base: base, client: *client, header: s.auth.header, answers: access.Answers(), settled: s.settled, maxAge: requeue * 2 / 3}
	c.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.client.Jar = nil
	c.left.Store(mostCalls)
	if c.header == "" {
		c.header = "Authorization"
	}
	if c.value, err = s.auth.value(ctx, access, s.base); err != nil {
		return nil, err
	}
	who := c.value
	if s.auth.app != "" {
		who = "app\x00" + s.auth.app + "\x00" + s.auth.owner
	}
	insecure := "verified"
	if s.insecure {
		insecure = "unverified"
	}
	c.identity = sha256.Sum256([]byte(strings.Join([]string{s.kind, who, insecure, use.CA}, "\x00")))
	return c, nil
}

// defaultTo is the API's address without its last slash.
func defaultTo(api, public string) string {
	if api == "" {
		return public
	}
	return strings.TrimRight(api, "/")
}

// settled says how far the time of the last push, as a host lists it, can be
// relied on.
type settled struct {
	// delay is how much later than a push the listed time may change, or how long
	// it may stay as it is while more is pushed.
	delay time.Duration
	// most is how long an answer is used in any case.
	most time.Duration
}
