package oidc_test

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/hub/identity/connector/oidc"
	"github.com/capstan-cd/capstan/shared/fault"
)

// liar is a provider that does as it is told, to inject what a real one does
// not: the real one is in hub/api and integration/tests.
type liar struct {
	*httptest.Server
	key, other *rsa.PrivateKey

	mu       sync.Mutex
	now      time.Time
	token    func(claims map[string]any) string
	change   func(claims map[string]any)
	document func(d map[string]any)
	userinfo map[string]any
	graph    string
	down     bool
	keyID    string
	asked    map[string]int
	verifier string
}

func newLiar(t *testing.T) *liar {
	t.Helper()
	l := &liar{now: time.Now(), asked: map[string]int{}, keyID: "one"}
	var err error
	for _, k := range []**rsa.PrivateKey{&l.key, &l.other} {
		if *k, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			t.Fatal(err)
		}
	}
	l.Server = httptest.NewServer(l)
	t.Cleanup(l.Close)
	return l
}

func (l *liar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[r.URL.Path]++
	if l.down {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	answer := map[string]any{}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		answer = map[string]any{
			"issuer": l.URL, "authorization_endpoint": l.URL + "/auth", "token_endpoint": l.URL + "/token", "jwks_uri": l.URL + "/keys", "userinfo_endpoint": l.URL + "/me",
			"id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"},
		}
		if l.document != nil {
			l.document(answer)
		}
	case "/keys":
		answer["keys"] = []any{map[string]any{
			"kty": "RSA", "use": "sig", "alg": "RS256", "kid": l.keyID, "n": encode(l.key.N.Bytes()), "e": encode(big.NewInt(int64(l.key.E)).Bytes()),
		}}
	case "/token":
		_ = r.ParseForm()
		l.verifier = r.PostForm.Get("code_verifier")
		claims := map[string]any{
			"iss": l.URL, "sub": "sub-1", "aud": "capstan", "exp": l.now.Add(5 * time.Minute).Unix(), "iat": l.now.Unix(), "nonce": request().Nonce,
			"email": "a@example.com", "email_verified": true, "groups": []string{"devs"},
		}
		if l.change != nil {
			l.change(claims)
		}
		answer = map[string]any{"access_token": "at", "token_type": "Bearer", "id_token": l.sign(claims)}
	case "/me", "/custom/me":
		answer = l.userinfo
	case "/graph/me/getMemberGroups":
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(l.graph))
		return
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func (l *liar) sign(claims map[string]any) string {
	if l.token != nil {
		return l.token(claims)
	}
	return rs256(l.key, map[string]any{"alg": "RS256", "kid": l.keyID}, claims)
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func unsigned(header, claims map[string]any) string {
	h, _ := json.Marshal(header)
	c, _ := json.Marshal(claims)
	return encode(h) + "." + encode(c)
}

func rs256(key *rsa.PrivateKey, header, claims map[string]any) string {
	text := unsigned(header, claims)
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		panic(err)
	}
	return text + "." + encode(sig)
}

func hs256(secret []byte, header, claims map[string]any) string {
	text := unsigned(header, claims)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return text + "." + encode(mac.Sum(nil))
}

func request() connector.Request {
	return connector.Request{State: "state-1", Nonce: "nonce-1", Verifier: strings.Repeat("v", 43), Callback: "https://capstan.example.com/auth/callback"}
}

func answer() url.Values { return url.Values{"state": {"state-1"}, "code": {"code-1"}} }

func (l *liar) provider(change ...func(*oidc.Config)) *oidc.Provider {
	cfg := oidc.Config{Issuer: l.URL, ClientID: "capstan", ClientSecret: "s", Now: func() time.Time { l.mu.Lock(); defer l.mu.Unlock(); return l.now }}
	for _, c := range change {
		c(&cfg)
	}
	return oidc.New(cfg, l.Client())
}

func (l *liar) set(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	l := newLiar(t)
	p := l.provider(func(c *oidc.Config) {
		c.Scopes = []string{"profile", "groups"}
		c.RequestClaims = map[string]*oidc.Claim{"groups": {Essential: true}}
		c.LoginDomain = "example.com"
		c.SignOutURL = l.URL + "/out?h={{token}}&r={{ logoutRedirectURL }}"
	})
	t.Run("AUTH-09 the browser is sent with state, nonce, PKCE, scopes, claims and hints", func(t *testing.T) {
		address, err := p.Begin(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		u, _ := url.Parse(address)
		sum := sha256.Sum256([]byte(request().Verifier))
		for name, want := range map[string]string{
			"state": "state-1", "nonce": "nonce-1", "code_challenge": encode(sum[:]), "code_challenge_method": "S256", "response_type": "code", "scope": "openid profile groups",
			"claims": `{"id_token":{"groups":{"essential":true}}}`, "domain_hint": "example.com", "client_id": "capstan", "redirect_uri": request().Callback,
		} {
			if got := u.Query().Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	})
	t.Run("AUTH-09 a token that is right says who it is", func(t *testing.T) {
		id, err := p.Finish(t.Context(), request(), answer())
		if err != nil {
			t.Fatal(err)
		}
		if id.Subject != "sub-1" || !id.EmailVerified || !slices.Equal(id.Groups, []string{"devs"}) || id.Proof == "" || l.verifier != request().Verifier {
			t.Errorf("it is %+v, verified with %q", id, l.verifier)
		}
		if out := p.SignOut("a.b+c", "https://x/y?z"); out != l.URL+"/out?h=a.b%2Bc&r=https%3A%2F%2Fx%2Fy%3Fz" {
			t.Errorf("the sign-out is %s", out)
		}
	})
	t.Run("AUTH-09 document and keys are read once in ten minutes", func(t *testing.T) {
		for range 3 {
			if _, err := p.Finish(t.Context(), request(), answer()); err != nil {
				t.Fatal(err)
			}
		}
		if l.asked["/.well-known/openid-configuration"] != 1 || l.asked["/keys"] != 1 {
			t.Errorf("asked %v", l.asked)
		}
	})
}

func TestTokens(t *testing.T) {
	t.Parallel()
	l := newLiar(t)
	try := func(t *testing.T, p *oidc.Provider, values url.Values) error {
		t.Helper()
		_, err := p.Finish(t.Context(), request(), values)
		return err
	}
	unknown := func(t *testing.T, name string, err error) {
		t.Helper()
		if fault.KindOf(err) != fault.Unknown {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Run("SEC-E1 tokens that nobody or somebody else has signed are refused", func(t *testing.T) {
		p := l.provider()
		public, err := x509.MarshalPKIXPublicKey(&l.key.PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		asPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
		for name, token := range map[string]func(map[string]any) string{
			"none":                 func(c map[string]any) string { return unsigned(map[string]any{"alg": "none"}, c) + "." },
			"None":                 func(c map[string]any) string { return unsigned(map[string]any{"alg": "None", "kid": "one"}, c) + "." },
			"without signature":    func(c map[string]any) string { return unsigned(map[string]any{"alg": "RS256", "kid": "one"}, c) + "." },
			"HMAC with public key": func(c map[string]any) string { return hs256(asPEM, map[string]any{"alg": "HS256", "kid": "one"}, c) },
			"HMAC with its DER":    func(c map[string]any) string { return hs256(public, map[string]any{"alg": "HS256", "kid": "one"}, c) },
			"HMAC with the secret": func(c map[string]any) string { return hs256([]byte("s"), map[string]any{"alg": "HS256"}, c) },
			"another key":          func(c map[string]any) string { return rs256(l.other, map[string]any{"alg": "RS256", "kid": "one"}, c) },
			"a key that it brings": func(c map[string]any) string {
				return rs256(l.other, map[string]any{"alg": "RS256", "jwk": map[string]any{"kty": "RSA", "n": encode(l.other.N.Bytes()), "e": "AQAB"}}, c)
			},
			"a key elsewhere": func(c map[string]any) string {
				return rs256(l.other, map[string]any{"alg": "RS256", "jku": l.URL + "/other", "x5u": l.URL + "/other", "kid": "../keys"}, c)
			},
			"garbage": func(map[string]any) string { return "x.y.z" },
			"nothing": func(map[string]any) string { return "" },
			"changed": func(c map[string]any) string {
				signed := strings.Split(rs256(l.key, map[string]any{"alg": "RS256", "kid": "one"}, c), ".")
				other := maps.Clone(c)
				other["sub"] = "admin"
				return strings.Split(unsigned(nil, other), ".")[1] + "." + signed[2]
			},
		} {
			l.set(func() { l.token = token })
			unknown(t, name, try(t, p, answer()))
		}
		l.set(func() { l.token = nil })
	})
	changed := func(t *testing.T, p *oidc.Provider, change func(map[string]any)) error {
		l.set(func() { l.change = change })
		defer l.set(func() { l.change = nil })
		return try(t, p, answer())
	}
	put := func(name string, v any) func(map[string]any) { return func(c map[string]any) { c[name] = v } }
	drop := func(name string) func(map[string]any) { return func(c map[string]any) { delete(c, name) } }
	t.Run("SEC-E2 audience, issuer and authorised party must be right", func(t *testing.T) {
		p := l.provider()
		for name, change := range map[string]func(map[string]any){
			"another issuer": put("iss", "https://evil.example.com"), "no issuer": drop("iss"), "issuer with a slash": put("iss", l.URL+"/"),
			"another audience": put("aud", "other"), "no audience": drop("aud"), "empty audience": put("aud", ""), "no audiences": put("aud", []string{}),
			"another party": func(c map[string]any) { c["aud"], c["azp"] = []string{"capstan", "other"}, "other" }, "a party that is none": put("azp", 1),
		} {
			unknown(t, name, changed(t, p, change))
		}
		for name, change := range map[string]func(map[string]any){
			"two audiences": func(c map[string]any) { c["aud"], c["azp"] = []string{"other", "capstan"}, "capstan" },
		} {
			if err := changed(t, p, change); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		listed := l.provider(func(c *oidc.Config) { c.Audiences = []string{"cli"} })
		if err := changed(t, listed, put("aud", "cli")); err != nil {
			t.Errorf("allowedAudiences: %v", err)
		}
		unknown(t, "the client is not listed", changed(t, listed, put("aud", "capstan")))
		unlisted := l.provider(func(c *oidc.Config) { c.NoAudienceFine = true })
		if err := changed(t, unlisted, drop("aud")); err != nil {
			t.Errorf("skipAudienceCheckWhenTokenHasNoAudience: %v", err)
		}
		unknown(t, "it has an audience, another one", changed(t, unlisted, put("aud", "other")))
	})
	t.Run("SEC-E3 claims that are empty or odd are refused", func(t *testing.T) {
		p := l.provider()
		for name, change := range map[string]func(map[string]any){
			"no subject": drop("sub"), "an empty subject": put("sub", ""), "a blank subject": put("sub", "  "), "a subject that is a number": put("sub", 1),
			"groups that are a number": put("groups", 7), "groups with a number": put("groups", []any{"a", 1}), "groups that are a map": put("groups", map[string]any{"a": 1}),
		} {
			unknown(t, name, changed(t, p, change))
		}
		if err := changed(t, p, drop("groups")); err != nil {
			t.Errorf("no groups: %v", err)
		}
	})
	t.Run("SEC-E4 state and nonce must be those of the sign-in", func(t *testing.T) {
		p := l.provider()
		unknown(t, "another nonce", changed(t, p, put("nonce", "nonce-2")))
		unknown(t, "no nonce", changed(t, p, drop("nonce")))
		for _, values := range []url.Values{
			{"state": {"state-2"}, "code": {"c"}}, {"code": {"c"}}, {"state": {"state-1"}}, {"state": {"state-1"}, "error": {"<script>"}, "code": {"c"}},
			{"state": {"state-1"}, "code": {"c"}, "iss": {"https://evil.example.com"}},
		} {
			err := try(t, p, values)
			unknown(t, values.Encode(), err)
			if strings.Contains(fault.Sentence(err), "<") {
				t.Errorf("the error repeats what the provider says: %v", err)
			}
		}
	})
	t.Run("FT-C1 SEC-E10 the clocks of hub and provider may differ by 60 seconds", func(t *testing.T) {
		p := l.provider()
		at := func(d time.Duration) int64 { return l.now.Add(d).Unix() }
		for name, c := range map[string]struct {
			change func(map[string]any)
			fine   bool
		}{
			"expired 50 s ago":        {put("exp", at(-50*time.Second)), true},
			"expired 70 s ago":        {put("exp", at(-70*time.Second)), false},
			"no expiry":               {drop("exp"), false},
			"issued in 50 s":          {put("iat", at(50*time.Second)), true},
			"issued in 70 s":          {put("iat", at(70*time.Second)), false},
			"valid in 50 s":           {put("nbf", at(50*time.Second)), true},
			"valid in 70 s":           {put("nbf", at(70*time.Second)), false},
			"valid from a text":       {put("nbf", "soon"), false},
			"a clock 5 minutes ahead": {func(c map[string]any) { c["iat"], c["exp"] = at(5*time.Minute), at(10*time.Minute) }, false},
			"a clock 5 minutes back":  {func(c map[string]any) { c["iat"], c["exp"] = at(-10*time.Minute), at(-5*time.Minute) }, false},
		} {
			if err := changed(t, p, c.change); (err == nil) != c.fine || err != nil && fault.KindOf(err) != fault.Unknown {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("SEC-E10 keys that change are read again", func(t *testing.T) {
		p := l.provider()
		if err := try(t, p, answer()); err != nil {
			t.Fatal(err)
		}
		l.set(func() { l.key, l.other, l.keyID = l.other, l.key, "two" })
		if err := try(t, p, answer()); err != nil {
			t.Errorf("the new key: %v", err)
		}
		l.set(func() { l.now = l.now.Add(11 * time.Minute) })
		l.set(func() {
			l.token = func(c map[string]any) string { return rs256(l.other, map[string]any{"alg": "RS256", "kid": "one"}, c) }
		})
		unknown(t, "the old key", try(t, p, answer()))
		l.set(func() { l.token = nil })
	})
}

func TestProvidersThatAreAway(t *testing.T) {
	t.Parallel()
	t.Run("FT-W2 sign-ins fail clearly while the provider is away, and work again afterwards", func(t *testing.T) {
		l := newLiar(t)
		l.set(func() { l.down = true })
		p := l.provider()
		if _, err := p.Begin(t.Context(), request()); fault.KindOf(err) != fault.Offline || !strings.Contains(fault.Sentence(err), "127.0.0.1") {
			t.Errorf("it says %v", err)
		}
		l.set(func() { l.down = false })
		if _, err := p.Finish(t.Context(), request(), answer()); err != nil {
			t.Fatal(err)
		}
		l.set(func() { l.down, l.now = true, l.now.Add(time.Hour) })
		if _, err := p.Begin(t.Context(), request()); err != nil {
			t.Errorf("what is known of it for an hour is not used: %v", err)
		}
		if _, err := p.Finish(t.Context(), request(), answer()); fault.KindOf(err) != fault.Offline {
			t.Errorf("it says %v", err)
		}
	})
	t.Run("FT-W2 a provider that calls itself otherwise is refused", func(t *testing.T) {
		l := newLiar(t)
		for name, change := range map[string]func(map[string]any){
			"another issuer":         func(d map[string]any) { d["issuer"] = "https://evil.example.com" },
			"an address of a script": func(d map[string]any) { d["authorization_endpoint"] = "javascript:alert(1)" },
			"a readable way":         func(d map[string]any) { d["authorization_endpoint"] = "http://idp.example.com/auth" },
		} {
			l.set(func() { l.document = change })
			if address, err := l.provider().Begin(t.Context(), request()); fault.KindOf(err) != fault.Offline {
				t.Errorf("%s: %s, %v", name, address, err)
			}
		}
	})
	t.Run("SEC-I1 an answer of two megabytes is not read", func(t *testing.T) {
		l := newLiar(t)
		l.set(func() { l.document = func(d map[string]any) { d["x"] = strings.Repeat("x", 2<<20) } })
		if _, err := l.provider().Begin(t.Context(), request()); fault.KindOf(err) != fault.Offline {
			t.Errorf("it says %v", err)
		}
	})
}

func TestGroups(t *testing.T) {
	t.Parallel()
	l := newLiar(t)
	overage := func(c map[string]any) {
		delete(c, "groups")
		c["_claim_names"] = map[string]any{"groups": "src1"}
		c["_claim_sources"] = map[string]any{"src1": map[string]any{"endpoint": "https://graph.windows.net/x"}}
	}
	has := func(c map[string]any) { delete(c, "groups"); c["hasgroups"] = true }
	t.Run("AUTH-11 who has too many groups is refused with the reason, and never without groups", func(t *testing.T) {
		for name, change := range map[string]func(map[string]any){"distributed": overage, "implicit": has} {
			l.set(func() { l.change = change })
			_, err := l.provider().Finish(t.Context(), request(), answer())
			if fault.KindOf(err) != fault.Denied || !strings.Contains(fault.Sentence(err), "so many groups") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("AUTH-11 with enableUserGroupOverageClaim they are read from Graph", func(t *testing.T) {
		p := l.provider(func(c *oidc.Config) { c.Graph = l.URL + "/graph" })
		for text, want := range map[string][]string{
			`{"value": ["g1", "g2"]}`: {"g1", "g2"}, `{"value": []}`: {}, `{}`: nil, `{"value": ["g1"], "@odata.nextLink": "https://x"}`: nil, `no JSON`: nil,
		} {
			l.set(func() { l.change, l.graph = overage, text })
			id, err := p.Finish(t.Context(), request(), answer())
			if (err == nil) != (want != nil) || !slices.Equal(id.Groups, want) {
				t.Errorf("%s: %v, %v", text, id.Groups, err)
			}
		}
	})
	t.Run("AUTH-09 groups are read from userinfo, of the same person alone", func(t *testing.T) {
		for name, change := range map[string]func(*oidc.Config){
			"the document's": func(c *oidc.Config) { c.UserInfo = true },
			"userInfoPath":   func(c *oidc.Config) { c.UserInfo, c.UserInfoURL = true, l.URL+"/custom/me" },
		} {
			l.set(func() { l.change, l.userinfo = nil, map[string]any{"sub": "sub-1", "groups": []string{"more"}} })
			id, err := l.provider(change).Finish(t.Context(), request(), answer())
			if err != nil || !slices.Equal(id.Groups, []string{"more"}) {
				t.Errorf("%s: %v, %v", name, id.Groups, err)
			}
			l.set(func() { l.userinfo = map[string]any{"sub": "sub-2", "groups": []string{"more"}} })
			if _, err := l.provider(change).Finish(t.Context(), request(), answer()); fault.KindOf(err) != fault.Unknown {
				t.Errorf("%s of another person: %v", name, err)
			}
		}
	})
}
