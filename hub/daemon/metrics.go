package daemon

import (
	"context"
	"fmt"
	"github.com/capstan-cd/capstan/shared/logkey"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/metrics"
	"github.com/capstan-cd/capstan/hub/quota"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/telemetry"
)

// addMetrics serves the metrics of this replica and how it is, if the
// configuration says where.
func (p *parts) addMetrics(ctx context.Context) error {
	p.addStats()
	if p.cfg.Listen.Metrics == "" {
		return nil
	}
	ln, err := listen(ctx, p.cfg.Listen.Metrics)
	if err != nil {
		return err
	}
	readers, err := p.cfg.Metrics.readers()
	if err != nil {
		return err
	}
	if host, _, err := net.SplitHostPort(p.cfg.Listen.Metrics); err == nil && readers.Token == nil && !readers.Everybody && !isLoopback(host) {
		p.log.WarnContext(ctx, "metrics are served to this machine alone: metrics.tokenFile is not set", logkey.Address, p.cfg.Listen.Metrics)
	}
	port := telemetry.Port{Registry: p.metrics, Health: p.health, Profiles: p.cfg.Metrics.Profiles, Readers: readers, Log: p.log}
	p.add("metrics", func(ctx context.Context) error { return port.Serve(ctx, ln) })
	return nil
}

// readers are those who may read the metrics, which name tenants,
// applications and repositories.
func (m Metrics) readers() (telemetry.Readers, error) {
	if m.TokenFile == "" {
		return telemetry.Readers{Everybody: m.Public}, nil
	}
	token := func() (string, error) {
		b, err := os.ReadFile(m.TokenFile)
		return strings.TrimSpace(string(b)), err
	}
	text, err := token()
	switch {
	case err != nil:
		return telemetry.Readers{}, fault.Wrap(fault.Invalid, err, "metrics.tokenFile cannot be read")
	case text == "":
		return telemetry.Readers{}, fault.New(fault.Invalid, "metrics.tokenFile is empty")
	}
	return telemetry.Readers{Token: token}, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// addStats adds the metrics that are read when somebody asks for them.
func (p *parts) addStats() {
	count := func(read func(render.Counters) int64) func() float64 {
		return func() float64 { return float64(read(p.stage.Counts())) }
	}
	p.instruments.Figure("capstan_renders_total", "Renders that ended with a snapshot.", true, count(func(c render.Counters) int64 { return c.Rendered }))
	p.instruments.Figure("capstan_renders_reused_total", "Refreshes answered from recorded inputs.", true, count(func(c render.Counters) int64 { return c.Reused }))
	p.instruments.Figure("capstan_renders_failed_total", "Refreshes that ended with a condition.", true, count(func(c render.Counters) int64 { return c.Failed }))
	p.instruments.Figure("capstan_renders_paused_total", "Failed refreshes that were answered with a cached error instead of a render.", true, count(func(c render.Counters) int64 { return c.Paused }))
	p.instruments.Figure("capstan_agents_connected", "Connections of agents to this replica.", false, func() float64 { return float64(p.fleet.Len()) })
	pool := func(read func(working, waiting int, ended int64) float64) func() float64 {
		return func() float64 { return read(p.pool.Stats()) }
	}
	p.instruments.Figure("capstan_render_workers", "Worker processes alive.", false, func() float64 { return float64(p.pool.Workers()) })
	p.instruments.Figure("capstan_render_running", "Renders under way.", false, pool(func(n, _ int, _ int64) float64 { return float64(n) }))
	waiting := pool(func(_, n int, _ int64) float64 { return float64(n) })
	p.instruments.Figure("capstan_render_waiting", "Renders that wait for a worker.", false, waiting)
	p.instruments.Waiting(waiting)
	p.instruments.Figure("capstan_render_workers_ended_total", "Workers that failed during a render or were killed.", true, pool(func(_, _ int, n int64) float64 { return float64(n) }))
	p.instruments.Link(func() []metrics.LinkFigures {
		var out []metrics.LinkFigures
		for _, t := range p.fleet.ByteCounts() {
			out = append(out, metrics.LinkFigures(t))
		}
		return out
	})
	p.instruments.Pools(func() []metrics.PoolFigures {
		var out []metrics.PoolFigures
		for _, s := range p.db.Pools() {
			out = append(out, metrics.PoolFigures{
				Name: s.Name, Open: float64(s.Open), InUse: float64(s.InUse), Max: float64(s.Max), Acquired: float64(s.Acquired),
				Waited: float64(s.Waited), TimedOut: float64(s.AcquireFailed), WaitSeconds: s.Wait.Seconds(),
			})
		}
		return out
	})
	p.instruments.Show(p.snapshot, p.log)
}

// snapshot reads the metrics of stored rows: the queues of all tenants in one
// statement, and of each tenant two in a transaction of its own. A cluster, and
// what is deployed to it, is shown by the replica that has its agent, so that
// sums over replicas are right; while no replica does, all show it.
func (p *parts) snapshot(ctx context.Context, room int) (metrics.Snapshot, error) {
	var out metrics.Snapshot
	system := p.db.System()
	var err error
	if out.Queues, err = system.Queues(ctx); err != nil {
		return out, fmt.Errorf("read the queues: %w", err)
	}
	tenants, err := system.Tenants(ctx)
	if err != nil {
		return out, fmt.Errorf("list the tenants: %w", err)
	}
	for _, t := range tenants {
		var apps []hub.ApplicationFigures
		var clusters []hub.ClusterFigures
		err := p.db.ReadTenant(ctx, t.ID, func(ctx context.Context, tx *store.Tenant) (err error) {
			if clusters, err = tx.ClusterFigures(ctx, room); err != nil {
				return err
			}
			apps, err = tx.ApplicationFigures(ctx, room)
			return err
		})
		if fault.KindOf(err) == fault.Missing && err != nil {
			continue // removed in between
		}
		if err != nil {
			return out, fmt.Errorf("read the figures of tenant %s: %w", t.ID, err)
		}
		out.Add(t.Name, elsewhere(p.replica, apps, &clusters), clusters, room)
	}
	return out, nil
}

// elsewhere leaves out what another replica shows.
func elsewhere(replica string, apps []hub.ApplicationFigures, clusters *[]hub.ClusterFigures) []hub.ApplicationFigures {
	theirs := map[hub.ClusterID]bool{}
	var ours []hub.ClusterFigures
	for _, c := range *clusters {
		if c.Connected && c.Replica != replica {
			theirs[c.ID] = true
			continue
		}
		ours = append(ours, c)
	}
	*clusters = ours
	var out []hub.ApplicationFigures
	for _, a := range apps {
		if !theirs[a.Cluster] {
			out = append(out, a)
		}
	}
	return out
}

// metered is a renderer whose renders are counted.
type metered struct {
	next    render.Renderer
	metrics *metrics.Metrics
	rates   *quota.Rates
}

// Render renders one application, when its tenant may.
func (m metered) Render(ctx context.Context, r render.Request) (render.Result, error) {
	if err := m.rates.Render(ctx, r.Tenant); err != nil {
		return render.Result{}, err
	}
	began := time.Now()
	res, err := m.next.Render(ctx, r)
	word := "ok"
	if err != nil {
		word = string(fault.KindOf(err))
	}
	m.metrics.Rendered(word, time.Since(began))
	return res, err
}

// face reports the metrics of the HTTP API.
type face struct {
	*metrics.Metrics
	monitor *lifecycle.Monitor
}

// Caught counts a defect in a handler.
func (f face) Caught(ctx context.Context, where string, value any) {
	_ = f.monitor.Caught(ctx, where, value)
}

// caughtUnary turns a defect in a call into one failed call.
func (p *parts) caughtUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (res any, err error) {
	defer func() {
		if v := recover(); v != nil {
			res, err = nil, p.monitor.Caught(ctx, info.FullMethod, v)
		}
	}()
	return next(ctx, req)
}

// caughtStream does the same for streams.
func (p *parts) caughtStream(ctx context.Context, method string, value any) error {
	return p.monitor.Caught(ctx, method, value)
}
