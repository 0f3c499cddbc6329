// Package issuers is a small server that issues tokens as GitHub, Google and
// Azure do. It verifies what it is sent, so that a wrong proof fails here too.
// It speaks these parts of the published protocols:
//
//   - docs.github.com, "REST API endpoints for GitHub Apps": get a repository,
//     an organization and a user installation for the authenticated app, and create an installation access
//     token; "Generating a JSON Web Token (JWT) for a GitHub App".
//   - developers.google.com, "Using OAuth 2.0 for Server to Server
//     Applications": the exchange of a signed JWT (RFC 7523).
//   - learn.microsoft.com, "Microsoft identity platform and the OAuth 2.0 client
//     credentials flow": with a shared secret, and with a federated credential.
package issuers

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// What the server knows.
const (
	AppID        = 4711
	Installation = 815
	Account      = "robot@project.iam.gserviceaccount.example"
	AzureTenant  = "72f988bf-0000-4000-8000-000000000001"
	AzureClient  = "11111111-0000-4000-8000-000000000002"
	// RegistryScope is the scope of tokens for registries of Azure.
	RegistryScope = "https://containerregistry.azure.net/.default"
)

// A Server issues tokens. Its fields may be changed before it is used.
type Server struct {
	HTTP *httptest.Server
	Key  *rsa.PrivateKey // of the app and of the service account
	// ClientSecret and Federated are what Azure accepts.
	ClientSecret, Federated string
	Life                    time.Duration
	Prefix                  string // of each token
	Now                     func() time.Time
	// Override answers instead, if it returns true: for faults.
	Override func(w http.ResponseWriter, r *http.Request) bool

	mu     sync.Mutex
	tokens map[string]bool
	asked  []string
}

// New starts a server for one test.
func New(tb testing.TB) *Server {
	tb.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{Key: key, ClientSecret: "secret-" + rand.Text(), Federated: "federated-" + rand.Text(), Life: time.Hour, Prefix: "token-", Now: time.Now, tokens: map[string]bool{}}
	s.HTTP = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.HTTP.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.HTTP.StartTLS()
	tb.Cleanup(s.HTTP.Close)
	return s
}

// PEM is the private key.
func (s *Server) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(s.Key)}))
}

// GoogleKey is the JSON key of the service account.
func (s *Server) GoogleKey() string {
	text, _ := json.Marshal(map[string]string{
		"type": "service_account", "client_email": Account, "private_key_id": "key-1", "private_key": s.PEM(), "token_uri": s.HTTP.URL + "/token",
	})
	return string(text)
}

// CA is the certificate of the server in PEM.
func (s *Server) CA() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.HTTP.Certificate().Raw}))
}

// Valid reports whether a token was issued here and not revoked.
func (s *Server) Valid(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens[token]
}

// Revoke makes all tokens so far invalid.
func (s *Server) Revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
}

// Asked are method and path of each request so far.
func (s *Server) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.asked...)
}

func (s *Server) issue() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := s.Prefix + rand.Text()
	s.tokens[token] = true
	return token
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	s.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/api/v3")
	switch {
	case s.Override != nil && s.Override(w, r):
	case strings.HasPrefix(path, "/repos/"), strings.HasPrefix(path, "/app/"), strings.HasSuffix(path, "/installation"):
		s.gitHub(w, r, path)
	case r.Method == http.MethodGet && (path == "/orgs/acme/installation" || path == "/users/ana/installation"):
		reply(w, http.StatusOK, map[string]any{"id": Installation})
	case r.Method == http.MethodPost && path == "/token":
		s.google(w, r)
	case r.Method == http.MethodGet && (path == "/orgs/acme/installation" || path == "/users/ana/installation"):
		reply(w, http.StatusOK, map[string]any{"id": Installation})
	case r.Method == http.MethodPost && path == "/"+AzureTenant+"/oauth2/v2.0/token":
		s.azure(w, r)
	default:
		http.NotFound(w, r)
	}
}

// proven verifies a JWT and returns its claims.
func (s *Server) proven(text string, into any) (jwt.Claims, error) {
	var claims jwt.Claims
	token, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.RS256})
	if err == nil {
		err = token.Claims(&s.Key.PublicKey, &claims, into)
	}
	if err == nil {
		err = claims.ValidateWithLeeway(jwt.Expected{Time: s.Now()}, 0)
	}
	return claims, err
}

func (s *Server) gitHub(w http.ResponseWriter, r *http.Request, path string) {
	claims, err := s.proven(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), &struct{}{})
	if err != nil || claims.Issuer != fmt.Sprint(AppID) || claims.Expiry.Time().Sub(claims.IssuedAt.Time()) > 10*time.Minute {
		reply(w, http.StatusUnauthorized, map[string]string{"message": "A JSON web token could not be decoded: " + r.Header.Get("Authorization")})
		return
	}
	switch {
	case r.Method == http.MethodGet && strings.HasSuffix(path, "/installation") && strings.HasPrefix(path, "/repos/team/"):
		reply(w, http.StatusOK, map[string]any{"id": Installation})
	case r.Method == http.MethodGet && (path == "/orgs/acme/installation" || path == "/users/ana/installation"):
		reply(w, http.StatusOK, map[string]any{"id": Installation})
	case r.Method == http.MethodPost && path == fmt.Sprintf("/app/installations/%d/access_tokens", Installation):
		var asked struct{ Permissions map[string]string }
		body, _ := io.ReadAll(r.Body)
		if json.Unmarshal(body, &asked) != nil || asked.Permissions["contents"] != "read" || len(asked.Permissions) > 2 || len(asked.Permissions) == 2 && asked.Permissions["pull_requests"] != "read" {
			reply(w, http.StatusUnprocessableEntity, map[string]string{"message": "more than read access is asked for"})
			return
		}
		reply(w, http.StatusCreated, map[string]any{"token": s.issue(), "expires_at": s.Now().Add(s.Life).UTC().Format(time.RFC3339)})
	default:
		reply(w, http.StatusNotFound, map[string]string{"message": "Not Found"})
	}
}

func (s *Server) google(w http.ResponseWriter, r *http.Request) {
	var extra struct {
		Scope string `json:"scope"`
	}
	claims, err := s.proven(r.PostFormValue("assertion"), &extra)
	if err != nil || r.PostFormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" || claims.Issuer != Account ||
		!claims.Audience.Contains(s.HTTP.URL+"/token") || extra.Scope != "https://www.googleapis.com/auth/cloud-platform" {
		reply(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant", "error_description": r.PostFormValue("assertion")})
		return
	}
	s.token(w)
}

func (s *Server) azure(w http.ResponseWriter, r *http.Request) {
	secret := r.PostFormValue("client_secret") == s.ClientSecret
	federated := r.PostFormValue("client_assertion") == s.Federated && r.PostFormValue("client_assertion_type") == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
	if r.PostFormValue("grant_type") != "client_credentials" || r.PostFormValue("client_id") != AzureClient || !secret && !federated ||
		r.PostFormValue("scope") != "499b84ac-1321-427f-aa17-267ca6975798/.default" && r.PostFormValue("scope") != RegistryScope {
		reply(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client", "error_description": r.PostFormValue("client_secret")})
		return
	}
	s.token(w)
}

// Exchange is what a registry of Azure answers at /oauth2/exchange: it takes a
// token of this server and returns one of its own.
func (s *Server) Exchange(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.PostFormValue("grant_type") != "access_token" || r.PostFormValue("service") != r.Host || !s.Valid(r.PostFormValue("access_token")) {
		reply(w, http.StatusUnauthorized, map[string]string{"error": "unauthorized"})
		return
	}
	reply(w, http.StatusOK, map[string]string{"refresh_token": s.issue()})
}

func (s *Server) token(w http.ResponseWriter) {
	reply(w, http.StatusOK, map[string]any{"access_token": s.issue(), "token_type": "Bearer", "expires_in": int(s.Life.Seconds())})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
