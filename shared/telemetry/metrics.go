// Package telemetry provides metrics, probes and logs for hub and agent: a
// registry of Prometheus metrics, the port that serves them together with
// liveness and readiness, and the log. It has no metrics except those of the
// process, and nothing that it serves contains a secret. Both daemons call it.
// Its port responds even while the rest of the process does not, with a limit
// of concurrent requests.
package telemetry

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/version"
)

// NewRegistry makes a registry with the metrics of every process: the Go
// runtime, the process, the build, and the monitor's loops.
func NewRegistry(m *lifecycle.Monitor) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build(), monitored{m})
	return r
}

func build() prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "capstan_build_info", Help: "Always 1; the labels say what runs.",
	}, []string{"version", "revision", "goversion"})
	g.WithLabelValues(version.Number, version.String(), runtime.Version()).Set(1)
	return g
}

// monitored reports a monitor's loops.
type monitored struct{ m *lifecycle.Monitor }

// The metrics of monitored.
func panicsDesc() *prometheus.Desc {
	return prometheus.NewDesc("capstan_panics_total", "Defects that were caught; each should be reported.", []string{"where"}, nil)
}

func loopsDesc() *prometheus.Desc {
	return prometheus.NewDesc("capstan_loops", "Monitored work loops, by whether they make progress.", []string{"state"}, nil)
}

// Describe names the metrics.
func (monitored) Describe(ch chan<- *prometheus.Desc) {
	ch <- panicsDesc()
	ch <- loopsDesc()
}

// Collect reads them.
func (c monitored) Collect(ch chan<- prometheus.Metric) {
	panics := c.m.Panics()
	if len(panics) == 0 {
		panics = map[string]int64{"none": 0} // so that the first one is an increase for an alert
	}
	for where, n := range panics {
		ch <- prometheus.MustNewConstMetric(panicsDesc(), prometheus.CounterValue, float64(n), where)
	}
	stuck := len(c.m.Stuck())
	ch <- prometheus.MustNewConstMetric(loopsDesc(), prometheus.GaugeValue, float64(max(0, c.m.Loops()-stuck)), "going")
	ch <- prometheus.MustNewConstMetric(loopsDesc(), prometheus.GaugeValue, float64(stuck), "stuck")
}

// Seconds are the buckets of durations from a millisecond to minutes.
func Seconds() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
}

// Counter adds a counter to a registry.
func Counter(to prometheus.Registerer, name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	to.MustRegister(c)
	return c
}

// Histogram adds a histogram of durations to a registry.
func Histogram(to prometheus.Registerer, name, help string, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: Seconds()}, labels)
	to.MustRegister(h)
	return h
}
