package apply

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/agent/secrets"
	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// A LiveView is one managed object: desired, live, and last applied. Nothing in
// it is masked. Objects may be nil.
type LiveView struct {
	Key                    manifest.Key
	Version                string
	Sync, Detail           string
	Fields                 []string
	Desired, Live, Applied *manifest.Object
	Normalized             *manifest.Object // of Live, the fields that the other two contain
	Predicted              *manifest.Object // the result of an apply; nil: not requested, or it would be refused
	Problem                string           // why an apply would be refused

	target, applied *desired
	leaves          []secrets.Leaf // resolved fields of Desired
	unresolved      error          // why Desired has references instead
}

// Manages reports whether an object is one that the application manages.
func (e *Engine) Manages(app string, key manifest.Key) bool {
	first, more := e.viewsOf(key)
	return first != nil && (first.app.id == app || slices.ContainsFunc(more, func(x *object) bool { return x.app.id == app }))
}

// Inspect returns the managed objects of an application that match pick, and of
// them only those that differ unless all is set. Live is the state of the
// watch; no request is sent.
func (e *Engine) Inspect(ctx context.Context, id string, all bool, pick func(manifest.Key) bool) ([]LiveView, error) {
	e.mu.RLock()
	a := e.apps[id]
	e.mu.RUnlock()
	if a == nil {
		return nil, fault.New(fault.Missing, "the agent does not have this application")
	}
	views := a.liveViews(all, pick)
	for i := range views {
		s := &views[i]
		var err error
		if s.target != nil {
			if err = a.viewDesired(ctx, s); err != nil {
				return nil, err
			}
		}
		if s.applied != nil {
			if s.Applied, err = a.manifest(ctx, s.applied); err != nil {
				s.Applied = nil // the body of an old apply may be deleted; the rest is still useful
			}
		}
		if s.Live != nil {
			s.Normalized = diff.Reduce(s.Live, s.Desired, s.Applied)
		}
	}
	return views, nil
}

func (a *app) liveViews(all bool, pick func(manifest.Key) bool) []LiveView {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []LiveView
	for _, key := range a.keys() {
		x := a.objects[key]
		if x.hook != "" || !pick(key) {
			continue
		}
		s := LiveView{Key: key, Version: x.gvk.Version, target: x.target}
		s.Sync, s.Detail = x.sync()
		if s.Sync == synced && !all {
			continue
		}
		switch {
		case x.current(x.target):
			s.Fields = x.comparison.Fields
		case x.expects(x.target):
			s.Fields = x.expected.fields
		}
		if live := x.live.read(); live != nil {
			s.Live = &manifest.Object{Object: desiredFields(live.Object)}
		}
		if x.record != nil {
			s.applied = &desired{key: key, gvk: x.gvk, digest: x.record.Owned.Digest}
		}
		out = append(out, s)
	}
	return out
}

// mostPredictions is the limit of dry runs per request.
const mostPredictions = 200

// Predict adds the result of a dry run of each object that differs (DIFF-03).
// Nothing is written.
func (e *Engine) Predict(ctx context.Context, id string, views []LiveView) error {
	e.mu.RLock()
	a := e.apps[id]
	e.mu.RUnlock()
	if a == nil {
		return fault.New(fault.Missing, "the agent does not have this application")
	}
	asked := 0
	for i := range views {
		s := &views[i]
		if s.target == nil || s.Sync == synced {
			continue
		}
		if asked++; asked > mostPredictions {
			s.Problem = "not asked: more objects differ than are tried out at once; ask for this one alone"
			continue
		}
		out, err := a.predict(ctx, s)
		if err != nil {
			s.Problem = sentence(err)
			continue
		}
		s.Predicted = &manifest.Object{Object: desiredFields(out.Object)}
	}
	return nil
}

// predict dry-runs one desired object.
func (a *app) predict(ctx context.Context, s *LiveView) (*manifest.Object, error) {
	select {
	case a.e.tries <- struct{}{}:
	case <-ctx.Done():
		return nil, fault.New(fault.Offline, "there was no time for its dry run")
	}
	defer func() { <-a.e.tries }()
	if s.unresolved != nil {
		return nil, s.unresolved
	}
	try := &sending{app: a, key: s.Key, body: s.Desired, leaves: s.leaves, options: a.options(s.Desired), dryRun: true}
	a.mu.Lock()
	x := a.objects[s.Key]
	try.ignore, try.problem = a.ignore, a.permits(s.Key, s.target.namespaced)
	if x != nil && x.record != nil {
		try.applied, try.had, try.merged = x.record.Owned.Digest, true, x.record.Merged
	}
	a.mu.Unlock()
	out, err := a.send(ctx, try)
	if err != nil {
		return nil, try.explain(err, "dry-run")
	}
	return out, nil
}

// manifest reads a desired object in the form in which it is applied.
func (a *app) manifest(ctx context.Context, d *desired) (*manifest.Object, error) {
	o, err := a.e.body(ctx, d.digest)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.prepare(o, d.key)
	return o, nil
}

// Read returns one live object of an application, without its managedFields. The
// error is fault.Missing if it does not exist.
func (e *Engine) Read(ctx context.Context, app string, gvk schema.GroupVersionKind, namespace, name string) (*manifest.Object, error) {
	key := manifest.Key{Group: gvk.Group, Kind: gvk.Kind, Namespace: namespace, Name: name}
	gvr, _, err := e.reach(ctx, gvk)
	if err != nil {
		return nil, explain(err, key, "find")
	}
	var live *manifest.Object
	if x, _ := e.viewsOf(key); inHub(key) && x != nil {
		live, err = x.app.get(ctx, endpoint{}, key)
	} else if !inHub(key) {
		e.mu.RLock()
		a := e.apps[app]
		e.mu.RUnlock()
		if a == nil {
			return nil, fault.New(fault.Missing, "the agent does not have this application")
		}
		live, err = a.kube().get(ctx, endpoint{resource: gvr, namespace: namespace, name: name})
	}
	if err != nil {
		return nil, explain(err, key, "read")
	}
	if live == nil {
		return nil, fault.With(fault.New(fault.Missing, "it is not in the cluster"), key.Describe(), "")
	}
	return &manifest.Object{Object: withoutFields(live.Object)}, nil
}

// ActsAs is the user as whom requests for an application are sent; empty: the
// agent itself.
func (e *Engine) ActsAs(id string) (string, error) {
	a := e.known(id)
	if a == nil {
		return "", fault.New(fault.Missing, "the agent does not have this application")
	}
	return a.actsAs(e.tenantSettings())
}

// UID is that of a live object that an application manages; empty: there is
// none of that name.
func (e *Engine) UID(id string, key manifest.Key) string {
	a := e.known(id)
	if a == nil {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if x := a.objects[key]; x != nil && x.live.found {
		return x.live.uid
	}
	return ""
}

// ManagedPods returns the live pods that an application manages directly.
func (e *Engine) ManagedPods(id string) []manifest.Key {
	a := e.known(id)
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []manifest.Key
	for _, key := range a.keys() {
		if key.Group == "" && key.Kind == "Pod" && a.objects[key].live.found {
			out = append(out, key)
		}
	}
	return out
}

// known returns an application; nil if the agent does not have it.
func (e *Engine) known(id string) *app {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.apps[id]
}
