package providers

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Google follows developers.google.com: "OpenID Connect" (code flow, ID
// token, keys), "Using OAuth 2.0 for Server to Server Applications" (the
// assertion of a service account, RFC 7523) and "Directory API: groups.list".
type Google struct {
	Subject string
	Claims  map[string]any // of the ID token; they replace the usual ones
	// Groups are the groups of a person or a group, by mail address.
	Groups map[string][]string
	Admin  string // on whose behalf groups may be listed
	// PageSize is how many groups one answer has; zero: 200.
	PageSize int

	keys    sync.Once
	key     *rsa.PrivateKey // signs ID tokens
	account *rsa.PrivateKey // of the service account
}

const (
	googleKeyID     = "key-1"
	serviceAccount  = "reader@project.iam.gserviceaccount.com"
	googleTokenURL  = "https://oauth2.googleapis.com/token"
	jwtBearer       = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	directoryScope  = "https://www.googleapis.com/auth/admin.directory.group.readonly"
	googleLifetime  = time.Hour
	googlePageLimit = 200
)

func (g *Google) prepare() {
	g.keys.Do(func() {
		var err error
		if g.key, err = rsa.GenerateKey(rand.Reader, 2048); err == nil {
			g.account, err = rsa.GenerateKey(rand.Reader, 2048)
		}
		if err != nil {
			panic(err)
		}
	})
}

// ServiceAccount is the key file of the service account that may list groups.
func (s *Server) ServiceAccount() string {
	s.Google.prepare()
	der, err := x509.MarshalPKCS8PrivateKey(s.Google.account)
	if err != nil {
		panic(err)
	}
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": serviceAccount, "private_key_id": "account-key", "token_uri": googleTokenURL,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	if err != nil {
		panic(err)
	}
	return string(text)
}

func (s *Server) serveGoogle(w http.ResponseWriter, r *http.Request) {
	s.Google.prepare()
	switch r.Host + r.URL.Path {
	case "accounts.google.com/o/oauth2/v2/auth":
		s.authorize(w, r)
	case "oauth2.googleapis.com/token":
		s.googleToken(w, r)
	case "www.googleapis.com/oauth2/v3/certs":
		n := base64.RawURLEncoding.EncodeToString(s.Google.key.N.Bytes())
		e := base64.RawURLEncoding.EncodeToString(big.NewInt(int64(s.Google.key.E)).Bytes())
		reply(w, http.StatusOK, map[string]any{"keys": []map[string]string{{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": googleKeyID, "n": n, "e": e}}})
	case "admin.googleapis.com/admin/directory/v1/groups":
		s.googleGroups(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (s *Server) googleToken(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err == nil && r.PostForm.Get("grant_type") == jwtBearer {
		s.googleAssertion(w, r.PostForm.Get("assertion"))
		return
	}
	g, ok := s.exchange(w, r)
	if !ok {
		return
	}
	now := time.Now()
	claims := map[string]any{
		"iss": "https://accounts.google.com", "aud": ClientID, "azp": ClientID, "sub": s.Google.Subject, "nonce": g.nonce,
		"iat": now.Unix(), "exp": now.Add(googleLifetime).Unix(),
	}
	for name, value := range s.Google.Claims {
		claims[name] = value
	}
	reply(w, http.StatusOK, map[string]any{
		"access_token": s.token(), "token_type": "Bearer", "expires_in": int(googleLifetime.Seconds()), "id_token": sign(s.Google.key, googleKeyID, claims),
	})
}

// sign makes a JWT with RS256.
func sign(key *rsa.PrivateKey, id string, claims map[string]any) string {
	head, err := json.Marshal(map[string]string{"alg": "RS256", "kid": id, "typ": "JWT"})
	if err != nil {
		panic(err)
	}
	body, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	text := base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString(body)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		panic(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// googleAssertion gives a token for the assertion of the service account.
func (s *Server) googleAssertion(w http.ResponseWriter, assertion string) {
	parts := strings.Split(assertion, ".")
	var claims struct {
		Issuer   string `json:"iss"`
		Subject  string `json:"sub"`
		Audience string `json:"aud"`
		Scope    string `json:"scope"`
	}
	if len(parts) != 3 {
		tokenError(w, "invalid_grant")
		return
	}
	body, _ := base64.RawURLEncoding.DecodeString(parts[1])
	signature, _ := base64.RawURLEncoding.DecodeString(parts[2])
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	valid := rsa.VerifyPKCS1v15(&s.Google.account.PublicKey, crypto.SHA256, sum[:], signature) == nil && json.Unmarshal(body, &claims) == nil
	switch {
	case !valid || claims.Issuer != serviceAccount || claims.Audience != googleTokenURL:
		tokenError(w, "invalid_grant")
	case claims.Subject != s.Google.Admin || claims.Scope != directoryScope:
		tokenError(w, "unauthorized_client")
	default:
		reply(w, http.StatusOK, map[string]any{"access_token": s.token(), "token_type": "Bearer", "expires_in": int(googleLifetime.Seconds())})
	}
}

func (s *Server) googleGroups(w http.ResponseWriter, r *http.Request) {
	if !s.authorized(w, r) {
		return
	}
	q := r.URL.Query()
	all := s.Google.Groups[q.Get("userKey")]
	from, _ := strconv.Atoi(q.Get("pageToken"))
	size := s.Google.PageSize
	if size == 0 {
		size = googlePageLimit
	}
	from = min(from, len(all))
	to := min(from+size, len(all))
	answer := map[string]any{"kind": "admin#directory#groups"}
	var groups []map[string]string
	for _, g := range all[from:to] {
		groups = append(groups, map[string]string{"email": g, "name": "Name of " + g})
	}
	if groups != nil {
		answer["groups"] = groups
	}
	if to < len(all) {
		answer["nextPageToken"] = strconv.Itoa(to)
	}
	reply(w, http.StatusOK, answer)
}
