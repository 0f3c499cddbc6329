// Package watch sees what changes in a cluster: one list and one watch for
// each kind that an application manages, and for the kinds that managed
// objects own. It never writes to the cluster and keeps no object bodies:
// each object is handed on as it is decoded, and children are reduced to a
// record at the door. The daemon runs one Watcher and the engine says which
// kinds it wants. A kind that is at rest costs no request but its watch.
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

// A Sink is told what is seen. Calls for one kind come one after the other;
// calls for several kinds come side by side.
type Sink interface {
	// OnUpdate gives an object as it is now, managedFields included. The sink
	// may keep it.
	OnUpdate(ctx context.Context, o *manifest.Object)
	// OnDelete gives an object that was deleted, as it was last.
	OnDelete(ctx context.Context, o *manifest.Object)
	// OnReplace says that a complete list was given through Seen: an object that
	// is not in it, neither by uid nor as "namespace/name", was not there at
	// its version. The list is of one namespace, or of the whole cluster for
	// an empty one. back says that versions went backwards: the cluster was
	// restored from a backup.
	OnReplace(ctx context.Context, gvk schema.GroupVersionKind, namespace, version string, back bool, list map[string]struct{})
	// Broken says that a kind is not being watched now, in a namespace or
	// anywhere, and why; nil: it is again.
	Broken(ctx context.Context, gvk schema.GroupVersionKind, namespace string, err error)
	// Warned says what the API server warns of who watches a kind, such as that
	// its version is going to be removed; empty: nothing any more.
	Warned(ctx context.Context, gvk schema.GroupVersionKind, text string)
	// Left says that a kind is watched no more; nothing more is told of it
	// until it is listed anew.
	Left(ctx context.Context, gvk schema.GroupVersionKind)
}

// An Informers keeps one watch for each wanted kind.
type Informers struct {
	client dynamic.Interface
	mapper *RESTMapper
	sink   Sink
	tree   *Tree
	log    *slog.Logger
	clock  lifecycle.Clock
	wake   chan struct{}
	turns  chan struct{} // one for each kind that may begin now; nil: no bound
	most   int64         // watches, if there is no object of some kinds; 0: no bound
	open   atomic.Int64  // watches
	spaces []string      // that are watched, one by one; [""]: the whole cluster at once

	mu      sync.Mutex
	managed []schema.GroupVersionKind // as Want was told last
	wanted  map[schema.GroupVersionKind]struct{}
	again   bool // all that is watched is to be listed anew
	undone  bool // and what was seen of it so far may be of a time that was undone
}

// New makes a watcher that wants nothing yet. It watches the namespaces given
// and nothing cluster-scoped, or without any the whole cluster. Without a tree
// nothing is known of what objects own.
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

// Reconsider looks again at which kinds are watched, because the tree shows
// others than before.
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

// Again has everything that is watched listed anew, because other things of it
// are shown than before.
func (w *Informers) Again() {
	w.mu.Lock()
	w.again = true
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Undone has everything that is watched listed anew, because the cluster's
// etcd was restored from a backup: versions have gone backwards, even where
// they have grown beyond those that were seen since.
func (w *Informers) Undone() {
	w.mu.Lock()
	w.undone = true
	w.mu.Unlock()
	w.Again()
}

// Run watches what is wanted until ctx ends, then returns nil.
func (w *Informers) Run(ctx context.Context) error {
	running := map[schema.GroupVersionKind]func(){}
	for {
		w.mu.Lock()
		wanted, again, undone := w.wanted, w.again, w.undone
		w.again, w.undone = false, false
		w.mu.Unlock()
		for gvk, stop := range running {
			if _, ok := wanted[gvk]; !ok {
				stop()
				delete(running, gvk)
				w.sink.Left(ctx, gvk)
			} else if again {
				stop()
				delete(running, gvk) // it begins anew below
			}
		}
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

// Bound is for a Watcher that may want thousands of kinds. It bounds how many
// of them are listed, and their watches opened, at the same time: together they
// would be more than there is memory for, and more than an API server likes to
// be asked. And it bounds the watches: beyond so many a kind without any object
// is not watched but listed again when a watch would have been renewed, which
// costs as many requests and no memory. One whose kinds somebody waits for is
// better without: a kind that hangs then keeps no other from its turn. It is
// called before Run.
func (w *Informers) Bound(atOnce, watches int) {
	w.turns, w.most = make(chan struct{}, atOnce), int64(watches)
}

// enter counts one more watch, unless it is of a kind without objects and there
// are enough.
func (w *Informers) enter(empty bool) bool {
	if n := w.open.Add(1); !empty || w.most == 0 || n <= w.most {
		return true
	}
	w.leave()
	return false
}

// leave counts one watch less.
func (w *Informers) leave() { w.open.Add(-1) }

// acquireSlot waits until one more kind may begin. The caller calls done.
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

// begin watches a kind, and gives what ends that and waits for its end. Its
// first list is of an earlier time than what was seen before if that was
// undone.
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
