// Package vault runs a server on loopback that speaks the parts of the HTTP API
// of HashiCorp Vault that agents use: sign-in by the Kubernetes auth method,
// whose tokens the cluster's own TokenReview checks, and reading of the KV
// engine in versions 1 and 2. Policies are lists of path globs per role. It has
// TLS, and leases that expire. Sealing, renewal and writing over HTTP are not
// part of it.
package vault

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-cd/capstan/integration/rigs/pki"
	"github.com/capstan-cd/capstan/shared/glob"
)

// A Role may sign in with some service accounts, and read some paths.
type Role struct {
	Accounts []string // namespace:name
	Paths    []string // globs
}

// A Server is a running Vault.
type Server struct {
	URL    string
	CAFile string

	server  *httptest.Server
	cluster dynamic.Interface // reviews tokens

	mu     sync.Mutex
	roles  map[string]Role
	tokens map[string]session
	kv     map[string][]map[string]any // versions of a secret, oldest first, by path without "data"
	mounts map[string]int              // version of the KV engine
	sealed bool
	lease  time.Duration
	reads  map[string]int
	logins int
	// issued gets each secret of a sign-in: what is sent and what is answered.
	issued func(name, secret string)
}

type session struct {
	role    string
	expires time.Time
}

// New starts a server that reviews tokens in a cluster. It has the mounts
// secret (version 2) and old (version 1).
func New(tb testing.TB, cluster dynamic.Interface) *Server {
	tb.Helper()
	s, err := Open(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	s.Review(cluster)
	return s
}

// Open starts a server with its files in a directory. It refuses all sign-ins
// until Review, and ends with Close.
func Open(dir string) (*Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	authority, err := pki.Open(dir)
	if err != nil {
		return nil, err
	}
	pair, err := authority.Server("vault")
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, err
	}
	s := &Server{
		roles: map[string]Role{}, tokens: map[string]session{}, kv: map[string][]map[string]any{},
		mounts: map[string]int{"secret": 2, "old": 1}, lease: time.Hour, reads: map[string]int{}, CAFile: filepath.Join(dir, "vault-ca.crt"),
	}
	if err := os.WriteFile(s.CAFile, authority.PEM, 0o600); err != nil {
		return nil, err
	}
	s.server = httptest.NewUnstartedServer(s)
	s.server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	s.server.StartTLS()
	s.URL = s.server.URL
	return s, nil
}

// Close ends the server.
func (s *Server) Close() { s.server.Close() }

// Review says which cluster reviews tokens of service accounts.
func (s *Server) Review(cluster dynamic.Interface) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster = cluster
}

// Watch has a function called with each secret of a sign-in before it is
// answered: the token of the service account, and what Vault makes for it. From
// then on refusals repeat what the request has, as careless servers do.
func (s *Server) Watch(issued func(name, secret string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issued = issued
}

// Bind makes a role.
func (s *Server) Bind(name string, r Role) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roles[name] = r
}

// Put writes a new version of a secret. The path has the mount and no "data".
func (s *Server) Put(path string, data map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kv[path] = append(s.kv[path], data)
}

// Seal makes every request fail, as of a sealed server, until it is unsealed.
func (s *Server) Seal(sealed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed = sealed
}

// Revoke ends all sign-ins.
func (s *Server) Revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = map[string]session{}
}

// Reads is how often a path was read, as agents write it.
func (s *Server) Reads(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads[path]
}

// Logins is how many sign-ins succeeded.
func (s *Server) Logins() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logins
}

// ServeHTTP serves the API.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, "/v1/")
	s.mu.Lock()
	sealed := s.sealed
	s.mu.Unlock()
	switch {
	case !ok:
		refuse(w, http.StatusNotFound)
	case sealed:
		refuse(w, http.StatusServiceUnavailable)
	case r.Method == http.MethodPost && path == "auth/kubernetes/login":
		s.login(w, r)
	case r.Method == http.MethodGet:
		s.read(w, r, path)
	default:
		refuse(w, http.StatusMethodNotAllowed)
	}
}

func refuse(w http.ResponseWriter, status int, more ...string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": append([]string{"refused"}, more...)})
}

func reply(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	var asked struct{ Role, JWT string }
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		refuse(w, http.StatusBadRequest)
		return
	}
	account, err := s.review(r.Context(), asked.JWT)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report("token of a service account for Vault", asked.JWT)
	role, known := s.roles[asked.Role]
	if err != nil || !known || !contains(role.Accounts, account) {
		refuse(w, http.StatusForbidden, s.repeated(asked.JWT)...)
		return
	}
	token, accessor, nonce := "hvs."+rand.Text(), rand.Text(), rand.Text()
	s.tokens[token] = session{asked.Role, time.Now().Add(s.lease)}
	s.logins++
	s.report("token of Vault", token)
	s.report("accessor of a token of Vault", accessor)
	s.report("secret in a response of Kubernetes auth", nonce)
	reply(w, map[string]any{"auth": map[string]any{
		"client_token": token, "accessor": accessor, "lease_duration": int(s.lease.Seconds()), "renewable": true,
		"policies": []string{"default"}, "metadata": map[string]string{"role": asked.Role, "service_account_secret_name": nonce},
	}})
}

// report passes a secret to who watches. The caller holds mu.
func (s *Server) report(name, secret string) {
	if s.issued != nil {
		s.issued(name, secret)
	}
}

// repeated is what a refusal repeats. The caller holds mu.
func (s *Server) repeated(secrets ...string) []string {
	if s.issued == nil {
		return nil
	}
	return secrets
}

// review asks the API server whose token it is: namespace:name.
func (s *Server) review(ctx context.Context, token string) (string, error) {
	reviews := schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "tokenreviews"}
	s.mu.Lock()
	cluster := s.cluster
	s.mu.Unlock()
	if cluster == nil {
		return "", errors.New("no cluster reviews tokens")
	}
	got, err := cluster.Resource(reviews).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": map[string]any{"token": token},
	}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	user, _, _ := unstructured.NestedString(got.Object, "status", "user", "username")
	account, ok := strings.CutPrefix(user, "system:serviceaccount:")
	if valid, _, _ := unstructured.NestedBool(got.Object, "status", "authenticated"); !valid || !ok {
		return "", fmt.Errorf("the token is of no service account")
	}
	return account, nil
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

func (s *Server) read(w http.ResponseWriter, r *http.Request, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := r.Header.Get("X-Vault-Token")
	in, ok := s.tokens[sent]
	if !ok || time.Now().After(in.expires) {
		refuse(w, http.StatusForbidden, s.repeated(sent)...)
		return
	}
	permitted := false
	for _, g := range s.roles[in.role].Paths {
		permitted = permitted || glob.Match(g, path)
	}
	if !permitted {
		refuse(w, http.StatusForbidden, s.repeated(sent)...)
		return
	}
	s.reads[path]++
	mount, rest, _ := strings.Cut(path, "/")
	version := s.mounts[mount]
	if version == 2 {
		var isData bool
		if rest, isData = strings.CutPrefix(rest, "data/"); !isData {
			refuse(w, http.StatusNotFound)
			return
		}
	}
	versions := s.kv[mount+"/"+rest]
	n := len(versions)
	if text := r.URL.Query().Get("version"); text != "" && version == 2 {
		n, _ = strconv.Atoi(text)
	}
	if n < 1 || n > len(versions) {
		refuse(w, http.StatusNotFound)
		return
	}
	data := versions[n-1]
	if version == 1 {
		reply(w, map[string]any{"data": data})
		return
	}
	reply(w, map[string]any{"data": map[string]any{"data": data, "metadata": map[string]any{"version": n}}})
}
