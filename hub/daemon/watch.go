package daemon

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/capstan-cd/capstan/hub/metrics"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/telemetry"
	"github.com/capstan-cd/capstan/shared/trace"
)

const (
	guardEvery = 5 * time.Second // between checks of the loops
	pingTime   = 3 * time.Second
)

// observe makes the hub's metrics, health and traces.
func (p *parts) observe(ctx context.Context) error {
	p.monitor = lifecycle.NewMonitor(p.clock, func(ctx context.Context, e *lifecycle.PanicError) {
		p.log.ErrorContext(ctx, "a defect was caught", logkey.Where, e.Where, logkey.Error, e.Value, logkey.Stack, e.Stack)
	})
	p.health = telemetry.NewHealth()
	p.health.Live("loops", func(context.Context) error {
		if stuck := p.monitor.Stuck(); len(stuck) > 0 {
			return fault.New(fault.Offline, "no progress in %s", strings.Join(stuck, ", "))
		}
		return nil
	})
	p.metrics = telemetry.NewRegistry(p.monitor)
	p.instruments = metrics.New(p.metrics, p.cfg.Metrics.options())
	var err error
	p.tracer, err = trace.Setup(ctx, "capstan-hub", p.cfg.Replica, p.log)
	p.add("watchdog", p.guard)
	return err
}

// guard finds loops that are stuck. An unreachable database is no reason to
// restart: every loop waits for it.
func (p *parts) guard(ctx context.Context) error {
	away := func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, pingTime)
		defer cancel()
		return p.db.Ping(ctx) != nil
	}
	return p.monitor.Guard(ctx, guardEvery, away, func(names []string, stacks string) {
		p.log.ErrorContext(ctx, "a loop makes no progress; liveness fails until it does", logkey.Loops, names, logkey.Stacks, stacks)
	})
}

// addLevel changes the log's level while the hub runs: SIGHUP switches to
// debug, and back.
func (p *parts) addLevel(level *slog.LevelVar) {
	p.add("log level", func(ctx context.Context) error {
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-hup:
				level.Set(telemetry.NextLevel(level.Level(), p.cfg.Log.level()))
				p.log.WarnContext(ctx, "log level changed", logkey.Level, level.Level())
			}
		}
	})
}
