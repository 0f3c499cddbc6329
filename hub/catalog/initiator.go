package catalog

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/shared/fault"
)

// start begins the operation that came with an application, in the same
// transaction: if it is refused, nothing is written.
func (c *Catalog) start(ctx context.Context, w *writer, by hub.Caller, a hub.Application, q hub.SyncRequest) error {
	if err := w.Need(access.Applications, access.Sync, objectOf(a)); err != nil {
		return err
	}
	if q.Override != nil && (q.Override.Source != nil || len(q.Override.Sources) > 0) {
		if err := w.Need(access.Applications, access.Override, objectOf(a)); err != nil {
			return err
		}
	}
	q.Initiator = initiator(by)
	op, err := w.Deploy.Sync(ctx, a.ID, q)
	if err != nil {
		return fault.With(err, "application "+title(a.Namespace, a.Name), "")
	}
	w.Wakes = append(w.Wakes, op.Cluster)
	action := access.Sync
	if q.Options.DryRun {
		action += dryRunSuffix
	}
	w.Note(action, access.Applications, objectOf(a), "", nil, map[string]any{"operation": op.ID, "revision": op.Revision, "asked": q.Options})
	return nil
}
