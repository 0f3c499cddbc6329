package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// hostsMetrics count requests of generators to Git hosts.
type hostsMetrics struct {
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	argo     gitHubMetrics
}

// gitHubMetrics are those that dashboards for Argo CD use (AGEN-18). Series have
// the id of the tenant besides Argo CD's labels, because names of sets are
// unique in a tenant only. The label endpoint is the path without names.
type gitHubMetrics struct {
	requests                      *prometheus.CounterVec
	took                          *prometheus.HistogramVec
	remaining, limit, reset, used *prometheus.GaugeVec
	sets                          *firstValues
}

func newHosts(m *Metrics) hostsMetrics {
	h := hostsMetrics{
		requests: m.counter("capstan_scm_requests_total", "Requests of generators to Git hosts; the code is 0 without an answer.", "kind", "code"),
		took:     m.histogram("capstan_scm_request_duration_seconds", "Time of requests of generators to Git hosts.", "kind"),
	}
	if m.options.Argo {
		h.argo = newGitHub(m)
	}
	return h
}

func newGitHub(m *Metrics) gitHubMetrics {
	const prefix = "argocd_github_api_"
	set := []string{"appset_namespace", "appset_name", "tenant"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + name, Help: help}, append([]string{"endpoint", "resource"}, set...))
		m.reg.MustRegister(g)
		return g
	}
	g := gitHubMetrics{
		sets:     newFew(m.options.MaxSeries),
		requests: m.counter(prefix+"requests_total", "Requests of generators to GitHub.", append([]string{"method", "endpoint", "status"}, set...)...),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "request_duration_seconds", Help: "Time of requests of generators to GitHub.", Buckets: prometheus.DefBuckets,
		}, append([]string{"method", "endpoint"}, set...)),
		remaining: gauge("rate_limit_remaining", "Requests that are left of the rate limit."),
		limit:     gauge("rate_limit_limit", "Requests of an hour that the rate limit permits."),
		reset:     gauge("rate_limit_reset_seconds", "Time until the rate limit begins anew."),
		used:      gauge("rate_limit_used", "Requests of the rate limit that are used."),
	}
	m.reg.MustRegister(g.took)
	return g
}

// A HostCall is one request of a generator to a Git host.
type HostCall struct {
	Tenant    string // its id
	Namespace string // of the set
	Set       string
	Kind      string // of the host
	Method    string
	Endpoint  string // the path without names
	Status    int    // 0: there was no answer
	Took      time.Duration

	Limited                bool // the host has said what is left of its rate limit
	Limit, Remaining, Used int
	Reset                  time.Time
	Resource               string
}

// HostCall counts a request.
func (m *Metrics) HostCall(c HostCall) {
	m.hosts.requests.WithLabelValues(c.Kind, strconv.Itoa(c.Status)).Inc()
	m.hosts.took.WithLabelValues(c.Kind).Observe(c.Took.Seconds())
	if m.options.Argo && c.Kind == "github" {
		m.hosts.argo.call(c)
	}
}

func (g gitHubMetrics) call(c HostCall) {
	if g.sets.pick(c.Tenant+"/"+c.Namespace+"/"+c.Set) == other {
		c.Tenant, c.Namespace, c.Set = other, other, other
	}
	g.requests.WithLabelValues(c.Method, c.Endpoint, strconv.Itoa(c.Status), c.Namespace, c.Set, c.Tenant).Inc()
	g.took.WithLabelValues(c.Method, c.Endpoint, c.Namespace, c.Set, c.Tenant).Observe(c.Took.Seconds())
	if !c.Limited {
		return
	}
	labels := []string{c.Endpoint, c.Resource, c.Namespace, c.Set, c.Tenant}
	g.remaining.WithLabelValues(labels...).Set(float64(c.Remaining))
	g.limit.WithLabelValues(labels...).Set(float64(c.Limit))
	g.used.WithLabelValues(labels...).Set(float64(c.Used))
	if !c.Reset.IsZero() {
		g.reset.WithLabelValues(labels...).Set(max(time.Until(c.Reset).Seconds(), 0))
	}
}
