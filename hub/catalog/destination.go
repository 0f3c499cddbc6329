package catalog

import (
	"context"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
)

// pick finds the cluster of a destination: by name, by server alias, and for
// Argo CD's own cluster the one called in-cluster, else the only one.
func pick(d hub.Destination, all []hub.Cluster) *hub.Cluster {
	for i := range all {
		if (d.Name != "" && all[i].Name == d.Name) || (d.Server != "" && trimServer(all[i].Server) == trimServer(d.Server)) {
			return &all[i]
		}
	}
	if !d.InCluster() {
		return nil
	}
	if i := slices.IndexFunc(all, func(c hub.Cluster) bool { return c.Name == hub.InClusterName }); i >= 0 {
		return &all[i]
	}
	if len(all) == 1 {
		return &all[0]
	}
	return nil
}

// stay is pick for an application that is on a cluster: a destination that
// does not name one leaves it there as long as that cluster exists. Clusters
// that come and go must not move what runs.
func stay(d hub.Destination, all []hub.Cluster, now hub.ClusterID) *hub.Cluster {
	if d.InCluster() {
		if i := slices.IndexFunc(all, func(c hub.Cluster) bool { return c.ID == now }); i >= 0 {
			return &all[i]
		}
	}
	return pick(d, all)
}

// nameOf is the name of a destination's cluster. Without one, all clusters have
// to be read.
func nameOf(d hub.Destination) string {
	if d.Name == hub.InClusterName || d.Server != "" {
		return ""
	}
	return d.Name
}

func trimServer(s string) string { return strings.TrimRight(s, "/") }

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
	if on := stay(spec.Destination, all, a.Cluster); on != nil {
		now = on.ID
	}
	if now == a.Cluster {
		return nil
	}
	w.wakes = append(w.wakes, a.Cluster, now)
	w.due = append(w.due, hub.WorkRefresh)
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

// sameDestination is the cluster that an application is on, if its
// destination is to stay what it was.
func sameDestination(old hub.Application, spec hub.ApplicationSpec) hub.ClusterID {
	before, err := hub.DecodeSpec(old.Spec)
	if err != nil || before.Destination.Server != spec.Destination.Server || before.Destination.Name != spec.Destination.Name {
		return ""
	}
	return old.Cluster
}
