// Package watch observes a cluster: one list and one watch for each kind that
// an application manages, and for the kinds that managed objects own. It never
// writes to the cluster and stores no object bodies: each object is passed on
// as it is decoded, and children are reduced to a record while decoding. The
// daemon runs one Informers and the engine sets its kinds. An idle kind costs
// no request except its watch.
package watch

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// A Sink receives events. Calls for one kind are sequential; calls for several
// kinds are concurrent.
type Sink interface {
	// OnUpdate passes the current state of an object, with managedFields. The
	// sink may keep it.
	OnUpdate(ctx context.Context, o *manifest.Object)
	// OnDelete passes the last state of a deleted object.
	OnDelete(ctx context.Context, o *manifest.Object)
	// OnReplace ends a complete list, whose objects were passed to OnUpdate: an
	// object that is not in it, neither by uid nor as "namespace/name", did not
	// exist at its version. The list is of one namespace, or of the whole
	// cluster for an empty one. back means that versions went backwards: the
	// cluster was restored from a backup.
	OnReplace(ctx context.Context, gvk schema.GroupVersionKind, namespace, version string, back bool, list map[string]struct{})
	// Broken reports why a kind is not watched now, in a namespace or anywhere;
	// nil: it is watched again.
	Broken(ctx context.Context, gvk schema.GroupVersionKind, namespace string, err error)
	// Warned reports the API server's warning about a kind, such as that its
	// version is going to be removed; empty: there is none any more.
	Warned(ctx context.Context, gvk schema.GroupVersionKind, text string)
	// Left reports that a kind is not watched any more; nothing is reported
	// about it until it is listed again.
	Left(ctx context.Context, gvk schema.GroupVersionKind)
}

// An Informers has one watch for each wanted kind.
type Informers struct {
	client dynamic.Interface
	mapper *RESTMapper
	sink   Sink
	tree   *Tree
	log    *slog.Logger
	clock  lifecycle.Clock
	wake   chan struct{}
	turns  chan struct{} // one for each kind that may start now; nil: no limit
	most   int64         // watches, if there is no object of some kinds; 0: no bound
	open   atomic.Int64  // watches
	spaces []string      // that are watched, one by one; [""]: the whole cluster at once
	rights rights

	mu      sync.Mutex
	managed []schema.GroupVersionKind // as set by SetKinds
	wanted  map[schema.GroupVersionKind]struct{}
	again   bool // everything watched must be listed again
	undone  bool // and earlier events may have been reverted by a restore
}

// New makes an Informers without kinds. It watches the given namespaces and
// nothing cluster-scoped, or without any the whole cluster. Without a tree,
// owned kinds are not watched.
func New(client dynamic.Interface, mapper *RESTMapper, sink Sink, tree *Tree, log *slog.Logger, namespaces ...string) *Informers {
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	return &Informers{
		spaces: namespaces,
		client: client, mapper: mapper, sink: sink, tree: tree, log: log, clock: lifecycle.System{},
		wake: make(chan struct{}, 1), wanted: map[schema.GroupVersionKind]struct{}{},
	}
}

// SetKinds replaces the kinds that are watched. Kinds that objects of these kinds
// own are added.
func (w *Informers) SetKinds(kinds []schema.GroupVersionKind) {
	w.mu.Lock()
	w.managed = kinds
	w.mu.Unlock()
	w.Reconsider()
}

// Reconsider recomputes which kinds are watched, because the tree's settings
// have changed.
func (w *Informers) Reconsider() {
	w.mu.Lock()
	next := map[schema.GroupVersionKind]struct{}{}
	for _, k := range w.managed {
		next[k] = struct{}{}
		if w.tree == nil {
			continue
		}
		for _, child := range w.tree.childrenOf(k.GroupKind()) {
			next[child] = struct{}{}
		}
	}
	w.wanted = next
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Again lists everything again, because the displayed details have changed.
func (w *Informers) Again() {
	w.mu.Lock()
	w.again = true
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Undone lists everything again, because the cluster's etcd was restored from a
// backup. Versions have gone backwards, although they may already exceed the
// known ones.
func (w *Informers) Undone() {
	w.mu.Lock()
	w.undone = true
	w.mu.Unlock()
	w.Again()
}

// Run watches the wanted kinds until ctx ends, then returns nil.
func (w *Informers) Run(ctx context.Context) error {
	running := map[schema.GroupVersionKind]func(){}
	for {
		w.mu.Lock()
		wanted, again, undone := w.wanted, w.again, w.undone
		w.again, w.undone = false, false
		w.mu.Unlock()
		w.stopUnwanted(ctx, running, wanted, again)
		for _, gvk := range inOrder(wanted) {
			if _, ok := running[gvk]; ok {
				continue
			}
			running[gvk] = w.begin(ctx, gvk, undone)
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			for _, stop := range running {
				stop()
			}
			return nil
		}
	}
}

// stopUnwanted stops the informers of kinds that are not wanted any more, and
// with all also the others, which then start again.
func (w *Informers) stopUnwanted(ctx context.Context, running map[schema.GroupVersionKind]func(), wanted map[schema.GroupVersionKind]struct{}, all bool) {
	for gvk, stop := range running {
		_, ok := wanted[gvk]
		if ok && !all {
			continue
		}
		stop()
		delete(running, gvk)
		if !ok {
			w.sink.Left(ctx, gvk)
		}
	}
}

// inOrder puts Kubernetes' own kinds first: of thousands of others most have no
// objects.
func inOrder(kinds map[schema.GroupVersionKind]struct{}) []schema.GroupVersionKind {
	return slices.SortedFunc(maps.Keys(kinds), func(a, b schema.GroupVersionKind) int {
		return cmp.Or(
			cmp.Compare(strings.Count(a.Group, "."), strings.Count(b.Group, ".")),
			cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Version, b.Version),
		)
	})
}

// Bound is for an Informers with thousands of kinds. It bounds how many of them
// are listed, and their watches opened, at the same time, to limit memory and
// the load of the API server. It also bounds the watches: beyond that number a
// kind without objects is not watched but listed again when a watch would have
// been renewed. That costs as many requests and no memory. Do not use it if
// anything waits for a kind: with a limit, a kind that hangs delays others.
// Call it before Run.
func (w *Informers) Bound(atOnce, watches int) {
	w.turns, w.most = make(chan struct{}, atOnce), int64(watches)
}

// enter counts one more watch. It refuses a kind without objects at the limit.
func (w *Informers) enter(empty bool) bool {
	if n := w.open.Add(1); !empty || w.most == 0 || n <= w.most {
		return true
	}
	w.leave()
	return false
}

// leave uncounts one watch.
func (w *Informers) leave() { w.open.Add(-1) }

// acquireSlot waits until one more kind may start. The caller calls done.
func (w *Informers) acquireSlot(ctx context.Context) (done func(), err error) {
	if w.turns == nil {
		return func() {}, nil
	}
	select {
	case w.turns <- struct{}{}:
		return func() { <-w.turns }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// begin watches a kind, and returns a function that ends the watch and waits
// for its end. With undone, its first list is older than what was seen before.
func (w *Informers) begin(ctx context.Context, gvk schema.GroupVersionKind, undone bool) func() {
	var loops sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	for _, space := range w.spaces {
		k := &reflector{w: w, gvk: gvk, namespace: space}
		if undone {
			k.last = math.MaxUint64
		}
		loops.Go(func() { k.run(ctx) })
	}
	return func() {
		stop()
		loops.Wait()
	}
}
