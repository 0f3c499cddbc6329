package daemon

import (
	"context"
	"os"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/accesstoken"
	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/hub/store"
)

// proxies are those that the operator permits.
func (s Sources) proxies() []guard.Proxy {
	out := make([]guard.Proxy, len(s.Proxies))
	for i, p := range s.Proxies {
		out[i] = guard.Proxy{URL: p.URL, ByName: p.ByName}
	}
	return out
}

// newTokens makes the issuer of tokens for repositories. Azure's webhook sets
// the environment of a pod with workload identity.
func newTokens(cfg Sources, ways guard.Ways, db *store.DB) *accesstoken.Issuer {
	return accesstoken.New(accesstoken.Config{Ways: ways, Workload: accesstoken.Workload{
		Permits: func(ctx context.Context, tenant hub.TenantID) bool {
			t, err := db.System().Tenant(ctx, tenant)
			return err == nil && slices.Contains(cfg.AzureWorkloadIdentity.Tenants, t.Name)
		},
		Hosts: cfg.AzureWorkloadIdentity.Hosts, TokenFile: os.Getenv("AZURE_FEDERATED_TOKEN_FILE"),
		ClientID: os.Getenv("AZURE_CLIENT_ID"), TenantID: os.Getenv("AZURE_TENANT_ID"), Endpoint: os.Getenv("AZURE_AUTHORITY_HOST"),
	}}, credentials{db}.Authorities)
}

// maxProbes is how many repositories are tried at once before they are
// registered.
const maxProbes = 4

// probe tries to reach a repository.
func (p *parts) probe(ctx context.Context, tenant hub.TenantID, repo hub.Repository, cred hub.Credential) error {
	select {
	case p.probes <- struct{}{}:
		defer func() { <-p.probes }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return p.sources.Probe(ctx, tenant, repo, cred)
}
