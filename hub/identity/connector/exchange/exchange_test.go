package exchange

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/shared/fault"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A ci is an issuer that publishes its metadata and keys as OpenID Connect
// Discovery 1.0 says, under any address.
type ci struct {
	http     *httptest.Server
	issuer   string
	key      *rsa.PrivateKey
	name     string
	asked    atomic.Int32 // how often the keys were read
	down     atomic.Bool
	metadata func(map[string]any)
}

func newCI(t *testing.T, issuer string) *ci {
	t.Helper()
	c := &ci{issuer: issuer, name: "key-1"}
	c.rotate(t, "key-1")
	c.http = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		switch {
		case strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration"):
			metadata := map[string]any{"issuer": issuer, "jwks_uri": issuer + "/keys"}
			if c.metadata != nil {
				c.metadata(metadata)
			}
			_ = json.NewEncoder(w).Encode(metadata)
		case strings.HasSuffix(r.URL.Path, "/keys"):
			c.asked.Add(1)
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
				{Key: &c.key.PublicKey, KeyID: c.name, Algorithm: "RS256", Use: "sig"},
			}})
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(c.http.Close)
	return c
}

func (c *ci) rotate(t *testing.T, name string) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	c.key, c.name = key, name
}

func (c *ci) client() *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(c.http.Certificate())
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, c.http.Listener.Addr().String())
		},
		TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "example.com", MinVersion: tls.VersionTLS12},
	}}
}

// token signs claims with the key of now.
func (c *ci) token(t *testing.T, claims map[string]any) string {
	return sign(t, jose.RS256, jose.JSONWebKey{Key: c.key, KeyID: c.name}, claims, nil)
}

func sign(t *testing.T, algorithm jose.SignatureAlgorithm, key any, claims map[string]any, header map[jose.HeaderKey]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, &jose.SignerOptions{ExtraHeaders: header})
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// github are the claims of a job, as docs.github.com lists them.
func github() map[string]any {
	return map[string]any{
		"iss": GitHubActions, "aud": "https://hub.example.com", "sub": "repo:my-org/shop:ref:refs/heads/main",
		"exp": start.Add(5 * time.Minute).Unix(), "iat": start.Unix(), "nbf": start.Unix(), "jti": "1",
		"ref": "refs/heads/main", "repository": "my-org/shop", "repository_owner": "my-org", "repository_owner_id": "42",
		"run_attempt": 1, "actor": "jane", "event_name": "push", "teams": []string{"sre", "ops"}, "nested": map[string]any{"a": 1},
	}
}

func issuer(rules ...Rule) Issuer {
	if len(rules) == 0 {
		rules = []Rule{{"sub": "repo:my-org/*:ref:refs/heads/main"}}
	}
	return Issuer{ID: "github-actions", Issuer: GitHubActions, Audiences: []string{"https://hub.example.com"}, Rules: rules}
}

func verifier(at time.Time) *Verifier { return New(func() time.Time { return at }) }

func TestVerify(t *testing.T) {
	t.Parallel()
	c := newCI(t, GitHubActions)
	t.Run("AUTH-10 accepts a job of GitHub Actions by subject", func(t *testing.T) {
		t.Parallel()
		got, err := verifier(start).Verify(t.Context(), c.client(), "acme", issuer(), c.token(t, github()))
		if err != nil {
			t.Fatal(err)
		}
		if got.Subject != "repo:my-org/shop:ref:refs/heads/main" || got.Username != got.Subject || got.Groups != nil || got.EmailVerified {
			t.Errorf("%+v", got)
		}
		if diff := cmp.Diff([]string{"1"}, got.Claims["run_attempt"]); diff != "" || got.Claims["nested"] != nil || len(got.Claims["teams"]) != 2 {
			t.Errorf("%v", got.Claims)
		}
	})
	t.Run("AUTH-10 accepts a job of GitLab CI by other claims", func(t *testing.T) {
		t.Parallel()
		lab := newCI(t, "https://gitlab.example.com")
		i := Issuer{
			ID: "ci", Issuer: "https://gitlab.example.com", Audiences: []string{"https://hub.example.com", "hub"}, SubjectClaim: "project_path", UsernameClaim: "user_login", GroupsClaim: "groups",
			Rules: []Rule{{"project_path": "other/x"}, {"project_path": "shop/**", "ref_protected": "true", "environment": "prod"}},
		}
		got, err := verifier(start).Verify(t.Context(), lab.client(), "acme", i, lab.token(t, map[string]any{
			"iss": "https://gitlab.example.com", "aud": []string{"hub"}, "sub": "project_path:shop/a/b:ref_type:branch:ref:main", "exp": start.Unix() + 60, "iat": start.Unix(),
			"project_path": "shop/a/b", "ref_protected": true, "environment": "prod", "user_login": "jane", "groups": []string{"sre"},
		}))
		if err != nil || got.Subject != "shop/a/b" || got.Username != "jane" || len(got.Groups) != 1 {
			t.Errorf("%+v %v", got, err)
		}
	})
	t.Run("AUTH-10 accepts clocks that differ by a minute", func(t *testing.T) {
		t.Parallel()
		for _, at := range []time.Time{start.Add(-time.Minute), start.Add(6*time.Minute - time.Second)} {
			if _, err := verifier(at).Verify(t.Context(), c.client(), "acme", issuer(), c.token(t, github())); err != nil {
				t.Errorf("at %s: %v", at, err)
			}
		}
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	c := newCI(t, GitHubActions)
	set := func(name string, value any) map[string]any {
		claims := github()
		claims[name] = value
		if value == nil {
			delete(claims, name)
		}
		return claims
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&c.key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	named := func(key any) jose.JSONWebKey { return jose.JSONWebKey{Key: key, KeyID: "key-1"} }
	good := c.token(t, github())
	parts := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))
	for name, token := range map[string]string{
		"nothing":                           "",
		"a text":                            "ghp_canary",
		"a token without signature":         none + "." + parts[1] + ".",
		"a token with a cut signature":      parts[0] + "." + parts[1] + ".",
		"a token that is too long":          good + strings.Repeat("A", 20<<10),
		"the key of another":                sign(t, jose.RS256, named(other), github(), nil),
		"a key of another kind":             sign(t, jose.ES256, named(curve), github(), nil),
		"the public key as a secret":        sign(t, jose.HS256, named(public), github(), nil),
		"another algorithm of the same key": sign(t, jose.RS512, named(c.key), github(), nil),
		"a key that it brings by address":   sign(t, jose.RS256, jose.JSONWebKey{Key: other, KeyID: "key-9"}, github(), map[jose.HeaderKey]any{"jku": "https://evil.example/keys"}),
		"an access token":                   sign(t, jose.RS256, named(c.key), github(), map[jose.HeaderKey]any{jose.HeaderType: "at+jwt"}),
		"a logout token":                    sign(t, jose.RS256, named(c.key), github(), map[jose.HeaderKey]any{jose.HeaderType: "logout+jwt"}),
		"another issuer":                    c.token(t, set("iss", "https://evil.example")),
		"an issuer with a slash":            c.token(t, set("iss", GitHubActions+"/")),
		"no issuer":                         c.token(t, set("iss", nil)),
		"another audience":                  c.token(t, set("aud", "https://github.com/my-org")),
		"a second audience":                 c.token(t, set("aud", []string{"https://hub.example.com", "https://evil.example"})),
		"no audience":                       c.token(t, set("aud", nil)),
		"an empty list of audiences":        c.token(t, set("aud", []string{})),
		"an audience that differs in case":  c.token(t, map[string]any{"iss": GitHubActions, "AUD": "https://hub.example.com", "sub": "repo:my-org/shop:ref:refs/heads/main", "exp": start.Unix() + 60, "iat": start.Unix()}),
		"no subject":                        c.token(t, set("sub", nil)),
		"an empty subject":                  c.token(t, set("sub", " ")),
		"a subject that is a list":          c.token(t, set("sub", []string{"repo:my-org/shop:ref:refs/heads/main"})),
		"no end":                            c.token(t, set("exp", nil)),
		"no beginning":                      c.token(t, set("iat", nil)),
		"an end that is a text":             c.token(t, set("exp", "never")),
		"a token that has expired":          c.token(t, set("exp", start.Add(-time.Minute).Unix())),
		"a token of yesterday without end":  c.token(t, map[string]any{"iss": GitHubActions, "aud": "https://hub.example.com", "sub": "repo:my-org/shop:ref:refs/heads/main", "exp": start.AddDate(9, 0, 0).Unix(), "iat": start.Add(-25 * time.Hour).Unix()}),
		"a token of the future":             c.token(t, set("nbf", start.Add(2*time.Minute).Unix())),
		"a token that is not issued yet":    c.token(t, set("iat", start.Add(2*time.Minute).Unix())),
	} {
		t.Run("does not accept "+name, func(t *testing.T) {
			t.Parallel()
			id, err := verifier(start).Verify(t.Context(), c.client(), "acme", issuer(), token)
			if fault.KindOf(err) != fault.Unknown || id.Subject != "" {
				t.Fatalf("%+v %v", id, err)
			}
			if token != "" && strings.Contains(err.Error()+fault.Sentence(err), token) {
				t.Errorf("%q prints the token", err)
			}
		})
	}
}

// E11: names of branches, forks and environments widen no rule.
func TestRulesAreNotWidened(t *testing.T) {
	t.Parallel()
	main := "repo:my-org/*:ref:refs/heads/main"
	for name, c := range map[string]struct {
		pattern, text string
		want          bool
	}{
		"a repository of the organization":  {main, "repo:my-org/shop:ref:refs/heads/main", true},
		"a fork":                            {main, "repo:evil/shop:ref:refs/heads/main", false},
		"an organization of a longer name":  {main, "repo:my-org-evil/shop:ref:refs/heads/main", false},
		"a branch that ends like main":      {main, "repo:my-org/shop:ref:refs/heads/x/main", false},
		"a branch with a longer name":       {main, "repo:my-org/shop:ref:refs/heads/main2", false},
		"a tag of the name":                 {main, "repo:my-org/shop:ref:refs/tags/main", false},
		"a pull request":                    {main, "repo:my-org/shop:pull_request", false},
		"a repository that is a path":       {main, "repo:my-org/a/b:ref:refs/heads/main", false},
		"a name with a colon":               {main, "repo:my-org/a:ref:refs/heads/x:ref:refs/heads/main", false},
		"another case":                      {main, "repo:My-Org/shop:ref:refs/heads/main", false},
		"text before":                       {main, "xrepo:my-org/shop:ref:refs/heads/main", false},
		"branches of a folder":              {"repo:my-org/shop:ref:refs/heads/release/*", "repo:my-org/shop:ref:refs/heads/release/1.0", true},
		"a folder in a folder":              {"repo:my-org/shop:ref:refs/heads/release/*", "repo:my-org/shop:ref:refs/heads/release/1/0", false},
		"all branches below a folder":       {"repo:my-org/shop:ref:refs/heads/**", "repo:my-org/shop:ref:refs/heads/a/b", true},
		"an environment by a branch's name": {"repo:my-org/shop:environment:*", "repo:my-org/shop:ref:refs/heads/environment:prod", false},
		"everything of a part":              {"repo:my-org/shop:*", "repo:my-org/shop:pull_request", true},
		"everything behind it":              {"repo:my-org/shop:**", "repo:my-org/shop:environment:prod", false},
		"two wildcards that depend":         {"**b*c", "ab/bc", true},
		"an empty part":                     {"a*b", "ab", true},
		"nothing":                           {"*", "", true},
		"a wildcard as text":                {"a", "*", false},
	} {
		title := "does not match "
		if c.want {
			title = "AUTH-10 E11 a pattern matches "
		}
		t.Run(title+name, func(t *testing.T) {
			t.Parallel()
			if got := match(c.pattern, c.text); got != c.want {
				t.Errorf("%q matches %q: %v", c.pattern, c.text, got)
			}
		})
	}
	t.Run("does not accept jobs that no rule names", func(t *testing.T) {
		t.Parallel()
		c := newCI(t, GitHubActions)
		for _, rule := range []Rule{
			{"sub": "repo:my-org/other:*"}, {"repository_owner": "my-org", "environment": "*"}, {"repository_owner_id": "42", "event_name": "release"},
		} {
			if _, err := verifier(start).Verify(t.Context(), c.client(), "acme", issuer(rule), c.token(t, github())); fault.KindOf(err) != fault.Denied {
				t.Errorf("%v: %v", rule, err)
			}
		}
	})
	t.Run("takes no time for long patterns", func(t *testing.T) {
		t.Parallel()
		if match(strings.Repeat("*a", 500)+"b", strings.Repeat("a", 1000)) {
			t.Error("it matches")
		}
	})
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string][]Rule{
		"no rules":                    {},
		"an empty rule":               {{}},
		"a rule for everybody":        {{"sub": "*"}},
		"a rule for all owners":       {{"sub": "repo:*/shop:ref:refs/heads/main"}},
		"a rule for part of an owner": {{"sub": "repo:my-*/shop:ref:refs/heads/main"}},
		"a rule by branch":            {{"ref": "refs/heads/main"}},
		"a rule by a person":          {{"actor": "jane"}},
		"one good and one wide rule":  {{"repository_owner": "my-org"}, {"event_name": "push"}},
		"a repository of any owner":   {{"repository": "*/shop"}},
		"an owner without repository": {{"sub": "repo:my-org"}},
		"an unclear wildcard":         {{"repository_owner": "my-org", "ref": "***"}},
		"an empty pattern":            {{"repository_owner": ""}},
	} {
		t.Run("refuses "+name+" of an issuer that everybody uses", func(t *testing.T) {
			t.Parallel()
			i := issuer()
			i.Rules = rules
			if err := i.Validate(); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%v", err)
			}
		})
	}
	for name, i := range map[string]Issuer{
		"no address":               {Audiences: []string{"a"}},
		"an address without TLS":   {Issuer: "http://ci.example.com", Audiences: []string{"a"}},
		"an address with a query":  {Issuer: "https://ci.example.com?x", Audiences: []string{"a"}},
		"no audience":              {Issuer: "https://ci.example.com"},
		"an empty audience":        {Issuer: "https://ci.example.com", Audiences: []string{" "}},
		"rules around a slash":     {Issuer: GitHubActions + "/", Audiences: []string{"a"}},
		"everybody of Google":      {Issuer: Google, Audiences: []string{"a"}, Rules: []Rule{{"email_verified": "true"}}},
		"everybody of GitLab":      {Issuer: GitLab, Audiences: []string{"a"}, Rules: []Rule{{"sub": "project_path:**:ref_type:branch:ref:main"}}},
		"everybody of a CI system": {Issuer: Buildkite, Audiences: []string{"a"}, Rules: []Rule{{"sub": "organization:*:pipeline:x"}}},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			if err := i.Validate(); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("AUTH-10 needs no rules for an issuer of one's own", func(t *testing.T) {
		t.Parallel()
		if err := (Issuer{Issuer: "https://gitlab.example.com", Audiences: []string{"a"}}).Validate(); err != nil {
			t.Error(err)
		}
	})
}

func TestKeys(t *testing.T) {
	t.Parallel()
	c := newCI(t, GitHubActions)
	now := start
	v := New(func() time.Time { return now })
	check := func() error {
		_, err := v.Verify(t.Context(), c.client(), "acme", issuer(), c.token(t, github()))
		return err
	}
	old := c.token(t, github())
	t.Run("AUTH-10 reads keys once for many tokens", func(t *testing.T) {
		for range 50 {
			if err := check(); err != nil {
				t.Fatal(err)
			}
		}
		if n := c.asked.Load(); n != 1 {
			t.Errorf("the keys were read %d times", n)
		}
	})
	t.Run("AUTH-10 follows a rotation of keys, and asks seldom about unknown ones", func(t *testing.T) {
		c.rotate(t, "key-2")
		if err := check(); fault.KindOf(err) != fault.Unknown {
			t.Errorf("an unknown key is asked for at once: %v", err)
		}
		now = now.Add(pause)
		if err := check(); err != nil {
			t.Error(err)
		}
		if _, err := v.Verify(t.Context(), c.client(), "acme", issuer(), old); fault.KindOf(err) != fault.Unknown {
			t.Errorf("a key that was withdrawn is accepted: %v", err)
		}
	})
	t.Run("AUTH-10 uses known keys while the issuer is away", func(t *testing.T) {
		c.down.Store(true)
		defer c.down.Store(false)
		now = now.Add(fresh)
		claims := github()
		claims["iat"], claims["exp"] = now.Unix(), now.Unix()+60
		if _, err := v.Verify(t.Context(), c.client(), "acme", issuer(), c.token(t, claims)); err != nil {
			t.Error(err)
		}
		now = now.Add(stale)
		claims["iat"], claims["exp"] = now.Unix(), now.Unix()+60
		if _, err := v.Verify(t.Context(), c.client(), "acme", issuer(), c.token(t, claims)); fault.KindOf(err) != fault.Offline {
			t.Errorf("%v", err)
		}
	})
	t.Run("AUTH-10 ISO-6 remembers keys for each tenant", func(t *testing.T) {
		other := New(func() time.Time { return start })
		for i := range 3 {
			c.asked.Store(0)
			if _, err := other.Verify(t.Context(), c.client(), fmt.Sprint("tenant ", i), issuer(), c.token(t, github())); err != nil || c.asked.Load() != 1 {
				t.Errorf("%d requests, %v", c.asked.Load(), err)
			}
		}
	})
	t.Run("forgets issuers beyond its bound", func(t *testing.T) {
		bounded := New(func() time.Time { now = now.Add(time.Millisecond); return now })
		for i := range maxSets + 10 {
			bounded.keys.put(keyID{"acme", fmt.Sprint(i)}, keySet{at: bounded.now()})
		}
		if _, known := bounded.keys.get(keyID{"acme", "9"}); known || len(bounded.keys.sets) != maxSets {
			t.Errorf("%d issuers", len(bounded.keys.sets))
		}
	})
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(map[string]any){
		"of another issuer":    func(m map[string]any) { m["issuer"] = "https://evil.example" },
		"without keys":         func(m map[string]any) { delete(m, "jwks_uri") },
		"with keys in clear":   func(m map[string]any) { m["jwks_uri"] = "http://token.actions.githubusercontent.com/keys" },
		"with keys not there":  func(m map[string]any) { m["jwks_uri"] = GitHubActions + "/none" },
		"with an odd type":     func(m map[string]any) { m["issuer"] = 1 },
		"with keys in a file":  func(m map[string]any) { m["jwks_uri"] = "file:///etc/passwd" },
		"with a very long one": func(m map[string]any) { m["x"] = strings.Repeat("x", 2<<20) },
	} {
		t.Run("does not accept metadata "+name, func(t *testing.T) {
			t.Parallel()
			c := newCI(t, GitHubActions)
			c.metadata = change
			if _, err := verifier(start).Verify(t.Context(), c.client(), "acme", issuer(), c.token(t, github())); fault.KindOf(err) != fault.Offline {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestReadRequest(t *testing.T) {
	t.Parallel()
	form := func(change func(url.Values)) url.Values {
		v := url.Values{"grant_type": {GrantType}, "subject_token": {"token"}, "subject_token_type": {TypeIDToken}, "connector_id": {"github-actions"}, "scope": {"openid groups"}, "requested_token_type": {TypeAccessToken}}
		change(v)
		return v
	}
	t.Run("AUTH-10 reads the request that Argo CD documents for Dex", func(t *testing.T) {
		t.Parallel()
		got, err := ReadRequest(form(func(url.Values) {}))
		if err != nil || got != (Request{Connector: "github-actions", Token: "token"}) {
			t.Errorf("%+v %v", got, err)
		}
	})
	for name, change := range map[string]func(url.Values){
		"another grant":        func(v url.Values) { v.Set("grant_type", "password") },
		"no token":             func(v url.Values) { v.Del("subject_token") },
		"an access token":      func(v url.Values) { v.Set("subject_token_type", TypeAccessToken) },
		"a refresh token":      func(v url.Values) { v.Set("requested_token_type", "urn:ietf:params:oauth:token-type:refresh_token") },
		"no connector":         func(v url.Values) { v.Del("connector_id") },
		"an actor":             func(v url.Values) { v.Set("actor_token", "x") },
		"a parameter twice":    func(v url.Values) { v.Add("connector_id", "other") },
		"a token of many":      func(v url.Values) { v.Add("subject_token", "other") },
		"no kind of the token": func(v url.Values) { v.Del("subject_token_type") },
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			if _, err := ReadRequest(form(change)); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("AUTH-10 names errors as OAuth does", func(t *testing.T) {
		t.Parallel()
		for kind, want := range map[fault.Kind]string{
			fault.Invalid: "invalid_request", fault.Unknown: "invalid_grant", fault.Denied: "invalid_grant", fault.Offline: "temporarily_unavailable", fault.Internal: "server_error",
		} {
			if got := ErrorCode(fault.New(kind, "x")); got != want {
				t.Errorf("%s: %s", kind, got)
			}
		}
	})
}

func FuzzVerify(f *testing.F) {
	f.Add("a.b.c")
	f.Add(`eyJhbGciOiJub25lIn0.e30.`)
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }}}
	f.Fuzz(func(t *testing.T, token string) {
		id, err := verifier(start).Verify(t.Context(), client, "acme", issuer(), token)
		if kind := fault.KindOf(err); kind != fault.Unknown && kind != fault.Offline || !cmp.Equal(id, connector.Identity{}) {
			t.Errorf("%+v %v", id, err)
		}
	})
}
