package apply

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/action"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/manifest"
)

const (
	actManager    = "-act"               // behind the field manager's name
	actAnnotation = "capstan.dev/action" // on what an action created: its id
	actTries      = 12                   // if the object changes at the same time
)

// An ActionRequest is a request to run an action on one object.
type ActionRequest struct {
	Application string
	ID          string // marks the created objects
	Object      manifest.Key
	Version     string
	Project     string
	Limits      *linkv1.Limits // current ones of the project; nil: those of the application's newest state
}

// Act reads an object of an application, calls do for the changes, and writes
// them. Nothing is written unless all of it is permitted. It returns what was
// written. If the object changes in between, do is called again.
func (e *Engine) Act(ctx context.Context, w ActionRequest,
	do func(ctx context.Context, live *manifest.Object) ([]action.Change, error),
) ([]*manifest.Object, error) {
	at, err := e.newAction(ctx, w)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		live, err := at.read(ctx)
		if err != nil {
			return nil, err
		}
		changes, err := do(ctx, live)
		if err != nil {
			return nil, err
		}
		if err := refuseInHub(changes); err != nil {
			return nil, err
		}
		written, err := at.all(ctx, live, changes)
		if err == nil || len(written) > 0 || try == actTries || !apierrors.IsConflict(err) {
			return written, at.partly(err, len(written), len(changes))
		}
		if lifecycle.Sleep(ctx, e.Clock, pause(min(try, 3), err)) != nil { // a controller is changing it
			return nil, at.partly(err, 0, len(changes))
		}
	}
}

// refuseInHub refuses changes of objects that live in the hub.
func refuseInHub(changes []action.Change) error {
	for _, c := range changes {
		if key := manifest.KeyOf(&manifest.Object{Object: c.Object}); inHub(key) {
			return livesInHub(key)
		}
	}
	return nil
}

// newAction finds the object of an action, and refuses one that must not be
// written.
func (e *Engine) newAction(ctx context.Context, w ActionRequest) (acting, error) {
	if inHub(w.Object) {
		return acting{}, livesInHub(w.Object)
	}
	e.mu.RLock()
	a := e.apps[w.Application]
	e.mu.RUnlock()
	if a == nil {
		return acting{}, fault.New(fault.Missing, "the agent does not have this application")
	}
	gvr, namespaced, err := e.Mapper.Find(ctx, kindOf(w.Object, w.Version))
	if err != nil {
		return acting{}, explain(err, w.Object, "find")
	}
	if err := e.Guard.writes(w.Object, namespaced); err != nil {
		return acting{}, err
	}
	if err := e.Guard.edits(w.Object, namespaced); err != nil {
		return acting{}, err
	}
	at := endpoint{resource: gvr, namespace: w.Object.Namespace, name: w.Object.Name}
	return acting{ActionRequest: w, e: e, a: a, key: w.Object, endpoint: at}, nil
}

// acting is one running action.
type acting struct {
	ActionRequest

	e        *Engine
	a        *app
	key      manifest.Key
	endpoint endpoint
}

// read returns the live object without the fields that only managers need.
func (t acting) read(ctx context.Context) (*manifest.Object, error) {
	live, err := t.a.kube().get(ctx, t.endpoint)
	if err != nil {
		return nil, explain(err, t.key, "read")
	}
	if live == nil {
		return nil, fault.With(fault.New(fault.Missing, "it is not in the cluster"), t.key.Describe(), "")
	}
	return &manifest.Object{Object: withoutFields(live.Object)}, nil
}

// partly adds to an error how many changes were made.
func (t acting) partly(err error, done, all int) error {
	if err == nil {
		return nil
	}
	err = explain(err, t.key, "change")
	if done == 0 {
		return err
	}
	kind := fault.KindOf(err)
	return fault.With(fault.Wrap(kind, err, "%d of the action's %d changes were made, then: %s", done, all, fault.Sentence(err)), t.key.Describe(), "check the object before you run it again")
}

// A making is an object to create.
type making struct {
	endpoint

	object *manifest.Object
}

// all makes the changes in their order, after all were checked.
func (t acting) all(ctx context.Context, live *manifest.Object, changes []action.Change) ([]*manifest.Object, error) {
	made := make([]making, len(changes))
	for i, c := range changes {
		if !c.Create {
			continue
		}
		m, err := t.permitted(ctx, c, i)
		if err != nil {
			return nil, err
		}
		made[i] = m
	}
	var written []*manifest.Object
	for i, c := range changes {
		var out *manifest.Object
		var err error
		if c.Create {
			out, err = t.create(ctx, made[i])
		} else {
			out, err = t.change(ctx, live, c)
		}
		if err != nil {
			return written, err
		}
		if out != nil {
			written = append(written, out)
		}
	}
	return written, nil
}

// permitted checks an object to create against the limits of the project and of
// the cluster's owner (ACT-05).
func (t acting) permitted(ctx context.Context, c action.Change, n int) (making, error) {
	o := &manifest.Object{Object: c.Object}
	if o.GetName() == "" { // one action has one name, also if it is repeated
		o.SetName(fmt.Sprintf("%s%.8s%d", o.GetGenerateName(), shortMark(t.ID), n))
		o.SetGenerateName("")
	}
	key := manifest.KeyOf(o)
	gvr, namespaced, err := t.e.Mapper.Find(ctx, o.GroupVersionKind())
	if err != nil {
		return making{}, explain(err, key, "create")
	}
	if !namespaced {
		o.SetNamespace("")
		key = manifest.KeyOf(o)
	}
	if err := t.within(key, namespaced); err != nil {
		return making{}, err
	}
	notes := o.GetAnnotations()
	if notes == nil {
		notes = map[string]string{}
	}
	notes[actAnnotation] = t.ID
	o.SetAnnotations(notes)
	return making{endpoint{gvr, key.Namespace, key.Name}, o}, nil
}

// within checks a new object against the cluster's owner and the project.
func (t acting) within(key manifest.Key, namespaced bool) error {
	if t.Limits == nil {
		t.a.mu.Lock()
		defer t.a.mu.Unlock()
		return t.a.permits(key, namespaced)
	}
	if err := t.e.Guard.writes(key, namespaced); err != nil {
		return err
	}
	return permit(t.Limits, t.Project, key, namespaced)
}

// shortMark is the end of an id, which is its most distinctive part.
func shortMark(mark string) string { return mark[max(len(mark)-8, 0):] }

// create makes an object. An existing one with our mark was created by a
// request whose response was lost.
func (t acting) create(ctx context.Context, m making) (*manifest.Object, error) {
	out, err := t.a.kube().createAs(ctx, m.endpoint, m.object, t.e.Manager+actManager)
	if !apierrors.IsAlreadyExists(err) {
		return out, explain(err, manifest.KeyOf(m.object), "create")
	}
	live, getErr := t.a.kube().get(ctx, m.endpoint)
	if getErr == nil && live != nil && live.GetAnnotations()[actAnnotation] == t.ID {
		return live, nil
	}
	return nil, fault.With(fault.New(fault.Conflict, "the action would create it, and it is there already"), manifest.KeyOf(m.object).Describe(), "run the action again later")
}

// change patches the object of the action, and its status if that is a
// subresource.
func (t acting) change(ctx context.Context, live *manifest.Object, c action.Change) (*manifest.Object, error) {
	body, status := action.Patch(live.Object, c.Object)
	out := live
	if body == nil && status == nil {
		return live, nil // nothing differs
	}
	if body != nil {
		got, err := t.merge(ctx, out, body)
		if err != nil {
			return nil, err
		}
		out = got
	}
	if status == nil {
		return out, nil
	}
	got, err := t.mergeStatus(ctx, out, status)
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) { // status is not a subresource
		return t.merge(ctx, out, status)
	}
	return got, err
}

func (t acting) merge(ctx context.Context, live *manifest.Object, body map[string]any) (*manifest.Object, error) {
	return t.send(ctx, live, body, "")
}

func (t acting) mergeStatus(ctx context.Context, live *manifest.Object, body map[string]any) (*manifest.Object, error) {
	return t.send(ctx, live, body, "status")
}

// send sends a merge patch for the version that was read.
func (t acting) send(ctx context.Context, live *manifest.Object, body map[string]any, part string) (*manifest.Object, error) {
	full := (&manifest.Object{Object: body}).DeepCopy()
	_ = unstructured.SetNestedField(full.Object, live.GetResourceVersion(), "metadata", "resourceVersion")
	_ = unstructured.SetNestedField(full.Object, string(live.GetUID()), "metadata", "uid")
	text, err := json.Marshal(full.Object)
	if err != nil {
		return nil, fmt.Errorf("write the patch of %s: %w", t.key.Describe(), err)
	}
	was := live.GetResourceVersion()
	return t.a.kube().patch(ctx, patch{endpoint: t.endpoint, kind: types.MergePatchType, body: text, manager: t.e.Manager + actManager, part: part},
		func(now *manifest.Object) bool {
			return now.GetUID() == live.GetUID() && now.GetResourceVersion() != was && merged(body, now.Object)
		})
}

// merged reports whether an object has everything that a merge patch sets.
func merged(patch, whole any) bool {
	p, ok := patch.(map[string]any)
	if !ok {
		return within(patch, whole)
	}
	w, _ := whole.(map[string]any)
	for k, v := range p {
		if v == nil {
			if _, there := w[k]; there {
				return false
			}
			continue
		}
		if !merged(v, w[k]) {
			return false
		}
	}
	return true
}
