package catalog

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// putRenderedSet brings an application set to what an application has rendered
// (APP-31). Its project is that of the application, or the application rules.
func (w *writer) putRenderedSet(ctx context.Context, p *parent, ref hub.RenderedRef, o *manifest.Object) (hub.RenderedObject, error) {
	none := hub.RenderedObject{}
	meta, spec, _, err := validation.ReadObject(o)
	if err != nil {
		return none, err
	}
	s := hub.ApplicationSet{Meta: meta, Spec: spec}
	applied, err := validation.LastWritten(s.Meta, s.Spec)
	if err != nil {
		return none, err
	}
	old, err := w.Tx.ApplicationSet(ctx, ref.Namespace, ref.Name)
	switch {
	case err == nil:
		// Whose it is comes first: who may not write it learns nothing of it.
		if err := p.may(ref, old.Project); err != nil {
			return none, w.Refuse(access.ApplicationSets, access.Update, setObject(old), err)
		}
		held, err := w.claimed(ctx, p, ref, string(old.ID))
		if err != nil {
			return none, err
		}
		if err := validation.MergeApplied(held.Applied, &s.Meta, &s.Spec, old.Meta, old.Spec); err != nil {
			return none, err
		}
	case fault.KindOf(err) != fault.Missing:
		return none, err
	}
	shape, err := validation.CheckApplicationSet(&s)
	if err != nil {
		return none, err
	}
	if _, err := w.catalog.parts.Sets.Check(s); err != nil {
		return none, err
	}
	if err := p.may(ref, s.Project); err != nil {
		return none, w.Refuse(access.ApplicationSets, access.Create, setObject(s), err)
	}
	stored, outcome, err := w.putSet(ctx, s, shape, PutOptions{Create: true, Update: true})
	if err != nil {
		return none, err
	}
	if outcome != transact.Unchanged {
		w.Due = append(w.Due, hub.WorkApplicationSet)
	}
	if err := w.PutRenderedBy(ctx, hub.RenderedBy{Object: string(stored.ID), Kind: ref.Kind, Parent: p.ID, Applied: applied}); err != nil {
		return none, err
	}
	return presentSet(p, ref, stored, true)
}

// deleteRenderedSet deletes a set that an application has rendered, with its
// applications.
func (w *writer) deleteRenderedSet(ctx context.Context, p *parent, ref hub.RenderedRef, uid string) (hub.RenderedDeletion, error) {
	s, err := w.Tx.ApplicationSet(ctx, ref.Namespace, ref.Name)
	if err == nil {
		s, err = w.LockApplicationSet(ctx, s.ID)
	}
	if fault.KindOf(err) == fault.Missing {
		return hub.RenderedDeletion{Gone: true}, nil
	}
	if err != nil {
		return hub.RenderedDeletion{}, err
	}
	if ours, err := w.theirs(ctx, p, string(s.ID), uid); err != nil || !ours {
		return hub.RenderedDeletion{Other: true}, err
	}
	if err := p.may(ref, s.Project); err != nil {
		return hub.RenderedDeletion{}, w.Refuse(access.ApplicationSets, access.Delete, setObject(s), err)
	}
	if err := w.Need(access.ApplicationSets, access.Delete, setObject(s)); err != nil {
		return hub.RenderedDeletion{}, err
	}
	if s.DeletingAt != nil {
		return hub.RenderedDeletion{}, nil // under way
	}
	left, err := w.deleteSet(ctx, s, hub.DeleteWithApplications)
	w.Due = append(w.Due, hub.WorkApplicationSet)
	return hub.RenderedDeletion{Gone: left == nil}, err
}

// presentSet returns a set for an agent, with the fields that health rules read.
func presentSet(p *parent, ref hub.RenderedRef, s hub.ApplicationSet, ours bool) (hub.RenderedObject, error) {
	var conditions []any
	for _, c := range s.Status.Conditions {
		conditions = append(conditions, map[string]any{
			"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message, "lastTransitionTime": stamp(&c.Since),
		})
	}
	status := map[string]any{
		"resourcesCount": s.Status.ResourcesCount,
		"health":         map[string]any{"status": or(string(s.Status.Health), string(hub.HealthUnknown)), "message": s.Status.HealthMessage},
	}
	if conditions != nil {
		status["conditions"] = conditions
	}
	return present(p, ref, ours, string(s.ID), s.Meta, s.DeletingAt, s.Spec, status)
}
