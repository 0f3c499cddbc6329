package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime/pprof"
	"slices"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/run"
)

// A pulse knows when each of the loops that this process lives by last came
// round. A port that is open proves nothing: a loop may have stopped behind
// it.
type pulse struct {
	clock run.Clock
	mu    sync.Mutex
	loops map[string]loop
}

type loop struct {
	at   time.Time
	most time.Duration // it comes round within
}

func newPulse(clock run.Clock) *pulse { return &pulse{clock: clock, loops: map[string]loop{}} }

// watch expects a loop to come round, from now on.
func (p *pulse) watch(name string, most time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loops[name] = loop{p.clock.Now(), most}
}

// beat says that a loop has come round. Loops that nobody watches may beat.
func (p *pulse) beat(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l, ok := p.loops[name]; ok {
		l.at = p.clock.Now()
		p.loops[name] = l
	}
}

// stalled names the loops that have not come round in time.
func (p *pulse) stalled() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for name, l := range p.loops {
		if d := p.clock.Now().Sub(l.at); d > l.most {
			out = append(out, fmt.Sprintf("%s has not come round for %s", name, d.Round(time.Second)))
		}
	}
	slices.Sort(out)
	return out
}

// The loops that are watched. Work may take long, but not each item of it.
const (
	memberPulse = "sign of life"
	linkPulse   = "revocations"
)

func (p *parts) watchLoops() {
	p.pulse.watch(memberPulse, time.Minute+p.lease())
	p.pulse.watch(linkPulse, time.Minute)
	p.pulse.watch(hub.WorkOutcome, 2*time.Minute)
	p.pulse.watch(hub.WorkRetry, 2*time.Minute)
	p.pulse.watch(hub.WorkRefresh, 20*time.Minute)
	p.pulse.watch(hub.WorkFetch, 20*time.Minute)
}

// beatingStore is the store as replicas and the link see it, which come by
// again and again.
type beatingStore struct {
	*store.System
	pulse *pulse
}

func (s beatingStore) Beat(ctx context.Context, r hub.Replica, life time.Duration) ([]hub.Replica, error) {
	defer s.pulse.beat(memberPulse)
	return s.System.Beat(ctx, r, life)
}

func (s beatingStore) RevocationVersion(ctx context.Context) (int64, error) {
	defer s.pulse.beat(linkPulse)
	return s.System.RevocationVersion(ctx)
}

// probes stand before everything else on every listener for HTTP; and clients
// of a replica that stops are sent elsewhere.
func (p *parts) probes(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/livez" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			p.livez(w, r)
			return
		}
		if p.stopping.Load() && r.ProtoMajor == 1 && r.Header.Get("Upgrade") == "" {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// ready says whether this replica wants requests.
func (p *parts) ready(ctx context.Context) error {
	if p.stopping.Load() {
		return fault.With(fault.New(fault.Offline, "this replica of the hub is about to stop"), "", "another one answers")
	}
	return p.db.Ping(ctx)
}

// readyz is the API's, for the listener that has no API.
func (p *parts) readyz(w http.ResponseWriter, r *http.Request) {
	if err := p.ready(r.Context()); err != nil {
		answer(w, http.StatusServiceUnavailable, "unavailable", fault.Sentence(err))
		return
	}
	answer(w, http.StatusOK, "ok")
}

// livez says whether the loops of this process come round. What stands still
// is logged once, with what every goroutine is doing.
func (p *parts) livez(w http.ResponseWriter, r *http.Request) {
	stalled := p.pulse.stalled()
	if len(stalled) == 0 {
		answer(w, http.StatusOK, "ok")
		return
	}
	p.dumped.Do(func() {
		var b bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&b, 1) // to memory
		p.log.ErrorContext(r.Context(), "the hub does not get on", "stalled", stalled, "goroutines", b.String())
	})
	answer(w, http.StatusServiceUnavailable, "stalled", stalled...)
}

func answer(w http.ResponseWriter, code int, status string, problems ...string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(struct { // nobody is left to tell
		Status   string   `json:"status"`
		Problems []string `json:"problems,omitempty"`
	}{status, problems})
}
