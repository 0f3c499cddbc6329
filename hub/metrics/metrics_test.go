package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/metrics"
	"github.com/capstan-cd/capstan/shared/fault"
)

// scrape returns every series as text, by metric name.
func scrape(t *testing.T, reg *prometheus.Registry) map[string][]string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			out[f.GetName()] = append(out[f.GetName()], m.String())
		}
	}
	return out
}

func rows(apps int) metrics.Rows {
	return func(_ context.Context, room int) (metrics.Snapshot, error) {
		var p metrics.Snapshot
		for _, tenant := range []string{"acme", "globex"} {
			var list []hub.ApplicationFigures
			for i := range apps {
				list = append(list, hub.ApplicationFigures{
					Namespace: "argocd", Name: fmt.Sprintf("app-%d", i), Project: "default", ID: hub.ApplicationID(fmt.Sprintf("%s-%d", tenant, i)),
					RepoURL: "https://robot:hunter2@git.example.com/x.git", Server: "https://k", Sync: "Synced", Health: "Healthy",
					Labels: map[string]string{"team.example.com/name": "core"}, Conditions: []string{"SyncError"},
				})
			}
			p.Add(tenant, list, []hub.ClusterFigures{{ID: hub.ClusterID(tenant), Name: "prod", Server: "https://k", Connected: true, LagRows: 2, LagSeconds: 3}}, room)
		}
		return p, nil
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	quiet := slog.New(slog.DiscardHandler)
	t.Run("OBS-01 applications appear under Argo CD's names, apart by tenant", func(t *testing.T) {
		t.Parallel()
		reg := prometheus.NewRegistry()
		m := metrics.New(reg, metrics.Options{Argo: true, Labels: []string{"team.example.com/name"}})
		m.Show(rows(2), quiet)
		m.Ended("t", "acme-1", "Succeeded", 2*time.Second)
		got := scrape(t, reg)
		for name, want := range map[string]int{
			"argocd_app_info": 4, "argocd_app_condition": 4, "argocd_app_labels": 4, "argocd_app_sync_total": 1, "argocd_app_sync_duration_seconds_total": 1,
			"argocd_cluster_info": 2, "argocd_cluster_connection_status": 2,
		} {
			if len(got[name]) != want {
				t.Errorf("%s has %d series, want %d: %v", name, len(got[name]), want, got[name])
			}
		}
		if all := fmt.Sprint(got); strings.Contains(all, "hunter2") || !strings.Contains(all, `label_team_example_com_name`) {
			t.Errorf("%v", got["argocd_app_info"])
		}
	})
	t.Run("OBS-04 repositories appear without their credentials", func(t *testing.T) {
		t.Parallel()
		reg := prometheus.NewRegistry()
		m := metrics.New(reg, metrics.Options{Argo: true})
		m.Git("fetch", "https://robot:hunter2@git.example.com/x.git", errors.New("no"), time.Second)
		m.Git("ls-remote", "https://git.example.com/x.git", nil, time.Second)
		got := scrape(t, reg)
		if strings.Contains(fmt.Sprint(got), "hunter2") || len(got["argocd_git_request_total"]) != 2 || len(got["argocd_git_fetch_fail_total"]) != 1 {
			t.Errorf("%v", got["argocd_git_request_total"])
		}
	})
	t.Run("OBS-04 requests to registries and waits for a worker have Argo CD's names too", func(t *testing.T) {
		t.Parallel()
		reg := prometheus.NewRegistry()
		m := metrics.New(reg, metrics.Options{Argo: true})
		for _, kind := range []string{"get-tags", "resolve-revision", "extract"} {
			m.OCI(kind, "oci://robot:hunter2@registry.example.com/x", nil, time.Second)
			m.OCI(kind, "oci://registry.example.com/x", errors.New("no"), time.Second)
		}
		m.Waited(time.Second)
		m.Waiting(func() float64 { return 3 })
		got := scrape(t, reg)
		for name, want := range map[string]int{
			"argocd_oci_request_total": 3, "argocd_oci_request_duration_seconds": 3, "argocd_oci_get_tags_fail_total": 1, "argocd_oci_resolve_revision_fail_total": 1,
			"argocd_oci_extract_fail_total": 1, "argocd_repo_parallelism_wait_duration_seconds": 1, "argocd_repo_pending_request_total": 1,
			"capstan_oci_requests_total": 6, "capstan_render_wait_seconds": 1,
		} {
			if len(got[name]) != want {
				t.Errorf("%s has %d series, want %d: %v", name, len(got[name]), want, got[name])
			}
		}
		if strings.Contains(fmt.Sprint(got), "hunter2") {
			t.Errorf("a metric shows a password")
		}
	})
	t.Run("OBS-01 the number of series has a cap", func(t *testing.T) {
		t.Parallel()
		reg := prometheus.NewRegistry()
		m := metrics.New(reg, metrics.Options{Argo: true, MaxSeries: 50})
		m.Show(rows(500), quiet)
		for i := range 1000 {
			m.Git("fetch", fmt.Sprintf("https://git.example.com/%d", i), nil, time.Second)
			m.Ended("t", fmt.Sprintf("app-%d", i), "Succeeded", time.Second)
			m.Request("none", fmt.Sprintf("METHOD-%d", i), "404", time.Second)
			m.Enrolled(fmt.Sprintf("stage-%d", i))
			_, _ = m.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/m"}, func(context.Context, any) (any, error) {
				return nil, fault.New(fault.Invalid, "reason %d", i)
			})
		}
		total := 0
		for name, series := range scrape(t, reg) {
			total += len(series)
			if len(series) > 60 {
				t.Errorf("%s has %d series", name, len(series))
			}
		}
		if total > 500 {
			t.Errorf("%d series", total)
		}
	})
	t.Run("OBS-01 Argo CD's names can be switched off, and tenants' names appear only if asked for", func(t *testing.T) {
		t.Parallel()
		for _, per := range []bool{false, true} {
			reg := prometheus.NewRegistry()
			m := metrics.New(reg, metrics.Options{PerTenant: per})
			m.Show(rows(1), quiet)
			got := fmt.Sprint(scrape(t, reg))
			if strings.Contains(got, "argocd_") || strings.Contains(got, "acme") != per {
				t.Errorf("per tenant %v: %s", per, got)
			}
		}
	})
	t.Run("an unreachable database ends the series of its rows and breaks no scrape", func(t *testing.T) {
		t.Parallel()
		reg := prometheus.NewRegistry()
		metrics.New(reg, metrics.Options{Argo: true}).Show(func(context.Context, int) (metrics.Snapshot, error) {
			return metrics.Snapshot{}, fault.New(fault.Offline, "away")
		}, quiet)
		got := scrape(t, reg)
		if len(got["argocd_app_info"]) != 0 || !strings.Contains(fmt.Sprint(got["capstan_metrics_rows_failed_total"]), "value:1") {
			t.Errorf("%v", got)
		}
	})
}
