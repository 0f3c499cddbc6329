package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/integration/rigs/process"
	"github.com/capstan-cd/capstan/integration/rigs/simagent"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// A fleet is the simulated agents of one installation, and what observes both.
type fleet struct {
	*simagent.Fleet
	s  *stack.Stack
	db *pgx.Conn // the superuser's, in another database

	url      func() string // of the hub's metrics
	postgres int           // postmaster
	bare     float64       // MiB of the hub without agents
	still    float64       // goroutines of the hub without agents
}

func newFleet(ctx context.Context, s *stack.Stack, rest time.Duration) (*fleet, error) {
	f := &fleet{Fleet: simagent.NewFleet(ctx, s.API), s: s, url: s.Hub.Metrics}
	var err error
	if f.db, err = pgx.Connect(ctx, s.Postgres.Superuser("postgres")); err != nil {
		return nil, err
	}
	var backend int
	if err := f.db.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&backend); err != nil {
		return nil, err
	}
	if f.postgres, err = process.Parent(backend); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "the hub is left alone for %s\n", rest)
	if err := pause(ctx, rest); err != nil {
		return nil, err
	}
	f.bare = f.memory()
	c, err := readCounts(ctx, f.url())
	f.still = c.goroutines()
	return f, err
}

// hub is the hub's process with its render workers.
func (f *fleet) hub() []int { return append([]int{f.s.Hub.PID()}, process.Children(f.s.Hub.PID())...) }

func (f *fleet) memory() float64 { return process.PSS(f.hub()...) }

// until waits for something that comes within a minute.
func (f *fleet) until(ctx context.Context, what string, is func() bool) error {
	for deadline := time.Now().Add(time.Minute); !is(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("not %s within a minute; wrong: %w", what, f.Err())
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) close(ctx context.Context) {
	f.Stop()
	_ = f.db.Close(context.WithoutCancel(ctx))
}

// A gauge is what an installation has used so far.
type gauge struct {
	at                time.Time
	hub, pg, own      float64 // CPU seconds
	stolen            float64 // of all cores: what the host gave to others although there was work here
	commits           int64
	written           int64 // rows
	in, out           int64 // bytes that agents received and sent
	renders, reused   int
	goroutines, dials int
	heap              heap
}

// A heap is what the hub's memory is for, in MiB.
type heap struct {
	objects, spans, kept, stacks float64 // made and not collected; the spans they lie in; free and not returned; of goroutines
}

func (h heap) String() string {
	return fmt.Sprintf("objects %.0f MiB in spans of %.0f, %.0f free, stacks %.0f", h.objects, h.spans, h.kept, h.stacks)
}

// heap is what the Go runtime of the hub says.
func (c counts) heap() heap {
	mib := func(name string) float64 { return c["go_memstats_"+name] / (1 << 20) }
	return heap{
		objects: mib("heap_alloc_bytes"), spans: mib("heap_inuse_bytes"), kept: mib("heap_idle_bytes") - mib("heap_released_bytes"), stacks: mib("stack_inuse_bytes"),
	}
}

// statsLag is how long Postgres may keep a backend's counts to itself.
const statsLag = 1500 * time.Millisecond

func (f *fleet) gauge(ctx context.Context) (gauge, error) {
	g := gauge{at: time.Now(), hub: process.CPUSeconds(f.hub()...), pg: process.CPUSeconds(append(process.Children(f.postgres), f.postgres)...), own: process.CPUSeconds(os.Getpid())}
	g.stolen = process.StolenSeconds()
	for _, a := range f.Agents {
		in, out := a.Traffic()
		g.in += in
		g.out += out
		g.dials += int(a.Dials())
	}
	c, err := readCounts(ctx, f.url())
	if err != nil {
		return g, err
	}
	g.renders, g.reused, g.goroutines = int(c["capstan_renders_total"]), int(c["capstan_renders_reused_total"]), int(c.goroutines())
	g.heap = c.heap()
	if err := pause(ctx, statsLag); err != nil {
		return g, err
	}
	err = f.db.QueryRow(ctx, `
		SELECT xact_commit, tup_inserted + tup_updated + tup_deleted FROM pg_stat_database WHERE datname = 'capstan'`).Scan(&g.commits, &g.written)
	return g, err
}

// since is what was used from one moment to the other.
func (g gauge) since(b gauge) gauge {
	return gauge{
		hub: g.hub - b.hub, pg: g.pg - b.pg, own: g.own - b.own, stolen: g.stolen - b.stolen, commits: g.commits - b.commits, written: g.written - b.written,
		in: g.in - b.in, out: g.out - b.out, renders: g.renders - b.renders, reused: g.reused - b.reused, dials: g.dials - b.dials,
	}
}

func (g gauge) String() string {
	return fmt.Sprintf("%d renders, %d reused; %d transactions, %d rows written; %s to agents, %s from them; CPU-s: hub %.2f, Postgres %.2f, simulators %.2f, stolen %.2f",
		g.renders, g.reused, g.commits, g.written, bytesText(g.in), bytesText(g.out), g.hub, g.pg, g.own, g.stolen)
}

func bytesText(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 10<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
