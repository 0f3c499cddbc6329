package catalog

import (
	"context"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/generate/changes"
	"github.com/capstan-cd/capstan/shared/fault"
)

// setPart is how many applications one transaction of a set writes.
const setPart = 50

// A setChange is one application that a set writes.
type setChange struct {
	name string
	adds bool // an application
	do   func(ctx context.Context, w *writer) error
}

// carryOut writes what was decided, in transactions of bounded size. One
// application that cannot be written does not stop the others.
func (r *reconciling) carryOut(ctx context.Context) error {
	var all []setChange
	for _, a := range r.decision.Create {
		all = append(all, setChange{a.Name, true, func(ctx context.Context, w *writer) error { return r.put(ctx, w, nil, a) }})
	}
	for _, u := range r.decision.Update {
		all = append(all, setChange{u.Want.Name, false, func(ctx context.Context, w *writer) error { return r.put(ctx, w, &u.Old, u.Want) }})
	}
	for _, a := range r.decision.Delete {
		all = append(all, setChange{a.Name, false, func(ctx context.Context, w *writer) error { return r.remove(ctx, w, a) }})
	}
	if len(r.decision.Create) > 1 {
		defer r.parts.Pace.Arriving(r.tenant)()
	}
	return r.writeAll(ctx, all)
}

// writeAll writes changes in parts. A part that fails is written one by one, so
// that the error is that of one application. Where the tenant's quota is full,
// no more are made.
func (r *reconciling) writeAll(ctx context.Context, all []setChange) error {
	full := false
	for part := range slices.Chunk(all, setPart) {
		if full {
			part = slices.DeleteFunc(slices.Clone(part), func(c setChange) bool { return c.adds })
		}
		err := r.writePart(ctx, part)
		if err == nil {
			continue
		}
		if passingFault(ctx, err) {
			return err
		}
		for _, one := range part {
			if full && one.adds {
				continue
			}
			err := r.writePart(ctx, []setChange{one})
			switch {
			case err == nil:
			case passingFault(ctx, err):
				return err
			case fault.KindOf(err) == fault.Conflict:
				r.again = true // somebody has changed it meanwhile
			default:
				r.report.problem(one.name, fault.Sentence(err))
				full = full || one.adds && fault.KindOf(err) == fault.Exceeded
			}
		}
	}
	return nil
}

// passingFault reports whether an error is that of the hub, not of an application.
func passingFault(ctx context.Context, err error) bool {
	kind := fault.KindOf(err)
	return ctx.Err() != nil || kind == fault.Offline || kind == fault.Internal
}

func (r *reconciling) writePart(ctx context.Context, part []setChange) error {
	if len(part) == 0 {
		return nil
	}
	return r.write(ctx, func(ctx context.Context, w *writer) error {
		w.Due = append(w.Due, hub.WorkFetch, hub.WorkRefresh)
		for _, one := range part {
			if err := one.do(ctx, w); err != nil {
				return err
			}
		}
		return nil
	})
}

// put makes an application of the set, or changes the one that was decided about.
func (r *reconciling) put(ctx context.Context, w *writer, old *hub.Application, want changes.Application) error {
	a := hub.Application{Meta: want.Meta, Project: want.Project, Spec: want.Spec}
	spec, _, err := validation.CheckApplication(&a)
	if err != nil {
		return err
	}
	around, err := w.ForPut(ctx, hub.ApplicationKey{Namespace: a.Namespace, Name: a.Name}, a.Project, validation.DestinationName(spec.Destination))
	if err != nil {
		return err
	}
	if now := around.Application; (now == nil) != (old == nil) || now != nil && (now.ID != old.ID || now.Version != old.Version || !sameOwner(now.Set, old.Set) || !sameOwner(now.Parent, old.Parent)) {
		return transact.ErrStale("application " + title(a.Namespace, a.Name))
	}
	stored, _, _, err := w.putApplication(ctx, around, a, spec, PutOptions{Create: old == nil, Update: old != nil})
	if err != nil || old != nil && r.owns(*old) {
		return err
	}
	return w.PutSetMember(ctx, hub.SetMember{Application: stored.ID, Set: r.set.ID})
}

func sameOwner(a, b *hub.ApplicationKey) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

func (r *reconciling) owns(a hub.Application) bool {
	return a.Set != nil && a.Set.Namespace == r.set.Namespace && a.Set.Name == r.set.Name
}

// remove begins the deletion of an application that is the set's still. What
// becomes of its objects, its finalizers say.
func (r *reconciling) remove(ctx context.Context, w *writer, was hub.Application) error {
	held, err := w.LockApplications(ctx, []hub.ApplicationID{was.ID})
	if err != nil {
		return err
	}
	a, there := held[was.ID]
	if !there || a.DeletingAt != nil || !r.owns(a) {
		return nil
	}
	return w.deleteApplication(ctx, a, hub.Deletion{Cascade: hasFinalizer(a.Meta)})
}
