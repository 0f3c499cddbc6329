package oidc_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub/identity/connector/oauth"
	"github.com/capstan-cd/capstan/hub/identity/connector/oidc"
	"github.com/capstan-cd/capstan/integration/rigs/pki"
)

func TestBadCertificates(t *testing.T) {
	t.Parallel()
	for name, bad := range pki.BadServers(t) {
		t.Run("SEC-E5 a provider with a certificate "+name+" gets no request and signs nobody in", func(t *testing.T) {
			t.Parallel()
			client, err := oauth.WithAuthorities(&http.Client{Transport: &http.Transport{}}, "rootCA", []byte(bad.Authority))
			if err != nil {
				t.Fatal(err)
			}
			p := oidc.New(oidc.Config{Issuer: bad.URL, ClientID: "capstan", ClientSecret: "canary-secret"}, client)
			address, err := p.Begin(t.Context(), request())
			if err == nil || address != "" || bad.Requests.Load() != 0 {
				t.Errorf("Begin() = %q, %v; the server got %d requests", address, err, bad.Requests.Load())
			} else if strings.Contains(err.Error(), "canary-secret") {
				t.Errorf("SEC-C3 the error holds the secret: %v", err)
			}
			if who, err := p.Finish(t.Context(), request(), answer()); err == nil || bad.Requests.Load() != 0 {
				t.Errorf("Finish() = %+v, %v; the server got %d requests", who, err, bad.Requests.Load())
			}
		})
	}
}
