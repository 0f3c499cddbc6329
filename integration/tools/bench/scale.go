package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/process"
	"github.com/capstan-cd/capstan/integration/rigs/simagent"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// scaleIDs are the benchmarks that need a fleet of simulated agents and no
// cluster. They run in an installation of their own, in this order, because
// each grows what the one before it left.
var scaleIDs = []string{"B14", "B03", "B24", "B08", "B10", "B16", "B22", "B23", "B28", "RESYNC", "SLOW", "MANY"}

// settle is how long an installation is left alone before memory is read.
const settle = 10 * time.Second

// scale measures a hub with many agents.
func (b *bench) scale(ctx context.Context, bin, dir string) (err error) {
	if err := process.RaiseFiles(uint64(2*max(b.most, b.agents) + 2048)); err != nil {
		return err
	}
	// Agents have machines of their own. Here they share the hub's, and what
	// collects their garbage would be as much as what they do.
	debug.SetGCPercent(400)
	s, err := stack.Start(ctx, stack.Options{
		Bin: bin, Dir: filepath.Join(dir, "scale"), Durable: true, Settings: b.profiled(), Postgres: b.explained(),
		Say: func(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	var alone time.Duration
	if b.wants("B14", "B28", "MANY") {
		alone = b.rest
	}
	f, err := newFleet(ctx, s, alone)
	if err != nil {
		return err
	}
	defer f.close(ctx)
	x := &scale{bench: b, profiler: profiler{b.profiles, s}, f: f, s: s}
	for _, part := range []struct {
		ids []string
		do  func(context.Context) error
	}{
		{[]string{"B14", "B28", "B03", "B24", "B08", "B10", "B22", "B23", "MANY"}, x.grow},
		{[]string{"B03", "B24", "B08", "B10", "B22", "B23"}, x.deploy},
		{[]string{"B03", "B24"}, x.change},
		{[]string{"B08"}, x.unrelated},
		{[]string{"B10"}, x.ingest},
		{[]string{"B22", "B23"}, x.restart},
		{[]string{"B23"}, x.cut},
		{[]string{"B16"}, x.oneImage},
		{[]string{"RESYNC"}, x.resync},
		{[]string{"SLOW"}, x.slow},
		{[]string{"MANY"}, x.five},
		{[]string{"B28"}, x.curves},
	} {
		if !b.wants(part.ids...) {
			continue
		}
		if err := part.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(part.ids, ", "), err)
		}
	}
	return nil
}

type scale struct {
	*bench
	profiler
	f    *fleet
	s    *stack.Stack
	repo *gitserver.Repository
	at   []point // idle installations of growing size
}

// sizes are those at which the fleet is measured, the largest last.
func (x *scale) sizes() []int {
	var sizes []int
	if x.wants("B28") {
		for _, n := range []int{10, 32, 100, 316, 1000} {
			if n < x.agents {
				sizes = append(sizes, n)
			}
		}
	}
	return append(sizes, x.agents)
}

// grow enrols the fleet in steps and looks at the hub after each.
func (x *scale) grow(ctx context.Context) error {
	steps := x.sizes()
	for i, n := range steps {
		if err := x.f.Grow(ctx, n); err != nil {
			return err
		}
		if i == len(steps)-1 && x.wants("B14", "B28") {
			if err := pause(ctx, x.rest); err != nil { // as before the first of them
				return err
			}
		}
		if !x.wants("B14", "B28") {
			continue
		}
		if err := x.idle(ctx, "B14"); err != nil {
			return err
		}
	}
	return nil
}

// idle measures what agents cost that do nothing.
func (x *scale) idle(ctx context.Context, id string) error {
	if err := pause(ctx, settle); err != nil {
		return err
	}
	before, err := x.f.gauge(ctx)
	if err != nil {
		return err
	}
	const window = 20 * time.Second
	if err := pause(ctx, window); err != nil {
		return err
	}
	after, err := x.f.gauge(ctx)
	if err != nil {
		return err
	}
	n, d, t := float64(len(x.f.Agents)), after.at.Sub(before.at).Seconds(), after.since(before)
	used := x.f.memory() - x.f.bare
	if err := x.idleProfiles(ctx, fmt.Sprintf("%s-%d", id, len(x.f.Agents))); err != nil {
		return err
	}
	p := point{n: n, memory: used * 1024 / n, cpu: t.hub / d}
	x.at = append(x.at, p)
	x.add(id, fmt.Sprintf("%d agents connected and idle", len(x.f.Agents)),
		fmt.Sprintf("%.0f KiB of PSS each, hub %.0f MiB", p.memory, x.f.memory()),
		fmt.Sprintf("%.1f goroutines each; hub %.2f%% of a core, Postgres %.2f%%; each agent %.1f B/s in, %.1f B/s out; %.1f transactions/s, %.1f rows/s; %s",
			(float64(after.goroutines)-x.f.still)/n, 100*t.hub/d, 100*t.pg/d, float64(t.in)/d/n, float64(t.out)/d/n, float64(t.commits)/d, float64(t.written)/d, after.heap))
	return nil
}

// deploy makes one application for each agent, all of the same folder.
func (x *scale) deploy(ctx context.Context) error {
	var err error
	if x.repo, err = x.s.Repository(ctx, "fleet", gitserver.RepositoryOptions{}); err != nil {
		return err
	}
	files := web("web", "v0")
	files["docs/readme.md"] = "nothing that is rendered\n"
	if _, err := x.repo.Commit(ctx, "begin", files); err != nil {
		return err
	}
	before, err := x.f.gauge(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := x.applications(ctx, x.f.Agents); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := x.allAt(wait, begin, len(x.f.Agents)); err != nil {
		return err
	}
	took := time.Since(begin)
	after, err := x.f.gauge(ctx)
	if err != nil {
		return err
	}
	x.add("B03", fmt.Sprintf("create %d applications, one in each of %d clusters, until all are Synced", len(x.f.Agents), len(x.f.Agents)),
		fmt.Sprintf("%.2f s", took.Seconds()), after.since(before).String())
	return nil
}

func (x *scale) applications(ctx context.Context, agents []*simagent.Agent) error {
	for chunk := range slices.Chunk(agents, 250) {
		var all strings.Builder
		for _, a := range chunk {
			all.WriteString(strings.Replace(application("web-"+a.Name, "web", x.repo.URL(), "web"), "name: in-cluster", "name: "+a.Name, 1))
		}
		if _, err := x.s.API.Apply(ctx, all.String()); err != nil {
			return err
		}
	}
	return nil
}

// allAt waits until so many applications are Synced since a moment.
func (x *scale) allAt(ctx context.Context, since time.Time, n int) error {
	db, err := pgx.Connect(ctx, x.s.Postgres.Superuser("capstan"))
	if err != nil {
		return err
	}
	defer db.Close(context.WithoutCancel(ctx))
	for {
		var done int
		err := db.QueryRow(ctx, `SELECT count(*) FROM application_status WHERE sync = 'Synced' AND compared_at >= $1`, since).Scan(&done)
		if err != nil {
			return err
		}
		if done >= n {
			return x.f.Err()
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d applications are Synced: %w; wrong: %w", done, n, err, x.f.Err())
		}
	}
}

// accepted waits until the hub has stored that all agents hold all of their
// logs.
func (x *scale) accepted(ctx context.Context) error {
	db, err := pgx.Connect(ctx, x.s.Postgres.Superuser("capstan"))
	if err != nil {
		return err
	}
	defer db.Close(context.WithoutCancel(ctx))
	for {
		var behind int
		err := db.QueryRow(ctx, `SELECT count(*) FROM log_head h JOIN log_ack a USING (tenant_id, cluster_id) WHERE a.acked_seq < h.seq`).Scan(&behind)
		if err != nil || behind == 0 {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("%d agents are behind: %w", behind, err)
		}
	}
}

// change pushes one commit that concerns every cluster.
func (x *scale) change(ctx context.Context) error {
	for round := range 5 {
		if err := x.through(ctx); err != nil {
			return err
		}
		rows := map[*simagent.Agent]uint64{}
		for _, a := range x.f.Agents {
			rows[a] = a.Rows()
		}
		before, err := x.f.gauge(ctx)
		if err != nil {
			return err
		}
		value := fmt.Sprintf("v%d", round+1)
		if _, err := x.repo.Commit(ctx, value, map[string]string{"web/one.yaml": configMap("one-web", value)}); err != nil {
			return err
		}
		if err := x.statements(ctx, fmt.Sprintf("B24-%d-before-statements.txt", round+1)); err != nil {
			return err
		}
		busy := x.busyProfile(ctx, fmt.Sprintf("B24-%d", round+1))
		pushed := time.Now()
		wait := time.Minute
		if err := x.f.All(ctx, wait, "at the new revision", func(a *simagent.Agent) bool { return a.Rows() > rows[a] }); err != nil {
			return err
		}
		held := time.Since(pushed)
		times := x.rowTimes(pushed)
		limited, cancel := context.WithTimeout(ctx, wait)
		err = x.accepted(limited)
		stored := time.Since(pushed)
		if err == nil {
			err = x.allAt(limited, pushed, len(x.f.Agents))
		}
		synced := time.Since(pushed)
		cancel()
		if err = errors.Join(err, busy()); err != nil {
			return err
		}
		after, err := x.f.gauge(ctx)
		if err != nil {
			return err
		}
		if err := x.statements(ctx, fmt.Sprintf("B24-%d-statements.txt", round+1)); err != nil {
			return err
		}
		t := after.since(before)
		x.add("B24", fmt.Sprintf("one changed file to %d agents, round %d", len(x.f.Agents), round+1),
			fmt.Sprintf("all hold it %.2f s (first %.2f, half %.2f), stored %.2f s, Synced %.2f s",
				held.Seconds(), times[0].Seconds(), times[len(times)/2].Seconds(), stored.Seconds(), synced.Seconds()),
			fmt.Sprintf("%s; hub %.0f µs each", t, 1e6*t.hub/float64(len(x.f.Agents))))
	}
	return nil
}

// through waits until nothing is left to do of the change before. Garbage of
// the agents' is collected: they have machines of their own.
func (x *scale) through(ctx context.Context) error {
	db, err := pgx.Connect(ctx, x.s.Postgres.Superuser("capstan"))
	if err != nil {
		return err
	}
	defer db.Close(context.WithoutCancel(ctx))
	defer runtime.GC()
	return x.f.until(ctx, "through with the change before", func() bool {
		var left int
		err := db.QueryRow(ctx, `SELECT count(*) FROM work.item WHERE kind IN ('refresh', 'outcome')`).Scan(&left)
		return err == nil && left == 0
	})
}

// rowTimes are when the agents took their newest rows, in order, since a
// moment.
func (x *scale) rowTimes(since time.Time) []time.Duration {
	var times []time.Duration
	for _, a := range x.f.Agents {
		times = append(times, a.RowAt().Sub(since))
	}
	slices.Sort(times)
	return times
}

// unrelated pushes a commit that no application reads.
func (x *scale) unrelated(ctx context.Context) error {
	before, err := x.f.gauge(ctx)
	if err != nil {
		return err
	}
	commit, err := x.repo.Commit(ctx, "words", map[string]string{"docs/readme.md": "other words\n"})
	if err != nil {
		return err
	}
	pushed := time.Now()
	if err := x.everywhere(ctx, commit); err != nil {
		return err
	}
	took := time.Since(pushed)
	after, err := x.f.gauge(ctx)
	if err != nil {
		return err
	}
	t := after.since(before)
	x.add("B08", fmt.Sprintf("a commit that none of %d applications reads, until they show it", len(x.f.Agents)),
		fmt.Sprintf("%.2f s, %.0f/s of hub CPU", took.Seconds(), float64(t.reused)/max(t.hub, 0.01)), t.String())
	if t.renders != 0 {
		return fmt.Errorf("a commit that nothing reads must cost no render: %s", t)
	}
	return nil
}

// everywhere waits until all applications of the fleet are at a revision.
func (x *scale) everywhere(ctx context.Context, commit string) error {
	db, err := pgx.Connect(ctx, x.s.Postgres.Superuser("capstan"))
	if err != nil {
		return err
	}
	defer db.Close(context.WithoutCancel(ctx))
	return x.f.until(ctx, "at the new revision everywhere", func() bool {
		var n int
		err := db.QueryRow(ctx, `SELECT count(*) FROM application_status WHERE revision = $1`, commit).Scan(&n)
		return err == nil && n == len(x.f.Agents)
	})
}

// shown waits until the hub shows a revision of an application.
func (x *scale) shown(ctx context.Context, app, commit string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err := x.s.API.Wait(ctx, app, func(a stack.App) error {
		if a.Status.Sync.Revision != commit {
			return fmt.Errorf("%s is at %.8s", app, a.Status.Sync.Revision)
		}
		return nil
	})
	return err
}

// restart kills the hub and starts it again.
func (x *scale) restart(ctx context.Context) error {
	before, err := x.f.gauge(ctx)
	if err != nil {
		return err
	}
	opened, rows := x.totals()
	if err := x.s.Hub.Kill(); err != nil {
		return err
	}
	begin := time.Now()
	if err := x.s.Hub.Start(ctx); err != nil {
		return err
	}
	serving := time.Since(begin)
	return x.back(ctx, "B22", "kill -9 of the hub", begin, serving, before, opened, rows, true)
}

// cut ends all connections at once.
func (x *scale) cut(ctx context.Context) error {
	before, err := x.f.gauge(ctx)
	if err != nil {
		return err
	}
	opened, rows := x.totals()
	begin := time.Now()
	for _, a := range x.f.Agents {
		a.Cut()
	}
	return x.back(ctx, "B23", "all connections cut", begin, 0, before, opened, rows, false)
}

func (x *scale) totals() (opened int64, rows uint64) {
	for _, a := range x.f.Agents {
		opened += a.Sessions()
		rows += a.Rows()
	}
	return opened, rows
}

// back waits until all agents have confirmed what they hold, and then some
// time for a second storm.
func (x *scale) back(ctx context.Context, id, what string, begin time.Time, serving time.Duration, before gauge, opened int64, rows uint64, fresh bool) error {
	pages := x.watchPages(ctx)
	if err := x.f.All(ctx, 3*time.Minute, "back", func(a *simagent.Agent) bool { return a.Attached() && a.ConfirmedAt().After(begin) }); err != nil {
		return err
	}
	var times []time.Duration
	for _, a := range x.f.Agents {
		times = append(times, a.ConfirmedAt().Sub(begin))
	}
	slices.Sort(times)
	slowest := pages()
	if err := pause(ctx, settle); err != nil {
		return err
	}
	after, err := x.f.gauge(ctx)
	if err != nil {
		return err
	}
	t, n := after.since(before), len(times)
	if fresh { // another process, and other backends of the database
		t.pg = after.pg
		t.hub, t.renders, t.reused = after.hub, after.renders, after.reused
	}
	sessions, again := x.totals()
	x.add(id, fmt.Sprintf("%s, %d agents, until all have confirmed", what, n),
		fmt.Sprintf("%.1f s (serving %.1f, half %.1f, 90%% %.1f)", times[n-1].Seconds(), serving.Seconds(), times[n/2].Seconds(), times[n*9/10].Seconds()),
		fmt.Sprintf("%.2f dials and %.2f sessions each, %d rows sent again; slowest list page %.0f ms; %s; hub %.2f ms each",
			float64(t.dials)/float64(n), float64(sessions-opened)/float64(n), again-rows, slowest.Seconds()*1000, t, 1000*t.hub/float64(n)))
	if t.renders != 0 || again != rows {
		return fmt.Errorf("nothing changed, so nothing may be rendered or sent: %d renders, %d rows", t.renders, again-rows)
	}
	return nil
}

// watchPages reads a page of applications again and again as a person does,
// and gives the longest that it took.
func (x *scale) watchPages(ctx context.Context) func() time.Duration {
	ctx, cancel := context.WithCancel(ctx)
	most := make(chan time.Duration, 1)
	go func() {
		var slowest time.Duration
		for pause(ctx, 200*time.Millisecond) == nil {
			begin := time.Now()
			if err := x.s.API.Do(ctx, http.MethodGet, "/api/v1/applications?limit=50", nil, nil); err == nil {
				slowest = max(slowest, time.Since(begin))
			}
		}
		most <- slowest
	}()
	return func() time.Duration {
		cancel()
		return <-most
	}
}

// five lets more agents join than any other benchmark.
func (x *scale) five(ctx context.Context) error {
	begin, had := time.Now(), len(x.f.Agents)
	if err := x.f.Grow(ctx, x.most); err != nil {
		return err
	}
	took := time.Since(begin)
	x.add("MANY", fmt.Sprintf("%d agents enrol and connect", x.most-had), fmt.Sprintf("%.0f s (%.0f/s; the hub takes 50 enrolments a second)",
		took.Seconds(), float64(x.most-had)/took.Seconds()), "")
	return x.idle(ctx, "MANY")
}
