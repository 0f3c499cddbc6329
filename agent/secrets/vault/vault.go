// Package vault reads secrets of the KV engines of HashiCorp Vault and OpenBao.
// It signs in with the service account of the pod (the Kubernetes auth method)
// and renews its sign-in when that expires. It writes nothing. Errors contain
// no replies of the server and no token.
package vault

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// Config says where a server is and as whom to read.
type Config struct {
	Address   string
	CAFile    string // PEM; empty: the system's authorities
	Namespace string // empty: none
	Mount     string // of the auth method; empty: kubernetes
	Role      string
	TokenFile string          // empty: the pod's service account token
	Clock     lifecycle.Clock // nil: the real one
}

const (
	podToken      = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	requestLimit  = 10 * time.Second
	maxReply      = 4 << 20
	maxTokenFile  = 1 << 20
	renewFraction = 3 // a sign-in is renewed when a third of its time is left
)

// A Client reads secrets. Several goroutines may use it.
type Client struct {
	config Config
	http   *http.Client

	mu      sync.Mutex
	token   string
	expires time.Time // zero: never
}

// New makes a client. It reads the CA file, and sends nothing.
func New(c Config) (*Client, error) {
	if c.Mount == "" {
		c.Mount = "kubernetes"
	}
	if c.TokenFile == "" {
		c.TokenFile = podToken
	}
	if c.Clock == nil {
		c.Clock = lifecycle.System{}
	}
	t := &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: requestLimit,
		MaxIdleConns: 2, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
	}
	if c.CAFile != "" {
		raw, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "the CA file %s cannot be read", c.CAFile)
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(raw) {
			return nil, fault.New(fault.Invalid, "the CA file %s contains no certificate in PEM", c.CAFile)
		}
	}
	// A redirect would send the token to another server.
	keep := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{config: c, http: &http.Client{Transport: t, Timeout: requestLimit, CheckRedirect: keep}}, nil
}

// Read returns the entries of a secret. The path is that of the API, so it
// contains "data" for version 2 of the engine. Version 0 is the newest.
func (c *Client) Read(ctx context.Context, path string, version, kv int) (map[string]any, error) {
	data, err := c.read(ctx, path, version, kv)
	if fault.KindOf(err) == fault.Denied { // the sign-in may have been revoked
		c.forget()
		data, err = c.read(ctx, path, version, kv)
	}
	return data, err
}

func (c *Client) read(ctx context.Context, path string, version, kv int) (map[string]any, error) {
	token, err := c.signIn(ctx)
	if err != nil {
		return nil, err
	}
	at := "/v1/" + escape(path)
	if version > 0 && kv != 1 {
		at += "?version=" + strconv.Itoa(version)
	}
	var reply struct {
		Data map[string]any `json:"data"`
	}
	status, err := c.call(ctx, http.MethodGet, at, token, nil, &reply)
	switch {
	case err != nil:
		return nil, err
	case status == http.StatusForbidden:
		return nil, fault.With(fault.New(fault.Denied, "Vault does not let the role %s read %s", c.config.Role, path), "", "add the path to a policy of the role")
	case status == http.StatusNotFound:
		return nil, fault.With(fault.New(fault.Missing, "Vault has no secret %s", path), "", "write it there, or correct the path; paths of version 2 of the engine contain /data/")
	case status != http.StatusOK:
		return nil, unexpected(status)
	case kv == 1:
		return reply.Data, nil
	}
	inner, ok := reply.Data["data"].(map[string]any)
	if !ok {
		return nil, fault.With(fault.New(fault.Missing, "Vault has no data at %s; the version is deleted, or the engine has version 1", path), "",
			"set kvVersion in the agent's secrets policy, or the annotation avp.kubernetes.io/kv-version")
	}
	return inner, nil
}

// escape escapes the segments of a path.
func escape(path string) string {
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

// signIn returns a token, of an earlier sign-in while that is valid.
func (c *Client) signIn(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.config.Clock.Now()
	if c.token != "" && (c.expires.IsZero() || now.Before(c.expires)) {
		return c.token, nil
	}
	f, err := os.Open(c.config.TokenFile)
	if err != nil {
		return "", fault.Wrap(fault.Offline, err, "the agent's service account token cannot be read from %s", c.config.TokenFile)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxTokenFile))
	_ = f.Close()
	if err != nil {
		return "", fault.Wrap(fault.Offline, err, "the agent's service account token cannot be read from %s", c.config.TokenFile)
	}
	body, err := json.Marshal(map[string]string{"role": c.config.Role, "jwt": strings.TrimSpace(string(raw))})
	if err != nil {
		return "", err
	}
	var reply struct {
		Auth struct {
			Token string `json:"client_token"`
			Lease int    `json:"lease_duration"`
		} `json:"auth"`
	}
	status, err := c.call(ctx, http.MethodPost, "/v1/auth/"+escape(c.config.Mount)+"/login", "", body, &reply)
	switch {
	case err != nil:
		return "", err
	case status == http.StatusForbidden, status == http.StatusBadRequest:
		return "", fault.With(fault.New(fault.Denied, "Vault refuses the sign-in of the agent's service account as role %s of auth/%s", c.config.Role, c.config.Mount), "",
			"bind the role to the agent's service account and namespace")
	case status != http.StatusOK:
		return "", unexpected(status)
	case reply.Auth.Token == "":
		return "", fault.New(fault.Offline, "Vault's reply to the sign-in has no token")
	}
	c.token, c.expires = reply.Auth.Token, time.Time{}
	if lease := time.Duration(reply.Auth.Lease) * time.Second; lease > 0 {
		c.expires = now.Add(lease - lease/renewFraction)
	}
	return c.token, nil
}

func (c *Client) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = ""
}

func unexpected(status int) error {
	if status >= 300 && status < 400 {
		return fault.With(fault.New(fault.Offline, "Vault redirects to another address, which the agent does not follow"), "", "set the address that serves requests")
	}
	return fault.New(fault.Offline, "Vault answered with status %d", status)
}

// call sends one request and reads its reply. Texts of the server's errors are
// not read.
func (c *Client) call(ctx context.Context, method, at, token string, body []byte, into any) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.config.Address, "/")+at, bytes.NewReader(body))
	if err != nil {
		return 0, fault.New(fault.Invalid, "the address of Vault is not valid")
	}
	r.Header.Set("X-Vault-Request", "true")
	if token != "" {
		r.Header.Set("X-Vault-Token", token)
	}
	if c.config.Namespace != "" {
		r.Header.Set("X-Vault-Namespace", c.config.Namespace)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	reply, err := c.http.Do(r)
	if err != nil {
		return 0, unreachable(err)
	}
	defer func() { _ = reply.Body.Close() }()
	if reply.StatusCode != http.StatusOK {
		_, _ = io.Copy(io.Discard, io.LimitReader(reply.Body, maxReply))
		return reply.StatusCode, nil
	}
	d := json.NewDecoder(io.LimitReader(reply.Body, maxReply))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return 0, fault.New(fault.Offline, "Vault's reply is not the expected JSON")
	}
	return reply.StatusCode, nil
}

// unreachable says why there was no reply. The chain has only the address.
func unreachable(err error) error {
	var cert *tls.CertificateVerificationError
	if errors.As(err, &cert) {
		return fault.With(fault.Wrap(fault.Offline, err, "Vault's certificate is not trusted"), "", "set caFile in the agent's secrets policy")
	}
	return fault.Wrap(fault.Offline, err, "Vault cannot be reached")
}
