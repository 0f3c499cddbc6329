package access

import (
	"context"
	"sync"

	"github.com/capstan-cd/capstan/hub"
)

// A Cache has the rights of recently used tenants, each at one version of its
// policy. Another version is compiled before it decides anything; there is no
// moment without rules.
type Cache struct {
	mu      sync.Mutex
	tenants map[hub.TenantID]versioned
}

type versioned struct {
	version int64
	rights  *Rights
}

// maxTenants bounds the cache.
const maxTenants = 1024

// NewCache makes an empty cache.
func NewCache() *Cache { return &Cache{tenants: map[hub.TenantID]versioned{}} }

// Rights returns the rights of a tenant at a version of its policy. Load is
// called if they are not cached; it reads the policy in the transaction that
// returned the version.
func (c *Cache) Rights(ctx context.Context, tenant hub.TenantID, version int64, load func(context.Context) (Policy, error)) (*Rights, error) {
	c.mu.Lock()
	kept, ok := c.tenants[tenant]
	c.mu.Unlock()
	if ok && kept.version == version {
		return kept.rights, nil
	}
	policy, err := load(ctx)
	if err != nil {
		return nil, err
	}
	rights := Compile(tenant, policy)
	c.keep(tenant, version, rights)
	return rights, nil
}

// keep remembers the newest version only: a slow transaction that still sees
// an older one must not bring it back.
func (c *Cache) keep(tenant hub.TenantID, version int64, rights *Rights) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept, ok := c.tenants[tenant]; ok && kept.version > version {
		return
	}
	if len(c.tenants) >= maxTenants {
		for t := range c.tenants {
			delete(c.tenants, t)
			break
		}
	}
	c.tenants[tenant] = versioned{version, rights}
}

// Forget drops the rights of a tenant that is gone.
func (c *Cache) Forget(tenant hub.TenantID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tenants, tenant)
}
