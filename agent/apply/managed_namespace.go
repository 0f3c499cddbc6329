package apply

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// This file manages the labels and annotations that an application sets on its
// destination namespace (SYNC-27): it compares them with live state, and
// restores them with self-heal. Several applications may manage one namespace.
// Each adds its keys; for a key that two of them set differently, the
// application whose name sorts first wins. A manifest of the namespace in any
// of them has precedence over all others.

// A nsMeta is what one application manages on its destination's namespace. It
// is immutable.
type nsMeta struct {
	app         string // name of the application; empty: its manifest of the namespace
	title       string // of that application, for people; empty: app
	namespace   string
	labels      map[string]string
	annotations map[string]string
}

// part returns the labels or the annotations.
func (m *nsMeta) part(labels bool) map[string]string {
	if labels {
		return m.labels
	}
	return m.annotations
}

// managedNamespace returns what a state manages; nil: nothing, or the manifests
// contain the namespace, which takes precedence.
func managedNamespace(state *linkv1.AppState, target *snapshot) *nsMeta {
	p, name := state.GetPolicy(), state.GetNamespace()
	if name == "" || len(p.GetNamespaceLabels())+len(p.GetNamespaceAnnotations()) == 0 || target.get(namespaceKey(name)) != nil {
		return nil
	}
	return &nsMeta{app: state.GetName(), namespace: name, labels: p.GetNamespaceLabels(), annotations: p.GetNamespaceAnnotations()}
}

func namespaceKey(name string) manifest.Key { return manifest.Key{Kind: "Namespace", Name: name} }

func namespaceKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
}

// A nsLive is the last seen state of a namespace whose metadata an application
// manages.
type nsLive struct {
	known    bool
	found    bool
	deleting bool
	seen     live // only its identity and version
	problem  string
	fields   []string // managed fields that differ in the live namespace
	taken    []string // sentences about keys that another application sets differently
	writer   string   // manager that wrote last, except our own

	inflight  bool
	retries   int
	notBefore time.Time
	timed     time.Time
	fights    fights
}

// rivals returns what the other applications of this cluster manage on a
// namespace, in order of their names, first that of manifests. live may be nil.
func (e *Engine) rivals(a *app, namespace string, live *manifest.Object) []*nsMeta {
	var out []*nsMeta
	if owner := e.owner(namespaceKey(namespace)); live != nil && owner != "" && owner != a.id {
		out = append(out, &nsMeta{
			title: e.titleOf(owner), namespace: namespace,
			labels:      subset(live.GetLabels(), writtenKeys(live, e.Manager, "f:labels")),
			annotations: subset(live.GetAnnotations(), writtenKeys(live, e.Manager, "f:annotations")),
		})
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	for b, m := range e.managed[namespace] {
		if b != a {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(x, y *nsMeta) int { return compareText(x.app, y.app) })
	return out
}

// subset returns some of the entries of a map.
func subset(all map[string]string, keys []string) map[string]string {
	out := make(map[string]string, len(keys))
	for _, key := range keys {
		if value, there := all[key]; there {
			out[key] = value
		}
	}
	return out
}

// manages records what an application manages; nil: nothing. It reports whether
// that has changed. The caller holds the application's mu.
func (e *Engine) manages(a *app, m *nsMeta) (changed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	was := a.nsMeta
	if was != nil && (m == nil || was.namespace != m.namespace) {
		delete(e.managed[was.namespace], a)
		if len(e.managed[was.namespace]) == 0 {
			delete(e.managed, was.namespace)
		}
	}
	if m != nil {
		if e.managed[m.namespace] == nil {
			e.managed[m.namespace] = map[*app]*nsMeta{}
		}
		e.managed[m.namespace][a] = m
	}
	a.nsMeta = m
	if was == nil || m == nil {
		return was != m
	}
	return was.namespace != m.namespace || !maps.Equal(was.labels, m.labels) || !maps.Equal(was.annotations, m.annotations)
}

// managersOf returns the applications that manage a namespace.
func (e *Engine) managersOf(namespace string) []*app {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return slices.Collect(maps.Keys(e.managed[namespace]))
}

// mine returns the keys that no application with an earlier name sets
// differently, and sentences about the others.
func (m *nsMeta) mine(labels bool, rivals []*nsMeta) (own map[string]string, taken []string) {
	own = maps.Clone(m.part(labels))
	word := map[bool]string{true: "label", false: "annotation"}[labels]
	for _, key := range slices.Sorted(maps.Keys(own)) {
		for _, r := range rivals {
			other, there := r.part(labels)[key]
			if there && other != own[key] && r.app < m.app {
				taken = append(taken, "namespace "+m.namespace+": the "+word+" "+key+" is set otherwise by application "+cmp.Or(r.title, r.app)+" of this cluster, which counts")
				delete(own, key)
				break
			}
		}
	}
	return own, taken
}

// desiredOf returns what to write: the application's own keys, and unchanged
// those that were written before for other applications.
func (m *nsMeta) desiredOf(live *manifest.Object, labels bool, rivals []*nsMeta, manager string) map[string]string {
	out, _ := m.mine(labels, rivals)
	if live == nil {
		return out
	}
	there, section := live.GetAnnotations(), "f:annotations"
	if labels {
		there, section = live.GetLabels(), "f:labels"
	}
	written := writtenKeys(live, manager, section)
	for _, r := range rivals {
		for key := range r.part(labels) {
			value, is := there[key]
			if _, own := out[key]; is && !own && slices.Contains(written, key) {
				if out == nil {
					out = map[string]string{}
				}
				out[key] = value
			}
		}
	}
	return out
}

// writtenKeys returns the keys of labels or annotations that a field manager has
// applied.
func writtenKeys(o *manifest.Object, manager, section string) (out []string) {
	meta, _ := o.Object["metadata"].(map[string]any)
	entries, _ := meta["managedFields"].([]any)
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		if entry["manager"] != manager || entry["operation"] != "Apply" {
			continue
		}
		fields, _ := entry["fieldsV1"].(map[string]any)
		of, _ := fields["f:metadata"].(map[string]any)
		keys, _ := of[section].(map[string]any)
		for key := range keys {
			if name, is := strings.CutPrefix(key, "f:"); is {
				out = append(out, name)
			}
		}
	}
	return out
}

// lacks returns the managed fields that differ in a live namespace.
func (m *nsMeta) lacks(live *manifest.Object, rivals []*nsMeta) (fields, taken []string) {
	for _, labels := range [...]bool{true, false} {
		there, path := live.GetAnnotations(), "metadata.annotations."
		if labels {
			there, path = live.GetLabels(), "metadata.labels."
		}
		own, otherwise := m.mine(labels, rivals)
		taken = append(taken, otherwise...)
		for _, key := range slices.Sorted(maps.Keys(own)) {
			if is, found := there[key]; !found || is != own[key] {
				fields = append(fields, path+key)
			}
		}
	}
	return fields, taken
}

// manage processes what the newest state manages. The caller holds mu.
func (a *app) manage() {
	m := managedNamespace(a.state, a.target)
	if a.deleting || a.closed {
		m = nil
	}
	if !a.e.manages(a, m) {
		return
	}
	a.nsLive = nsLive{fights: a.nsLive.fights}
	if m != nil {
		for _, b := range a.e.managersOf(m.namespace) {
			if b != a {
				a.e.do(func(context.Context) { b.reread() })
			}
		}
	}
}

// reread compares the namespace again, by a request.
func (a *app) reread() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.nsMeta == nil || a.closed {
		return
	}
	a.nsLive.known = false
	a.stale = true
	a.start()
}

// nsUnsure reports whether the state of the namespace can only be found by a
// request. The caller holds mu.
func (a *app) nsUnsure() bool {
	return a.nsMeta != nil && !a.nsLive.known && !a.nsLive.inflight && a.running == nil && len(a.queue) == 0
}

// compareNamespace reads the namespace if its state is unknown.
func (a *app) compareNamespace(ctx context.Context) {
	a.mu.Lock()
	m, unsure := a.nsMeta, a.nsUnsure()
	a.mu.Unlock()
	if !unsure {
		return
	}
	select {
	case a.e.tries <- struct{}{}:
	case <-ctx.Done():
		return
	}
	live, err := a.kube().get(ctx, namespacePlace(m.namespace))
	<-a.e.tries
	if ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.nsMeta != m || a.nsLive.known { // an event has arrived in between
		a.stale = a.stale || a.nsUnsure()
		return
	}
	if err != nil {
		a.nsLive.known, a.nsLive.fields, a.nsLive.taken = true, nil, nil
		a.nsLive.problem = "labels and annotations of namespace " + m.namespace + " cannot be compared: " + sentence(explain(err, namespaceKey(m.namespace), "read"))
		if kind := fault.KindOf(err); kind != fault.Denied {
			a.e.runAfter(5*comparePause, func(context.Context) { a.reread() })
		}
		a.scheduleReport()
		return
	}
	a.nsObserved(ctx, live)
}

// nsObserved compares the live namespace; nil: it does not exist. The caller
// holds mu.
func (a *app) nsObserved(ctx context.Context, o *manifest.Object) {
	l := &a.nsLive
	switch {
	case a.nsMeta == nil:
		return
	case o == nil:
		l.known, l.found, l.deleting, l.seen, l.problem = true, false, false, live{}, ""
		l.fields, l.taken = nil, nil
	default:
		l.known, l.found, l.deleting, l.problem = true, true, o.GetDeletionTimestamp() != nil, ""
		l.seen = live{uid: string(o.GetUID()), version: o.GetResourceVersion()}
		l.fields, l.taken = a.nsMeta.lacks(o, a.e.rivals(a, a.nsMeta.namespace, o))
		l.writer, _ = editor(o, a.e.Manager+namespaceManager)
	}
	a.nsHeal(ctx)
	a.scheduleReport()
}

// nsDetail describes the namespace's difference; empty: none. The caller holds
// mu.
func (a *app) nsDetail() string {
	l := &a.nsLive
	switch {
	case a.nsMeta == nil || !l.known || l.problem != "":
		return ""
	case !l.found:
		return "namespace " + a.nsMeta.namespace + ": missing"
	case len(l.fields) > 0:
		return "namespace " + a.nsMeta.namespace + ": " + differs(l.fields)
	}
	return strings.Join(l.taken, "; ")
}

// nsWarnings returns the warnings about the namespace. The caller holds mu.
func (a *app) nsWarnings() []string {
	if a.nsMeta == nil {
		return nil
	}
	var out []string
	if l := &a.nsLive; l.problem != "" {
		out = append(out, l.problem)
	}
	if detail := a.nsDetail(); detail != "" {
		out = append(out, detail)
	}
	return out
}

// nsHealable reports whether the namespace differs and may be healed. The
// caller holds mu.
func (a *app) nsHealable() bool {
	l := &a.nsLive
	return a.nsMeta != nil && a.enforced() && l.known && l.problem == "" && !l.inflight && !l.deleting && (!l.found || len(l.fields) > 0) &&
		a.e.Guard.enters(namespaceKey(a.nsMeta.namespace), a.nsMeta.namespace) == nil
}

// nsHeal heals the namespace, if the policy says so and it differs. The caller
// holds mu.
func (a *app) nsHeal(_ context.Context) {
	if !a.nsHealable() || !a.heals() {
		return
	}
	l, m, now := &a.nsLive, a.nsMeta, a.e.Clock.Now()
	wait := l.notBefore.Sub(now)
	if wait <= 0 && l.retries == 0 {
		wait = a.nsBackoff(now)
	}
	if wait > 0 {
		a.nsLater(now.Add(wait), wait)
		return
	}
	l.inflight = true
	if !a.e.do(func(ctx context.Context) { a.nsMend(ctx, m) }) {
		l.inflight = false
	}
}

// nsBackoff is the delay before the next heal of a namespace that is changed
// again and again. The caller holds mu.
func (a *app) nsBackoff(now time.Time) time.Duration {
	l, key := &a.nsLive, namespaceKey(a.nsMeta.namespace)
	if l.found && person(l.writer) {
		return 0
	}
	who, what := l.writer, strings.Join(l.fields, ",")
	if !l.found {
		who, what = "", "deleted"
	}
	if l.fights == nil {
		l.fights = fights{}
	}
	wait, fightState := l.fights.backoff(who+"\x00"+what, now)
	a.fought(key, who, what, fightState)
	return wait
}

// nsLater heals the namespace after a delay, if still needed. The caller holds
// mu.
func (a *app) nsLater(at time.Time, after time.Duration) {
	l := &a.nsLive
	if !l.timed.IsZero() && !at.Before(l.timed) {
		return
	}
	l.timed = at
	a.e.runAfter(after, func(ctx context.Context) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.nsLive.timed == at {
			a.nsLive.timed = time.Time{}
			a.nsHeal(ctx)
		}
	})
}

// nsMend heals the namespace outside of an operation.
func (a *app) nsMend(ctx context.Context, m *nsMeta) {
	_, err := a.ensureNamespace(ctx, m.namespace, m.labels, m.annotations)
	a.e.Metrics.Object("heal", outcome(err))
	a.mu.Lock()
	defer a.mu.Unlock()
	l := &a.nsLive
	l.inflight = false
	if ctx.Err() != nil || a.closed {
		return
	}
	if err == nil {
		l.retries, l.notBefore = 0, time.Time{}
		a.unwarn("namespace")
		a.nsHeal(ctx) // events that arrived in between were deferred
		a.e.Log.InfoContext(ctx, "namespace mended", logkey.Application, a.id, logkey.Namespace, m.namespace)
		return
	}
	wait := min(retryFirst<<min(l.retries, 10), retryMost)
	l.retries++
	l.notBefore = a.e.Clock.Now().Add(wait)
	a.e.Log.WarnContext(ctx, "namespace not mended", logkey.Application, a.id, logkey.Namespace, m.namespace, logkey.Wait, wait, logkey.Error, err)
	a.warn("namespace", sentence(err))
	a.nsLater(l.notBefore, wait)
}

// nsEvent processes a namespace of a watch; gone means that it was deleted.
func (e *Engine) nsEvent(ctx context.Context, o *manifest.Object, gone bool) {
	for _, a := range e.managersOf(o.GetName()) {
		a.mu.Lock()
		l := &a.nsLive
		switch same := l.seen.uid == string(o.GetUID()); {
		case a.nsMeta == nil || a.nsMeta.namespace != o.GetName():
		case gone && (same || l.seen.uid == ""):
			e.namespaceSeen(o.GetName(), false)
			a.nsObserved(ctx, nil)
		case !gone && !l.seen.older(o):
			a.nsObserved(ctx, o)
		}
		a.mu.Unlock()
	}
}

// nsListed processes a complete list of namespaces: those that are missing in
// it are gone.
func (e *Engine) nsListed(list map[string]struct{}) {
	e.mu.RLock()
	var gone []*app
	for name, of := range e.managed {
		if _, there := list["/"+name]; !there {
			gone = slices.AppendSeq(gone, maps.Keys(of))
		}
	}
	e.mu.RUnlock()
	for _, a := range gone {
		a.reread() // it may have been created since
	}
}
