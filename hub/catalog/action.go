package catalog

import (
	"context"
	"maps"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/shared/fault"
)

// actionRight is the right to run an action, in Argo CD's words (ACT-06).
func actionRight(o hub.ObjectRef, action string) string {
	return access.Action + "/" + o.Group + "/" + o.Kind + "/" + action
}

// Actions says where a live object of an application is, and which of its
// actions the caller may run.
func (c *Catalog) Actions(ctx context.Context, by hub.Caller, namespace, name string, want hub.ObjectRef) (on View, may func(action string) bool, err error) {
	if on, err = c.LiveTarget(ctx, by, namespace, name, &want); err != nil {
		return on, nil, err
	}
	err = c.read(ctx, by, func(_ context.Context, r *reader) error {
		rights, object := r.Rights, objectOf(on.Application)
		may = func(action string) bool { return rights.Check(access.Applications, actionRight(want, action), object) }
		return nil
	})
	return on, may, err
}

// BeginAction checks that the caller may run an action on a live object of an
// application and records that they do, before anything is asked of a cluster.
// The request comes back with the limits of the project.
func (c *Catalog) BeginAction(ctx context.Context, by hub.Caller, namespace, name string, want hub.ObjectRef, a hub.ActionRequest) (v View, _ hub.ActionRequest, err error) {
	err = c.write(ctx, by, func(ctx context.Context, w *writer) error {
		app, err := w.forWrite(ctx, namespace, name, actionRight(want, a.Name))
		if err != nil {
			return err
		}
		if err := w.inTree(ctx, app, want); err != nil {
			return err
		}
		views, err := w.views(ctx, []hub.Application{app})
		if err != nil {
			return err
		}
		v = views[0]
		if v.On == nil {
			return fault.With(fault.New(fault.Conflict, "its destination stands for no cluster"), "application "+title(namespace, name), "its conditions say why")
		}
		if err := w.limit(ctx, &a, v); err != nil {
			return err
		}
		w.Note(actionRight(want, a.Name), access.Applications, objectOf(app), "asked", nil, actionDetail(want, a, nil))
		return nil
	})
	return v, a, err
}

// limit adds what the project permits now: the cluster may know an older state.
func (w *writer) limit(ctx context.Context, a *hub.ActionRequest, on View) error {
	p, err := w.EffectiveProject(ctx, on.Project)
	if err != nil {
		return fault.With(err, "application "+title(on.Namespace, on.Name), "")
	}
	spec, err := hub.DecodeSpec(on.Spec)
	if err != nil {
		return err
	}
	a.Project, a.Destination = p.Name, on.On.PlacementOf(spec.Destination)
	a.Limits, err = p.Effective()
	return err
}

// EndAction records the result of an action.
func (c *Catalog) EndAction(ctx context.Context, by hub.Caller, on View, want hub.ObjectRef, a hub.ActionRequest, changes []hub.ActionChange, failed error) error {
	by.Idempotency = hub.IdempotencyKey{} // it was settled when the action began
	return c.write(ctx, by, func(_ context.Context, w *writer) error {
		reason := "done"
		if failed != nil {
			reason = "failed: " + fault.Sentence(failed)
		}
		w.Note(actionRight(want, a.Name), access.Applications, objectOf(on.Application), reason, nil, actionDetail(want, a, changes))
		return nil
	})
}

// actionDetail is an action's detail in the audit log. Values of parameters are
// not stored: they may be secrets.
func actionDetail(o hub.ObjectRef, a hub.ActionRequest, changes []hub.ActionChange) map[string]any {
	d := map[string]any{"action": a.ID, "object": kindAndName(o)}
	if len(a.Params) > 0 {
		d["parameters"] = slices.Sorted(maps.Keys(a.Params))
	}
	var written []string
	for _, x := range changes {
		verb := "changed "
		if x.Created {
			verb = "created "
		}
		written = append(written, verb+kindAndName(x.ObjectRef))
	}
	if written != nil {
		d["written"] = written
	}
	return d
}

func kindAndName(o hub.ObjectRef) string {
	s := o.Kind + " " + o.Name
	if o.Namespace != "" {
		s = o.Kind + " " + o.Namespace + "/" + o.Name
	}
	if o.Group != "" {
		s = o.Group + "/" + s
	}
	return s
}
