package watch

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// maxDepth is how many levels below a managed object children are followed.
const maxDepth = 8

// A Listener is notified about the children of managed objects.
type Listener interface {
	// Child reports a child that is new or has changed.
	Child(app string, r Record)
	// ChildGone reports a child that was deleted, or that does not belong to
	// the application any more.
	ChildGone(app string, r Record)
}

// A Tree records which objects managed objects own, directly or through others.
// It stores a small record of each.
type Tree struct {
	health  func(*manifest.Object) (state, message string)
	listens Listener

	mu       sync.Mutex
	excluded func(group, kind string) bool  // kinds that are not shown; nil: none
	labels   []string                       // that are shown
	nodes    map[string]*node               // by uid
	children map[string]map[string]struct{} // uids by the uid of the owner
	roots    map[string]string              // application by uid of a managed object
}

type node struct {
	Record
	app string // application that it belongs to; empty: none
}

// NewTree makes an empty tree. Health computes the health of one object; an
// empty state means that its kind has no rule.
func NewTree(health func(*manifest.Object) (state, message string), listens Listener) *Tree {
	return &Tree{
		health: health, listens: listens,
		nodes: map[string]*node{}, children: map[string]map[string]struct{}{}, roots: map[string]string{},
	}
}

// Exclude sets which kinds are not shown, and drops their records.
func (t *Tree) Exclude(excluded func(group, kind string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.excluded = excluded
	for _, n := range t.nodes {
		if t.excludes(n.Group, n.Kind) {
			t.drop(n)
		}
	}
}

// Label sets which labels are shown of children seen from now on, and reports
// whether these have changed.
func (t *Tree) Label(labels []string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := !slices.Equal(t.labels, labels)
	t.labels = labels
	return changed
}

// shown returns the labels that are shown of children.
func (t *Tree) shown() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.labels
}

// excludes is for callers that hold mu.
func (t *Tree) excludes(group, kind string) bool { return t.excluded != nil && t.excluded(group, kind) }

// childrenOf returns the kinds that objects of a kind own and that are shown.
func (t *Tree) childrenOf(owner schema.GroupKind) []schema.GroupVersionKind {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(childrenOf(owner), func(k schema.GroupVersionKind) bool { return t.excludes(k.Group, k.Kind) })
}

// Root records that an application manages an object: the objects that it owns
// belong to that application.
func (t *Tree) Root(uid, app string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if uid == "" || t.roots[uid] == app {
		return
	}
	t.roots[uid] = app
	if n, ok := t.nodes[uid]; ok {
		t.move(n, "", 0) // a managed object is not a child
	}
	t.spread(uid, app, 0)
}

// Unroot records that an object is not managed any more.
func (t *Tree) Unroot(uid string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.roots[uid]; !ok {
		return
	}
	delete(t.roots, uid)
	t.spread(uid, "", 0)
	if n, ok := t.nodes[uid]; ok {
		t.move(n, t.appOf(n.Parent), 0)
	}
}

// Has reports whether a child of that name belongs to an application.
func (t *Tree) Has(app, group, kind, namespace, name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.uid(app, group, kind, namespace, name) != ""
}

// Pods returns the pods below an object of an application, by name; below all of
// its objects for an empty uid.
func (t *Tree) Pods(app, uid string) []Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Record
	for _, n := range t.nodes {
		if n.app == app && n.Kind == pods.Kind && n.Group == pods.Group && (uid == "" || t.below(n, uid)) {
			out = append(out, n.Record)
		}
	}
	slices.SortFunc(out, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// UID is that of a child of an application; empty: there is none of that name.
func (t *Tree) UID(app, group, kind, namespace, name string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.uid(app, group, kind, namespace, name)
}

// uid is for callers that hold mu.
func (t *Tree) uid(app, group, kind, namespace, name string) string {
	for _, n := range t.nodes {
		if n.Name == name && n.app == app && n.Kind == kind && n.Group == group && n.Namespace == namespace {
			return n.UID
		}
	}
	return ""
}

// below reports whether a record is of an object or of something that it owns;
// mu is held.
func (t *Tree) below(n *node, uid string) bool {
	for range maxDepth {
		if n.UID == uid || n.Parent == uid {
			return true
		}
		if n = t.nodes[n.Parent]; n == nil {
			return false
		}
	}
	return false
}

// spread moves everything below an object to an application.
func (t *Tree) spread(uid, app string, depth int) {
	if depth > maxDepth {
		return
	}
	for child := range t.children[uid] {
		if n, ok := t.nodes[child]; ok {
			t.move(n, app, depth+1)
		}
	}
}

func (t *Tree) move(n *node, app string, depth int) {
	if _, root := t.roots[n.UID]; root {
		app = ""
	}
	if n.app == app {
		return
	}
	if n.app != "" {
		t.listens.ChildGone(n.app, n.Record)
	}
	n.app = app
	if app != "" {
		t.listens.Child(app, n.Record)
	}
	t.spread(n.UID, app, depth)
}

// appOf is the application of an owner.
func (t *Tree) appOf(uid string) string {
	if app, ok := t.roots[uid]; ok {
		return app
	}
	if n, ok := t.nodes[uid]; ok {
		return n.app
	}
	return ""
}

// onUpdate processes an object that may be a child.
func (t *Tree) onUpdate(_ context.Context, o *manifest.Object) {
	if !isChildKind(o.GroupVersionKind()) {
		return
	}
	parent := ownerOf(o)
	uid := string(o.GetUID())
	if parent == "" {
		t.onDelete(context.Background(), uid)
		return
	}
	r := reduce(o, t.health, t.shown())
	r.Parent = parent
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.excludes(r.Group, r.Kind) {
		return // seen by an ending watch, or as a managed object
	}
	n, known := t.nodes[uid]
	if known && n.Parent == parent {
		if n.Record.equal(r) {
			return
		}
		n.Record = r
		if n.app != "" {
			t.listens.Child(n.app, r)
		}
		return
	}
	if known {
		t.drop(n)
	}
	n = &node{Record: r}
	t.nodes[uid] = n
	if t.children[parent] == nil {
		t.children[parent] = map[string]struct{}{}
	}
	t.children[parent][uid] = struct{}{}
	t.move(n, t.appOf(parent), 0)
}

func (t *Tree) onDelete(_ context.Context, uid string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n, ok := t.nodes[uid]; ok {
		t.drop(n)
	}
}

func (t *Tree) drop(n *node) {
	t.move(n, "", 0)
	delete(t.nodes, n.UID)
	delete(t.children[n.Parent], n.UID)
	if len(t.children[n.Parent]) == 0 {
		delete(t.children, n.Parent)
	}
}

// listed drops the children of a kind that are missing in a complete list: of
// one namespace, or of all for an empty one.
func (t *Tree) listed(_ context.Context, gvk schema.GroupVersionKind, namespace string, uids map[string]struct{}) {
	if !isChildKind(gvk) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var stale []*node
	for uid, n := range t.nodes {
		if _, ok := uids[uid]; !ok && n.Kind == gvk.Kind && n.Group == gvk.Group && (namespace == "" || n.Namespace == namespace) {
			stale = append(stale, n)
		}
	}
	for _, n := range stale {
		t.drop(n)
	}
}

// ownerOf is the uid of the object that an object belongs to: its controller,
// else its first owner.
func ownerOf(o *manifest.Object) string {
	meta, _ := o.Object["metadata"].(map[string]any)
	owners, _ := meta["ownerReferences"].([]any)
	first := ""
	for _, e := range owners {
		ref, _ := e.(map[string]any)
		uid, _ := ref["uid"].(string)
		if controller, _ := ref["controller"].(bool); controller {
			return uid
		}
		if first == "" {
			first = uid
		}
	}
	return first
}

func isChildKind(gvk schema.GroupVersionKind) bool {
	return slices.Contains(childKinds(), gvk)
}

// childKinds are the kinds of children that are shown.
func childKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{pods, replicaSets, jobs, endpointSlices, revisions, claims}
}

//nolint:gochecknoglobals // names of kinds, never changed
var (
	pods           = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	replicaSets    = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}
	jobs           = schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
	endpointSlices = schema.GroupVersionKind{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"}
	revisions      = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ControllerRevision"}
	claims         = schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"}
)

// childrenOf are the kinds that objects of a kind can own, directly or
// through others. Only these are watched for it.
func childrenOf(owner schema.GroupKind) []schema.GroupVersionKind {
	switch owner {
	case schema.GroupKind{Group: "apps", Kind: "Deployment"}:
		return []schema.GroupVersionKind{replicaSets, pods}
	case schema.GroupKind{Group: "apps", Kind: "StatefulSet"}:
		return []schema.GroupVersionKind{pods, revisions, claims}
	case schema.GroupKind{Group: "apps", Kind: "DaemonSet"}:
		return []schema.GroupVersionKind{pods, revisions}
	case schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}, schema.GroupKind{Group: "batch", Kind: "Job"}, schema.GroupKind{Kind: "ReplicationController"}:
		return []schema.GroupVersionKind{pods}
	case schema.GroupKind{Group: "batch", Kind: "CronJob"}:
		return []schema.GroupVersionKind{jobs, pods}
	case schema.GroupKind{Kind: "Service"}:
		return []schema.GroupVersionKind{endpointSlices}
	}
	return nil
}
