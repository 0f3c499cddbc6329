package catalog

import (
	"maps"
	"slices"
	"sync"

	"github.com/capstan-cd/capstan/hub"
)

// gatheredHints keeps hints until many writes are done, each of them once.
type gatheredHints struct {
	mu      sync.Mutex
	wakes   map[hub.ClusterID]bool
	changed map[hub.TenantID]bool
	due     map[string]bool
	revoked map[struct{}]bool
}

func (g *gatheredHints) Wake(cluster hub.ClusterID)  { note(g, &g.wakes, cluster) }
func (g *gatheredHints) Changed(tenant hub.TenantID) { note(g, &g.changed, tenant) }
func (g *gatheredHints) Due(kind string)             { note(g, &g.due, kind) }
func (g *gatheredHints) Revoked()                    { note(g, &g.revoked, struct{}{}) }

// Arriving is said for all of the writes by whoever gathers.
func (g *gatheredHints) Arriving(hub.TenantID) (arrived func()) { return func() {} }

// Alone is no matter where many are written by one request.
func (g *gatheredHints) Alone(hub.TenantID) (through func(follows func())) {
	return func(follows func()) {
		if follows != nil {
			follows()
		}
	}
}

func note[K comparable](g *gatheredHints, set *map[K]bool, key K) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if *set == nil {
		*set = map[K]bool{}
	}
	(*set)[key] = true
}

// give passes them on.
func (g *gatheredHints) give(to Hints) {
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
	for tenant := range g.changed {
		to.Changed(tenant)
	}
}
