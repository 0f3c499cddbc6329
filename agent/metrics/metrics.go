// Package metrics defines the agent's metrics: their names and meanings. No
// label has the name of an object. The daemon makes one Metrics and passes it
// to the engine and the connections.
package metrics

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/shared/manifest"
	"github.com/capstan-cd/capstan/shared/telemetry"
)

// A Metrics is the agent's instruments. Many goroutines may use it.
type Metrics struct {
	reg        prometheus.Registerer
	objects    *prometheus.CounterVec
	operations *prometheus.CounterVec
	took       *prometheus.HistogramVec
	requests   *prometheus.CounterVec
	answered   *prometheus.HistogramVec
	events     *prometheus.CounterVec
	lists      *prometheus.CounterVec
	argo       *prometheus.CounterVec // nil: Argo CD's names are not served
}

// New makes the instruments and registers them.
func New(reg prometheus.Registerer, argo bool) *Metrics {
	m := &Metrics{reg: reg}
	m.objects = m.counter("capstan_agent_objects_total", "Objects that were applied, deleted, healed, or written again for rotated secrets, and hooks that were run, by result.", "doing", "result")
	m.operations = m.counter("capstan_agent_operations_total", "Operations that ended.", "phase")
	m.took = m.histogram("capstan_agent_operation_duration_seconds", "Time from the start of an operation to its end.", "phase")
	m.requests = m.counter("capstan_agent_kube_requests_total", "Requests to the API server.", "verb", "code")
	m.answered = m.histogram("capstan_agent_kube_request_duration_seconds", "Time until the API server began to answer; watches apart.", "verb")
	m.events = m.counter("capstan_agent_watch_events_total", "Objects that watches and lists brought.", "type")
	m.lists = m.counter("capstan_agent_watch_lists_total", "Complete lists of a kind, and kinds that could not be watched.", "result")
	if argo {
		m.argo = m.counter("argocd_app_k8s_request_total", "Requests to the API server.", "verb", "response_code")
	}
	return m
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	return telemetry.Counter(m.reg, name, help, labels...)
}

func (m *Metrics) histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	return telemetry.Histogram(m.reg, name, help, labels...)
}

// Figure adds a gauge that is read at each scrape.
func (m *Metrics) Figure(name, help string, read func() float64) {
	m.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

// Total adds a counter that is read at each scrape.
func (m *Metrics) Total(name, help string, read func() float64) {
	m.reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, read))
}

// Object counts one operation on an object.
func (m *Metrics) Object(doing, result string) { m.objects.WithLabelValues(doing, result).Inc() }

// Operation counts an ended operation.
func (m *Metrics) Operation(phase string, took time.Duration) {
	m.operations.WithLabelValues(phase).Inc()
	m.took.WithLabelValues(phase).Observe(max(0, took).Seconds())
}

// Wrap counts the requests that go through a transport.
func (m *Metrics) Wrap(next http.RoundTripper) http.RoundTripper { return counted{m, next} }

type counted struct {
	m    *Metrics
	next http.RoundTripper
}

// RoundTrip sends one request.
func (c counted) RoundTrip(req *http.Request) (*http.Response, error) {
	began := time.Now()
	res, err := c.next.RoundTrip(req)
	code := "error"
	if err == nil {
		code = strconv.Itoa(res.StatusCode)
	}
	verb := verbOf(req)
	c.m.requests.WithLabelValues(verb, code).Inc()
	if verb != "watch" {
		c.m.answered.WithLabelValues(verb).Observe(time.Since(began).Seconds())
	}
	if c.m.argo != nil {
		c.m.argo.WithLabelValues(verb, code).Inc()
	}
	return res, err
}

// verbOf is the verb of a request in the API server's terms.
func verbOf(req *http.Request) string {
	switch req.Method {
	case http.MethodGet:
		if req.URL.Query().Get("watch") == "true" || req.URL.Query().Get("watch") == "1" {
			return "watch"
		}
		return "get"
	case http.MethodPost, http.MethodPut, http.MethodDelete:
		return map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodDelete: "delete"}[req.Method]
	case http.MethodPatch:
		if strings.HasPrefix(req.Header.Get("Content-Type"), "application/apply-patch") {
			return "apply"
		}
		return "patch"
	}
	return "other"
}

// A Sink receives the events of watches.
type Sink interface {
	OnUpdate(ctx context.Context, o *manifest.Object)
	OnDelete(ctx context.Context, o *manifest.Object)
	OnReplace(ctx context.Context, gvk schema.GroupVersionKind, namespace, version string, back bool, list map[string]struct{})
	Broken(ctx context.Context, gvk schema.GroupVersionKind, namespace string, err error)
	Warned(ctx context.Context, gvk schema.GroupVersionKind, text string)
	Left(ctx context.Context, gvk schema.GroupVersionKind)
}

// Watching counts the events of a sink.
func (m *Metrics) Watching(next Sink) Sink { return watching{next, m} }

type watching struct {
	Sink
	m *Metrics
}

// OnUpdate counts a seen object.
func (w watching) OnUpdate(ctx context.Context, o *manifest.Object) {
	w.m.events.WithLabelValues("seen").Inc()
	w.Sink.OnUpdate(ctx, o)
}

// OnDelete counts a deleted object.
func (w watching) OnDelete(ctx context.Context, o *manifest.Object) {
	w.m.events.WithLabelValues("gone").Inc()
	w.Sink.OnDelete(ctx, o)
}

// OnReplace counts a complete list.
func (w watching) OnReplace(ctx context.Context, gvk schema.GroupVersionKind, namespace, version string, back bool, list map[string]struct{}) {
	w.m.lists.WithLabelValues("ok").Inc()
	w.Sink.OnReplace(ctx, gvk, namespace, version, back, list)
}

// Broken counts a kind that cannot be watched.
func (w watching) Broken(ctx context.Context, gvk schema.GroupVersionKind, namespace string, err error) {
	if err != nil {
		w.m.lists.WithLabelValues("failed").Inc()
	}
	w.Sink.Broken(ctx, gvk, namespace, err)
}
