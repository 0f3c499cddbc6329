package catalog

import (
	"maps"
	"slices"
	"sync"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
)

// batchedNotifier delays notifications until many writes are done, each once.
type batchedNotifier struct {
	mu      sync.Mutex
	wakes   map[hub.ClusterID]bool
	changed map[hub.TenantID]bool
	due     map[string]bool
	revoked map[struct{}]bool

	credentials map[hub.TenantID]bool
}

func (g *batchedNotifier) Wake(cluster hub.ClusterID)  { addTo(g, &g.wakes, cluster) }
func (g *batchedNotifier) Changed(tenant hub.TenantID) { addTo(g, &g.changed, tenant) }
func (g *batchedNotifier) Due(kind string)             { addTo(g, &g.due, kind) }
func (g *batchedNotifier) Revoked()                    { addTo(g, &g.revoked, struct{}{}) }

// Credentials is called for writes of accounts, sessions and tokens.
func (g *batchedNotifier) Credentials(tenant hub.TenantID) { addTo(g, &g.credentials, tenant) }

// Arriving is called for all of the writes by their batch.
func (g *batchedNotifier) Arriving(hub.TenantID) (arrived func()) { return func() {} }

// Alone is no matter where many are written by one request.
func (g *batchedNotifier) Alone(hub.TenantID) (through func(follows func())) {
	return func(follows func()) {
		if follows != nil {
			follows()
		}
	}
}

func addTo[K comparable](g *batchedNotifier, set *map[K]bool, key K) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if *set == nil {
		*set = map[K]bool{}
	}
	(*set)[key] = true
}

// flush passes them on.
func (g *batchedNotifier) flush(to transact.Notifier) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, kind := range slices.Sorted(maps.Keys(g.due)) {
		to.Due(kind)
	}
	for range g.revoked {
		to.Revoked()
	}
	for cluster := range g.wakes {
		to.Wake(cluster)
	}
	for tenant := range g.credentials {
		to.Credentials(tenant)
	}
	for tenant := range g.changed {
		to.Changed(tenant)
	}
}
