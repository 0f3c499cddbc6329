package store_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/migrations"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
)

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	empty := storetest.Empty(t)
	away := "postgres://capstan_app:hunter2@" + runtest.Refusing(t) + "/capstan?sslmode=disable"
	cases := map[string]struct {
		why  string
		cfg  store.Config
		want fault.Kind
	}{
		"Unreachable":     {"the daemon tries again", store.Config{AppURL: away, SystemURL: away}, fault.Offline},
		"UnreachableTLS":  {"it is tried with TLS and without", store.Config{AppURL: strings.TrimSuffix(away, "?sslmode=disable"), SystemURL: away}, fault.Offline},
		"NoSuchSocket":    {"the daemon tries again", store.Config{AppURL: "postgres://a@/x?host=/nowhere", SystemURL: "postgres://a@/x?host=/nowhere"}, fault.Offline},
		"Superuser":       {"row security does not bind it", store.Config{AppURL: urls.Superuser, SystemURL: urls.System}, fault.Invalid},
		"Owner":           {"it could switch row security off", store.Config{AppURL: urls.Owner, SystemURL: urls.System}, fault.Invalid},
		"SystemSuperuser": {"the system role must be bounded too", store.Config{AppURL: urls.App, SystemURL: urls.Superuser}, fault.Invalid},
		"NotMigrated":     {"the schema is not there", store.Config{AppURL: empty.App, SystemURL: empty.System}, fault.Invalid},
		"NotSet":          {"configuration is incomplete", store.Config{}, fault.Invalid},
		"NoURL":           {"configuration is wrong", store.Config{AppURL: "postgres://u:hunter2@h:x/db", SystemURL: "::"}, fault.Invalid},
		"Connections":     {"configuration is wrong", store.Config{AppURL: urls.App, SystemURL: urls.System, MaxConns: -1}, fault.Invalid},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := store.Open(t.Context(), c.cfg, storetest.Keys(t), silent())
			if err == nil {
				db.Close()
			}
			if got := fault.KindOf(err); got != c.want {
				t.Fatalf("error %v has kind %q, want %q: %s", err, got, c.want, c.why)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error tells the password: %v", err)
			}
			if text := err.Error(); c.want == fault.Offline && (strings.ContainsAny(text, "\n\t") || strings.Count(text, "connection refused") > 1) {
				t.Errorf("the error is more than one line, or says the same twice: %q", text)
			}
			if c.want == fault.Offline && fault.Sentence(err) != "the database cannot be reached (try again in a moment)" {
				t.Errorf("the sentence is %q", fault.Sentence(err))
			}
		})
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	t.Run("FT-D8 replicas that start together migrate once", func(t *testing.T) {
		t.Parallel()
		urls := storetest.Empty(t)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := store.Migrate(context.WithoutCancel(t.Context()), urls.Owner, silent()); err != nil {
					t.Errorf("migrate: %v", err)
				}
			})
		}
		wg.Wait()
		db := storetest.OpenURLs(t, urls.Config())
		storetest.Tenant(t, db, "acme")
		check(t, store.Migrate(t.Context(), urls.Owner, silent()))
		if err := db.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("FT-D8 a migration that is numbered below the newest one is run and not skipped", func(t *testing.T) {
		t.Parallel()
		without := func(missing ...string) fstest.MapFS {
			out := fstest.MapFS{}
			names := must[[]string](t)(fs.Glob(migrations.Files, "*.sql"))
			for _, name := range names {
				if !slices.ContainsFunc(missing, func(m string) bool { return strings.HasPrefix(name, m) }) {
					out[name] = &fstest.MapFile{Data: must[[]byte](t)(fs.ReadFile(migrations.Files, name))}
				}
			}
			if len(out) != len(names)-len(missing) {
				t.Fatalf("%d of %d migrations without %v", len(out), len(names), missing)
			}
			return out
		}
		whole := storetest.Empty(t)
		check(t, store.Migrate(t.Context(), whole.Owner, silent()))
		for _, missing := range [][]string{{"00013", "00014"}, {"00011", "00012", "00013", "00014"}} {
			urls := storetest.Empty(t)
			check(t, store.MigrateWith(t.Context(), urls.Owner, without(missing...)))
			_, err := store.Open(t.Context(), urls.Config(), storetest.Keys(t), silent())
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "lacks migrations") {
				t.Errorf("a hub works without %v: %v", missing, err)
			}
			check(t, store.Migrate(t.Context(), urls.Owner, silent()))
			storetest.Tenant(t, storetest.OpenURLs(t, urls.Config()), "acme")
			if diff := cmp.Diff(schema(t, whole), schema(t, urls)); diff != "" {
				t.Errorf("the schema is another one than that of a fresh database (-fresh +now):\n%s", diff)
			}
		}
	})
	t.Run("bad input", func(t *testing.T) {
		t.Parallel()
		if err := store.Migrate(t.Context(), "postgres://u:hunter2@h:x/db", silent()); fault.KindOf(err) != fault.Invalid || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("no URL: error %v", err)
		}
		if err := store.Migrate(t.Context(), "postgres://a@/x?host=/nowhere", silent()); fault.KindOf(err) != fault.Offline {
			t.Errorf("nobody there: error %v, want Offline", err)
		}
	})
}

// schema lists what is in a database: columns, functions, views, policies and
// rights.
func schema(t *testing.T, urls storetest.URLs) []string {
	t.Helper()
	rows, err := storetest.Connect(t, urls.Superuser).Query(t.Context(), `
		SELECT format('column %s.%s.%s %s %s', table_schema, table_name, column_name, data_type, is_nullable) FROM information_schema.columns
		WHERE  table_schema IN ('public', 'directory', 'work')
		UNION ALL SELECT 'function ' || pg_get_functiondef(p.oid) || coalesce((SELECT string_agg(a::text, ' ' ORDER BY a::text) FROM unnest(p.proacl) a), '')
		FROM   pg_proc p WHERE p.pronamespace::regnamespace::text IN ('directory', 'work')
		UNION ALL SELECT format('view %s.%s %s', schemaname, viewname, definition) FROM pg_views WHERE schemaname = 'directory'
		UNION ALL SELECT format('index %s', indexdef) FROM pg_indexes WHERE schemaname IN ('public', 'directory', 'work')
		UNION ALL SELECT format('policy %s.%s %s', schemaname, tablename, policyname) FROM pg_policies
		UNION ALL SELECT format('right %s.%s %s %s', table_schema, table_name, grantee, privilege_type) FROM information_schema.role_table_grants
		WHERE  table_schema IN ('public', 'directory', 'work')
		ORDER  BY 1`)
	check(t, err)
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	check(t, err)
	if len(out) < 100 {
		t.Fatalf("only %d things are in the schema", len(out))
	}
	return out
}

func TestDatabaseBecomesUnreachable(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	tenant := storetest.Tenant(t, db, "acme")
	super := storetest.Connect(t, urls.Superuser)
	err := db.InTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error {
		if _, err := super.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
			return err
		}
		_, err := tx.Users(ctx)
		return err
	})
	if fault.KindOf(err) != fault.Offline {
		t.Errorf("FT-D1 a connection that is cut: error %v, want Offline", err)
	}
	// The pool notices and recovers.
	until(t, func() bool {
		return db.InTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.Users(ctx)
			return err
		}) == nil
	})
}

// A burst opens as many connections as there may be; unused ones are closed.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	cfg := urls.Config()
	cfg.MaxConns, cfg.Idle = 8, 20*time.Millisecond
	db := storetest.OpenURLs(t, cfg)
	tenant := storetest.Tenant(t, db, "acme")
	super := storetest.Connect(t, urls.Superuser)
	processes := func() int {
		return queryOne[int](t, super, "SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'capstan-hub'")
	}
	t.Run("FT-D10 a burst opens the permitted number and no more", func(t *testing.T) {
		here, leave := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		for range cfg.MaxConns {
			wg.Go(func() {
				storetest.In(t, db, tenant, func(context.Context, *store.Tenant) error {
					here <- struct{}{}
					<-leave
					return nil
				})
			})
		}
		for range cfg.MaxConns {
			<-here
		}
		if n := processes(); n < 8 || n > 10 { // 2 of the system role
			t.Errorf("%d connections", n)
		}
		close(leave)
		wg.Wait()
	})
	t.Run("FT-D10 all are closed when they are unused", func(t *testing.T) {
		for processes() > 0 {
			if t.Context().Err() != nil {
				t.Fatal("some are kept")
			}
		}
	})
}

// TestMoreToDoThanConnections has one request wait for another's connection
// until its time is over.
func TestMoreToDoThanConnections(t *testing.T) {
	t.Parallel()
	cfg := storetest.Database(t).Config()
	cfg.MaxConns = 1
	db := storetest.OpenURLs(t, cfg)
	tenant := storetest.Tenant(t, db, "acme")
	t.Run("who waits in vain for a connection hears that the hub is busy, not that it has failed", func(t *testing.T) {
		storetest.In(t, db, tenant, func(ctx context.Context, _ *store.Tenant) error {
			ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			err := db.InTenant(ctx, tenant, func(context.Context, *store.Tenant) error {
				t.Error("there is a second connection")
				return nil
			})
			if fault.KindOf(err) != fault.Offline || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v, want Offline", err)
			}
			return nil
		})
	})
}
