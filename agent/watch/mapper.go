package watch

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// A Mapping says under which resource a kind is served.
type Mapping struct {
	Resource   schema.GroupVersionResource
	Namespaced bool
	Watchable  bool // it can be listed and watched
	Rank       int  // of the version within its group; 0 is preferred
}

// refreshPause is the least time between two reads of discovery, however many
// kinds are not found.
const refreshPause = time.Second

// A RESTMapper caches an API server's discovery. It reads it once, and again
// only when a kind is not found or a change was reported.
type RESTMapper struct {
	api *API

	refresh sync.Mutex // one read at a time

	mu      sync.RWMutex
	byKind  map[schema.GroupVersionKind]Mapping
	away    map[schema.GroupVersion]bool // whose server did not reply at the last read
	version string
	read    time.Time // of the last read; zero: none yet, or it is known to be outdated
	changed chan struct{}
}

// NewMapper makes a mapper that has read nothing yet.
func NewMapper(api *API) *RESTMapper {
	return &RESTMapper{api: api, byKind: map[schema.GroupVersionKind]Mapping{}, changed: make(chan struct{})}
}

// awayError means that the server of an aggregated API group does not reply.
type awayError struct{ group schema.GroupVersion }

func (e awayError) Error() string { return "no answer of the server of " + e.group.String() }

// GroupAway reports whether an error is such an error, for callers that do not
// know this package.
func (awayError) GroupAway() {}

// Mapping finds a kind. An unserved kind is fault.Missing, after reading
// discovery again; one that cannot be found because the server of its group
// does not reply is fault.Offline.
func (m *RESTMapper) Mapping(ctx context.Context, gvk schema.GroupVersionKind) (Mapping, error) {
	if found, ok := m.Known(gvk); ok {
		return found, nil
	}
	if err := m.Refresh(ctx); err != nil {
		return Mapping{}, err
	}
	if found, ok := m.Known(gvk); ok {
		return found, nil
	}
	m.mu.RLock()
	away := m.away[gvk.GroupVersion()]
	m.mu.RUnlock()
	if away {
		return Mapping{}, fault.Wrap(fault.Offline, awayError{gvk.GroupVersion()}, "the server of %s does not answer, so kind %s cannot be found", gvk.GroupVersion(), gvk.Kind)
	}
	return Mapping{}, m.unserved(gvk, nil)
}

// unserved explains that a kind is not served in a version, and what to do.
func (m *RESTMapper) unserved(gvk schema.GroupVersionKind, cause error) error {
	text, fix := "the cluster does not serve kind "+gvk.Kind+" of "+gvk.GroupVersion().String(), "install what defines the kind, or take its objects out of the manifests"
	if others := m.others(gvk); len(others) > 0 {
		text += "; it serves that kind as " + strings.Join(others, ", ")
		fix = "write the manifests with apiVersion " + schema.GroupVersion{Group: gvk.Group, Version: others[0]}.String()
	} else if elsewhere := m.elsewhere(gvk); len(elsewhere) > 0 {
		text += "; it serves a kind of that name as " + strings.Join(elsewhere, ", ")
		fix = "write the manifests with apiVersion " + strings.Join(elsewhere, " or ") + " if that is the kind that is meant"
	}
	return fault.With(fault.Wrap(fault.Missing, cause, "%s", text), "", fix)
}

// others returns the versions but one in which a kind is served, the preferred
// one first.
func (m *RESTMapper) others(gvk schema.GroupVersionKind) []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	ranks := map[string]int{}
	for held, is := range m.byKind {
		if held.GroupKind() == gvk.GroupKind() && held.Version != gvk.Version {
			ranks[held.Version] = is.Rank
		}
	}
	return slices.SortedFunc(maps.Keys(ranks), func(a, b string) int { return cmp.Or(cmp.Compare(ranks[a], ranks[b]), cmp.Compare(a, b)) })
}

// elsewhere returns the groups that serve a kind of the same name, each in the
// version that it prefers, as apiVersion writes them.
func (m *RESTMapper) elsewhere(gvk schema.GroupVersionKind) []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	best := map[string]schema.GroupVersionKind{}
	for held, is := range m.byKind {
		if held.Kind != gvk.Kind || held.Group == gvk.Group {
			continue
		}
		if other, ok := best[held.Group]; !ok || is.Rank < m.byKind[other].Rank {
			best[held.Group] = held
		}
	}
	out := make([]string, 0, len(best))
	for _, found := range best {
		out = append(out, found.GroupVersion().String())
	}
	slices.Sort(out)
	return out
}

// Other finds a kind in another version than the one given, without a request:
// objects written in a removed version still exist in the others.
func (m *RESTMapper) Other(gvk schema.GroupVersionKind) (gvr schema.GroupVersionResource, namespaced, ok bool) {
	others := m.others(gvk)
	if len(others) == 0 {
		return schema.GroupVersionResource{}, false, false
	}
	found, ok := m.Known(schema.GroupVersionKind{Group: gvk.Group, Version: others[0], Kind: gvk.Kind})
	return found.Resource, found.Namespaced, ok
}

// Lost classifies a reply that the server does not know a resource under which
// it has served a kind, after reading discovery again. fault.Missing: it is not
// served any more; fault.Offline: it is still listed, which is temporary. cause
// is the server's reply.
func (m *RESTMapper) Lost(ctx context.Context, gvr schema.GroupVersionResource, cause error) error {
	gvk := m.kindOf(gvr)
	m.Forget(gvk)
	if err := m.Refresh(ctx); err != nil {
		return errors.Join(err, cause)
	}
	if _, listed := m.Known(gvk); listed {
		return fault.Wrap(fault.Offline, cause, "the API server lists kind %s of %s, but does not serve it now", gvk.Kind, gvk.GroupVersion())
	}
	return m.unserved(gvk, cause)
}

// kindOf returns the kind of a resource; if it is unknown, of another version,
// and in the end the resource's name.
func (m *RESTMapper) kindOf(gvr schema.GroupVersionResource) schema.GroupVersionKind {
	m.mu.RLock()
	defer m.mu.RUnlock()
	name := gvr.Resource
	for gvk, is := range m.byKind {
		if is.Resource == gvr {
			return gvk
		}
		if is.Resource.GroupResource() == gvr.GroupResource() {
			name = gvk.Kind
		}
	}
	return gvr.GroupVersion().WithKind(name)
}

// Resource is Mapping for callers that do not import this package.
func (m *RESTMapper) Resource(ctx context.Context, gvk schema.GroupVersionKind) (gvr schema.GroupVersionResource, namespaced bool, err error) {
	found, err := m.Mapping(ctx, gvk)
	return found.Resource, found.Namespaced, err
}

// Find is Resource for callers that cannot retry later: an unknown kind is
// looked up once more after the pause between two reads.
func (m *RESTMapper) Find(ctx context.Context, gvk schema.GroupVersionKind) (gvr schema.GroupVersionResource, namespaced bool, err error) {
	asked := time.Now()
	gvr, namespaced, err = m.Resource(ctx, gvk)
	if fault.KindOf(err) != fault.Missing {
		return gvr, namespaced, err
	}
	m.mu.RLock()
	read := m.read
	m.mu.RUnlock()
	if !read.Before(asked) {
		return gvr, namespaced, err
	}
	if lifecycle.Sleep(ctx, lifecycle.System{}, refreshPause-time.Since(read)) != nil {
		return gvr, namespaced, err
	}
	return m.Resource(ctx, gvk)
}

// Namespaced returns the kinds of objects in namespaces that can be watched,
// each in the version that the server prefers.
func (m *RESTMapper) Namespaced() []schema.GroupVersionKind {
	m.mu.RLock()
	defer m.mu.RUnlock()
	best := map[schema.GroupKind]schema.GroupVersionKind{}
	for gvk, held := range m.byKind {
		if !held.Namespaced || !held.Watchable {
			continue
		}
		if other, ok := best[gvk.GroupKind()]; !ok || held.Rank < m.byKind[other].Rank {
			best[gvk.GroupKind()] = gvk
		}
	}
	return slices.Collect(maps.Values(best))
}

// Known finds a kind without a request.
func (m *RESTMapper) Known(gvk schema.GroupVersionKind) (Mapping, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	found, ok := m.byKind[gvk]
	return found, ok
}

// Forget drops the cached entry of a kind, because the server has shown that it
// is wrong. The next lookup reads discovery at once.
func (m *RESTMapper) Forget(gvk schema.GroupVersionKind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	byKind := maps.Clone(m.byKind)
	delete(byKind, gvk)
	m.byKind, m.read = byKind, time.Time{}
}

// Changed returns a channel that closes at the next read that found a change.
func (m *RESTMapper) Changed() <-chan struct{} {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.changed
}

// Refresh reads discovery, unless that was done within the last second. A group
// whose server does not reply keeps its entries.
func (m *RESTMapper) Refresh(ctx context.Context) error {
	m.refresh.Lock()
	defer m.refresh.Unlock()
	m.mu.RLock()
	fresh := time.Since(m.read) < refreshPause
	m.mu.RUnlock()
	if fresh {
		return nil
	}
	next, stale, err := m.api.kinds(ctx)
	if err != nil {
		return fault.Wrap(fault.Offline, err, "the API server does not say which kinds it serves")
	}
	m.replace(next, stale)
	return m.readVersion(ctx)
}

// replace applies a read of discovery. Entries of stale groups stay.
func (m *RESTMapper) replace(next map[schema.GroupVersionKind]Mapping, stale map[schema.GroupVersion]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for gvk, held := range m.byKind {
		if _, found := next[gvk]; !found && stale[gvk.GroupVersion()] {
			next[gvk] = held
		}
	}
	same := maps.Equal(next, m.byKind)
	m.byKind, m.away, m.read = next, stale, time.Now()
	if !same {
		close(m.changed)
		m.changed = make(chan struct{})
	}
}

func (m *RESTMapper) readVersion(ctx context.Context) error {
	if m.Version() != "" {
		return nil
	}
	v, err := m.api.version(ctx)
	if err != nil {
		return fault.Wrap(fault.Offline, err, "the API server does not say its version")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version = v
	return nil
}

// Version is the API server's version, such as "v1.35.4"; empty before the
// first read.
func (m *RESTMapper) Version() string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.version
}

// APIVersions lists what is served, "apps/v1" and "apps/v1/Deployment" alike, sorted.
func (m *RESTMapper) APIVersions() []string {
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
