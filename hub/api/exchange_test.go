package api_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// A ciIssuer signs tokens of jobs, and publishes its key over HTTPS.
type ciIssuer struct {
	*httptest.Server
	key *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *ciIssuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &ciIssuer{key: key}
	i.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			_ = json.NewEncoder(w).Encode(map[string]any{
				"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/auth", "token_endpoint": i.URL + "/token",
				"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"ES256"},
			})
		case "/keys":
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "one", Algorithm: "ES256", Use: "sig"}}})
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(i.Close)
	return i
}

// token signs claims over those of a job of the branch main of acme/shop.
func (i *ciIssuer) token(t *testing.T, key *ecdsa.PrivateKey, change map[string]any) string {
	t.Helper()
	now := time.Now()
	claims := map[string]any{
		"iss": i.URL, "aud": "https://capstan.test", "sub": "repo:acme/shop:ref:refs/heads/main", "repository": "acme/shop", "ref": "refs/heads/main",
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(), "jti": rand.Text(),
	}
	maps.Copy(claims, change)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "one"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

type exchanged struct {
	AccessToken     string `json:"access_token"`
	IssuedTokenType string `json:"issued_token_type"`
	TokenType       string `json:"token_type"`
	ExpiresIn       int    `json:"expires_in"`
	Error           string
	Description     string `json:"error_description"`
}

func (w *world) exchange(path, tenant, token string, more ...string) (int, exchanged) {
	w.t.Helper()
	form := url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "subject_token_type": {"urn:ietf:params:oauth:token-type:id_token"},
		"subject_token": {token}, "tenant": {tenant},
	}
	for i := 0; i+1 < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	resp, err := w.Client.PostForm(w.URL+path, form)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var out exchanged
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, out
}

func TestTokensOfCISystems(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ci := newIssuer(t)
	w.Issuers.Transport = ci.Client().Transport
	admin := w.Admin("acme")
	const path = "/api/dex/token"
	w.call(admin, "POST", "/api/v1/apply", shopWithRole).ok(200)
	w.call(admin, "POST", "/api/v1/users", map[string]any{"name": "ci", "roles": []string{"readonly"}, "capabilities": []string{"apiKey"}}).ok(201)
	w.User("acme", "boss", "platform-admin")
	trust := func(rules string) answer {
		return w.applied(admin, "ConfigMap", "argocd-cm", map[string]string{"tokenExchange": "- name: ci\n  issuer: " + ci.URL + "\n  audience: https://capstan.test\n  lifetime: 10m\n  rules:\n" + rules})
	}
	const shop = "  - claims: {repository: acme/shop, ref: refs/heads/main}\n    role: shop/deployer\n"
	const account = "  - claims: {sub: 'repo:acme/docs:ref:refs/heads/*'}\n    account: ci\n"
	trust(shop + account).ok(200)
	who := func(token string) string {
		var me struct{ Username string }
		w.call(token, "GET", "/api/v1/me", nil).ok(200).into(&me)
		return me.Username
	}
	var first string
	t.Run("AUTH-10 a job's token becomes one that acts as a role of a project, and lives no longer than it", func(t *testing.T) {
		status, got := w.exchange(path, "acme", ci.token(t, ci.key, nil))
		if status != 200 || got.TokenType != "bearer" || got.IssuedTokenType != "urn:ietf:params:oauth:token-type:access_token" || got.ExpiresIn <= 0 || got.ExpiresIn > 300 {
			t.Fatalf("%d %+v", status, got)
		}
		first = got.AccessToken
		if name := who(first); name != "proj:shop:deployer" {
			t.Errorf("it acts as %s", name)
		}
		w.call(first, "POST", "/api/v1/projects/shop/roles/deployer/tokens", map[string]any{}).fails(403)
	})
	t.Run("AUTH-10 another rule makes it act as an account; the path of the hub's own does the same", func(t *testing.T) {
		status, got := w.exchange("/api/v1/token", "acme", ci.token(t, ci.key, map[string]any{"sub": "repo:acme/docs:ref:refs/heads/next", "repository": "acme/docs"}), "connector_id", "ci")
		if status != 200 || who(got.AccessToken) != "ci" {
			t.Errorf("%d %+v", status, got)
		}
		w.call(admin, "PUT", "/api/v1/users/ci", map[string]any{"disabled": true}).ok(200)
		w.call(got.AccessToken, "GET", "/api/v1/me", nil).fails(401)
	})
	t.Run("AUTH-10 a token is exchanged once", func(t *testing.T) {
		token := ci.token(t, ci.key, nil)
		if status, got := w.exchange(path, "acme", token); status != 200 {
			t.Fatalf("%d %+v", status, got)
		}
		if status, got := w.exchange(path, "acme", token); status != 400 || got.Error != "invalid_grant" {
			t.Errorf("again: %d %+v", status, got)
		}
	})
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-time.Hour).Unix()
	t.Run("AUTH-10 SEC-E2 SEC-E11 what does not prove it is refused: key, audience, time, subject, branch, fork, tenant", func(t *testing.T) {
		for name, token := range map[string]string{
			"Key": ci.token(t, stranger, nil), "Audience": ci.token(t, ci.key, map[string]any{"aud": "https://other.example.com"}),
			"Expired": ci.token(t, ci.key, map[string]any{"iat": past, "nbf": past, "exp": past + 60}), "Issuer": ci.token(t, ci.key, map[string]any{"iss": "https://elsewhere.example.com"}),
			"NoSubject": ci.token(t, ci.key, map[string]any{"sub": ""}), "Branch": ci.token(t, ci.key, map[string]any{"ref": "refs/heads/main-evil", "sub": "x"}),
			"Fork": ci.token(t, ci.key, map[string]any{"repository": "acme/shop/evil", "sub": "x"}), "Case": ci.token(t, ci.key, map[string]any{"repository": "ACME/shop", "sub": "x"}),
			"Wider": ci.token(t, ci.key, map[string]any{"repository": "", "sub": "repo:acme/docs:ref:refs/heads/a/b"}), "Garbage": "a.b.c", "Session": admin,
		} {
			if status, got := w.exchange(path, "acme", token); status != 400 || got.Error != "invalid_grant" || got.AccessToken != "" {
				t.Errorf("%s: %d %+v", name, status, got)
			}
		}
		for _, tenant := range []string{"bolt", "nobody", ""} {
			w.Admin("bolt")
			if status, got := w.exchange(path, tenant, ci.token(t, ci.key, nil)); status != 400 || got.Error != "invalid_grant" {
				t.Errorf("tenant %q: %d %+v", tenant, status, got)
			}
		}
		if status, got := w.exchange(path, "acme", ci.token(t, ci.key, nil), "grant_type", "password"); status != 400 || got.Error != "unsupported_grant_type" {
			t.Errorf("%d %+v", status, got)
		}
	})
	t.Run("AUTH-10 SEC-D8 a trust that is taken away ends its tokens at the next request", func(t *testing.T) {
		who(first)
		w.applied(admin, "ConfigMap", "argocd-cm", map[string]string{"tokenExchange": "null"}).ok(200)
		w.call(first, "GET", "/api/v1/me", nil).fails(401)
		trust(shop).ok(200)
	})
	t.Run("AUTH-10 SEC-D4 no rule acts as a platform admin", func(t *testing.T) {
		trust("  - claims: {repository: acme/shop}\n    account: boss\n").ok(200)
		if status, got := w.exchange(path, "acme", ci.token(t, ci.key, nil)); status != 400 || got.Error != "invalid_grant" {
			t.Errorf("%d %+v", status, got)
		}
	})
	t.Run("AUTH-10 rules that cannot be are refused by key and line", func(t *testing.T) {
		for name, rules := range map[string]string{
			"NoClaims": "  - role: shop/deployer\n", "Both": "  - claims: {a: b}\n    role: shop/deployer\n    account: ci\n", "NoTarget": "  - claims: {a: b}\n", "Role": "  - claims: {a: b}\n    role: deployer\n",
		} {
			if p := trust(rules).fails(400); !strings.Contains(p.Object, "tokenExchange") {
				t.Errorf("%s: %+v", name, p)
			}
		}
		w.applied(admin, "ConfigMap", "argocd-cm", map[string]string{"tokenExchange": "- {name: x, issuer: 'http://plain.example.com', audience: a, rules: [{claims: {a: b}, account: ci}]}"}).fails(400)
	})
	t.Run("AUTH-10 exchanges are in the audit log with issuer and subject", func(t *testing.T) {
		a := w.call(admin, "GET", "/api/v1/audit", nil).ok(200)
		if !strings.Contains(string(a.body), "exchange:ci") || !strings.Contains(string(a.body), "repo:acme/shop:ref:refs/heads/main") {
			t.Errorf("it has %s", a.body)
		}
	})
}
