package store_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

func TestListedObjects(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w := build(t, db, "acme", "acme")
	object := func(kind, name string, sync hub.SyncStatus, health hub.HealthStatus) hub.Resource {
		return hub.Resource{Application: w.app.ID, Kind: kind, Version: "v1", Namespace: "shop", Name: name, UID: kind + name, Managed: true, Sync: sync, Health: health}
	}
	child := object("Pod", "web-1", "", hub.Healthy)
	child.Managed = false
	observe(t, db, w, hub.Observation{Epoch: "acme", Seq: 2, Resources: []hub.Resource{
		object("Service", "web", hub.Synced, hub.Healthy), object("Deployment", "web", hub.OutOfSync, hub.Degraded), object("ConfigMap", "Settings", hub.Synced, ""), child,
	}})
	found := func(f hub.ObjectFilter) (out []string, counts map[string]int) {
		t.Helper()
		f.Applications, f.Limit = []hub.ApplicationID{w.app.ID}, 100
		counts = map[string]int{}
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			for _, o := range must[[]hub.ListedObject](t)(tx.ListedObjects(ctx, f)) {
				if o.Name != "acme" { // which every table has
					out = append(out, fmt.Sprintf("%s %s %s %s", o.Kind, o.Name, o.Sync, o.Health))
				}
			}
			for _, c := range must[[]hub.ObjectCount](t)(tx.CountObjects(ctx, f)) {
				counts[c.Field+" "+c.Value] += c.Count
			}
			return nil
		})
		return out, counts
	}
	t.Run("UI-15 filters by states, kinds, clusters and part of the name", func(t *testing.T) {
		for name, c := range map[string]struct {
			f    hub.ObjectFilter
			want []string
		}{
			"all":              {hub.ObjectFilter{}, []string{"ConfigMap Settings Synced ", "Deployment web OutOfSync Degraded", "Service web Synced Healthy"}},
			"sync":             {hub.ObjectFilter{Sync: []hub.SyncStatus{hub.OutOfSync}}, []string{"Deployment web OutOfSync Degraded"}},
			"health":           {hub.ObjectFilter{Health: []hub.HealthStatus{hub.Healthy}}, []string{"Service web Synced Healthy"}},
			"kinds":            {hub.ObjectFilter{Kinds: []string{"ConfigMap", "Service"}}, []string{"ConfigMap Settings Synced ", "Service web Synced Healthy"}},
			"name in any case": {hub.ObjectFilter{Text: "SETT"}, []string{"ConfigMap Settings Synced "}},
			"no cluster":       {hub.ObjectFilter{Clusters: []hub.ClusterID{}}, nil},
			"its cluster":      {hub.ObjectFilter{Clusters: []hub.ClusterID{w.cluster.ID}, Kinds: []string{"Service"}}, []string{"Service web Synced Healthy"}},
		} {
			if got, _ := found(c.f); cmp.Diff(c.want, got) != "" {
				t.Errorf("%s (-want +got):\n%s", name, cmp.Diff(c.want, got))
			}
		}
	})
	t.Run("UI-15 of a cluster that has expired everything is Unknown, and found and counted as such", func(t *testing.T) {
		f := hub.ObjectFilter{Expired: []hub.ClusterID{w.cluster.ID}, Kinds: []string{"ConfigMap", "Service"}, Namespaces: []string{"shop"}}
		got, counts := found(f)
		if diff := cmp.Diff([]string{"ConfigMap Settings Unknown ", "Service web Unknown Unknown"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		want := map[string]int{
			"kind ConfigMap": 1, "kind Service": 1, "namespace shop": 2, "cluster " + string(w.cluster.ID): 2, "application " + string(w.app.ID): 2,
			"sync Unknown": 2, "health Unknown": 1, "health ": 1,
		}
		if diff := cmp.Diff(want, counts); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		f.Health = []hub.HealthStatus{hub.Healthy}
		if got, _ := found(f); got != nil {
			t.Errorf("found as healthy: %v", got)
		}
	})
}
