package daemon

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/agent/metrics"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/telemetry"
	"github.com/capstan-cd/capstan/shared/trace"
)

// guardEvery is the interval at which the loops are checked.
const guardEvery = 5 * time.Second

// instruments are the agent's metrics and probes.
type instruments struct {
	monitor  *lifecycle.Monitor
	health   *telemetry.Health
	registry *prometheus.Registry
	metrics  *metrics.Metrics
	tracer   *trace.Tracer
	stop     func() // ends the port
}

// starting is reported until the agent is assembled: an unreachable API server
// may delay the start, which is not a reason to restart.
func starting(context.Context) error { return fault.New(fault.Offline, "the agent is starting") }

// firstComparison is the name of the readiness check of the first comparison.
const firstComparison = "first look"

func newInstruments(ctx context.Context, c Config) (*instruments, error) {
	t := &instruments{health: telemetry.NewHealth(), stop: func() {}}
	t.health.Ready(firstComparison, starting)
	t.monitor = lifecycle.NewMonitor(lifecycle.System{}, func(ctx context.Context, e *lifecycle.PanicError) {
		c.Log.ErrorContext(ctx, "a defect was caught", logkey.Where, e.Where, logkey.Error, e.Value, logkey.Stack, e.Stack)
	})
	t.health.Live("loops", func(context.Context) error {
		if stuck := t.monitor.Stuck(); len(stuck) > 0 {
			return fault.New(fault.Offline, "no progress in %s", strings.Join(stuck, ", "))
		}
		return nil
	})
	t.registry = telemetry.NewRegistry(t.monitor)
	t.metrics = metrics.New(t.registry, true)
	var err error
	if t.tracer, err = trace.Setup(ctx, "capstan-agent", "", c.Log); err != nil {
		return nil, err
	}
	if err = t.listen(ctx, c); err != nil {
		t.close(ctx)
		return nil, err
	}
	return t, nil
}

// listen serves health and metrics from now on, until close.
func (t *instruments) listen(ctx context.Context, c Config) error {
	if c.Listen == "" {
		return nil
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fault.With(fault.Wrap(fault.Invalid, err, "the agent cannot listen on %s", c.Listen), "", "choose another port with --listen")
	}
	port := telemetry.Port{Registry: t.registry, Health: t.health, Profiles: c.Profiles, Readers: telemetry.Readers{Everybody: true}, Log: c.Log}
	own, cancel := context.WithCancel(t.monitor.With(context.WithoutCancel(ctx)))
	done := make(chan struct{})
	c.Log.InfoContext(ctx, "serving health and metrics", logkey.Address, ln.Addr().String())
	go func() {
		defer close(done)
		err := lifecycle.Safely(own, "health and metrics", func(ctx context.Context) error { return port.Serve(ctx, ln) })
		if err != nil {
			c.Log.ErrorContext(own, "health and metrics are not served any more", logkey.Error, err)
		}
	}()
	t.stop = func() { cancel(); <-done }
	return nil
}

// close ends what newInstruments started, also if the agent did not run.
func (t *instruments) close(ctx context.Context) {
	t.stop()
	_ = t.tracer.Stop(ctx) // without a collector the last spans are lost
}

// parts run before all others.
func (t *instruments) parts(c Config) []lifecycle.Part {
	return []lifecycle.Part{{Name: "watchdog", Run: func(ctx context.Context) error {
		return t.monitor.Guard(ctx, guardEvery, nil, func(names []string, stacks string) {
			c.Log.ErrorContext(ctx, "a loop makes no progress; liveness fails until it does", logkey.Loops, names, logkey.Stacks, stacks)
		})
	}}}
}

// addStats adds metrics that are read on demand. The link affects neither
// readiness nor liveness: the accepted state is enforced without the hub.
func (a *agent) addStats() {
	m := a.instruments.metrics
	a.instruments.health.Ready(firstComparison, func(context.Context) error {
		if !a.engine.Ready() {
			return fault.New(fault.Offline, "the cluster has not been listed completely since the start")
		}
		return nil
	})
	engine := func(read func(apps, objects, operations int) int) func() float64 {
		return func() float64 { return float64(read(a.engine.Stats())) }
	}
	m.Figure("capstan_agent_applications", "Applications that the agent manages.", engine(func(n, _, _ int) int { return n }))
	m.Figure("capstan_agent_objects", "Objects that the agent manages.", engine(func(_, n, _ int) int { return n }))
	m.Figure("capstan_agent_operations_open", "Operations that run or wait.", engine(func(_, _, n int) int { return n }))
	m.Figure("capstan_agent_outbox_records", "Records that wait to be reported.", func() float64 { return float64(a.outbox.Backlog()) })
	m.Figure("capstan_agent_desired_seq", "Newest row of the desired log that is stored here.", func() float64 { return float64(a.store.Cursor().Seq) })
	m.Figure("capstan_agent_rewound", "1 while hub and agent disagree about the log's past and no change is accepted.", func() float64 { return one(a.store.Rewound() != "") })
	m.Figure("capstan_agent_lease_held", "1 while this agent holds the lease that writes need.", func() float64 { return one(a.lease.Check() == nil) })
	m.Figure("capstan_agent_connected", "1 while the agent is connected to the hub.", func() float64 {
		client := a.conn.link.Load()
		return one(client != nil && client.State().Connected)
	})
	m.Figure("capstan_agent_link_round_trip_seconds", "Round trip of the newest heartbeat.", func() float64 {
		if client := a.conn.link.Load(); client != nil {
			return client.State().RoundTrip.Seconds()
		}
		return 0
	})
	m.Figure("capstan_agent_link_state_seconds", "Time since the link was last connected or lost.", func() float64 {
		if client := a.conn.link.Load(); client != nil {
			return time.Since(client.State().Since).Seconds()
		}
		return 0
	})
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// caughtStream does the same as caught for streams.
func (t *instruments) caughtStream(ctx context.Context, method string, value any) error {
	return t.monitor.Caught(ctx, method, value)
}

// caught converts a panic in a call of the hub to an error of that call.
func (t *instruments) caught(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (res any, err error) {
	defer func() {
		if v := recover(); v != nil {
			res, err = nil, t.monitor.Caught(ctx, info.FullMethod, v)
		}
	}()
	return next(ctx, req)
}
