// Package lfsserver is a small server for Git LFS. It speaks the Batch API with
// the transfer "basic" for downloads, as published in the repository git-lfs
// under docs/api/batch.md and docs/api/basic-transfers.md: the media type, the
// error of a single object, and headers that a download needs. It knows no
// uploads and no locks.
package lfsserver

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// A Server has the files. Its answers to the batch API are at Batch, for a Git
// server; the files are at HTTP, which is another host for clients.
type Server struct {
	HTTP *httptest.Server
	// Token is what a download has to send, and the answer says so.
	Token string
	// Override answers a batch or a download instead, if it returns true.
	Override func(w http.ResponseWriter, r *http.Request) bool

	mu      sync.Mutex
	files   map[string]string
	asked   []string
	headers []http.Header // of downloads
}

// New starts a server for one test.
func New(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{Token: "RemoteAuth " + rand.Text(), files: map[string]string{}}
	s.HTTP = httptest.NewUnstartedServer(http.HandlerFunc(s.download))
	s.HTTP.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.HTTP.Start()
	tb.Cleanup(s.HTTP.Close)
	return s
}

// NewTLS starts a server that answers the batch API itself, over TLS, to those
// who send the header Authorization that a Git server has named over SSH.
func NewTLS(tb testing.TB, authorization string) *Server {
	tb.Helper()
	s := &Server{Token: "RemoteAuth " + rand.Text(), files: map[string]string{}}
	s.HTTP = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/info/lfs/") && r.Header.Get("Authorization") != authorization {
			w.WriteHeader(http.StatusUnauthorized)
		} else if !s.Batch(w, r) {
			s.download(w, r)
		}
	}))
	s.HTTP.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.HTTP.StartTLS()
	tb.Cleanup(s.HTTP.Close)
	return s
}

// Put stores a file and returns the pointer to commit in place of it.
func (s *Server) Put(content string) (pointer string) {
	sum := sha256.Sum256([]byte(content))
	oid := hex.EncodeToString(sum[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[oid] = content
	return Pointer(oid, len(content))
}

// Pointer is the text of a pointer.
func Pointer(oid string, size int) string {
	return fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", oid, size)
}

// Asked are the requests so far: "batch" and "download".
func (s *Server) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.asked...)
}

// Headers are those of the downloads so far.
func (s *Server) Headers() []http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]http.Header{}, s.headers...)
}

// Batch answers requests of the batch API, and reports whether it has.
func (s *Server) Batch(w http.ResponseWriter, r *http.Request) bool {
	if !strings.HasSuffix(r.URL.Path, ".git/info/lfs/objects/batch") {
		return false
	}
	s.note("batch", nil)
	if s.Override != nil && s.Override(w, r) {
		return true
	}
	const media = "application/vnd.git-lfs+json"
	var asked struct {
		Operation string
		Transfers []string
		Objects   []struct {
			OID  string
			Size int
		}
	}
	if r.Method != http.MethodPost || r.Header.Get("Accept") != media || !strings.HasPrefix(r.Header.Get("Content-Type"), media) ||
		json.NewDecoder(r.Body).Decode(&asked) != nil || asked.Operation != "download" || len(asked.Transfers) != 1 || asked.Transfers[0] != "basic" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return true
	}
	var objects []map[string]any
	for _, o := range asked.Objects {
		s.mu.Lock()
		content, ok := s.files[o.OID]
		s.mu.Unlock()
		answer := map[string]any{"oid": o.OID, "size": o.Size}
		if ok && len(content) == o.Size {
			answer["actions"] = map[string]any{"download": map[string]any{"href": s.HTTP.URL + "/files/" + o.OID, "header": map[string]string{"Authorization": s.Token}, "expires_in": 60}}
		} else {
			answer["error"] = map[string]any{"code": 404, "message": "Object does not exist"}
		}
		objects = append(objects, answer)
	}
	w.Header().Set("Content-Type", media)
	_ = json.NewEncoder(w).Encode(map[string]any{"transfer": "basic", "objects": objects})
	return true
}

func (s *Server) note(what string, h http.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, what)
	if h != nil {
		s.headers = append(s.headers, h.Clone())
	}
}

func (s *Server) download(w http.ResponseWriter, r *http.Request) {
	s.note("download", r.Header)
	if s.Override != nil && s.Override(w, r) {
		return
	}
	if r.Header.Get("Authorization") != s.Token {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	s.mu.Lock()
	content, ok := s.files[strings.TrimPrefix(r.URL.Path, "/files/")]
	s.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write([]byte(content))
}
