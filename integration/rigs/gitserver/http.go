package gitserver

import (
	"bufio"
	"bytes"
	"crypto/subtle"
	"io"
	"net/http"
	"net/http/cgi"
	"path/filepath"
	"strings"
	"time"
)

// serve answers one request with git's own server program.
func (g *Server) serve(w http.ResponseWriter, request *http.Request) {
	r, rest := g.find(request.URL.Path)
	if r == nil {
		http.NotFound(w, request)
		return
	}
	ours := equal(request.Header.Get(bypassHeader), g.bypass)
	request.Header.Del(bypassHeader)
	if !ours && !r.admit(w, request) {
		return
	}
	kind := kindOf(request, rest)
	if !ours {
		r.count(kind)
	}
	if kind == pushRequest {
		r.pushing.Lock()
		defer r.pushing.Unlock()
		before := r.refs(request.Context())
		g.backend(w, request)
		r.announce(before)
		return
	}
	g.backend(w, request)
}

// admit applies the fault and the credentials of a repository.
func (r *Repository) admit(w http.ResponseWriter, request *http.Request) bool {
	r.mu.Lock()
	fault, options := r.fault, r.options
	r.mu.Unlock()
	if fault.Delay > 0 {
		timer := time.NewTimer(fault.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-request.Context().Done():
			return false
		case <-r.git.ctx.Done():
			return false
		}
	}
	status := fault.Status
	if options != (RepositoryOptions{}) {
		user, password, _ := request.BasicAuth()
		if !equal(user, options.Username) || !equal(password, options.Password) {
			status = http.StatusUnauthorized
		}
	}
	if status == 0 {
		return true
	}
	r.count(refusedRequest)
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
	}
	http.Error(w, http.StatusText(status), status)
	return false
}

// backend hands a request to git http-backend.
func (g *Server) backend(w http.ResponseWriter, request *http.Request) {
	env := append(g.environment(), "GIT_PROJECT_ROOT="+filepath.Join(g.dir.Path, "repositories"), "GIT_HTTP_EXPORT_ALL=1")
	if protocol := request.Header.Get("Git-Protocol"); protocol != "" {
		env = append(env, "GIT_PROTOCOL="+protocol)
	}
	handler := cgi.Handler{
		Path: g.bin, Args: []string{"http-backend"}, Dir: g.dir.Path, Env: env,
		InheritEnv: []string{"PATH", "TMPDIR"}, Stderr: io.Discard,
	}
	handler.ServeHTTP(w, request)
}

// A requestKind is what a client wants.
type requestKind int

const (
	otherRequest requestKind = iota
	listRequest
	fetchRequest
	pushRequest
	refusedRequest
)

// kindOf tells a request from the others. In version 2 of the protocol the
// first request names no refs; a later one asks for them.
func kindOf(request *http.Request, rest string) requestKind {
	switch {
	case rest == "git-receive-pack":
		return pushRequest
	case rest == "info/refs" && request.URL.Query().Get("service") == "git-upload-pack":
		if strings.Contains(request.Header.Get("Git-Protocol"), "version=2") {
			return otherRequest
		}
		return listRequest
	case rest == "git-upload-pack":
		body := bufio.NewReader(request.Body)
		request.Body = struct {
			io.Reader
			io.Closer
		}{body, request.Body}
		if start, _ := body.Peek(len("0014command=ls-refs")); bytes.HasSuffix(start, []byte("command=ls-refs")) {
			return listRequest
		}
		return fetchRequest
	default:
		return otherRequest
	}
}

// count counts a request.
func (r *Repository) count(kind requestKind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch kind {
	case listRequest:
		r.requests.Listings++
	case fetchRequest:
		r.requests.Fetches++
	case pushRequest:
		r.requests.Pushes++
	case refusedRequest:
		r.requests.Refused++
	case otherRequest:
	}
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
