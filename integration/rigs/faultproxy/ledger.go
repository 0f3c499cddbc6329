package faultproxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/kube"
)

// An Entry is one request that went through a Ledger, with its result. Reads
// are included; Mutates distinguishes them.
type Entry struct {
	N           int // counted from 1, in the order in which requests came
	At          time.Time
	User        string // of a service account's token; empty for others
	Verb        string // get, list, watch, create, update, apply, patch, delete, deletecollection
	Group       string
	Version     string
	Resource    string
	Sub         string
	Namespace   string
	Name        string
	Manager     string // field manager
	DryRun      bool
	Body        [32]byte // digest of what was sent
	Instance    string   // capstan.dev/hook-instance of what was sent
	UIDs        []string // preconditions of a delete
	Fault       string   // what the ledger did to the request; empty: nothing
	contentType string
	Result
}

// A Result is what the API server answered to a request.
type Result struct {
	Code    int      // status; 0: it was not asked
	UID     string   // of the object answered
	RV      string   // its resource version
	Content [32]byte // digest of its metadata and content, without bookkeeping and status
}

// Mutates reports whether the request could have changed the cluster.
func (e Entry) Mutates() bool {
	switch e.Verb {
	case "create", "update", "apply", "patch", "delete", "deletecollection":
		return !e.DryRun
	}
	return false
}

// Object names what was asked for.
func (e Entry) Object() string {
	return strings.Trim(e.Group+"/"+e.Resource, "/") + " " + strings.Trim(e.Namespace+"/"+e.Name, "/")
}

// A KubeFault is what a Ledger does to requests that fit. Empty fields fit all.
type KubeFault struct {
	Verb, Group, Resource, Namespace, Name string

	After int // so many that fit pass first
	Times int // so many are hit; 0: one

	Delay      time.Duration // before it is passed on
	Status     int           // answered with this, without asking the API server
	RetryAfter int           // seconds, with Status 429 or 503
	Reset      bool          // the connection ends before the API server is asked
	Lose       bool          // it is carried out, and the answer is lost
	Hang       time.Duration // it is carried out, and the answer comes so much later
}

type kubeFault struct {
	KubeFault
	seen, hit int
}

func (f KubeFault) matches(e Entry) bool {
	for _, x := range [][2]string{{f.Verb, e.Verb}, {f.Group, e.Group}, {f.Resource, e.Resource}, {f.Namespace, e.Namespace}, {f.Name, e.Name}} {
		if x[0] != "" && x[0] != x[1] {
			return false
		}
	}
	return true
}

// A Ledger is a proxy of an API server that records every request and injects
// faults. Clients authenticate with tokens; certificates do not pass through
// it.
type Ledger struct {
	URL string

	server   *http.Server
	upstream *http.Transport
	serving  sync.WaitGroup

	mu      sync.Mutex
	entries []Entry
	faults  []*kubeFault
}

type entryKey struct{}

// NewLedger starts a ledger before a cluster. The caller must Stop it.
func NewLedger(c *kube.Cluster) (*Ledger, error) {
	cert, err := c.ServerCertificate()
	if err != nil {
		return nil, fmt.Errorf("sign the ledger's certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.CA())
	target, err := url.Parse(c.URL())
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the ledger: %w", err)
	}
	l := &Ledger{URL: "https://" + ln.Addr().String()}
	l.upstream = &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true, DisableCompression: true,
	}
	quiet := log.New(io.Discard, "", 0)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Header.Del("Accept-Encoding") },
		Transport: l.upstream, FlushInterval: -1, ModifyResponse: l.answered, ErrorLog: quiet,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if errors.Is(err, errLost) {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	l.server = &http.Server{
		Handler: l.handler(proxy), ErrorLog: quiet, ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
	}
	l.serving.Go(func() { _ = l.server.ServeTLS(ln, "", "") })
	return l, nil
}

// Stop ends all connections.
func (l *Ledger) Stop() error {
	err := l.server.Close()
	l.serving.Wait()
	l.upstream.CloseIdleConnections()
	return err
}

// Fault adds a fault. The first one that matches a request, in the order of
// addition, acts.
func (l *Ledger) Fault(f KubeFault) {
	f.Times = max(f.Times, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, &kubeFault{KubeFault: f})
}

// ClearFaults removes all faults.
func (l *Ledger) ClearFaults() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = nil
}

// Entries returns all requests so far.
func (l *Ledger) Entries() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Entry(nil), l.entries...)
}

// In returns the mutating requests of one namespace, those for the namespace
// itself included.
func (l *Ledger) In(namespace string) []Entry {
	var out []Entry
	for _, e := range l.Entries() {
		if e.Mutates() && (e.Namespace == namespace || (e.Resource == "namespaces" && e.Name == namespace)) {
			out = append(out, e)
		}
	}
	return out
}

func (l *Ledger) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := entryOf(r)
		if e.Mutates() || e.DryRun {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			e.read(body)
		}
		f := l.begin(&e)
		if f.Delay > 0 {
			select {
			case <-time.After(f.Delay):
			case <-r.Context().Done():
			}
		}
		switch {
		case f.Reset:
			panic(http.ErrAbortHandler)
		case f.Status != 0:
			l.refuse(w, f)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), entryKey{}, pending{e.N, f})))
	})
}

type pending struct {
	n     int
	fault KubeFault
}

// begin writes a request down and finds its fault.
func (l *Ledger) begin(e *Entry) KubeFault {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found KubeFault
	for _, f := range l.faults {
		if !f.matches(*e) {
			continue
		}
		if f.seen++; f.seen <= f.After || f.hit >= f.Times {
			continue
		}
		f.hit++
		found = f.KubeFault
		e.Fault = found.String()
		break
	}
	e.N = len(l.entries) + 1
	l.entries = append(l.entries, *e)
	return found
}

// String says what a fault does.
func (f KubeFault) String() string {
	switch {
	case f.Reset:
		return "reset"
	case f.Status != 0:
		return fmt.Sprintf("answered %d", f.Status)
	case f.Lose:
		return "answer lost"
	case f.Hang > 0:
		return fmt.Sprintf("answered %s late", f.Hang)
	case f.Delay > 0:
		return fmt.Sprintf("delayed %s", f.Delay)
	}
	return ""
}

func (l *Ledger) refuse(w http.ResponseWriter, f KubeFault) {
	reasons := map[int]string{409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(f.RetryAfter))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.Status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": f.Status, "reason": reasons[f.Status], "message": "injected",
		"details": map[string]any{"retryAfterSeconds": f.RetryAfter},
	})
}

var errLost = errors.New("the answer is lost")

// answered records the API server's response, and may drop it.
func (l *Ledger) answered(r *http.Response) error {
	p, ok := r.Request.Context().Value(entryKey{}).(pending)
	if !ok {
		return nil
	}
	l.mu.Lock()
	e := l.entries[p.n-1]
	l.mu.Unlock()
	e.Code = r.StatusCode
	if e.Mutates() && r.StatusCode < 300 {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		e.result(body)
	}
	l.mu.Lock()
	l.entries[p.n-1] = e
	l.mu.Unlock()
	if p.fault.Hang > 0 {
		select {
		case <-time.After(p.fault.Hang):
		case <-r.Request.Context().Done():
		}
	}
	if p.fault.Lose {
		return errLost
	}
	return nil
}

// entryOf reads what a request is about from its path.
func entryOf(r *http.Request) Entry {
	e := Entry{At: time.Now(), User: userOf(r), Manager: r.URL.Query().Get("fieldManager"), DryRun: r.URL.Query().Get("dryRun") != "", contentType: r.Header.Get("Content-Type")}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) >= 2 && parts[0] == "api":
		e.Version, parts = parts[1], parts[2:]
	case len(parts) >= 3 && parts[0] == "apis":
		e.Group, e.Version, parts = parts[1], parts[2], parts[3:]
	default:
		parts = nil
	}
	if len(parts) >= 3 && parts[0] == "namespaces" {
		e.Namespace, parts = parts[1], parts[2:]
	}
	for i, into := range []*string{&e.Resource, &e.Name, &e.Sub} {
		if i < len(parts) {
			*into = parts[i]
		}
	}
	e.Verb = verbOf(r, e)
	return e
}

func verbOf(r *http.Request, e Entry) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		if r.URL.Query().Get("watch") != "" && r.URL.Query().Get("watch") != "false" {
			return "watch"
		}
		if e.Resource != "" && e.Name == "" {
			return "list"
		}
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		if strings.HasPrefix(e.contentType, "application/apply-patch") {
			return "apply"
		}
		return "patch"
	case http.MethodDelete:
		if e.Name == "" {
			return "deletecollection"
		}
		return "delete"
	}
	return strings.ToLower(r.Method)
}

// userOf reads the name from a service account's token. The API server checks
// the token; this is for the record only.
func userOf(r *http.Request) string {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	parts := strings.Split(token, ".")
	if !ok || len(parts) != 3 {
		return ""
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Sub string `json:"sub"`
	}
	_ = json.Unmarshal(raw, &claims)
	return claims.Sub
}

// read records what was sent.
func (e *Entry) read(body []byte) {
	e.Body = sha256.Sum256(body)
	var sent struct {
		DryRun   []string `json:"dryRun"` // of DeleteOptions
		Metadata struct {
			Name        string            `json:"name"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Preconditions struct {
			UID string `json:"uid"`
		} `json:"preconditions"`
	}
	if json.Unmarshal(body, &sent) != nil {
		return
	}
	if e.Verb == "create" && e.Name == "" {
		e.Name = sent.Metadata.Name
	}
	e.Instance = sent.Metadata.Annotations["capstan.dev/hook-instance"]
	e.DryRun = e.DryRun || len(sent.DryRun) > 0
	if sent.Preconditions.UID != "" {
		e.UIDs = []string{sent.Preconditions.UID}
	}
}

// result records the object of the response.
func (e *Entry) result(body []byte) {
	var object map[string]any
	if json.Unmarshal(body, &object) != nil {
		return
	}
	meta, _ := object["metadata"].(map[string]any)
	if object["kind"] == "Status" {
		return
	}
	e.UID, _ = meta["uid"].(string)
	e.RV, _ = meta["resourceVersion"].(string)
	for _, drop := range []string{"uid", "resourceVersion", "managedFields", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "finalizers"} {
		delete(meta, drop)
	}
	delete(object, "status")
	text, err := json.Marshal(object)
	if err == nil {
		e.Content = sha256.Sum256(text)
	}
}
