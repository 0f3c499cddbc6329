package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub/secret"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/process"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// sourceIDs are the benchmarks of sources and renders. They have an
// installation of their own with one simulated agent, so that the processor
// time of the hub is that of fetching, rendering and storing alone.
var sourceIDs = []string{"B06", "B07", "B08", "B09", "B17"}

const (
	bestOf     = 3  // rounds of which the best counts
	oneChanges = 10 // commits of B09, each of one file
)

// A sourceBench is the installation of these benchmarks.
type sourceBench struct {
	*bench
	profiler
	f    *fleet
	s    *stack.Stack
	db   *pgx.Conn
	repo *gitserver.Repository // R-mono
	null *nullRender
}

// sources measures them in this order; each needs what the one before it made.
func (b *bench) sources(ctx context.Context, bin, dir string) (err error) {
	s, err := stack.Start(ctx, stack.Options{
		Bin: bin, Dir: filepath.Join(dir, "sources"), Durable: true, Postgres: b.explained(),
		Settings: b.profiledWith(map[string]any{"sources": map[string]any{"pollInterval": pollInterval.String(), "allowPrivate": []string{"127.0.0.0/8"}}}),
		Say:      func(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	f, err := newFleet(ctx, s, 0)
	if err != nil {
		return err
	}
	defer f.close(ctx)
	if err := f.Grow(ctx, 1); err != nil {
		return err
	}
	x := &sourceBench{bench: b, profiler: profiler{b.profiles, s}, f: f, s: s}
	if x.db, err = pgx.Connect(ctx, s.Postgres.Superuser("capstan")); err != nil {
		return err
	}
	defer x.db.Close(context.WithoutCancel(ctx))
	if x.wants("B07", "B08", "B09", "B17") {
		if err := x.renders(ctx); err != nil {
			return err
		}
	}
	if x.wants("B06") {
		return x.polled(ctx)
	}
	return nil
}

func (x *sourceBench) renders(ctx context.Context) (err error) {
	if x.null, err = newNullRender(ctx); err != nil {
		return err
	}
	defer x.null.close()
	if x.repo, err = x.s.Repository(ctx, "mono", gitserver.RepositoryOptions{}); err != nil {
		return err
	}
	if _, err := x.repo.Commit(ctx, "begin", monoFiles()); err != nil {
		return err
	}
	if err := x.cold(ctx); err != nil {
		return fmt.Errorf("B07: %w", err)
	}
	for _, part := range []struct {
		id string
		do func(context.Context) error
	}{{"B08", x.cached}, {"B09", x.oneFile}, {"B17", x.storage}} {
		if !x.wants(part.id) {
			continue
		}
		if err := part.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.id, err)
		}
	}
	return nil
}

// A used is what one step used, by the hub's own processes and by the counts.
type used struct {
	took              time.Duration
	hub               float64 // CPU seconds of the hub and its render workers
	renders, reused   int
	listings, fetches int
}

func (u used) String() string {
	return fmt.Sprintf("%d renders, %d reused, %d listings, %d fetches; hub %.3f CPU-s", u.renders, u.reused, u.listings, u.fetches, u.hub)
}

// measure does something and says what it used until the hub has nothing to
// do.
func (x *sourceBench) measure(ctx context.Context, repo *gitserver.Repository, do func() error) (used, error) {
	if err := x.quiet(ctx); err != nil {
		return used{}, err
	}
	before, err := readCounts(ctx, x.s.Hub.Metrics())
	if err != nil {
		return used{}, err
	}
	requests := repo.Requests()
	cpu, begin := process.CPUSeconds(x.f.hub()...), time.Now()
	if err := do(); err != nil {
		return used{}, err
	}
	took := time.Since(begin)
	if err := x.quiet(ctx); err != nil {
		return used{}, err
	}
	u := used{took: took, hub: process.CPUSeconds(x.f.hub()...) - cpu}
	after, err := readCounts(ctx, x.s.Hub.Metrics())
	if err != nil {
		return u, err
	}
	now := repo.Requests()
	u.renders, u.reused = int(after["capstan_renders_total"]-before["capstan_renders_total"]), int(after["capstan_renders_reused_total"]-before["capstan_renders_reused_total"])
	u.listings, u.fetches = now.Listings-requests.Listings, now.Fetches-requests.Fetches
	return u, x.f.Err()
}

// quiet waits until no work is due before a pause of automation ends, and nothing
// is on its way to the agent or back.
func (x *sourceBench) quiet(ctx context.Context) error {
	return x.within(ctx, "idle", `
		SELECT (SELECT count(*) FROM work.item WHERE kind IN ('refresh', 'outcome') AND ready < now() + interval '10 minutes')
		     + (SELECT count(*) FROM log_head h JOIN log_ack a USING (tenant_id, cluster_id) WHERE a.acked_seq < h.seq)`, 0)
}

// within waits until a query counts so many.
func (x *sourceBench) within(ctx context.Context, what, sql string, want int, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for {
		var n int
		if err := x.db.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
		if n == want {
			return nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("not %s: %d, want %d: %w", what, n, want, err)
		}
	}
}

// allSynced waits until every one of so many applications is Synced at a revision.
func (x *sourceBench) allSynced(ctx context.Context, commit string, n int) error {
	return x.within(ctx, "Synced at the revision", `SELECT count(*) FROM application_status WHERE revision = $1 AND sync = 'Synced'`, n, commit)
}

// cold lets each application of R-mono begin with one file, and then commits
// what it is to be: B07.
func (x *sourceBench) cold(ctx context.Context) error {
	made := 0
	for _, k := range monoKinds() {
		made += k.n
		if err := x.create(ctx, k, made); err != nil {
			return fmt.Errorf("create: %w", err)
		}
		if err := x.firstRender(ctx, k, made); err != nil {
			return fmt.Errorf("render: %w", err)
		}
	}
	return nil
}

// create makes the applications of a kind, each with its first file, until all
// that were made are Synced.
func (x *sourceBench) create(ctx context.Context, k monoKind, made int) error {
	var all strings.Builder
	for i := range k.n {
		all.WriteString(strings.Replace(application(k.name(i), k.dir(i), x.repo.URL(), "mono"), "name: in-cluster", "name: "+x.f.Agents[0].Name, 1))
	}
	u, err := x.measure(ctx, x.repo, func() error {
		if _, err := x.s.API.Apply(ctx, all.String()); err != nil {
			return err
		}
		return x.within(ctx, "Synced", `SELECT count(*) FROM application_status WHERE sync = 'Synced'`, made)
	})
	if err != nil {
		return err
	}
	if x.wants("B07") {
		x.add("B07", fmt.Sprintf("create %d applications of one object, until they are Synced", k.n),
			fmt.Sprintf("%.2f s, %.2f ms of hub CPU each", u.took.Seconds(), 1000*u.hub/float64(k.n)), u.String())
	}
	return nil
}

// firstRender commits the files of a kind. Automation is paused meanwhile, so
// that nothing but fetching, rendering, storing and comparing is counted.
func (x *sourceBench) firstRender(ctx context.Context, k monoKind, made int) error {
	const pauses = "/api/v1/pauses"
	if err := x.s.API.Do(ctx, http.MethodPost, pauses, map[string]any{"reason": "renders alone are counted", "for": "1h"}, nil); err != nil {
		return err
	}
	change := gitserver.Change{Message: k.what, Write: map[string]string{}}
	for i := range k.n {
		change.Remove = append(change.Remove, k.seed(i))
		maps.Copy(change.Write, k.files(k.dir(i), k.name(i), "v0"))
	}
	var commit string
	busy := x.busyProfile(ctx, "B07-"+k.tool)
	u, err := x.measure(ctx, x.repo, func() (err error) {
		if commit, err = x.repo.Push(ctx, change); err != nil {
			return err
		}
		return x.within(ctx, "at the revision", `SELECT count(*) FROM application_status WHERE revision = $1`, made, commit)
	})
	if err != nil {
		return err
	}
	if err := busy(); err != nil {
		return err
	}
	null, err := x.null.render(ctx, x.repo.URL(), k)
	if err != nil {
		return err
	}
	if x.wants("B07") {
		x.add("B07", fmt.Sprintf("first render of %d applications, %s", k.n, k.what),
			fmt.Sprintf("%.2f s, %.0f renders a CPU second, efficiency %.2f", u.took.Seconds(), float64(k.n)/u.hub, null/u.hub),
			fmt.Sprintf("%s; null system %.3f CPU-s", u, null))
	}
	if u.renders != k.n || u.fetches != 1 {
		return fmt.Errorf("%d applications must cost as many renders and one fetch: %s", k.n, u)
	}
	if err := x.s.API.Do(ctx, http.MethodDelete, pauses, nil, nil); err != nil {
		return err
	}
	return x.allSynced(ctx, commit, made)
}

// cached commits what no application reads: B08.
func (x *sourceBench) cached(ctx context.Context) error {
	n := monoTotal()
	var best used
	for round := range bestOf {
		u, err := x.measure(ctx, x.repo, func() error {
			commit, err := x.repo.Commit(ctx, "words", map[string]string{"docs/readme.md": fmt.Sprintf("words %d\n", round)})
			if err != nil {
				return err
			}
			return x.allSynced(ctx, commit, n)
		})
		if err != nil {
			return err
		}
		if u.renders != 0 || u.fetches != 1 {
			return fmt.Errorf("a commit that nothing reads must cost one fetch and no render: %s", u)
		}
		if round == 0 || u.hub < best.hub {
			best = u
		}
	}
	null, err := x.null.change(ctx, x.repo, "docs/readme.md", nil)
	if err != nil {
		return err
	}
	x.add("B08", fmt.Sprintf("a commit that none of %d applications reads, until all show it", n),
		fmt.Sprintf("%.0f ms of hub CPU, %.0f applications a CPU second, efficiency %.2f", 1000*best.hub, float64(n)/best.hub, null/best.hub),
		fmt.Sprintf("%s (best of %d); null system %.3f CPU-s", best, bestOf, null))
	return nil
}

// oneFile changes one file of one application, on R-mono and on R-deep: B09.
func (x *sourceBench) oneFile(ctx context.Context) error {
	flat, err := x.oneFileOf(ctx, "R-mono")
	if err != nil {
		return err
	}
	if err := x.deepen(ctx); err != nil {
		return err
	}
	deep, err := x.oneFileOf(ctx, "R-deep")
	if err != nil {
		return err
	}
	x.add("B09", "hub CPU, R-deep against R-mono", fmt.Sprintf("%.2f times", deep/flat), "")
	return nil
}

// oneFileOf returns the hub's CPU seconds of one change, the best round of
// several.
func (x *sourceBench) oneFileOf(ctx context.Context, what string) (float64, error) {
	n, kinds := monoTotal(), monoKinds()[:3]
	best, bestNull := 0.0, 0.0
	var took []time.Duration
	var all used
	busy := x.busyProfile(ctx, "B09-"+what)
	for round := range bestOf {
		hub := 0.0
		for i := range oneChanges {
			k := kinds[i%len(kinds)]
			value := fmt.Sprintf("%s-%d-%d", strings.ToLower(what), round, i)
			pushed := time.Time{}
			u, err := x.measure(ctx, x.repo, func() error {
				commit, err := x.repo.Commit(ctx, value, k.change(i, value))
				if err != nil {
					return err
				}
				pushed = time.Now()
				err = x.allSynced(ctx, commit, n)
				took = append(took, time.Since(pushed))
				return err
			})
			if err != nil {
				return 0, err
			}
			if u.renders != 1 || u.fetches != 1 {
				return 0, fmt.Errorf("one changed file must cost one fetch and one render: %s", u)
			}
			hub += u.hub / oneChanges
			all = u
		}
		if round == 0 || hub < best {
			best = hub
		}
		null, err := x.null.change(ctx, x.repo, "", &kinds[round%len(kinds)])
		if err != nil {
			return 0, err
		}
		if round == 0 || null < bestNull {
			bestNull = null
		}
	}
	if err := busy(); err != nil {
		return 0, err
	}
	slices.Sort(took)
	x.add("B09", fmt.Sprintf("%s: one file changed, until all of %d applications show the commit", what, n),
		fmt.Sprintf("%.0f ms of hub CPU, efficiency %.2f; %s", 1000*best, bestNull/best, spread(took)),
		fmt.Sprintf("%d renders, %d reused, %d listings, %d fetches (each); CPU: mean of %d commits, best of %d rounds; null system %.3f CPU-s",
			all.renders, all.reused, all.listings, all.fetches, oneChanges, bestOf, bestNull))
	return best, nil
}

// deepen gives R-mono 20,000 more commits and 2,000 branches, and a tree that
// is the same as before.
func (x *sourceBench) deepen(ctx context.Context) error {
	bare := filepath.Join(x.s.Git.Repositories(), "mono.git")
	head, err := runGit(ctx, bare, "rev-parse", "main")
	if err != nil {
		return err
	}
	if err := fastImport(ctx, bare, func(w *strings.Builder) {
		from := head
		for i := 1; i <= manyCommits; i++ {
			fmt.Fprintf(w, "commit refs/heads/main\nmark :%d\ncommitter Bench <bench@example.test> %d +0000\ndata 6\nchange\nfrom %s\nM 100644 inline docs/log\ndata <<EOF\n%d\nEOF\n\n", i, 1_800_000_000+i, from, i)
			from = fmt.Sprintf(":%d", i)
		}
		for i := range manyBranches {
			fmt.Fprintf(w, "reset refs/heads/feature/work-%04d\nfrom :%d\n\n", i, 1+i*(manyCommits/manyBranches))
		}
	}); err != nil {
		return err
	}
	for _, args := range [][]string{{"repack", "-a", "-d", "-q"}, {"pack-refs", "--all"}} {
		if _, err := runGit(ctx, bare, args...); err != nil {
			return err
		}
	}
	if _, err := x.repo.Run(ctx, "pull", "--quiet", "--ff-only"); err != nil {
		return err
	}
	// The next push brings the hub there; its cost is not counted.
	commit, err := x.repo.Commit(ctx, "deep", map[string]string{"docs/readme.md": "deep\n"})
	if err != nil {
		return err
	}
	return x.allSynced(ctx, commit, monoTotal())
}

// storage changes a file of every application many times: B17.
func (x *sourceBench) storage(ctx context.Context) error {
	kinds, n := monoKinds()[:3], 0
	for _, k := range kinds {
		n += k.n
	}
	total := monoTotal()
	size := func() (all int64, err error) {
		if _, err := x.db.Exec(ctx, "VACUUM (FULL)"); err != nil {
			return 0, err
		}
		err = x.db.QueryRow(ctx, "SELECT pg_database_size(current_database())").Scan(&all)
		return all, err
	}
	begin, err := size()
	if err != nil {
		return err
	}
	largest, err := x.tables(ctx)
	if err != nil {
		return err
	}
	sizes, retained := []int64{begin}, []int64{}
	for step := range 2 {
		for i := range x.changes / 2 {
			value := fmt.Sprintf("stored-%d-%d", step, i)
			files := map[string]string{}
			for _, k := range kinds {
				for app := range k.n {
					for name, text := range k.change(app, value) {
						files[name] = text
					}
				}
			}
			commit, err := x.repo.Commit(ctx, value, files)
			if err != nil {
				return err
			}
			if err := x.allSynced(ctx, commit, total); err != nil {
				return err
			}
		}
		if err := x.quiet(ctx); err != nil {
			return err
		}
		now, err := size()
		if err != nil {
			return err
		}
		sizes = append(sizes, now)
		if err := x.retain(ctx); err != nil {
			return err
		}
		if now, err = size(); err != nil {
			return err
		}
		retained = append(retained, now)
	}
	grown, err := x.tables(ctx)
	if err != nil {
		return err
	}
	half := float64(n * (x.changes / 2))
	x.add("B17", fmt.Sprintf("%d applications, %d one-file changes each, second half", n, x.changes),
		fmt.Sprintf("%.0f bytes a deployed change, %.0f after retention", float64(sizes[2]-retained[0])/half, float64(retained[1]-retained[0])/half),
		fmt.Sprintf("database %.1f, %.1f, %.1f MiB after VACUUM FULL; after retention of each half %.1f, %.1f MiB; %s after it", mib(sizes[0]), mib(sizes[1]), mib(sizes[2]),
			mib(retained[0]), mib(retained[1]), growthOf(largest, grown, n*x.changes)))
	return nil
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// retain removes what the hub removes eight days later.
func (x *sourceBench) retain(ctx context.Context) error {
	keys, err := secret.Load(x.s.Hub.MasterKeyFile())
	if err != nil {
		return err
	}
	urls := x.s.Postgres.URLs("capstan")
	db, err := store.Open(ctx, store.Config{AppURL: urls.App, SystemURL: urls.System}, keys, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer db.Close()
	tenants, err := db.System().Tenants(ctx)
	if err != nil {
		return err
	}
	later := time.Now().Add(8 * 24 * time.Hour)
	for _, t := range tenants {
		for more := true; more; {
			if err := db.InTenant(ctx, t.ID, func(ctx context.Context, tx *store.Tenant) (err error) {
				more, err = tx.Collect(ctx, later)
				return err
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// tables are the sizes of all tables.
func (x *sourceBench) tables(ctx context.Context) (map[string]int64, error) {
	rows, err := x.db.Query(ctx, "SELECT relname, pg_total_relation_size(relid) FROM pg_stat_user_tables")
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	var name string
	var size int64
	_, err = pgx.ForEachRow(rows, []any{&name, &size}, func() error {
		out[name] = size
		return nil
	})
	return out, err
}

// growthOf names the tables that grew most, in bytes a change.
func growthOf(before, after map[string]int64, changes int) string {
	type growth struct {
		name string
		each float64
	}
	var all []growth
	for name, size := range after {
		all = append(all, growth{name, float64(size-before[name]) / float64(changes)})
	}
	slices.SortFunc(all, func(a, b growth) int { return int(b.each - a.each) })
	var out []string
	for _, g := range all[:min(5, len(all))] {
		out = append(out, fmt.Sprintf("%s %.0f", g.name, g.each))
	}
	return strings.Join(out, ", ")
}
