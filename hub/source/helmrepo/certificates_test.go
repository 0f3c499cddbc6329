package helmrepo_test

import (
	"context"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/sourcetest"
	"github.com/capstan-cd/capstan/integration/rigs/pki"
	"github.com/capstan-cd/capstan/shared/fault"
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
		for kind, address := range map[string]string{"a chart repository": bad.URL, "a registry": "oci://" + strings.TrimPrefix(bad.URL, "https://") + "/team/charts"} {
			t.Run("SEC-E5 "+kind+" with a certificate "+name+" gets no request, unless insecure is set", func(t *testing.T) {
				before := bad.Requests.Load()
				repo := hub.Repository{ID: hub.NewID[hub.RepositoryID](), URL: address, Type: hub.HelmRepository}
				repo.Use.Target.Chart = "web"
				repo.Use.Targets = []hub.Target{{Chart: "web", Revision: "1.0.0"}}
				s := newSource(t, t.TempDir(), trusting{bad.Authority})
				_, err := s.Fetch(t.Context(), tenant, repo, hub.Credential{Username: "bob", Password: sourcetest.Secret})
				if err == nil || fault.Sentence(err) == "" || bad.Requests.Load() != before {
					t.Errorf("Fetch() = %v, and the server got %d requests", err, bad.Requests.Load()-before)
				}
				if strings.Contains(err.Error(), sourcetest.Secret) {
					t.Errorf("SEC-C3 the error holds the password: %v", err)
				}
				repo.ID, repo.Insecure = hub.NewID[hub.RepositoryID](), true
				if _, err := s.Fetch(t.Context(), tenant, repo, hub.Credential{}); err == nil || bad.Requests.Load() == before {
					t.Errorf("with insecure, Fetch() = %v, and the server got no request", err)
				}
			})
		}
	}
}
