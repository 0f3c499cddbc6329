package store_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

func TestPlatformsTogether(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	w := build(t, db, "acme", "acme")
	served := map[string][]string{"none": {}, "few": {"v1"}, "few-too": {"v1"}, "many": {"v1", "apps/v1"}, "many-too": {"v1", "apps/v1"}, "one-name": {"v1,apps/v1"}}
	want := map[string][]string{}
	var apps []hub.ApplicationID
	for name, apis := range served {
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			cluster := must[hub.Cluster](t)(tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: name}, Server: "https://" + name}))
			app := must[hub.Application](t)(tx.CreateApplication(ctx, newApp("to-"+name, w.repository.URL, cluster.ID)))
			want[app.Name], apps = apis, append(apps, app.ID)
			return nil
		})
	}
	super := storetest.Connect(t, urls.Superuser)
	for name, apis := range served {
		_, err := super.Exec(t.Context(), `UPDATE cluster SET kube_version = 'v1.35.4', api_versions = $2 WHERE name = $1`, name, apis)
		check(t, err)
	}
	check(t, db.ReadTenant(t.Context(), w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		got := map[string][]string{}
		for _, r := range must[[]hub.Refresh](t)(tx.Refreshes(ctx, apps, 1)) {
			if r.Cluster == nil || r.Cluster.KubeVersion != "v1.35.4" || r.Cluster.ID != r.Application.Cluster {
				t.Errorf("application %s: cluster %+v", r.Application.Name, r.Cluster)
				continue
			}
			got[r.Application.Name] = r.Cluster.APIVersions
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("APIs (-want +got):\n%s", diff)
		}
		return nil
	}))
}
