package metrics

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
)

// argo are the metrics that dashboards for Argo CD use (OBS-01, OBS-03,
// OBS-04). Series of one application have the tenant's name besides Argo CD's
// labels, because names are unique in a tenant only.
type argo struct {
	logins    *prometheus.CounterVec
	gitTotal  *prometheus.CounterVec
	gitTime   *prometheus.HistogramVec
	gitFailed *prometheus.CounterVec
	ociTotal  *prometheus.CounterVec
	ociTime   *prometheus.HistogramVec
	ociFailed map[string]*prometheus.CounterVec // by type of request
	waited    *prometheus.HistogramVec
	reconcile *prometheus.HistogramVec
	triggers  *prometheus.CounterVec
	messages  *prometheus.CounterVec
	names     *firstValues // of triggers and services
	repos     *firstValues
	synced    *syncs
}

func newArgo(m *Metrics) argo {
	a := argo{names: newFew(mostNames), repos: newFew(m.options.MaxSeries), synced: newSyncs(m.options.MaxSeries)}
	a.logins = m.counter("argocd_login_request_total", "Attempts to sign in.", "status")
	a.gitTotal = m.counter("argocd_git_request_total", "Conversations with Git servers.", "repo", "request_type")
	a.gitTime = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "argocd_git_request_duration_seconds", Help: "Time of conversations with Git servers.", Buckets: []float64{0.1, 0.25, .5, 1, 2, 4, 10, 20},
	}, []string{"repo", "request_type"})
	a.ociTotal = m.counter("argocd_oci_request_total", "Requests to OCI registries.", "repo", "request_type")
	a.ociTime = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "argocd_oci_request_duration_seconds", Help: "Time of requests to OCI registries.", Buckets: []float64{0.1, 0.25, .5, 1, 2, 4, 10, 20},
	}, []string{"repo", "request_type"})
	// Argo CD's label is the repository; a render here reads several.
	a.waited = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "argocd_repo_parallelism_wait_duration_seconds", Help: "Time that renders waited for a worker.", Buckets: []float64{.01, .1, .5, 1, 2, 4, 10, 30, 60},
	}, []string{"repo"})
	a.ociFailed = map[string]*prometheus.CounterVec{}
	for kind, name := range map[string]string{"get-tags": "get_tags", "resolve-revision": "resolve_revision", "extract": "extract"} {
		a.ociFailed[kind] = m.counter("argocd_oci_"+name+"_fail_total", "Requests of this type to OCI registries that failed.", "repo")
	}
	m.reg.MustRegister(a.gitTime, a.ociTime, a.waited)
	a.gitFailed = m.counter("argocd_git_fetch_fail_total", "Fetches that failed.", "repo")
	a.reconcile = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "argocd_app_reconcile", Help: "Time to refresh an application.", Buckets: []float64{0.25, .5, 1, 2, 4, 8, 16},
	}, []string{"namespace", "dest_server"})
	m.reg.MustRegister(a.reconcile)
	a.triggers = m.counter("argocd_notifications_trigger_eval_total", "Evaluations of triggers of notifications.", "name", "triggered")
	a.messages = m.counter("argocd_notifications_deliveries_total", "Attempts to deliver notifications.", "trigger", "service", "succeeded")
	return a
}

func (a argo) git(kind, repo string, err error, took time.Duration) {
	repo = a.repos.pick(repourl.Redact(repo))
	a.gitTotal.WithLabelValues(repo, kind).Inc()
	a.gitTime.WithLabelValues(repo, kind).Observe(took.Seconds())
	if err != nil && kind == "fetch" {
		a.gitFailed.WithLabelValues(repo).Inc()
	}
}

func (a argo) oci(kind, repo string, err error, took time.Duration) {
	repo = a.repos.pick(repourl.Redact(repo))
	a.ociTotal.WithLabelValues(repo, kind).Inc()
	a.ociTime.WithLabelValues(repo, kind).Observe(took.Seconds())
	if failed := a.ociFailed[kind]; err != nil && failed != nil {
		failed.WithLabelValues(repo).Inc()
	}
}

// Waiting shows how many renders wait for a worker under Argo CD's name, too.
func (m *Metrics) Waiting(read func() float64) {
	if m.options.Argo {
		m.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "argocd_repo_pending_request_total", Help: "Renders that wait for a worker.", ConstLabels: prometheus.Labels{"repo": ""},
		}, read))
	}
}

func (a argo) ended(application, phase string, took time.Duration) {
	a.synced.add(application, phase, took)
}

// Reconciled counts a refresh of an application. Argo CD's label dest_server is
// empty, because a batch of applications is refreshed together.
func (m *Metrics) Reconciled(took time.Duration) {
	if m.options.Argo {
		m.argo.reconcile.WithLabelValues("", "").Observe(took.Seconds())
	}
}

// mostNames bounds the names of triggers and services that are shown one by one:
// tenants choose them.
const mostNames = 500

// Evaluated counts evaluations of a trigger.
func (m *Metrics) Evaluated(trigger string, triggered bool, n int) {
	if m.options.Argo {
		m.argo.triggers.WithLabelValues(m.argo.names.pick(trigger), strconv.FormatBool(triggered)).Add(float64(n))
	}
}

// Delivered counts an attempt to deliver a notification.
func (m *Metrics) Delivered(trigger, service string, succeeded bool) {
	if m.options.Argo {
		m.argo.messages.WithLabelValues(m.argo.names.pick(trigger), m.argo.names.pick(service), strconv.FormatBool(succeeded)).Inc()
	}
}

// other is the label of what is not shown one by one.
const other = "other"

// firstValues lets the first values of a label through, and calls the rest other.
type firstValues struct {
	mu   sync.Mutex
	most int
	seen map[string]bool
}

func newFew(most int) *firstValues { return &firstValues{most: most, seen: map[string]bool{}} }

func (f *firstValues) pick(v string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen[v] {
		return v
	}
	if len(f.seen) >= f.most {
		return other
	}
	f.seen[v] = true
	return v
}

// syncs counts ended operations by application until they are shown under its
// name. An application that is gone is forgotten.
type syncs struct {
	mu    sync.Mutex
	most  int
	count map[syncKey]*ended
}

type syncKey struct{ application, phase string }

type ended struct {
	n       int64
	seconds float64
}

func newSyncs(most int) *syncs { return &syncs{most: most, count: map[syncKey]*ended{}} }

func (s *syncs) add(application, phase string, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := syncKey{application, phase}
	e := s.count[k]
	if e == nil {
		if len(s.count) >= 3*s.most {
			return
		}
		e = &ended{}
		s.count[k] = e
	}
	e.n++
	e.seconds += took.Seconds()
}

// of returns the counts of an application by phase.
func (s *syncs) of(application string) map[string]ended {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]ended{}
	for _, phase := range []string{"Succeeded", "Failed", "Error"} {
		if e := s.count[syncKey{application, phase}]; e != nil {
			out[phase] = *e
		}
	}
	return out
}

// forgetMissing forgets applications that are not there any more.
func (s *syncs) forgetMissing(there map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.count {
		if !there[k.application] {
			delete(s.count, k)
		}
	}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// argoSeries are the series of one picture of the applications.
func (m *Metrics) argoSeries(p Snapshot, ch chan<- prometheus.Metric) {
	info := desc("argocd_app_info", "One series for each application.", "namespace", "name", "project", "autosync_enabled", "repo", "dest_server", "dest_namespace", "sync_status", "health_status", "operation", "tenant")
	conditions := desc("argocd_app_condition", "Conditions of applications.", "namespace", "name", "condition", "tenant")
	total := desc("argocd_app_sync_total", "Operations of applications that ended.", "namespace", "name", "project", "dest_server", "phase", "dry_run", "tenant")
	seconds := desc("argocd_app_sync_duration_seconds_total", "Time of operations of applications.", "namespace", "name", "project", "dest_server", "tenant")
	labelled, names := m.labelDesc()
	there := map[string]bool{}
	for _, a := range p.Applications {
		there[string(a.ID)] = true
		gauge(ch, info, 1, a.Namespace, a.Name, a.Project, word(a.Automated), repourl.Redact(a.RepoURL), a.Server, a.DestinationNamespace, a.Sync, a.Health, strings.ToLower(a.Operation), a.Tenant)
		for _, c := range a.Conditions {
			gauge(ch, conditions, 1, a.Namespace, a.Name, c, a.Tenant)
		}
		if labelled != nil {
			gauge(ch, labelled, 1, append([]string{a.Namespace, a.Name, a.Project, a.Tenant}, pick(a.Labels, names)...)...)
		}
		var sum float64
		counts := m.argo.synced.of(string(a.ID))
		for phase, e := range counts {
			sum += e.seconds
			ch <- prometheus.MustNewConstMetric(total, prometheus.CounterValue, float64(e.n), a.Namespace, a.Name, a.Project, a.Server, phase, "false", a.Tenant)
		}
		if len(counts) > 0 {
			ch <- prometheus.MustNewConstMetric(seconds, prometheus.CounterValue, sum, a.Namespace, a.Name, a.Project, a.Server, a.Tenant)
		}
	}
	if !p.Truncated {
		m.argo.synced.forgetMissing(there)
	}
	m.argoClusters(p.Clusters, ch)
}

func (m *Metrics) argoClusters(clusters []Cluster, ch chan<- prometheus.Metric) {
	info := desc("argocd_cluster_info", "One series for each cluster.", "server", "name", "k8s_version", "tenant")
	status := desc("argocd_cluster_connection_status", "1 while the cluster's agent is connected.", "server", "k8s_version", "tenant", "name")
	apis := desc("argocd_cluster_api_resources", "API versions and kinds that a cluster serves.", "server", "name", "tenant")
	for _, c := range clusters {
		gauge(ch, info, 1, c.Server, c.Name, c.KubeVersion, c.Tenant)
		gauge(ch, status, truth(c.Connected), c.Server, c.KubeVersion, c.Tenant, c.Name)
		gauge(ch, apis, float64(c.APIVersions), c.Server, c.Name, c.Tenant)
	}
}

// labelDesc is argocd_app_labels with the labels that were asked for
// (OBS-02); nil: none were.
func (m *Metrics) labelDesc() (*prometheus.Desc, []string) {
	if len(m.options.Labels) == 0 {
		return nil, nil
	}
	names := []string{"namespace", "name", "project", "tenant"}
	for _, l := range m.options.Labels {
		names = append(names, "label_"+LabelName(l))
	}
	return desc("argocd_app_labels", "Labels of applications.", names...), m.options.Labels
}

// LabelName is the name that a label of an application has in metrics.
func LabelName(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || (r >= '0' && r <= '9') || (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') {
			return r
		}
		return '_'
	}, s)
}

func pick(labels map[string]string, names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = labels[n]
	}
	return out
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	if m, err := prometheus.NewConstMetric(d, prometheus.GaugeValue, v, labels...); err == nil {
		ch <- m
	}
}

func word(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// An Application is one of a tenant.
type Application struct {
	hub.ApplicationFigures
	Tenant string // its name
}

// A Cluster is one of a tenant.
type Cluster struct {
	hub.ClusterFigures
	Tenant string
}
