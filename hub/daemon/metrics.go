package daemon

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"time"
)

// addMetrics serves the counters of this replica, if the configuration says
// where.
func (p *parts) addMetrics(ctx context.Context) error {
	if p.cfg.Listen.Metrics == "" {
		return nil
	}
	ln, err := listen(ctx, p.cfg.Listen.Metrics)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", p.metrics)
	mux.HandleFunc("GET /livez", p.livez)
	mux.HandleFunc("GET /readyz", p.readyz)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: headerTime}
	p.add("metrics", func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = s.Close() })
		defer stop()
		if err := s.Serve(ln); ctx.Err() == nil {
			return err
		}
		return nil
	})
	return nil
}

// metrics writes counters in Prometheus' text form. They count what this
// replica did since it started.
func (p *parts) metrics(w http.ResponseWriter, _ *http.Request) {
	c := p.stage.Counts()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	for _, v := range []struct {
		name, kind, help string
		value            float64
	}{
		{"capstan_renders_total", "counter", "Renders that ended with a snapshot.", float64(c.Rendered)},
		{"capstan_renders_reused_total", "counter", "Refreshes answered from recorded inputs.", float64(c.Reused)},
		{"capstan_renders_failed_total", "counter", "Refreshes that ended with a condition.", float64(c.Failed)},
		{"capstan_agents_connected", "gauge", "Agents attached to this replica.", float64(p.fleet.Len())},
		{"capstan_heap_bytes", "gauge", "Bytes of live heap objects.", float64(m.HeapAlloc)},
		{"capstan_goroutines", "gauge", "Goroutines.", float64(runtime.NumGoroutine())},
		{"capstan_metrics_timestamp_seconds", "gauge", "When this was read.", float64(time.Now().Unix())},
	} {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s %g\n", v.name, v.help, v.name, v.kind, v.name, v.value)
	}
}
