package catalog

import (
	"context"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
)

// settleAtOnce is how many applications are in memory at a time.
const settleAtOnce = 500

// resettle moves the applications that stand for another cluster now that one
// has come or changed; was are the servers that it stood for before.
func (w *writer) resettle(ctx context.Context, changed hub.Cluster, was ...string) error {
	bound, err := w.ApplicationsBound(ctx, []string{changed.Name}, append(was, changed.Server))
	if err != nil || len(bound) == 0 {
		return err
	}
	all, err := w.ClusterNames(ctx)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(bound, settleAtOnce) {
		apps, err := w.LockApplications(ctx, some)
		if err != nil {
			return err
		}
		for _, id := range some {
			if a, ok := apps[id]; ok {
				if err := w.settle(ctx, a, all); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (w *writer) settle(ctx context.Context, a hub.Application, all []hub.Cluster) error {
	spec, err := hub.DecodeSpec(a.Spec)
	if err != nil || a.DeletingAt != nil {
		return nil
	}
	var now hub.ClusterID
	if on := validation.KeepCluster(spec.Destination, all, a.Cluster); on != nil {
		now = on.ID
	}
	if now == a.Cluster {
		return nil
	}
	w.Wakes = append(w.Wakes, a.Cluster, now)
	w.Due = append(w.Due, hub.WorkRefresh)
	a.Cluster = now
	_, err = w.UpdateApplication(ctx, a, 0)
	return err
}

// placed is an application on a cluster, or on none.
func placed(a hub.Application, on *hub.Cluster) hub.Application {
	a.Cluster = ""
	if on != nil {
		a.Cluster = on.ID
	}
	return a
}
