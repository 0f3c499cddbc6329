package watch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A Mapping says under which resource a kind is served.
type Mapping struct {
	Resource   schema.GroupVersionResource
	Namespaced bool
}

// refreshPause is the least time between two readings of what an API server
// serves, however many kinds are looked for in vain.
const refreshPause = time.Second

// A Mapper knows what an API server serves. It reads that once, and again
// only when a kind is looked for in vain or somebody says that it changed.
type Mapper struct {
	client discovery.DiscoveryInterface

	refresh sync.Mutex // one reading at a time

	mu      sync.RWMutex
	byKind  map[schema.GroupVersionKind]Mapping
	version string
	read    time.Time // of the last reading; zero: none yet, or it is known to be old
	changed chan struct{}
}

// NewMapper makes a mapper that has read nothing yet.
func NewMapper(client discovery.DiscoveryInterface) *Mapper {
	return &Mapper{client: client, byKind: map[schema.GroupVersionKind]Mapping{}, changed: make(chan struct{})}
}

// Mapping finds a kind. A kind that is not served is fault.Missing, after a
// fresh look at the server.
func (m *Mapper) Mapping(ctx context.Context, gvk schema.GroupVersionKind) (Mapping, error) {
	if found, ok := m.Known(gvk); ok {
		return found, nil
	}
	if err := m.Refresh(ctx); err != nil {
		return Mapping{}, err
	}
	if found, ok := m.Known(gvk); ok {
		return found, nil
	}
	return Mapping{}, fault.New(fault.Missing, "the cluster does not serve kind %s of %s", gvk.Kind, gvk.GroupVersion())
}

// Resource is Mapping for callers that know nothing of this package.
func (m *Mapper) Resource(ctx context.Context, gvk schema.GroupVersionKind) (gvr schema.GroupVersionResource, namespaced bool, err error) {
	found, err := m.Mapping(ctx, gvk)
	return found.Resource, found.Namespaced, err
}

// Known finds a kind without asking the server.
func (m *Mapper) Known(gvk schema.GroupVersionKind) (Mapping, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	found, ok := m.byKind[gvk]
	return found, ok
}

// Forget makes the next Refresh read again at once: a kind came or went.
func (m *Mapper) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.read = time.Time{}
}

// Changed gives a channel that closes at the next reading that found
// something else.
func (m *Mapper) Changed() <-chan struct{} {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.changed
}

// Refresh reads what the server serves, unless that was done within the last
// second. A group whose server does not answer keeps what was known of it.
func (m *Mapper) Refresh(ctx context.Context) error {
	m.refresh.Lock()
	defer m.refresh.Unlock()
	m.mu.RLock()
	fresh := time.Since(m.read) < refreshPause
	m.mu.RUnlock()
	if fresh {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("read the API list: %w", err)
	}
	_, lists, err := m.client.ServerGroupsAndResources()
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return fault.Wrap(fault.Offline, err, "the API server does not say which kinds it serves")
	}
	next := map[schema.GroupVersionKind]Mapping{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // one odd list must not hide the others
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "get") && !isSub(r.Name) {
				next[gv.WithKind(r.Kind)] = Mapping{Resource: gv.WithResource(r.Name), Namespaced: r.Namespaced}
			}
		}
	}
	m.replace(next, failed)
	return m.readVersion()
}

func isSub(name string) bool {
	for i := range len(name) {
		if name[i] == '/' {
			return true
		}
	}
	return false
}

func (m *Mapper) replace(next map[schema.GroupVersionKind]Mapping, failed map[schema.GroupVersion]error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for gvk, held := range m.byKind {
		if _, lost := failed[gvk.GroupVersion()]; lost {
			next[gvk] = held
		}
	}
	same := len(next) == len(m.byKind)
	for gvk, found := range next {
		same = same && m.byKind[gvk] == found
	}
	m.byKind, m.read = next, time.Now()
	if !same {
		close(m.changed)
		m.changed = make(chan struct{})
	}
}

func (m *Mapper) readVersion() error {
	m.mu.RLock()
	known := m.version
	m.mu.RUnlock()
	if known != "" {
		return nil
	}
	v, err := m.client.ServerVersion()
	if err != nil {
		return fault.Wrap(fault.Offline, err, "the API server does not say its version")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version = v.GitVersion
	return nil
}

// Version is the API server's version, such as "v1.35.4"; empty before the
// first reading.
func (m *Mapper) Version() string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.version
}

// APIVersions lists what is served, "apps/v1" and "apps/v1/Deployment" alike, sorted.
func (m *Mapper) APIVersions() []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	seen := map[string]struct{}{}
	for gvk := range m.byKind {
		gv := gvk.GroupVersion().String()
		seen[gv] = struct{}{}
		seen[gv+"/"+gvk.Kind] = struct{}{}
	}
	out := make([]string, 0, len(seen))
	for s := range seen {
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}
