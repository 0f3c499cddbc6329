// Package apply is the agent's sync engine: it brings a cluster to the state
// that the hub has accepted, reverts drift, and reports the difference. It does
// not decide what is deployed. It deletes only what both a tombstone and its
// own inventory name, and sends no request for an unchanged object. The daemon
// passes it rows of the desired log, the watcher passes events. One application
// has at most one operation at a time, one object one write at a time, and an
// older generation never wins.
package apply

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-cd/capstan/agent/inventory"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// A Mapper knows under which resource a kind is served.
type Mapper interface {
	// Resource finds a kind; fault.Missing if it is not served.
	Resource(ctx context.Context, gvk schema.GroupVersionKind) (gvr schema.GroupVersionResource, namespaced bool, err error)
	// Find is Resource, but also reads discovery again shortly after the last
	// read.
	Find(ctx context.Context, gvk schema.GroupVersionKind) (gvr schema.GroupVersionResource, namespaced bool, err error)
	// Other finds a kind in another version than the one given.
	Other(gvk schema.GroupVersionKind) (gvr schema.GroupVersionResource, namespaced, ok bool)
	// Lost classifies a reply that the server does not know a resource.
	Lost(ctx context.Context, gvr schema.GroupVersionResource, cause error) error
	// Forget makes the next lookup of a kind read from the server again.
	Forget(gvk schema.GroupVersionKind)
	// Namespaced returns the kinds of objects in namespaces, each in one version.
	Namespaced() []schema.GroupVersionKind
	// Changed closes when other kinds are served than before.
	Changed() <-chan struct{}
}

// Reports receives the newest values for the hub. None of its methods blocks.
type Reports interface {
	App(r *linkv1.AppReport)
	Resource(r *linkv1.Resource)
	Removed(r *linkv1.Resource)
	Operation(r *linkv1.OperationReport)
	Closed(t *linkv1.TombstoneClosed)
}

// Watches says which kinds must be watched.
type Watches interface {
	SetKinds(kinds []schema.GroupVersionKind)
}

// Tree follows what managed objects own.
type Tree interface {
	Root(uid, app string)
	Unroot(uid string)
}

// Blobs fetches missing objects from the hub.
type Blobs interface {
	// Fetch returns those that the hub has; with an error, those received until
	// then.
	Fetch(ctx context.Context, digests [][]byte) ([]*linkv1.Blob, error)
}

// Config is what an engine needs. All fields up to Log are required.
type Config struct {
	Client    dynamic.Interface
	Mapper    Mapper
	Inventory *inventory.Store
	Secret    *inventory.Secret
	Reports   Reports
	Tree      Tree
	Blobs     Blobs
	Lease     func() error                                   // whether a write may begin now
	Health    func(*manifest.Object) (state, message string) // an empty state means no rule
	Columns   func(*manifest.Object) []*linkv1.Column
	Links     func(*manifest.Object) []string // URLs for users
	Log       *slog.Logger

	// As returns a client that acts as a user; nil: the agent cannot.
	As func(user string) (dynamic.Interface, error)

	Secrets  Secrets                       // resolves references to secrets; nil: none can be resolved
	Hub      HubObjects                    // objects that live in the hub; nil: not available
	Excluded func(group, kind string) bool // excluded kinds; nil: none
	Happened func(Happening)               // receives what Kubernetes events may report; must not block; may be nil
	Settings func() Settings               // other settings of the tenant; nil: the defaults

	Metrics  Metrics              // counts operations on objects; nil: no metrics
	Guard    Guard                // rules that the hub cannot change; zero: none
	Manager  string               // field manager; empty: the default
	Offset   func() time.Duration // the hub's time minus ours; nil: none
	Clock    lifecycle.Clock      // nil: the real one
	Parallel int                  // requests at a time; 0: 32
	Poll     time.Duration        // interval at which awaited objects are checked without a notification; 0: 5 s
}

// An Engine runs the applications of one cluster.
type Engine struct {
	Config
	kube    *kube
	hashes  diff.Comparer
	plans   chan struct{}             // limits operations that read all their manifests
	tries   chan struct{}             // limits dry runs and reads of comparisons
	lost    bool                      // the state directory was lost: our objects must be found again
	noArgo  atomic.Pointer[time.Time] // when the cluster was last found to have no Applications of Argo CD
	present *existenceIndex           // existing objects of the watched kinds
	watches Watches
	wake    chan struct{}
	orphans *Orphans
	turns   windowQueue // when windows of applications open or close

	// arriving is locked while a batch of the desired log is processed. Workers
	// pick tasks between two batches. Otherwise a worker with a state but
	// without its operation would send requests to compare what is about to be
	// written. And an operation before other applications' states would prune
	// objects that they list.
	arriving sync.RWMutex

	life    context.Context //nolint:containedctx // context of Run, for work that rows and events start
	workers sync.WaitGroup

	mu      sync.RWMutex
	apps    map[string]*app
	objects map[manifest.Key]*slot // objects that applications list or own
	listed  map[scope]bool
	broken  map[scope]error
	warned  map[schema.GroupVersionKind]string // the API server's warnings about versions
	wanted  []schema.GroupVersionKind
	begun   bool

	namespaces map[string]struct{}         // namespaces that existed when they were needed
	managed    map[string]map[*app]*nsMeta // what applications manage on namespaces, by name

	values *secretValues
}

// New makes an engine without state. Run sets Watches.
func New(c Config) *Engine {
	if c.Manager == "" {
		c.Manager = Manager
	}
	if c.Excluded == nil {
		c.Excluded = func(string, string) bool { return false }
	}
	if c.Clock == nil {
		c.Clock = lifecycle.System{}
	}
	if c.Offset == nil {
		c.Offset = func() time.Duration { return 0 }
	}
	if c.Metrics == nil {
		c.Metrics = uncounted{}
	}
	if c.Parallel <= 0 {
		c.Parallel = 32
	}
	if c.Poll <= 0 {
		c.Poll = 5 * time.Second
	}
	if c.Secrets == nil {
		c.Secrets = noSecrets{}
	}
	values := &secretValues{}
	c.Reports = redacted{c.Reports, values}
	c.Mapper = hubMapper{c.Mapper}
	e := &Engine{
		Config:  c,
		kube:    newKube(c),
		hashes:  diff.Comparer{Key: c.Secret.RecordKey()},
		plans:   make(chan struct{}, 8),
		tries:   make(chan struct{}, 4),
		lost:    c.Inventory.Cursor().Incarnation == "" && c.Secret.Cursor().Incarnation != "",
		present: newExistenceIndex(),
		wake:    make(chan struct{}, 1),
		apps:    map[string]*app{},
		objects: map[manifest.Key]*slot{},
		listed:  map[scope]bool{},
		broken:  map[scope]error{},
		warned:  map[schema.GroupVersionKind]string{},

		namespaces: map[string]struct{}{},
		managed:    map[string]map[*app]*nsMeta{},
		values:     values,
	}
	e.orphans = newOrphans(e)
	return e
}

// Orphans finds objects that no application manages.
func (e *Engine) Orphans() *Orphans { return e.orphans }

// Run starts with the inventory's content, works until ctx ends, waits for its
// workers and returns nil. Interrupted operations continue after the next
// start.
func (e *Engine) Run(ctx context.Context, w Watches) error {
	e.begin(ctx, w)
	collect := e.Clock.Now()
	ctx, done := lifecycle.Watch(ctx, "engine", loopLimit)
	defer done()
	for {
		lifecycle.Beat(ctx)
		served := e.Mapper.Changed()
		tick, stop := e.Clock.After(e.turns.wait(e.now(), time.Minute))
		select {
		case <-ctx.Done():
			stop()
			e.mu.Lock()
			e.begun = false
			e.mu.Unlock()
			e.workers.Wait()
			return nil
		case <-served:
			e.rescope(ctx)
		case <-e.wake:
			e.want()
		case <-tick:
		}
		stop()
		e.runDueWindows(ctx)
		if now := e.Clock.Now(); now.Sub(collect) >= time.Minute {
			collect = now
			e.Inventory.Expire(now)
			e.collect(ctx)
		}
	}
}

func (e *Engine) begin(ctx context.Context, w Watches) {
	e.mu.Lock()
	e.life, e.watches, e.begun = ctx, w, true
	e.mu.Unlock()
	for _, id := range e.Inventory.Owners() {
		e.app(id)
	}
	var all inventory.Changes
	for _, a := range e.Inventory.Apps() {
		all.States = append(all.States, a.ID)
	}
	for _, o := range e.Inventory.OpenOperations() {
		all.Operations = append(all.Operations, o.ID)
	}
	for _, o := range e.Inventory.Unacked() {
		e.Reports.Operation(o.Result)
	}
	e.Changed(ctx, all)
	e.want()
}

// Changed passes a batch of the desired log to the engine. It returns at once;
// operations start before it does.
func (e *Engine) Changed(ctx context.Context, c inventory.Changes) {
	for _, id := range c.Forgotten {
		e.forget(id)
	}
	e.arriving.Lock()
	defer e.arriving.Unlock()
	for _, id := range c.States {
		e.app(id).stateChanged(ctx)
	}
	for _, id := range c.Operations {
		o, ok := e.Inventory.Operation(id)
		switch {
		case !ok:
		case o.Open():
			e.app(o.App).enqueue(ctx, id)
		case o.Result != nil:
			e.Reports.Operation(o.Result) // the hub has sent it again: it has lost the result
		}
	}
	for _, id := range c.Terminated {
		if o, ok := e.Inventory.Operation(id); ok && o.Open() {
			e.app(o.App).terminate(ctx, o)
		}
	}
}

// Retain drops the applications that the desired log has no state of any more:
// a replay from the start has ended. Their objects stay unchanged.
func (e *Engine) Retain() {
	e.mu.RLock()
	var gone []string
	for id := range e.apps {
		if _, ok := e.Inventory.App(id); !ok {
			gone = append(gone, id)
		}
	}
	e.mu.RUnlock()
	for _, id := range gone {
		e.forget(id)
	}
}

// app finds an application or makes it.
func (e *Engine) app(id string) *app {
	e.mu.Lock()
	a, ok := e.apps[id]
	if ok {
		e.mu.Unlock()
		return a
	}
	a = newApp(e, id)
	a.mu.Lock() // nobody else has a reference before its records are processed
	defer a.mu.Unlock()
	e.apps[id] = a
	e.mu.Unlock()
	a.adoptAll()
	return a
}

// forget stops managing an application; its objects stay.
func (e *Engine) forget(id string) {
	e.mu.Lock()
	a, ok := e.apps[id]
	delete(e.apps, id)
	e.mu.Unlock()
	if !ok {
		return
	}
	e.Secret.Forget(id)
	a.close()
	e.values.forget(id)
	e.reconsiderKinds()
}

// scope is what one watch sees: a kind, in one namespace or, for an empty
// one, in the whole cluster.
type scope struct {
	gvk       schema.GroupVersionKind
	namespace string
}

// scopeOf is the watch that sees an object.
func (e *Engine) scopeOf(x *object) scope { return e.watched(x.gvk, x.key) }

// kindState reports whether the kind of an object was listed since the start,
// and why it is not watched now.
func (e *Engine) kindState(x *object) (listed bool, broken error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.stateOf(x)
}

// stateOf is kindState for callers that hold mu.
func (e *Engine) stateOf(x *object) (listed bool, broken error) {
	if err := e.Guard.mayRead(x.key, x.namespaced); err != nil {
		return false, err
	}
	s := e.scopeOf(x)
	return e.listed[s], e.broken[s]
}

// reconsiderKinds asks Run to reconsider which kinds are watched.
func (e *Engine) reconsiderKinds() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// want sets the kinds that the watcher watches.
func (e *Engine) want() {
	e.mu.Lock()
	set := map[schema.GroupVersionKind]struct{}{}
	e.each(func(x *object) { set[x.gvk] = struct{}{} })
	if len(e.managed) > 0 && len(e.Guard.Scope) == 0 {
		set[namespaceKind()] = struct{}{}
	}
	kinds := make([]schema.GroupVersionKind, 0, len(set))
	for gvk := range set {
		kinds = append(kinds, gvk)
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int { return compareText(a.String(), b.String()) })
	kinds = slices.DeleteFunc(kinds, func(k schema.GroupVersionKind) bool { return manifest.InHub(k.Group, k.Kind) })
	e.wantHub()
	same := slices.Equal(kinds, e.wanted)
	e.wanted = kinds
	w := e.watches
	e.mu.Unlock()
	if !same && w != nil {
		w.SetKinds(kinds)
	}
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// do runs work in the background until Run ends.
func (e *Engine) do(work func(ctx context.Context)) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if !e.begun {
		return false
	}
	ctx := e.life
	e.workers.Go(func() {
		_ = lifecycle.Safely(ctx, "engine", func(ctx context.Context) error { work(ctx); return nil })
	})
	return true
}

// runAfter runs work after a while, unless Run ends before.
func (e *Engine) runAfter(d time.Duration, work func(ctx context.Context)) {
	e.do(func(ctx context.Context) {
		if lifecycle.Sleep(ctx, e.Clock, d) == nil {
			work(ctx)
		}
	})
}

// rescope processes the states of applications again if some of their kinds
// were not served before.
func (e *Engine) rescope(ctx context.Context) {
	for _, a := range e.all() {
		a.mu.Lock()
		again := a.unserved
		a.mu.Unlock()
		if again {
			a.stateChanged(ctx)
		}
	}
}

func (e *Engine) all() []*app {
	e.mu.RLock()
	defer e.mu.RUnlock()
	out := make([]*app, 0, len(e.apps))
	for _, a := range e.apps {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b *app) int { return compareText(a.id, b.id) })
	return out
}

// collect deletes unused blobs.
func (e *Engine) collect(ctx context.Context) {
	lists := map[string][][]byte{}
	for _, a := range e.all() {
		a.mu.Lock()
		for _, s := range []*snapshot{a.target, a.accepted} {
			if s != nil && s.listed != "" {
				lists[s.listed] = s.digests()
			}
		}
		a.mu.Unlock()
	}
	if err := e.Inventory.Collect(lists).Wait(ctx); err != nil && ctx.Err() == nil {
		e.Log.WarnContext(ctx, "blobs not collected", logkey.Error, err)
	}
}
