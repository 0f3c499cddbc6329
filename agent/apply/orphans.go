package apply

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/agent/tracking"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/glob"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/manifest"
)

const (
	orphanedWarning = "OrphanedResourceWarning" // the type of a condition (CMPR-11)
	mostOrphans     = 500                       // listed for one application
	orphanScanPause = 300 * time.Millisecond    // between two scans of all of them
)

// Orphans finds objects in a cluster's namespaces that no application owns, if
// some project requests its orphaned resources. It stores only names. Informers
// that read only metadata call it.
type Orphans struct {
	e    *Engine
	wake chan struct{}

	mu     sync.Mutex
	found  map[string]map[manifest.Key]orphan // by namespace
	broken map[schema.GroupVersionKind]struct{}
	used   map[schema.GroupVersionKind]struct{} // of which some object was seen
}

type orphan struct {
	uid, version string
	created      int64
	owned        bool // by an application of another agent
}

func newOrphans(e *Engine) *Orphans {
	return &Orphans{
		e: e, wake: make(chan struct{}, 1),
		found: map[string]map[manifest.Key]orphan{}, broken: map[schema.GroupVersionKind]struct{}{}, used: map[schema.GroupVersionKind]struct{}{},
	}
}

// Run sets what is watched and reports to each application what its project
// requests, until ctx ends; then it returns nil.
func (s *Orphans) Run(ctx context.Context, w Watches) error {
	var wanted []schema.GroupVersionKind
	for {
		served := s.e.Mapper.Changed()
		if next := s.wants(); !slices.Equal(next, wanted) {
			wanted = next
			w.SetKinds(wanted)
			s.forgetUnwatched(wanted)
		}
		for _, a := range s.e.all() {
			a.orphaned(s)
		}
		if lifecycle.Sleep(ctx, s.e.Clock, orphanScanPause) != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-served:
		case <-s.wake:
		}
	}
}

// wants returns the kinds that must be watched; none if no project requests
// orphans.
func (s *Orphans) wants() []schema.GroupVersionKind {
	if !slices.ContainsFunc(s.e.all(), (*app).watchesOrphans) {
		return nil
	}
	kinds := slices.DeleteFunc(s.e.Mapper.Namespaced(), func(k schema.GroupVersionKind) bool {
		switch k.Kind {
		case "Event", "Endpoints", "EndpointSlice", "Lease", "PodMetrics", "ControllerRevision":
			return true // they are never applied
		}
		return s.e.Excluded(k.Group, k.Kind)
	})
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int { return compareText(a.String(), b.String()) })
	return kinds
}

// forgetUnwatched forgets what is not watched any more.
func (s *Orphans) forgetUnwatched(kinds []schema.GroupVersionKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for namespace, of := range s.found {
		maps.DeleteFunc(of, func(k manifest.Key, o orphan) bool { return !slices.Contains(kinds, kindOf(k, o.version)) })
		if len(of) == 0 {
			delete(s.found, namespace)
		}
	}
	maps.DeleteFunc(s.broken, func(k schema.GroupVersionKind, _ struct{}) bool { return !slices.Contains(kinds, k) })
}

// rescan schedules a new scan of everything.
func (s *Orphans) rescan() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// OnUpdate processes an object of which only the metadata is known.
func (s *Orphans) OnUpdate(_ context.Context, o *manifest.Object) {
	key := manifest.KeyOf(o)
	if key.Namespace == "" {
		return
	}
	if len(o.GetOwnerReferences()) > 0 || usual(o) {
		s.drop(key, string(o.GetUID()))
		return
	}
	next := orphan{uid: string(o.GetUID()), version: manifest.Version(o), created: o.GetCreationTimestamp().Unix()}
	marks := tracking.Of(o, s.e.tenantSettings().InstanceLabel)
	next.owned = slices.ContainsFunc(marks, func(m tracking.Mark) bool { return m.System != tracking.Own })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found[key.Namespace] == nil {
		s.found[key.Namespace] = map[manifest.Key]orphan{}
	}
	s.used[kindOf(key, next.version)] = struct{}{}
	if s.found[key.Namespace][key].uid != next.uid {
		s.rescan()
	}
	s.found[key.Namespace][key] = next
}

// usual reports whether every namespace has such an object by default.
func usual(o *manifest.Object) bool {
	if o.GetKind() == "Secret" && o.GetAnnotations()["kubernetes.io/service-account.name"] == "default" {
		return true
	}
	switch o.GetKind() + " " + o.GetName() {
	case "ServiceAccount default", "ConfigMap kube-root-ca.crt":
		return true
	case "Service kubernetes":
		return o.GetNamespace() == "default"
	}
	return false
}

// OnDelete processes the deletion of an object.
func (s *Orphans) OnDelete(_ context.Context, o *manifest.Object) {
	s.drop(manifest.KeyOf(o), string(o.GetUID()))
}

func (s *Orphans) drop(key manifest.Key, uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held, ok := s.found[key.Namespace][key]; ok && held.uid == uid {
		delete(s.found[key.Namespace], key)
		s.rescan()
	}
}

// OnReplace processes a complete list.
func (s *Orphans) OnReplace(_ context.Context, gvk schema.GroupVersionKind, namespace, _ string, _ bool, list map[string]struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.used[gvk]; !ok {
		return // nothing can be stale; most of thousands of kinds are like this
	}
	for ns, of := range s.found {
		if namespace != "" && ns != namespace {
			continue
		}
		maps.DeleteFunc(of, func(k manifest.Key, o orphan) bool {
			_, there := list[o.uid]
			return kindOf(k, o.version) == gvk && !there
		})
	}
	s.rescan()
}

// Broken records that a kind cannot be watched, or can be again. A kind that is
// left out is not shown, and not named as unread either.
func (s *Orphans) Broken(_ context.Context, gvk schema.GroupVersionKind, namespace string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		delete(s.broken, gvk)
	case leftOut(err):
		delete(s.broken, gvk)
		for ns, of := range s.found {
			maps.DeleteFunc(of, func(k manifest.Key, o orphan) bool {
				return (namespace == "" || ns == namespace) && kindOf(k, o.version) == gvk
			})
		}
	default:
		s.broken[gvk] = struct{}{}
	}
	s.rescan()
}

// leftOut reports whether a kind is not watched because the agent may not, and
// the tenant's settings say to leave such kinds out.
func leftOut(err error) bool {
	var is interface{ LeftOut() }
	return errors.As(err, &is)
}

// Warned does nothing: these objects are not desired.
func (s *Orphans) Warned(context.Context, schema.GroupVersionKind, string) {}

// Left changes nothing: forgetUnwatched removes the objects.
func (s *Orphans) Left(context.Context, schema.GroupVersionKind) {}

// in returns the objects of a namespace, and the kinds that cannot be watched.
func (s *Orphans) in(namespace string) (map[manifest.Key]orphan, []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var blind []string
	for k := range s.broken {
		blind = append(blind, k.Kind)
	}
	slices.Sort(blind)
	return maps.Clone(s.found[namespace]), blind
}

func (a *app) watchesOrphans() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state.GetOrphans() != nil && a.state.GetNamespace() != "" && !a.closed
}

// orphaned finds the objects of the application's namespace that no application
// manages, and reports new ones.
func (a *app) orphaned(s *Orphans) {
	a.mu.Lock()
	defer a.mu.Unlock()
	found, total, blind := a.findOrphans(s)
	for key, r := range a.orphans {
		if o, still := found[key]; still && o.uid == r.GetUid() {
			continue
		}
		delete(a.orphans, key)
		if a.objects[key] == nil {
			a.e.Reports.Removed(r)
		}
	}
	for key, o := range found {
		if a.orphans[key] != nil {
			continue
		}
		r := &linkv1.Resource{
			AppId: a.id, Uid: o.uid, Group: key.Group, Version: o.version, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name,
			CreatedUnix: o.created, Orphan: true,
		}
		a.orphans[key] = r
		a.e.Reports.Resource(r)
	}
	if text := a.orphanText(total, blind); text != a.orphanNote {
		a.orphanNote = text
		a.scheduleReport()
	}
}

// findOrphans returns the first mostOrphans orphans, their number, and the
// kinds that cannot be watched. The caller holds mu.
func (a *app) findOrphans(s *Orphans) (found map[manifest.Key]orphan, total int, blind []string) {
	rules := a.state.GetOrphans()
	if rules == nil || a.closed || a.deleting {
		return nil, 0, nil
	}
	found = map[manifest.Key]orphan{}
	limits := a.state.GetPolicy().GetLimits()
	all, blind := s.in(a.state.GetNamespace())
	for _, key := range slices.SortedFunc(maps.Keys(all), manifest.Key.Compare) {
		if a.e.isTracked(key) || all[key].owned || a.e.mine(key) || ignoresOrphan(rules.GetIgnore(), key) || permit(limits, a.state.GetProject(), key, true) != nil {
			continue
		}
		if total++; total <= mostOrphans {
			found[key] = all[key]
		}
	}
	return found, total, blind
}

// orphanText is the message of the condition; empty: there is none.
func (a *app) orphanText(total int, blind []string) string {
	if total == 0 || !a.state.GetOrphans().GetWarn() {
		return ""
	}
	var names []string
	for _, key := range slices.SortedFunc(maps.Keys(a.orphans), manifest.Key.Compare) {
		if len(names) == manyNotes {
			names = append(names, "…")
			break
		}
		names = append(names, key.Kind+" "+key.Name)
	}
	text := "namespace " + a.state.GetNamespace() + " has " + strconv.Itoa(total) + " orphaned resources, which no application manages: " + strings.Join(names, ", ")
	if total == 1 {
		text = "namespace " + a.state.GetNamespace() + " has one orphaned resource, which no application manages: " + names[0]
	}
	if len(blind) > 0 {
		text += "; the agent may not read: " + strings.Join(blind, ", ")
	}
	return text
}

// mine reports whether an object is the agent's own.
func (e *Engine) mine(key manifest.Key) bool {
	return key.Group == "" && key.Kind == "Secret" && key.Namespace == e.Guard.Home && key.Name == "capstan-agent-state"
}

func ignoresOrphan(rules []*linkv1.OrphanRule, key manifest.Key) bool {
	like := func(pattern, s string) bool { return pattern == "" || glob.Match(pattern, s) }
	return slices.ContainsFunc(rules, func(r *linkv1.OrphanRule) bool {
		return glob.Match(r.GetGroup(), key.Group) && like(r.GetKind(), key.Kind) && like(r.GetName(), key.Name)
	})
}
