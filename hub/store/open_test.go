package store_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

func silent() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	urls := storetest.Database(t)
	empty := storetest.Empty(t)
	// A port where nobody listens.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	away := "postgres://capstan_app:hunter2@" + l.Addr().String() + "/capstan?sslmode=disable"
	check(t, l.Close())
	cases := map[string]struct {
		why  string
		cfg  store.Config
		want fault.Kind
	}{
		"Unreachable":     {"the daemon tries again", store.Config{AppURL: away, SystemURL: away}, fault.Offline},
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

func TestDatabaseGoesAway(t *testing.T) {
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
	// The pool notices and works again by itself.
	until(t, func() bool {
		return db.InTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.Users(ctx)
			return err
		}) == nil
	})
}
