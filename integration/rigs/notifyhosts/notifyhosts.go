// Package notifyhosts runs small servers that speak the published protocols of
// services that receive notifications. They check what the real ones check of a
// request, and remember what they accepted. Tests make them slow or refuse.
package notifyhosts

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/poll"
)

// Token is what all services accept as the secret of their user.
const Token = "xoxb-canary-of-a-service-7f3a"

// A Received is a message that a service accepted.
type Received struct {
	Service, Recipient, Text string
	Method, Path             string
	Header                   http.Header
	Body                     []byte
	Fields                   map[string]any // of a body in JSON
}

// A Refusal is how the next requests are answered instead.
type Refusal struct {
	Status     int
	RetryAfter string
	Body       string
	Times      int
	Hold       time.Duration // before the answer
}

// A Server is all services on one port.
type Server struct {
	URL string

	http    *httptest.Server
	mu      sync.Mutex
	all     []Received
	refusal Refusal
	seen    int // requests, also those that were refused
	ids     int
	threads map[string]string
	tags    map[string]int64 // comments of GitHub by their mark
	hold    chan struct{}
}

// New starts a server until the test ends.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{threads: map[string]string{}, tags: map[string]int64{}, hold: make(chan struct{})}
	s.http = httptest.NewServer(s.handler())
	s.URL = s.http.URL
	t.Cleanup(func() {
		close(s.hold)
		s.http.Close()
	})
	return s
}

// handler serves all of them.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	s.slack(mux)
	s.chats(mux)
	s.alerts(mux)
	s.gitHub(mux)
	s.queues(mux)
	mux.HandleFunc("/hook/", s.webhook)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.refused(w, r) {
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// Refuse makes the next requests fail.
func (s *Server) Refuse(r Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal = r
}

func (s *Server) refused(w http.ResponseWriter, r *http.Request) bool {
	s.mu.Lock()
	s.seen++
	refusal := s.refusal
	if s.refusal.Times > 0 {
		s.refusal.Times--
	}
	s.mu.Unlock()
	if refusal.Times == 0 {
		return false
	}
	if refusal.Hold > 0 {
		select {
		case <-time.After(refusal.Hold):
		case <-r.Context().Done():
		case <-s.hold:
		}
	}
	if refusal.RetryAfter != "" {
		w.Header().Set("Retry-After", refusal.RetryAfter)
	}
	if refusal.Status >= 300 && refusal.Status < 400 {
		w.Header().Set("Location", refusal.Body)
	}
	w.WriteHeader(refusal.Status)
	_, _ = io.WriteString(w, refusal.Body) // the client may be gone
	return true
}

// Seen is how many requests came, also those that were refused.
func (s *Server) Seen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// Of returns what a service has accepted for a recipient; empty: for anyone.
func (s *Server) Of(service, recipient string) []Received {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Received
	for _, m := range s.all {
		if (service == "" || m.Service == service) && (recipient == "" || m.Recipient == recipient) {
			out = append(out, m)
		}
	}
	return out
}

// Wait waits until a service has accepted so many messages for a recipient.
func (s *Server) Wait(ctx context.Context, service, recipient string, n int) ([]Received, error) {
	err := poll.Until(ctx, func(context.Context) error {
		if got := len(s.Of(service, recipient)); got < n {
			return fmt.Errorf("%s has %d messages for %q, not %d", service, got, recipient, n)
		}
		return nil
	})
	return s.Of(service, recipient), err
}

// accept remembers a message.
func (s *Server) accept(m Received, r *http.Request, body []byte) {
	m.Method, m.Path, m.Header, m.Body = r.Method, r.URL.Path, r.Header.Clone(), body
	_ = json.Unmarshal(body, &m.Fields) // some are no JSON
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, m)
}

func (s *Server) next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids++
	return s.ids
}

// read returns the body, as JSON too.
func read(w http.ResponseWriter, r *http.Request) (body []byte, fields map[string]any, ok bool) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &fields)
	}
	if err != nil || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		http.Error(w, "the body is no JSON", http.StatusBadRequest)
		return nil, nil, false
	}
	return body, fields, true
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

// bearer checks the header Authorization.
func bearer(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("Authorization") == "Bearer "+Token {
		return true
	}
	answer(w, http.StatusUnauthorized, map[string]string{"message": "invalid token"})
	return false
}

// slack is the Web API of Slack: it answers errors with 200 as that does.
func (s *Server) slack(mux *http.ServeMux) {
	call := func(do func(fields map[string]any) (ts, problem string)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			body, fields, ok := read(w, r)
			if !ok {
				return
			}
			channel := text(fields["channel"])
			problem, ts := "", ""
			switch {
			case r.Header.Get("Authorization") != "Bearer "+Token:
				problem = "invalid_auth"
			case channel == "" || channel == "missing":
				problem = "channel_not_found"
			case text(fields["text"]) == "" && fields["attachments"] == nil && fields["blocks"] == nil:
				problem = "no_text"
			default:
				ts, problem = do(fields)
			}
			if problem != "" {
				answer(w, http.StatusOK, map[string]any{"ok": false, "error": problem})
				return
			}
			s.accept(Received{Service: "slack", Recipient: strings.TrimPrefix(channel, "C-"), Text: text(fields["text"])}, r, body)
			answer(w, http.StatusOK, map[string]any{"ok": true, "channel": "C-" + strings.TrimPrefix(channel, "C-"), "ts": ts})
		}
	}
	mux.HandleFunc("POST /slack/chat.postMessage", call(func(fields map[string]any) (string, string) {
		ts := strconv.Itoa(s.next()) + ".0001"
		s.mu.Lock()
		defer s.mu.Unlock()
		if thread := text(fields["thread_ts"]); thread != "" && s.threads[thread] == "" {
			return "", "thread_not_found"
		}
		s.threads[ts] = text(fields["channel"])
		return ts, ""
	}))
	mux.HandleFunc("POST /slack/chat.update", call(func(fields map[string]any) (string, string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		ts := text(fields["ts"])
		if s.threads[ts] == "" || !strings.HasPrefix(text(fields["channel"]), "C-") {
			return "", "message_not_found"
		}
		return ts, ""
	}))
}

// webhook accepts any request; the recipient is the rest of the path.
func (s *Server) webhook(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	user, password, basic := r.BasicAuth()
	if basic && (user != "bot" || password != Token) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	s.accept(Received{Service: "webhook", Recipient: strings.TrimPrefix(r.URL.Path, "/hook/"), Text: string(body)}, r, body)
	w.WriteHeader(http.StatusNoContent)
}

// Texts are those of messages, in the order in which they came.
func Texts(all []Received) []string {
	var out []string
	for _, m := range all {
		out = append(out, m.Text)
	}
	return slices.Clone(out)
}
