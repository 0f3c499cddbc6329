package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/api/openapi"
	"github.com/capstan-cd/capstan/shared/fault"
)

// tenantHeader names the tenant that a request without a sign-in is for. Without
// it that is the tenant called default, as at a sign-in.
const tenantHeader = "X-Capstan-Tenant"

// anonymousAge is how long a tenant's decision about requests without a sign-in
// is used before it is read again.
const anonymousAge = time.Second

// maxAnonymous bounds the names whose decision is remembered.
const maxAnonymous = 1024

// anonymousTenants are the decisions of tenants that were read a moment ago.
type anonymousTenants struct {
	mu   sync.Mutex
	seen map[string]anonymousTenant
}

type anonymousTenant struct {
	tenant hub.Tenant // without an id: nobody may read there
	at     time.Time
}

// anonymousMay reports whether an operation may be used without a sign-in where
// the tenant permits that: it only reads, writes no record, and returns neither
// people nor settings.
func anonymousMay(r *http.Request, o *openapi.Operation) bool {
	open := []string{access.Applications, access.ApplicationSets, access.Projects, access.Repositories, access.Clusters, access.Certificates, access.GPGKeys}
	if o.Resource == access.ApplicationSets && strings.HasSuffix(o.Route.Path, "/events") {
		return false // they name who did something
	}
	return o.Route.Method == http.MethodGet && !o.Stream && r.URL.Query().Get("refresh") == "" && slices.Contains(open, o.Resource) && o.Action == access.Get
}

// anonymous is who calls without a sign-in. It is an error unless the tenant
// permits that; refused is that error.
func (s *Server) anonymous(r *http.Request, o *openapi.Operation, refused error) (hub.Caller, error) {
	if !anonymousMay(r, o) {
		return hub.Caller{}, refused
	}
	tenant, err := s.anonymousTenant(r.Context(), cmp.Or(r.Header.Get(tenantHeader), defaultTenant))
	if err != nil || tenant.ID == "" {
		return hub.Caller{}, cmp.Or(err, refused)
	}
	// All of them share the rate of one caller, so that strangers take nothing
	// from the people of the tenant.
	if !s.limits.Caller.Allow("anonymous " + string(tenant.ID)) {
		return hub.Caller{}, errTooFast()
	}
	return hub.Caller{Tenant: tenant.ID, TenantName: tenant.Name, Via: hub.ViaAnonymous, Credential: hub.ViaAnonymous}, nil
}

// anonymousTenant returns the tenant of a name if it lets people read who have
// not signed in; otherwise one without an id.
func (s *Server) anonymousTenant(ctx context.Context, name string) (hub.Tenant, error) {
	all := &s.strangers
	all.mu.Lock()
	known, ok := all.seen[name]
	all.mu.Unlock()
	if ok && time.Since(known.at) < anonymousAge {
		return known.tenant, nil
	}
	at := time.Now()
	tenant, err := s.Catalog.AnonymousTenant(ctx, name)
	if fault.KindOf(err) == fault.Missing {
		tenant, err = hub.Tenant{}, nil
	}
	if err != nil {
		return tenant, err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.seen == nil || len(all.seen) >= maxAnonymous {
		all.seen = map[string]anonymousTenant{}
	}
	all.seen[name] = anonymousTenant{tenant, at}
	return tenant, nil
}
