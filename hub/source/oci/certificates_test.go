package oci_test

import (
	"context"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/archives"
	"github.com/capstan-cd/capstan/hub/source/charts"
	"github.com/capstan-cd/capstan/hub/source/oci"
	"github.com/capstan-cd/capstan/hub/source/sourcetest"
	"github.com/capstan-cd/capstan/integration/rigs/pki"
)

// trusting has one credential, and trusts one authority for every host.
type trusting struct{ authority string }

func (trusting) Credential(context.Context, hub.TenantID, hub.RepositoryID) (hub.Credential, error) {
	return hub.Credential{Username: "bob", Password: sourcetest.Secret}, nil
}

func (t trusting) Authorities(context.Context, hub.TenantID, string) (string, error) {
	return t.authority, nil
}

func TestBadCertificates(t *testing.T) {
	t.Parallel()
	for name, bad := range pki.BadServers(t) {
		t.Run("SEC-E5 a registry with a certificate "+name+" gets no request, unless insecure is set", func(t *testing.T) {
			t.Parallel()
			client := charts.New(charts.Config{AllowedNetworks: loopback()}, nil)
			s, err := archives.New(archives.Config{Dir: t.TempDir()}, oci.New(client, nil, 64<<20), trusting{bad.Authority})
			if err != nil {
				t.Fatal(err)
			}
			repo := hub.Repository{ID: hub.NewID[hub.RepositoryID](), URL: "oci://" + strings.TrimPrefix(bad.URL, "https://") + "/team/app", Type: hub.OCIRepository}
			_, err = s.Resolve(t.Context(), tenant, repo, nil, "1.0.0", "")
			if err == nil || bad.Requests.Load() != 0 {
				t.Errorf("Resolve() = %v, and the server got %d requests", err, bad.Requests.Load())
			} else if strings.Contains(err.Error(), sourcetest.Secret) {
				t.Errorf("SEC-C3 the error holds the password: %v", err)
			}
			repo.ID, repo.Insecure = hub.NewID[hub.RepositoryID](), true
			if _, err := s.Resolve(t.Context(), tenant, repo, nil, "1.0.0", ""); err == nil || bad.Requests.Load() == 0 {
				t.Errorf("with insecure, Resolve() = %v, and the server got no request", err)
			}
		})
	}
}
