package metrics_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capstan-cd/capstan/hub/metrics"
)

func TestHostCalls(t *testing.T) {
	t.Parallel()
	call := metrics.HostCall{
		Tenant: "t", Namespace: "argocd", Set: "previews", Kind: "github", Method: "GET", Endpoint: "/repos/{owner}/{repo}/pulls", Status: 200, Took: time.Second,
		Limited: true, Limit: 5000, Remaining: 4990, Used: 10, Reset: time.Now().Add(time.Hour), Resource: "core",
	}
	t.Run("AGEN-18 requests to GitHub and its rate limit have Argo CD's names", func(t *testing.T) {
		t.Parallel()
		reg := prometheus.NewRegistry()
		m := metrics.New(reg, metrics.Options{Argo: true})
		m.HostCall(call)
		got := scrape(t, reg)
		for name, value := range map[string]string{
			"argocd_github_api_requests_total": "1", "argocd_github_api_request_duration_seconds": "", "argocd_github_api_rate_limit_remaining": "4990",
			"argocd_github_api_rate_limit_limit": "5000", "argocd_github_api_rate_limit_used": "10", "argocd_github_api_rate_limit_reset_seconds": "",
			"capstan_scm_requests_total": "1", "capstan_scm_request_duration_seconds": "",
		} {
			if len(got[name]) != 1 || !strings.Contains(fmt.Sprint(got[name]), value) {
				t.Errorf("%s: %v, want %s", name, got[name], value)
			}
		}
		if text := fmt.Sprint(got["argocd_github_api_requests_total"]); !strings.Contains(text, "previews") || !strings.Contains(text, "/repos/{owner}/{repo}/pulls") {
			t.Error(text)
		}
	})
	t.Run("AGEN-18 other hosts, and a hub without Argo CD's names, have our own alone", func(t *testing.T) {
		t.Parallel()
		reg := prometheus.NewRegistry()
		m := metrics.New(reg, metrics.Options{})
		m.HostCall(call)
		gitLab := call
		gitLab.Kind, gitLab.Status = "gitlab", 0
		m.HostCall(gitLab)
		if got := scrape(t, reg); len(got["capstan_scm_requests_total"]) != 2 || len(got["argocd_github_api_requests_total"]) != 0 {
			t.Errorf("%v", got["capstan_scm_requests_total"])
		}
	})
	t.Run("OBS-01 the number of sets has a cap", func(t *testing.T) {
		t.Parallel()
		reg := prometheus.NewRegistry()
		m := metrics.New(reg, metrics.Options{Argo: true, MaxSeries: 10})
		for i := range 100 {
			one := call
			one.Set = fmt.Sprint("set-", i)
			m.HostCall(one)
		}
		if got := scrape(t, reg); len(got["argocd_github_api_requests_total"]) != 11 {
			t.Errorf("%d series", len(got["argocd_github_api_requests_total"]))
		}
	})
}
