package catalog

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/generate/changes"
)

// deletePart goes on with the deletion of a set: first of its applications, all
// at once or from the last step of its rollout to the first, then of the set
// (ASET-12, APRG-07). Each application that is gone wakes the set.
func (r *reconciling) deletePart(ctx context.Context) (next time.Time, err error) {
	// A spec that cannot be read has no policy of its own and no steps.
	r.spec, _ = hub.DecodeApplicationSet(r.set.Spec)
	var apps []hub.Application
	err = r.parts.Service.Store.ReadTenant(ctx, r.tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		apps, err = r.there(ctx, tx, nil)
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	// A set that may not delete applications leaves them without an owner.
	allowed := changes.PolicyOf(r.options.policy, r.options.override, r.spec).Delete
	if len(apps) == 0 || !allowed || r.set.Deletion == hub.DeleteSetAlone {
		return time.Time{}, r.write(ctx, func(ctx context.Context, w *writer) error { return w.RemoveApplicationSet(ctx, r.set.ID) })
	}
	var all []setChange
	for _, a := range r.nextToDelete(apps) {
		if a.DeletingAt == nil {
			all = append(all, setChange{a.Name, false, func(ctx context.Context, w *writer) error { return r.remove(ctx, w, a) }})
		}
	}
	if err := r.writeAll(ctx, all); err != nil {
		return time.Time{}, err
	}
	if len(r.report.problems) > 0 {
		return r.now.Add(setRetry), r.noteDeletion(ctx)
	}
	if r.again {
		return r.now.Add(setSoonly), nil
	}
	return time.Time{}, nil
}

// noteDeletion stores why applications could not be deleted.
func (r *reconciling) noteDeletion(ctx context.Context) error {
	return r.write(ctx, func(ctx context.Context, w *writer) error {
		next := r.set.Status
		next.Conditions = conditions(next.Conditions, []setResult{{hub.SetErrorOccurred, hub.ConditionTrue, reasonError, r.report.sentence()}}, r.now)
		next.Health, next.HealthMessage = setHealth(next.Conditions)
		return w.PutApplicationSetStatus(ctx, r.set.ID, next)
	})
}
