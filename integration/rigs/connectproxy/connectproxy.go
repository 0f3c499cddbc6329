// Package connectproxy is a small HTTP proxy for tests. It speaks the method
// CONNECT (RFC 9110, section 9.3.6) with basic authentication of proxies, and
// nothing else: Debian's proxies need a configuration that decides about
// loopback addresses themselves.
package connectproxy

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
)

// A Server is a proxy.
type Server struct {
	HTTP *httptest.Server
	// User and Password are what it asks for; empty: nothing.
	User, Password string
	// Names are addresses of hosts that only the proxy knows.
	Names map[string]string
	// Override answers instead, if it returns true: for faults.
	Override func(w http.ResponseWriter, r *http.Request) bool

	mu    sync.Mutex
	asked []string
}

// New starts a proxy for one test.
func New(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{Names: map[string]string{}}
	s.HTTP = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.HTTP.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.HTTP.Start()
	tb.Cleanup(s.HTTP.Close)
	return s
}

// Asked are the targets that were asked for, each once.
func (s *Server) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.asked...)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if !slices.Contains(s.asked, r.Host) {
		s.asked = append(s.asked, r.Host)
	}
	s.mu.Unlock()
	if s.Override != nil && s.Override(w, r) {
		return
	}
	if r.Method != http.MethodConnect {
		http.Error(w, "CONNECT only", http.StatusMethodNotAllowed)
		return
	}
	r.Header.Set("Authorization", r.Header.Get("Proxy-Authorization"))
	if user, password, _ := r.BasicAuth(); s.User != "" && (user != s.User || password != s.Password) {
		w.Header().Set("Proxy-Authenticate", "Basic")
		http.Error(w, "denied "+password, http.StatusProxyAuthRequired)
		return
	}
	to := r.Host
	if host, port, err := net.SplitHostPort(to); err == nil && s.Names[host] != "" {
		to = net.JoinHostPort(s.Names[host], port)
	}
	there, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer there.Close()
	here, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer here.Close()
	if _, err := io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(there, buffered); _ = there.(*net.TCPConn).CloseWrite() })
	both.Go(func() { _, _ = io.Copy(here, there); _ = here.Close() })
	both.Wait()
}
