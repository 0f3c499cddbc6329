package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	scrapesAtOnce = 4
	scrapeTime    = 20 * time.Second
	profileTime   = 2 * time.Minute
	headTime      = 5 * time.Second
)

// A Port is what one process tells about itself over HTTP, without sign-in:
// whoever can reach it may read it.
type Port struct {
	Registry *prometheus.Registry
	Health   *Health
	Profiles bool // serve pprof too
	Log      *slog.Logger
}

// Handler answers /metrics, /livez, /readyz and, if asked for, /debug/pprof.
func (p Port) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.Registry, promhttp.HandlerOpts{
		ErrorLog: logged{p.Log}, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: scrapesAtOnce, Timeout: scrapeTime,
	}))
	mux.HandleFunc("GET /livez", handler(p.Health.Liveness))
	mux.HandleFunc("GET /healthz", handler(p.Health.Liveness))
	mux.HandleFunc("GET /readyz", handler(p.Health.Readiness))
	if p.Profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// Serve answers on a listener until ctx ends, then returns nil.
func (p Port) Serve(ctx context.Context, ln net.Listener) error {
	s := &http.Server{
		Handler: p.Handler(), ReadHeaderTimeout: headTime, ReadTimeout: headTime, WriteTimeout: profileTime,
		IdleTimeout: profileTime, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(p.Log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(ln); ctx.Err() == nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// logged takes what the metrics handler complains about.
type logged struct{ log *slog.Logger }

// Println logs one complaint.
func (l logged) Println(v ...any) {
	l.log.Warn("metrics are incomplete", "error", v) //nolint:sloglint // no context reaches here
}
