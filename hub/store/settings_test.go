package store_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	tenant, other := storetest.Tenant(t, db, "acme"), storetest.Tenant(t, db, "bolt")
	change := func(put, drop []hub.Setting) {
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			check(t, tx.LockSettings(ctx))
			return tx.ChangeSettings(ctx, put, drop)
		})
	}
	lines := func(tenant hub.TenantID) (out []string, version int64) {
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			all, v, err := tx.Settings(ctx)
			for _, s := range all {
				out = append(out, s.Map+"/"+s.Key+"="+s.Value)
			}
			version = v
			return err
		})
		return out, version
	}
	if got, v := lines(tenant); got != nil || v != 0 {
		t.Errorf("before the first change: %q at version %d", got, v)
	}
	const secret = "hunter2-of-acme"
	change([]hub.Setting{
		{Map: "argocd-cm", Key: "url", Value: "a", UpdatedAt: now(), UpdatedBy: "ada"},
		{Map: "argocd-cm", Key: "gone", Value: "b", UpdatedAt: now(), UpdatedBy: "ada"},
		{Map: "argocd-secret", Key: "s", Value: secret, Secret: true, UpdatedAt: now(), UpdatedBy: "ada"},
	}, nil)
	change([]hub.Setting{{Map: "argocd-cm", Key: "url", Value: "c", UpdatedAt: now(), UpdatedBy: "ada"}}, []hub.Setting{{Map: "argocd-cm", Key: "gone"}})
	got, version := lines(tenant)
	if !slices.Equal(got, []string{"argocd-cm/url=c", "argocd-secret/s="}) || version != 2 {
		t.Errorf("SEC-C1 keys merge, and a secret's value is not among them: %q at version %d", got, version)
	}
	if got, v := lines(other); got != nil || v != 0 {
		t.Errorf("ISO-6 another tenant sees %q at version %d", got, v)
	}
	storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
		value, found, err := tx.SettingSecret(ctx, "argocd-secret", "s")
		if value != secret || !found {
			t.Errorf("the hub itself opens %q %v", value, found)
		}
		return err
	})
	storetest.In(t, db, other, func(ctx context.Context, tx *store.Tenant) error {
		if _, found, err := tx.SettingSecret(ctx, "argocd-secret", "s"); found || err != nil {
			t.Errorf("ISO-6 another tenant opens it: %v %v", found, err)
		}
		return nil
	})
}

func TestSettingsInTheLog(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	tenant := storetest.Tenant(t, db, "acme")
	var clusters []hub.ClusterID
	storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
		for _, name := range []string{"a", "b", "c"} {
			clusters = append(clusters, must[hub.Cluster](t)(tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: name}})).ID)
		}
		return nil
	})
	write := func(body string) {
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			heads := must[map[hub.ClusterID]hub.LogHead](t)(tx.LockClusters(ctx, clusters))
			logs := map[hub.ClusterID][]hub.LogRow{}
			for _, c := range clusters {
				logs[c] = rows(heads[c], hub.LogRow{Kind: hub.RowSettings, Application: hub.SettingsRow, Body: []byte(body)})
			}
			return tx.AppendLogs(ctx, logs)
		})
	}
	write("one")
	write("two")
	storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
		for _, c := range clusters {
			got, head, err := tx.RowsAfter(ctx, c, 0, 10)
			check(t, err)
			if len(got) != 1 || string(got[0].Body) != "two" || got[0].Kind != hub.RowSettings || head.Seq != 2 {
				t.Errorf("of settings only the newest row matters: %d rows, head %d", len(got), head.Seq)
			}
			leaves := must[map[string][32]byte](t)(tx.Leaves(ctx, c))
			if leaves[string(hub.SettingsRow)] != hashchain.Leaf(string(hub.SettingsRow), []byte("two")) {
				t.Error("the settings are not among the states of the cluster")
			}
			row, found, err := tx.SettingsRow(ctx, c)
			if err != nil || !found || row.Seq != 2 || string(row.Body) != "two" {
				t.Errorf("the newest row is %d %q: %v", row.Seq, row.Body, err)
			}
		}
		places := make([]hub.LogPlace, len(clusters))
		for i, c := range clusters {
			places[i].Cluster = c
		}
		all := must[map[hub.ClusterID]map[string][32]byte](t)(tx.LeavesOf(ctx, clusters))
		for i, p := range must[[]hub.LogPage](t)(tx.Pages(ctx, places, 10)) {
			if len(p.Rows) != 1 || string(p.Rows[0].Body) != "two" || p.Rows[0].Kind != hub.RowSettings || p.Lost {
				t.Errorf("read together with others, cluster %d has %v", i, p)
			}
			if all[clusters[i]][string(hub.SettingsRow)] != hashchain.Leaf(string(hub.SettingsRow), []byte("two")) {
				t.Error("read together with others, the settings are not among the states")
			}
		}
		return nil
	})
	t.Run("rows for many clusters are stored for all of them or for none", func(t *testing.T) {
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			heads := must[map[hub.ClusterID]hub.LogHead](t)(tx.LockClusters(ctx, clusters))
			logs := map[hub.ClusterID][]hub.LogRow{
				clusters[0]: rows(heads[clusters[0]], hub.LogRow{Kind: hub.RowSettings, Application: hub.SettingsRow}),
				clusters[1]: {{Seq: 9, Kind: hub.RowSettings, Application: hub.SettingsRow}},
			}
			if err := tx.AppendLogs(ctx, logs); fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "row 9") {
				t.Errorf("error %v", err)
			}
			_, head, err := tx.RowsAfter(ctx, clusters[0], 0, 10)
			if head.Seq != 2 {
				t.Errorf("the log of the first cluster ends at %d", head.Seq)
			}
			return err
		})
	})
}

func TestPolicyVersions(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w := build(t, db, "alpha", "canary-alpha")
	t.Run("UX-ACC-1 versions are numbered, the newest come first, and the oldest go", func(t *testing.T) {
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			for range hub.MaxPolicyVersions + 1 { // with that of build
				if err := tx.AddPolicyVersion(ctx, hub.PolicyVersion{At: now(), By: "ada", Changed: []string{"policy.csv"}, Values: map[string]string{"policy.csv": "p"}}); err != nil {
					return err
				}
			}
			all, err := tx.PolicyVersions(ctx, 0, hub.MaxPolicyVersions+10)
			if err != nil {
				return err
			}
			if newest, oldest := all[0].Number, all[len(all)-1].Number; len(all) != hub.MaxPolicyVersions || newest != hub.MaxPolicyVersions+2 || oldest != 3 {
				t.Errorf("%d from %d to %d", len(all), newest, oldest)
			}
			if _, err := tx.PolicyVersionAt(ctx, 2); fault.KindOf(err) != fault.Missing {
				t.Errorf("one that is gone: %v", err)
			}
			v, err := tx.PolicyVersionAt(ctx, 3)
			if err == nil && v.Values["policy.csv"] != "p" {
				t.Errorf("%+v", v)
			}
			return err
		})
	})
}
