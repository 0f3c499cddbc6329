package web_test

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/web"
	"github.com/capstan-cd/capstan/shared/fault"
)

const tenant = hub.TenantID("0198c0de-0000-7000-8000-000000000001")

// A server counts requests, and the bodies that were sent.
type server struct {
	*httptest.Server
	asked, sent atomic.Int64
	body        atomic.Value
}

func serve(t *testing.T) *server {
	t.Helper()
	s := &server{}
	s.body.Store("a: 1\n")
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		body, _ := s.body.Load().(string)
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, "ftp://example.com/values.yaml?token=s3cret", http.StatusFound)
			return
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
			return
		case "/none", "/refused", "/broken":
			w.WriteHeader(map[string]int{"/none": 404, "/refused": 401, "/broken": 503}[r.URL.Path])
			_, _ = fmt.Fprint(w, r.URL.RawQuery)
			return
		}
		etag := fmt.Sprintf("%q", body)
		w.Header().Set("ETag", strings.ReplaceAll(etag, `\n`, ""))
		if r.Header.Get("If-None-Match") == strings.ReplaceAll(etag, `\n`, "") {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		s.sent.Add(1)
		_, _ = fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return s
}

func loopback() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }

func TestGet(t *testing.T) {
	t.Parallel()
	both := []string{"http", "https"}
	t.Run("HELM-05 a file is requested conditionally, and separately for each tenant", func(t *testing.T) {
		t.Parallel()
		s := serve(t)
		var mu sync.Mutex
		now := time.Now()
		c := web.New(web.Config{AllowedNetworks: loopback(), Now: func() time.Time { mu.Lock(); defer mu.Unlock(); return now }})
		get := func(who hub.TenantID, want string, asked, sent int64) {
			t.Helper()
			data, err := c.Get(t.Context(), who, s.URL+"/values.yaml", both, 100)
			if err != nil || string(data) != want {
				t.Fatalf("Get: %q, %v", data, err)
			}
			if s.asked.Load() != asked || s.sent.Load() != sent {
				t.Fatalf("the server was asked %d times and sent %d files, want %d and %d", s.asked.Load(), s.sent.Load(), asked, sent)
			}
		}
		get(tenant, "a: 1\n", 1, 1)
		get(tenant, "a: 1\n", 1, 1)
		mu.Lock()
		now = now.Add(time.Minute)
		mu.Unlock()
		get(tenant, "a: 1\n", 2, 1)
		get("0198c0de-0000-7000-8000-000000000002", "a: 1\n", 3, 2)
		s.body.Store("a: 2\n")
		mu.Lock()
		now = now.Add(time.Minute)
		mu.Unlock()
		get(tenant, "a: 2\n", 4, 3)
	})
	t.Run("HELM-05 parallel reads of one file cause one request", func(t *testing.T) {
		t.Parallel()
		s := serve(t)
		c := web.New(web.Config{AllowedNetworks: loopback(), Fresh: time.Hour})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if _, err := c.Get(t.Context(), tenant, s.URL+"/values.yaml", both, 100); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := s.asked.Load(); n != 1 {
			t.Errorf("the server was asked %d times", n)
		}
	})
	t.Run("HELM-05 SEC-B7 a partial reply after the timeout is no file", func(t *testing.T) {
		t.Parallel()
		slow := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprint(w, "a: 1\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done() // and then it ends in good order
		}))
		t.Cleanup(slow.Close)
		authorities := x509.NewCertPool()
		authorities.AddCert(slow.Certificate())
		c := web.New(web.Config{AllowedNetworks: loopback(), RootCAs: authorities, Timeout: 100 * time.Millisecond})
		for range 20 {
			if data, err := c.Get(t.Context(), tenant, slow.URL+"/values.yaml", both, 100); fault.KindOf(err) != fault.Offline {
				t.Errorf("Get: %q, %v", data, err)
			}
		}
	})
	s := serve(t)
	open := web.New(web.Config{AllowedNetworks: loopback()})
	closed := web.New(web.Config{})
	tls := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(tls.Close)
	for name, c := range map[string]struct {
		client  *web.Client
		address string
		schemes []string
		kind    fault.Kind
		says    string
	}{
		"HELM-08 a scheme that is not allowed":                       {open, s.URL + "/x?token=s3cret", []string{"https"}, fault.Invalid, `the scheme "http", which is not allowed`},
		"HELM-08 HELM-24 a scheme that is allowed and not read":      {open, "s3://bucket/values.yaml?token=s3cret", []string{"s3"}, fault.Invalid, "are not read with the scheme"},
		"HELM-08 a redirect to another scheme":                       {open, s.URL + "/away?token=s3cret", both, fault.Invalid, "redirects to an address with the scheme"},
		"HELM-05 a redirect in a circle":                             {open, s.URL + "/round?token=s3cret", both, fault.Invalid, "redirects more than"},
		"HELM-05 a password in the address":                          {open, strings.Replace(s.URL, "://", "://me:s3cret@", 1) + "/x", both, fault.Invalid, "contains a user name or password"},
		"HELM-05 a file that is not there":                           {open, s.URL + "/none?token=s3cret", both, fault.Invalid, "there is no file at " + s.URL + "/none"},
		"HELM-05 a file that is refused":                             {open, s.URL + "/refused?token=s3cret", both, fault.Invalid, "refuses the file"},
		"HELM-05 a server that is down":                              {open, s.URL + "/broken?token=s3cret", both, fault.Offline, "status 503"},
		"HELM-05 a file that is too large":                           {open, s.URL + "/x?token=s3cret&a", both, fault.Exceeded, "more than 4 bytes"},
		"HELM-05 an authority that is not trusted":                   {open, tls.URL + "/x?token=s3cret", both, fault.Offline, "not trusted"},
		"SEC-B1 an address inside the operator's network is refused": {closed, s.URL + "/x?token=s3cret", both, fault.Invalid, "leads into an internal network"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := c.client.Get(t.Context(), tenant, c.address, c.schemes, 4)
			if fault.KindOf(err) != c.kind || !strings.Contains(fault.Sentence(err), c.says) {
				t.Errorf("error %v (kind %q), want %q (kind %q)", fault.Sentence(err), fault.KindOf(err), c.says, c.kind)
			}
			if err != nil && strings.Contains(err.Error()+fault.Sentence(err), "s3cret") {
				t.Errorf("the error tells a secret: %v", err)
			}
		})
	}
}
