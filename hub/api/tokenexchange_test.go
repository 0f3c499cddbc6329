package api_test

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"
)

// ciIssuer publishes keys as OpenID Connect Discovery says, and signs tokens.
type ciIssuer struct {
	*httptest.Server
	key *rsa.PrivateKey
}

func newCIIssuer(t *testing.T) *ciIssuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	c := &ciIssuer{key: key}
	c.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keys" {
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "k", Algorithm: "RS256", Use: "sig"}}})
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": c.URL, "jwks_uri": c.URL + "/keys"})
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *ciIssuer) token(t *testing.T, subject string) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: c.key, KeyID: "k"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(map[string]any{
		"iss": c.URL, "aud": "https://hub.example.com", "sub": subject, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(),
	})
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

// config is dex.config with a connector of the issuer.
func (c *ciIssuer) config(more string) string {
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw}))
	return fmt.Sprintf("connectors:\n- type: oidc\n  id: ci\n  name: CI\n  config:\n    issuer: %s\n    clientID: https://hub.example.com\n    userNameKey: sub\n    rootCAs:\n    - |\n      %s\n%s",
		c.URL, strings.ReplaceAll(strings.TrimSpace(ca), "\n", "\n      "), more)
}

func TestTokenExchange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, ci := w.Admin("acme"), newCIIssuer(t)
	configure := func(more string) {
		t.Helper()
		w.call(admin, "PATCH", "/api/v1/settings", map[string]any{"values": map[string]any{"argocd-cm": map[string]string{"url": w.URL, "dex.config": ci.config(more)}}}).ok(200)
	}
	configure("    tokenExchange:\n      rules:\n      - sub: repo:my-org/*:ref:refs/heads/main\n")
	w.call(admin, "POST", "/api/v1/apply", `apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: shop}
spec:
  roles:
    - name: ci
      groups: ["repo:my-org/shop:ref:refs/heads/main"]
      policies: ["p, proj:shop:ci, applications, sync, shop/*, allow"]
`).ok(200)
	ask := func(change func(url.Values), token string) (status int, answer map[string]any) {
		t.Helper()
		form := url.Values{
			"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "connector_id": {"ci"}, "tenant": {"acme"}, "scope": {"openid groups"},
			"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"}, "subject_token_type": {"urn:ietf:params:oauth:token-type:id_token"}, "subject_token": {token},
		}
		if change != nil {
			change(form)
		}
		resp, err := http.PostForm(w.URL+"/api/dex/token", form)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || json.Unmarshal(text, &answer) != nil {
			t.Fatalf("%d %s %v", resp.StatusCode, text, err)
		}
		if strings.Contains(string(text), token) && token != "" {
			t.Errorf("%v %s", resp.Header, text)
		}
		return resp.StatusCode, answer
	}
	const subject = "repo:my-org/shop:ref:refs/heads/main"
	t.Run("AUTH-10 a job exchanges its token and acts with the rights of its subject", func(t *testing.T) {
		status, answer := ask(nil, ci.token(t, subject))
		secret, _ := answer["access_token"].(string)
		if status != http.StatusOK || secret == "" || answer["token_type"] != "bearer" || answer["expires_in"].(float64) <= 0 {
			t.Fatalf("%d %v", status, answer)
		}
		var me meAnswer
		w.call(secret, "GET", "/api/v1/me", nil).ok(200).into(&me)
		if me.Tenant != "acme" || !me.syncs("shop") {
			t.Errorf("%+v", me)
		}
		_, answer = ask(nil, ci.token(t, "repo:my-org/other:ref:refs/heads/main"))
		secret, _ = answer["access_token"].(string)
		var other meAnswer
		w.call(secret, "GET", "/api/v1/me", nil).ok(200).into(&other)
		if other.syncs("shop") || other.Username == me.Username {
			t.Errorf("%+v", other)
		}
	})
	for name, c := range map[string]struct {
		subject string
		change  func(url.Values)
		code    string
	}{
		"a job that no rule names":       {subject: "repo:my-org/shop:pull_request", code: "invalid_grant"},
		"a fork":                         {subject: "repo:evil/shop:ref:refs/heads/main", code: "invalid_grant"},
		"a token that is none":           {change: func(v url.Values) { v.Set("subject_token", "x") }, code: "invalid_grant"},
		"another connector":              {change: func(v url.Values) { v.Set("connector_id", "other") }, code: "invalid_grant"},
		"another tenant":                 {change: func(v url.Values) { v.Set("tenant", "globex") }, code: "invalid_grant"},
		"a tenant that is not there":     {change: func(v url.Values) { v.Set("tenant", "nobody") }, code: "invalid_grant"},
		"a request that lacks the token": {change: func(v url.Values) { v.Del("subject_token") }, code: "invalid_request"},
		"another grant":                  {change: func(v url.Values) { v.Set("grant_type", "password") }, code: "unsupported_grant_type"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			s := c.subject
			if s == "" {
				s = subject
			}
			if status, answer := ask(c.change, ci.token(t, s)); status != http.StatusBadRequest || answer["error"] != c.code || answer["access_token"] != nil {
				t.Errorf("%d %v", status, answer)
			}
		})
	}
	t.Run("refuses tokens of a connector without tokenExchange", func(t *testing.T) {
		configure("")
		if status, answer := ask(nil, ci.token(t, subject)); status != http.StatusBadRequest || answer["error"] != "invalid_grant" {
			t.Errorf("%d %v", status, answer)
		}
	})
}
