// Package providers is a small server that speaks the parts of the published
// protocols of GitHub, GitLab, Google and Microsoft which a sign-in uses. These
// companies offer no server to run on one's own machine, or one that needs
// hours to install. It checks what clients send, so that a client that leaves
// out PKCE, a token or a header fails here too. The comment of each file says
// which documents it follows.
//
// It answers for all hosts of these providers, by the header Host, on one
// loopback address. Client returns an HTTP client that reaches it under the
// real names, with TLS.
package providers

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The client that is registered at each provider.
const (
	ClientID     = "client-id"
	ClientSecret = "client-secret-canary"
	Callback     = "https://hub.example.com/callback"
)

// A Server answers for all providers.
type Server struct {
	GitHub    GitHub
	GitLab    GitLab
	Google    Google
	Microsoft Microsoft

	// CA is the authority of its certificate in PEM.
	CA []byte
	// Override answers instead of a provider, if it returns true: for faults.
	Override func(w http.ResponseWriter, r *http.Request) bool

	http *httptest.Server
	mu   sync.Mutex
	// codes are the codes that were given and not used yet; tokens the tokens.
	codes  map[string]grant
	tokens map[string]bool
	sent   []string // host and path of each request
}

// A grant is what a code was given for.
type grant struct {
	host, callback, challenge, nonce string
	scopes                           []string
}

// New starts a server for one test.
func New(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{codes: map[string]grant{}, tokens: map[string]bool{}}
	s.http = httptest.NewTLSServer(http.HandlerFunc(s.serve))
	tb.Cleanup(s.http.Close)
	s.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	return s
}

// Client returns a client for which all hosts are this server.
func (s *Server) Client() *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(s.http.Certificate())
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, s.http.Listener.Addr().String())
		},
		// The certificate is for this name, whatever host is asked for.
		TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "example.com", MinVersion: tls.VersionTLS12},
	}}
}

// SignIn is what a browser does with the address of Begin: it returns the
// parameters that the provider sends it back with.
func (s *Server) SignIn(tb testing.TB, address string) url.Values {
	tb.Helper()
	client := s.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Get(address)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	to, err := resp.Location()
	if err != nil {
		tb.Fatalf("the provider answers %d to %s", resp.StatusCode, address)
	}
	if !strings.HasPrefix(to.String(), Callback+"?") {
		tb.Fatalf("the provider redirects to %s", to)
	}
	return to.Query()
}

// Requests are host and path of each request so far.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.sent...)
}

// Revoke makes all tokens so far invalid.
func (s *Server) Revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.sent = append(s.sent, r.Host+r.URL.Path)
	s.mu.Unlock()
	if s.Override != nil && s.Override(w, r) {
		return
	}
	switch host := r.Host; {
	case host == "github.com", host == "api.github.com", strings.HasPrefix(host, "ghe."):
		s.serveGitHub(w, r)
	case strings.HasPrefix(host, "gitlab."):
		s.serveGitLab(w, r)
	case host == "accounts.google.com", strings.HasSuffix(host, ".googleapis.com"):
		s.serveGoogle(w, r)
	case host == "login.microsoftonline.com", host == "graph.microsoft.com":
		s.serveMicrosoft(w, r)
	default:
		http.Error(w, "no such host", http.StatusMisdirectedRequest)
	}
}

// authorize answers an authorization request (RFC 6749, 4.1.1; RFC 7636): the
// person agrees at once.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("client_id") != ClientID || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("state") == "" {
		http.Error(w, "invalid_request", http.StatusBadRequest)
		return
	}
	if q.Get("redirect_uri") != Callback {
		http.Error(w, "redirect_uri_mismatch", http.StatusBadRequest)
		return
	}
	code := random()
	s.mu.Lock()
	s.codes[code] = grant{
		host: r.Host, callback: q.Get("redirect_uri"), challenge: q.Get("code_challenge"), nonce: q.Get("nonce"), scopes: strings.Fields(q.Get("scope")),
	}
	s.mu.Unlock()
	http.Redirect(w, r, Callback+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
}

// exchange answers a token request (RFC 6749, 4.1.3; RFC 7636, 4.6). A code is
// valid once. It returns what was granted, or false after it has answered.
func (s *Server) exchange(w http.ResponseWriter, r *http.Request) (grant, bool) {
	if err := r.ParseForm(); err != nil || r.Method != http.MethodPost {
		tokenError(w, "invalid_request")
		return grant{}, false
	}
	id, secret := r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	if id != ClientID || subtle.ConstantTimeCompare([]byte(secret), []byte(ClientSecret)) != 1 {
		tokenError(w, "invalid_client")
		return grant{}, false
	}
	s.mu.Lock()
	g, ok := s.codes[r.PostForm.Get("code")]
	delete(s.codes, r.PostForm.Get("code"))
	s.mu.Unlock()
	sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
	if !ok || g.callback != r.PostForm.Get("redirect_uri") || g.challenge != base64.RawURLEncoding.EncodeToString(sum[:]) {
		tokenError(w, "invalid_grant")
		return grant{}, false
	}
	return g, true
}

func tokenError(w http.ResponseWriter, code string) {
	reply(w, http.StatusBadRequest, map[string]string{"error": code, "error_description": "echo of " + ClientSecret})
}

// token makes a token.
func (s *Server) token() string {
	token := random()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = true
	return token
}

// authorized checks the token of a request to an API, and answers if there is
// none.
func (s *Server) authorized(w http.ResponseWriter, r *http.Request) bool {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens[token] {
		return true
	}
	reply(w, http.StatusUnauthorized, map[string]string{"message": "Bad credentials"})
	return false
}

func reply(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

// page answers one page of a list, with a header Link (RFC 8288) as GitHub and
// GitLab send it.
func page[T any](w http.ResponseWriter, r *http.Request, all []T) {
	q := r.URL.Query()
	size, _ := strconv.Atoi(q.Get("per_page"))
	number, _ := strconv.Atoi(q.Get("page"))
	if size < 1 || size > 100 {
		size = 30
	}
	number = max(1, number)
	from, to := min((number-1)*size, len(all)), min(number*size, len(all))
	if to < len(all) {
		q.Set("page", strconv.Itoa(number+1))
		next := url.URL{Scheme: "https", Host: r.Host, Path: r.URL.Path, RawQuery: q.Encode()}
		w.Header().Set("Link", fmt.Sprintf(`<%s>; rel="next", <%s>; rel="last"`, next.String(), next.String()))
	}
	reply(w, http.StatusOK, append([]T{}, all[from:to]...))
}
