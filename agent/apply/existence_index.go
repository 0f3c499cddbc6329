package apply

import (
	"hash/maphash"
	"maps"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// An existenceIndex contains which objects of all watched kinds exist in the
// cluster. Therefore the first write of a newly listed object needs no read. It
// stores a hash of each name.
type existenceIndex struct {
	seed maphash.Seed

	mu sync.RWMutex
	of map[scope]map[uint64]struct{}
}

func newExistenceIndex() *existenceIndex {
	return &existenceIndex{seed: maphash.MakeSeed(), of: map[scope]map[uint64]struct{}{}}
}

// name is the name of an object in complete lists.
func (p *existenceIndex) name(key manifest.Key) uint64 {
	return maphash.String(p.seed, key.Namespace+"/"+key.Name)
}

func (p *existenceIndex) add(s scope, key manifest.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[s] == nil {
		p.of[s] = map[uint64]struct{}{}
	}
	p.of[s][p.name(key)] = struct{}{}
}

func (p *existenceIndex) remove(s scope, key manifest.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of[s], p.name(key))
}

// list processes a complete list, which has uids, too.
func (p *existenceIndex) list(s scope, list map[string]struct{}) {
	all := make(map[uint64]struct{}, len(list)/2)
	for name := range list {
		if strings.Contains(name, "/") {
			all[maphash.String(p.seed, name)] = struct{}{}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[s] = all
}

func (p *existenceIndex) forget(which func(scope) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.of, func(s scope, _ map[uint64]struct{}) bool { return which(s) })
}

func (p *existenceIndex) has(s scope, key manifest.Key) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	_, there := p.of[s][p.name(key)]
	return there
}

// watched is the scope in which an object is seen.
func (e *Engine) watched(gvk schema.GroupVersionKind, key manifest.Key) scope {
	if len(e.Guard.Scope) == 0 || inHub(key) {
		return scope{gvk: gvk}
	}
	return scope{gvk, key.Namespace}
}

// provenAbsent is absent for an object without a view.
func (e *Engine) provenAbsent(gvk schema.GroupVersionKind, key manifest.Key) bool {
	if inHub(key) {
		return false
	}
	s := e.watched(gvk, key)
	e.mu.RLock()
	proven := e.listed[s] && e.broken[s] == nil
	e.mu.RUnlock()
	return proven && !e.present.has(s, key)
}

// absent reports whether the watch of an object's kind proves that there is no
// such object. The object must have a view already, so that later events find
// it.
func (e *Engine) absent(x *object) bool {
	if inHub(x.key) {
		return false // the hub's lists may be older than our own writes
	}
	listed, broken := e.kindState(x)
	return listed && broken == nil && !e.present.has(e.scopeOf(x), x.key)
}
