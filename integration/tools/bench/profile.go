package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// busySeconds is how long the CPU of a busy hub is watched.
const busySeconds = 3

// profiled are settings of a hub that lets itself be profiled, if that was
// asked for.
func (b *bench) profiled() map[string]any { return b.profiledWith(nil) }

// profiledWith adds them to other settings.
func (b *bench) profiledWith(settings map[string]any) map[string]any {
	if b.profiles == "" {
		return settings
	}
	out := map[string]any{"metrics": map[string]any{"profiles": true}}
	maps.Copy(out, settings)
	return out
}

// explained are settings of a Postgres that counts statements and logs the
// plans of slow ones, if profiles were asked for.
func (b *bench) explained() map[string]string {
	if b.profiles == "" {
		return nil
	}
	return map[string]string{
		"shared_preload_libraries": "pg_stat_statements,auto_explain", "auto_explain.log_min_duration": "250ms", "auto_explain.log_analyze": "off",
		"pg_stat_statements.track_utility": "off", "pg_stat_statements.track_planning": "on",
	}
}

// A profiler looks into an installation, if profiles were asked for.
type profiler struct {
	profiles string // folder; empty: it does nothing
	of       *stack.Stack
}

// statements keeps which statements took how long since the last call, and what
// was written to which tables since the beginning.
func (x profiler) statements(ctx context.Context, name string) (err error) {
	if x.profiles == "" {
		return nil
	}
	var text string
	if err := os.MkdirAll(x.profiles, 0o700); err != nil {
		return err
	}
	db, err := pgx.Connect(ctx, x.of.Postgres.Superuser("capstan"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close(ctx)) }()
	_, err = db.Exec(ctx, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`)
	if err == nil {
		err = db.QueryRow(ctx, `
			SELECT coalesce(string_agg(format('%s ms %s ms in %s plans %s calls %s rows %s blocks %s', round(total_exec_time), round(total_plan_time), plans, calls, rows,
			                                  shared_blks_hit + shared_blks_read, regexp_replace(left(query, 400), '\s+', ' ', 'g')), E'\n'), '')
			FROM   (SELECT * FROM pg_stat_statements ORDER BY total_exec_time + total_plan_time DESC LIMIT 80) s`).Scan(&text)
	}
	var tables string
	if err == nil {
		err = db.QueryRow(ctx, `
			SELECT coalesce(string_agg(format('%s: %s inserted, %s updated, %s of them in place, %s deleted, %s dead, %s',
			                                  relname, n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del, n_dead_tup, pg_size_pretty(pg_relation_size(relid))),
			                           E'\n' ORDER BY n_tup_ins + n_tup_upd DESC), '')
			FROM   pg_stat_user_tables WHERE n_tup_ins + n_tup_upd > 0`).Scan(&tables)
	}
	if err == nil {
		_, err = db.Exec(ctx, `SELECT pg_stat_statements_reset()`)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(x.profiles, name), []byte(text+"\n\n"+tables+"\n"), 0o600)
}

// idleProfiles keeps what a hub without work holds. Memory is that of the last
// collection, so that none is forced before what is measured next.
func (x profiler) idleProfiles(ctx context.Context, name string) error {
	if x.profiles == "" {
		return nil
	}
	return errors.Join(
		os.MkdirAll(x.profiles, 0o700),
		x.profile(ctx, "goroutine?debug=0", name+"-goroutines.pb.gz"),
		x.profile(ctx, "goroutine?debug=2", name+"-stacks.txt"),
		x.profile(ctx, "allocs?seconds=10", name+"-allocs.pb.gz"),
		x.profile(ctx, "heap", name+"-heap.pb.gz"),
		x.profile(ctx, "heap?debug=1", name+"-heap.txt"),
	)
}

// busyProfile watches the CPU of the hub from now on. The function waits for
// the end.
func (x profiler) busyProfile(ctx context.Context, name string) func() error {
	return x.profileFor(ctx, name, busySeconds)
}

// profileFor does so for a number of seconds.
func (x profiler) profileFor(ctx context.Context, name string, seconds int) func() error {
	if x.profiles == "" {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() { done <- x.profile(ctx, fmt.Sprintf("profile?seconds=%d", seconds), name+"-cpu.pb.gz") }()
	return func() error { return <-done }
}

func (x profiler) profile(ctx context.Context, what, name string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, x.of.Hub.Port("/debug/pprof/"+what), nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("profile %s: %s", what, res.Status)
	}
	f, err := os.OpenFile(filepath.Join(x.profiles, name), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, res.Body)
	return errors.Join(err, f.Close())
}
