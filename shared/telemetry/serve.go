package telemetry

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"github.com/capstan-cd/capstan/shared/logkey"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
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

// A Port is what one process reports about itself over HTTP. Health is served
// to everyone; metrics and profiles to those that Readers admits.
type Port struct {
	Registry *prometheus.Registry
	Health   *Health
	Profiles bool // serve pprof too
	Readers  Readers
	Log      *slog.Logger
}

// Readers are those who may read metrics and profiles. The zero value admits
// processes of the same machine alone.
type Readers struct {
	Everybody bool
	// Token returns the required bearer token. It is called for each request,
	// so that the token can be replaced. Nil: no token is required.
	Token func() (string, error)
}

// admit reports whether a request may read, and responds to one that may not.
func (r Readers) admit(w http.ResponseWriter, req *http.Request, log *slog.Logger) bool {
	switch {
	case r.Everybody:
		return true
	case r.Token == nil:
		if addr, err := netip.ParseAddrPort(req.RemoteAddr); err == nil && addr.Addr().Unmap().IsLoopback() {
			return true
		}
		http.Error(w, "metrics are served to this machine alone: set metrics.tokenFile of the configuration, and have the reader send the token", http.StatusForbidden)
		return false
	}
	want, err := r.Token()
	if err != nil || want == "" {
		log.WarnContext(req.Context(), "the token for metrics cannot be read", logkey.Error, err)
		http.Error(w, "the token for metrics cannot be read", http.StatusServiceUnavailable)
		return false
	}
	given, bearer := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	have, need := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(want))
	if bearer && hmac.Equal(have[:], need[:]) {
		return true
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, "metrics need the token of metrics.tokenFile, as Authorization: Bearer", http.StatusUnauthorized)
	return false
}

// Handler serves /metrics, /livez, /readyz and, if enabled, /debug/pprof.
func (p Port) Handler() http.Handler {
	mux := http.NewServeMux()
	guarded := func(h http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if p.Readers.admit(w, r, p.Log) {
				h.ServeHTTP(w, r)
			}
		}
	}
	mux.Handle("GET /metrics", guarded(promhttp.HandlerFor(p.Registry, promhttp.HandlerOpts{
		ErrorLog: logged{p.Log}, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: scrapesAtOnce, Timeout: scrapeTime,
	})))
	mux.HandleFunc("GET /livez", handler(p.Health.Liveness))
	mux.HandleFunc("GET /healthz", handler(p.Health.Liveness))
	mux.HandleFunc("GET /readyz", handler(p.Health.Readiness))
	if p.Profiles {
		mux.Handle("GET /debug/pprof/", guarded(http.HandlerFunc(pprof.Index)))
		mux.Handle("GET /debug/pprof/profile", guarded(http.HandlerFunc(pprof.Profile)))
		mux.Handle("GET /debug/pprof/symbol", guarded(http.HandlerFunc(pprof.Symbol)))
		mux.Handle("GET /debug/pprof/trace", guarded(http.HandlerFunc(pprof.Trace)))
	}
	return mux
}

// Serve serves on a listener until ctx ends, then returns nil.
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

// logged logs errors of the metrics handler.
type logged struct{ log *slog.Logger }

// Println logs one complaint.
func (l logged) Println(v ...any) {
	l.log.Warn("metrics are incomplete", logkey.Error, v)
}
