package session

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A Transport is how a hub is reached. The zero value is the usual way.
type Transport struct {
	Plaintext   bool     // an address without a scheme is one of http
	RootPath    string   // of an address without a path; empty: none
	Insecure    bool     // the hub's certificate is not checked
	ServerCert  string   // file with the authorities of the hub's certificate
	ClientCert  string   // file with a certificate for the connection
	ClientKey   string   // file with its key; empty: in the same file
	Headers     []string // of every request, as Name: value
	Retries     int      // how often a read is tried again that got no answer
	LogRequests io.Writer
	LogJSON     bool
}

// Address cuts the slash at the end of an address. With Plaintext one without a
// scheme is one of http. One without a path gets RootPath.
func (t Transport) Address(server string) string {
	server = strings.TrimSuffix(server, "/")
	_, rest, found := strings.Cut(server, "://")
	if !found {
		rest = server
	}
	if path := strings.Trim(t.RootPath, "/"); path != "" && rest != "" && !strings.Contains(rest, "/") {
		server += "/" + path
	}
	if t.Plaintext && server != "" && !strings.Contains(server, "://") {
		return "http://" + server
	}
	return server
}

// argoAddress is Address of a variable of Argo CD, which has no scheme.
func (t Transport) argoAddress(server string) string {
	if server = t.Address(server); server == "" || strings.Contains(server, "://") {
		return server
	}
	return "https://" + server
}

// header adds the headers of the flags to those of every request.
func (t Transport) header(h http.Header) error {
	for _, line := range t.Headers {
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return usage.Errorf("--header %q: write it as NAME: VALUE", name) // the value may be a secret
		}
		h.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return nil
}

// client makes the HTTP client; nil: the usual one.
func (t Transport) client() (*http.Client, error) {
	if !t.Insecure && t.ServerCert == "" && t.ClientCert == "" && t.Retries == 0 && t.LogRequests == nil {
		return nil, nil
	}
	config, err := t.tls()
	if err != nil {
		return nil, err
	}
	base, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, fault.New(fault.Internal, "the transport of HTTP was replaced")
	}
	own := base.Clone()
	own.TLSClientConfig = config
	return &http.Client{Transport: &patient{next: own, retries: t.Retries, log: t.LogRequests, json: t.LogJSON}}, nil
}

func (t Transport) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: t.Insecure} //nolint:gosec // --insecure says so
	if t.ServerCert != "" {
		text, err := os.ReadFile(t.ServerCert)
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "the file %s of --server-crt cannot be read", t.ServerCert)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fault.New(fault.Invalid, "the file %s of --server-crt has no certificate in PEM", t.ServerCert)
		}
	}
	if t.ClientCert != "" {
		key := t.ClientKey
		if key == "" {
			key = t.ClientCert
		}
		pair, err := tls.LoadX509KeyPair(t.ClientCert, key)
		if err != nil {
			return nil, fault.New(fault.Invalid, "the files of --client-crt and --client-crt-key have no certificate with its key in PEM")
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// patient tries reads again that got no answer, and logs requests.
type patient struct {
	next    http.RoundTripper
	retries int
	log     io.Writer
	json    bool
}

const firstPause = 200 * time.Millisecond

// RoundTrip implements http.RoundTripper.
func (p *patient) RoundTrip(r *http.Request) (*http.Response, error) {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	for try := 0; ; try++ {
		begun := time.Now()
		res, err := p.next.RoundTrip(r)
		p.note(r, res, err, time.Since(begun))
		away := err != nil || res.StatusCode == http.StatusBadGateway || res.StatusCode == http.StatusServiceUnavailable || res.StatusCode == http.StatusGatewayTimeout
		if !reads || !away || try >= p.retries || r.Context().Err() != nil {
			return res, err
		}
		if err == nil {
			_ = res.Body.Close()
		}
		select {
		case <-time.After(firstPause << min(try, 5)):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// note logs one request. Headers and bodies may have secrets, and are not in it.
func (p *patient) note(r *http.Request, res *http.Response, err error, took time.Duration) {
	if p.log == nil {
		return
	}
	line := struct {
		Method   string `json:"method"`
		Path     string `json:"path"`
		Status   int    `json:"status,omitempty"`
		Request  string `json:"request,omitempty"`
		Error    string `json:"error,omitempty"`
		Duration string `json:"duration"`
	}{Method: r.Method, Path: r.URL.Path, Duration: took.Round(time.Millisecond).String()}
	if res != nil {
		line.Status, line.Request = res.StatusCode, res.Header.Get("X-Request-Id")
	}
	if err != nil {
		line.Error = err.Error()
	}
	if !p.json {
		fmt.Fprintf(p.log, "capstan: %s %s: %d %s %s %s\n", line.Method, line.Path, line.Status, line.Request, line.Duration, line.Error)
		return
	}
	var b bytes.Buffer
	_ = json.NewEncoder(&b).Encode(line) // of texts and numbers
	_, _ = p.log.Write(b.Bytes())
}
