// Package metrics defines the hub's metrics: their names, what they count, and
// what they show of stored rows. Every label has few values, or a limit, so
// that untrusted names cannot create series without bound. The daemon makes one
// Metrics and passes it to the stages as their own small interfaces.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capstan-cd/capstan/shared/telemetry"
)

// Options say what is shown beyond the counters.
type Options struct {
	Argo      bool     // Argo CD's names besides our own
	PerTenant bool     // applications, clusters and operations by tenant
	Labels    []string // of applications, as labels of argocd_app_labels
	MaxSeries int      // applications and repositories that are shown one by one; 0: 10,000
}

// A Metrics is the hub's instruments. Many goroutines may use it.
type Metrics struct {
	options Options
	reg     prometheus.Registerer

	web      webMetrics
	link     linkMetrics
	reports  reportsMetrics
	work     workMetrics
	remotes  remotesMetrics
	hosts    hostsMetrics
	byTenant *prometheus.CounterVec
	argo     argo
}

// webMetrics count requests of users.
type webMetrics struct {
	requests    *prometheus.CounterVec
	requestTime *prometheus.HistogramVec
	logins      *prometheus.CounterVec
	webhooks    *prometheus.CounterVec
}

// linkMetrics count calls of agents and what they get.
type linkMetrics struct {
	calls      *prometheus.CounterVec
	callTime   *prometheus.HistogramVec
	roundTrip  prometheus.Histogram
	enrolments *prometheus.CounterVec
	rows       *prometheus.CounterVec
	acks       prometheus.Counter
	blobs      *prometheus.CounterVec
	blobBytes  prometheus.Counter
}

// reportsMetrics count what agents report.
type reportsMetrics struct {
	batches   *prometheus.CounterVec
	records   *prometheus.CounterVec
	batchTime prometheus.Histogram
}

// workMetrics count the work queue, renders and operations.
type workMetrics struct {
	claimed      *prometheus.CounterVec
	finished     *prometheus.CounterVec
	held         *prometheus.HistogramVec
	renderTime   *prometheus.HistogramVec
	renderWait   prometheus.Histogram
	operations   *prometheus.CounterVec
	operationRun *prometheus.HistogramVec
}

// remotesMetrics count Git servers and registries.
type remotesMetrics struct {
	ociRequests *prometheus.CounterVec
	ociTime     *prometheus.HistogramVec
	gitRequests *prometheus.CounterVec
	gitTime     *prometheus.HistogramVec
	fetches     *prometheus.CounterVec
}

// New makes the instruments and registers them.
func New(reg prometheus.Registerer, o Options) *Metrics {
	if o.MaxSeries <= 0 {
		o.MaxSeries = 10_000
	}
	m := &Metrics{options: o, reg: reg}
	m.web.requests = m.counter("capstan_http_requests_total", "Requests to the HTTP API.", "route", "method", "code")
	m.web.requestTime = m.histogram("capstan_http_request_duration_seconds", "Time to answer a request; streams apart.", "route", "method")
	m.web.logins = m.counter("capstan_logins_total", "Attempts to sign in.", "result")
	m.link.calls = m.counter("capstan_link_calls_total", "Calls of agents that have ended.", "method", "code")
	m.link.callTime = m.histogram("capstan_link_call_duration_seconds", "Time to answer a call of an agent; streams apart.", "method")
	m.link.roundTrip = m.plain("capstan_link_round_trip_seconds", "Round trips of heartbeats, as agents measured them.")
	m.link.enrolments = m.counter("capstan_enrolments_total", "Attempts to enrol an agent, by the stage that they reached; issued is success.", "stage")
	m.link.rows = m.counter("capstan_desired_rows_sent_total", "Rows of desired logs sent to agents.", "kind")
	m.link.acks = m.counter("capstan_desired_acks_total", "Acknowledgements of desired rows by agents.").WithLabelValues()
	m.link.blobs = m.counter("capstan_blobs_sent_total", "Sealed objects sent to agents.", "result")
	m.link.blobBytes = m.counter("capstan_blobs_sent_bytes_total", "Bytes of sealed objects sent to agents.").WithLabelValues()
	m.reports.batches = m.counter("capstan_observation_batches_total", "Reports of agents, by result.", "result")
	m.reports.records = m.counter("capstan_observation_records_total", "Records in stored reports.", "kind")
	m.reports.batchTime = m.plain("capstan_observation_store_duration_seconds", "Time to store one report.")
	m.work.claimed = m.counter("capstan_work_claimed_total", "Work items claimed by this replica.", "kind")
	m.work.finished = m.counter("capstan_work_finished_total", "Work items released by this replica, by result.", "kind", "result")
	m.work.held = m.histogram("capstan_work_duration_seconds", "Time from claiming a work item to releasing it.", "kind")
	m.work.renderTime = m.histogram("capstan_render_duration_seconds", "Time to render an application, waiting for a worker included.", "result")
	m.work.renderWait = m.plain("capstan_render_wait_seconds", "Time that renders waited for a worker.")
	m.remotes.ociRequests = m.counter("capstan_oci_requests_total", "Requests to OCI registries.", "type", "result")
	m.remotes.ociTime = m.histogram("capstan_oci_request_duration_seconds", "Time of requests to OCI registries.", "type")
	m.remotes.gitRequests = m.counter("capstan_git_requests_total", "Conversations with Git servers.", "type", "result")
	m.remotes.gitTime = m.histogram("capstan_git_request_duration_seconds", "Time of conversations with Git servers.", "type")
	m.remotes.fetches = m.counter("capstan_fetches_total", "Fetches of repositories.", "result")
	m.work.operations = m.counter("capstan_operations_total", "Operations that ended.", "phase")
	m.work.operationRun = m.histogram("capstan_operation_duration_seconds", "Time from the start of an operation to its end.", "phase")
	m.web.webhooks = m.counter("capstan_webhooks_total", "Events of Git hosts and registries.", "result")
	if o.PerTenant {
		m.byTenant = m.counter("capstan_tenant_operations_total", "Operations that ended, by tenant.", "tenant", "phase")
	}
	if o.Argo {
		m.argo = newArgo(m)
	}
	m.hosts = newHosts(m)
	return m
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	return telemetry.Counter(m.reg, name, help, labels...)
}

func (m *Metrics) histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	return telemetry.Histogram(m.reg, name, help, labels...)
}

func (m *Metrics) plain(name, help string) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: telemetry.Seconds()})
	m.reg.MustRegister(h)
	return h
}

// Figure adds a gauge or counter that is read at each scrape.
func (m *Metrics) Figure(name, help string, counter bool, read func() float64) {
	if counter {
		m.reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, read))
		return
	}
	m.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

// Request counts an answered request. Route is a pattern, never an address.
func (m *Metrics) Request(route, method, code string, took time.Duration) {
	method = known(method, "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
	m.web.requests.WithLabelValues(route, method, code).Inc()
	if route != "/api/v1/stream" {
		m.web.requestTime.WithLabelValues(route, method).Observe(took.Seconds())
	}
}

// Login counts an attempt to sign in.
func (m *Metrics) Login(ok bool) {
	m.web.logins.WithLabelValues(result(ok)).Inc()
	if m.options.Argo {
		m.argo.logins.WithLabelValues(map[bool]string{true: "success", false: "failure"}[ok]).Inc()
	}
}

// Enrolled counts an attempt to enrol by the stage that it reached.
func (m *Metrics) Enrolled(stage string) {
	m.link.enrolments.WithLabelValues(known(stage, "issued", "token", "expired", "used", "csr", "store", "limit")).Inc()
}

// Webhook counts a push event.
func (m *Metrics) Webhook(ok bool) { m.web.webhooks.WithLabelValues(result(ok)).Inc() }

// Claimed counts claimed work items.
func (m *Metrics) Claimed(kind string, n int) { m.work.claimed.WithLabelValues(kind).Add(float64(n)) }

// Finished counts an item of work that was given back.
func (m *Metrics) Finished(kind string, done bool, took time.Duration) {
	m.work.finished.WithLabelValues(kind, map[bool]string{true: "done", false: "later"}[done]).Inc()
	m.work.held.WithLabelValues(kind).Observe(took.Seconds())
}

// Rendered counts one render.
func (m *Metrics) Rendered(result string, took time.Duration) {
	m.work.renderTime.WithLabelValues(result).Observe(took.Seconds())
}

// Waited counts how long a render waited for a worker.
func (m *Metrics) Waited(took time.Duration) {
	m.work.renderWait.Observe(took.Seconds())
	if m.options.Argo {
		m.argo.waited.WithLabelValues("").Observe(took.Seconds())
	}
}

// OCI counts a request to a registry: type is get-tags, resolve-revision or
// extract.
func (m *Metrics) OCI(kind, repo string, err error, took time.Duration) {
	m.remotes.ociRequests.WithLabelValues(kind, result(err == nil)).Inc()
	m.remotes.ociTime.WithLabelValues(kind).Observe(took.Seconds())
	if m.options.Argo {
		m.argo.oci(kind, repo, err, took)
	}
}

// Git counts a conversation with a Git server: type is ls-remote or fetch.
func (m *Metrics) Git(kind, repo string, err error, took time.Duration) {
	m.remotes.gitRequests.WithLabelValues(kind, result(err == nil)).Inc()
	m.remotes.gitTime.WithLabelValues(kind).Observe(took.Seconds())
	if m.options.Argo {
		m.argo.git(kind, repo, err, took)
	}
}

// Fetched counts a fetch of a repository.
func (m *Metrics) Fetched(ok bool) { m.remotes.fetches.WithLabelValues(result(ok)).Inc() }

// Stored counts a report of an agent.
func (m *Metrics) Stored(err error, repeated bool, took time.Duration, records map[string]int) {
	word := "stored"
	switch {
	case err != nil:
		word = "failed"
	case repeated:
		word = "repeated"
	}
	m.reports.batches.WithLabelValues(word).Inc()
	m.reports.batchTime.Observe(took.Seconds())
	if word == "stored" {
		for kind, n := range records {
			m.reports.records.WithLabelValues(kind).Add(float64(n))
		}
	}
}

// Ended counts an operation that is over.
func (m *Metrics) Ended(tenant, application, phase string, took time.Duration) {
	phase = known(phase, "Succeeded", "Failed", "Error")
	m.work.operations.WithLabelValues(phase).Inc()
	m.work.operationRun.WithLabelValues(phase).Observe(took.Seconds())
	if m.options.Argo {
		m.argo.ended(application, phase, took)
	}
	if m.byTenant != nil {
		m.byTenant.WithLabelValues(tenant, phase).Inc()
	}
}

func result(ok bool) string {
	if ok {
		return "ok"
	}
	return "failed"
}

// known limits the values of a label.
func known(v string, words ...string) string {
	for _, w := range words {
		if v == w {
			return v
		}
	}
	return "other"
}
