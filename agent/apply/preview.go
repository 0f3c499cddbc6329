package apply

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capstan-cd/capstan/agent/secrets"
	"github.com/capstan-cd/capstan/agent/wave"
	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// This file compares objects that an application could have, such as those of
// another revision, with the live ones. Nothing is written: not in the cluster,
// where each object costs one dry run at most, and not in the inventory. Live
// state of objects that the application neither lists nor owns is not returned.

// Preview returns the objects that differ from the live ones, each with the
// result of its dry run or the reason why an apply would be refused.
func (e *Engine) Preview(ctx context.Context, id string, objects []*manifest.Object) ([]LiveView, error) {
	a, err := e.previewed(id)
	if err != nil {
		return nil, err
	}
	views := make([]*LiveView, len(objects))
	var wait sync.WaitGroup
	for i, o := range objects {
		select {
		case e.tries <- struct{}{}:
		case <-ctx.Done():
			wait.Wait()
			return nil, fault.New(fault.Offline, "there was no time for all dry runs")
		}
		wait.Go(func() {
			defer func() { <-e.tries }()
			if err := lifecycle.Safely(ctx, "preview", func(ctx context.Context) (err error) {
				views[i], err = a.previewObject(ctx, o)
				return err
			}); err != nil {
				views[i] = &LiveView{Key: manifest.KeyOf(o), Version: manifest.Version(o), Sync: unknownSync, Problem: sentence(err)}
			}
		})
	}
	wait.Wait()
	var out []LiveView
	for _, v := range views {
		if v != nil && v.Sync != synced {
			out = append(out, *v)
		}
	}
	return out, ctx.Err()
}

// previewed finds an application whose state is known.
func (e *Engine) previewed(id string) (*app, error) {
	e.mu.RLock()
	a := e.apps[id]
	e.mu.RUnlock()
	if a == nil {
		return nil, fault.New(fault.Missing, "the agent does not have this application")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == nil || a.closed {
		return nil, fault.New(fault.Offline, "the application's state is missing")
	}
	return a, nil
}

// PreviewRemoved returns the objects of an application that are not among keys:
// those that a sync with pruning would delete. Keys may lack the destination's
// namespace.
func (e *Engine) PreviewRemoved(id string, keys []manifest.Key) ([]LiveView, error) {
	a, err := e.previewed(id)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	kept := map[manifest.Key]bool{}
	for _, k := range keys {
		kept[k] = true
		if k.Namespace == "" {
			k.Namespace = a.state.GetNamespace()
			kept[k] = true
		}
	}
	var out []LiveView
	for _, key := range a.keys() {
		x := a.objects[key]
		clusterWide := key
		clusterWide.Namespace = ""
		if x.record == nil || x.hook != "" || kept[key] || !x.namespaced && kept[clusterWide] || a.itself(key) {
			continue
		}
		v := LiveView{Key: key, Version: x.gvk.Version, Sync: outOfSync, Detail: "would be pruned"}
		if hasOption(x.record.Options, "Prune", "false") {
			v.Detail = "no longer in the manifests; Prune=false keeps it"
		}
		if live := x.live.read(); live != nil {
			v.Live = &manifest.Object{Object: desiredFields(live.Object)}
		}
		out = append(out, v)
	}
	return out, nil
}

// previewObject compares one object; nil: it is a hook.
func (a *app) previewObject(ctx context.Context, o *manifest.Object) (*LiveView, error) {
	described, err := wave.Describe(0, o, a.destination())
	if err != nil || len(described.Hooks) > 0 {
		return nil, err
	}
	d := &desired{key: manifest.KeyOf(o), gvk: o.GroupVersionKind()}
	v := &LiveView{Key: d.key, Version: d.gvk.Version, Sync: outOfSync}
	gvr, namespaced, err := a.e.Mapper.Find(ctx, d.gvk)
	switch {
	case err != nil && fault.KindOf(err) != fault.Missing:
		return nil, explain(err, d.key, "find")
	case err != nil:
		v.Desired, v.Detail = o, "its kind is not served by the cluster, so it is checked when it is applied"
		return v, nil
	}
	if d.namespaced = namespaced; !namespaced {
		d.key.Namespace = ""
	} else if d.key.Namespace == "" {
		d.key.Namespace = a.destination()
	}
	v.Key = d.key
	if inHub(d.key) {
		v.Desired, v.Sync, v.Detail = o, unknownSync, "objects of the hub are not compared before a sync"
		return v, nil
	}
	got, err := a.resolveSecrets(ctx, d, o, time.Time{})
	if err != nil {
		v.Desired, v.Problem = o, withoutObject(err)
		return v, nil
	}
	v.Desired, v.leaves = got.Object, got.leaves
	a.mu.Lock()
	a.prepare(v.Desired, d.key)
	a.mu.Unlock()
	return v, a.previewLive(ctx, v, d, endpoint{resource: gvr, namespace: d.key.Namespace, name: d.key.Name})
}

func (a *app) destination() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state.GetNamespace()
}

// previewLive compares a resolved object with the live one of its key.
func (a *app) previewLive(ctx context.Context, v *LiveView, d *desired, at endpoint) error {
	if why := a.previewRefusal(d); why != nil {
		v.Problem = withoutObject(why)
		return nil
	}
	live, err := a.kube().get(ctx, at)
	if err != nil {
		return explain(err, d.key, "read")
	}
	s, ours := a.previewSending(v, d)
	if live != nil && !ours {
		v.Detail, v.Problem = "it exists and is not the application's", "an object of this name exists that the application does not manage; its content is not shown"
		return nil
	}
	out, err := a.send(ctx, s)
	missing := apierrors.IsNotFound(err) || fault.KindOf(err) == fault.Missing
	switch {
	case live == nil && missing:
		v.Detail = "would be created; its namespace does not exist yet, so it is checked when it is applied"
		return nil
	case err != nil:
		v.Problem = withoutObject(s.explain(err, "dry-run"))
	case live == nil:
		v.Detail = "would be created"
		v.Predicted = &manifest.Object{Object: desiredFields(out.Object)}
		return nil
	}
	if live == nil {
		return nil
	}
	v.Live = &manifest.Object{Object: desiredFields(live.Object)}
	v.Normalized = diff.Reduce(v.Live, v.Desired)
	if out == nil {
		return nil
	}
	v.Predicted = &manifest.Object{Object: desiredFields(out.Object)}
	return a.previewDifference(v, s, live, out)
}

// previewRefusal is why the application could not have an object.
func (a *app) previewRefusal(d *desired) error {
	a.mu.Lock()
	err := a.permits(d.key, d.namespaced)
	a.mu.Unlock()
	if err != nil {
		return err
	}
	if owner := a.e.owner(d.key); owner != "" && owner != a.id {
		return managed(d.key, a.e.titleOf(owner))
	}
	return nil
}

// previewSending is the dry run of an object, and whether the application lists
// or owns it.
func (a *app) previewSending(v *LiveView, d *desired) (s *sending, ours bool) {
	s = &sending{app: a, key: d.key, body: v.Desired, leaves: append([]secrets.Leaf(nil), v.leaves...), options: a.options(v.Desired), dryRun: true}
	a.mu.Lock()
	defer a.mu.Unlock()
	s.ignore = a.ignore
	x := a.objects[d.key]
	if x == nil {
		return s, false
	}
	if x.record != nil {
		s.applied, s.had, s.merged = x.record.Owned.Digest, true, x.record.Merged
	}
	return s, x.hook == "" && (x.record != nil || x.target != nil || x.accepted != nil)
}

// previewDifference finds out whether a dry run changes the live object.
func (a *app) previewDifference(v *LiveView, s *sending, live, out *manifest.Object) error {
	owned, err := a.recordOwned(s, [32]byte{}, out)
	if err != nil {
		return explain(err, s.key, "compare")
	}
	owned.UID = string(live.GetUID())
	found, err := a.e.hashes.Compare(owned, live, s.ignore)
	if err != nil {
		return explain(err, s.key, "compare")
	}
	switch {
	case !found.Equal:
		v.Fields, v.Detail = found.Fields, differs(found.Fields)
	case s.ignore.Empty(s.key) && contentOf(untracked(out.Object)) != contentOf(untracked(live.Object)):
		v.Detail = "fields that are no longer in the manifests"
	default:
		v.Sync = synced
	}
	if v.Sync != synced && found.Void != "" {
		v.Detail = fmt.Sprintf("changed (%s)", found.Void)
	}
	return nil
}
