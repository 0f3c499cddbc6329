package postgres_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/integration/rigs/postgres"
)

func TestPostgres(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pg := postgres.New(t, postgres.Options{})
	urls, err := pg.CreateDatabase(ctx, "one")
	if err != nil {
		t.Fatal(err)
	}

	t.Run("the three roles have the rights that the hub counts on", func(t *testing.T) {
		for role, url := range map[string]string{postgres.OwnerRole: urls.Owner, postgres.AppRole: urls.App, postgres.SystemRole: urls.System} {
			var name string
			var super, bypass bool
			query(t, url, "SELECT rolname, rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user", &name, &super, &bypass)
			if name != role || super || bypass {
				t.Errorf("connected as %q (superuser %t, bypassrls %t), want an ordinary %q", name, super, bypass, role)
			}
		}
	})

	t.Run("only the owner may create tables", func(t *testing.T) {
		run(t, urls.Owner, "CREATE TABLE kept (n int)")
		conn := connect(t, urls.App)
		if _, err := conn.Exec(ctx, "CREATE TABLE mine (n int)"); err == nil {
			t.Error("the application role created a table")
		}
	})

	t.Run("data survives a crash of the server at the same address", func(t *testing.T) {
		run(t, urls.Owner, "INSERT INTO kept VALUES (7)")
		before := pg.Address()
		if err := pg.Restart(ctx, postgres.StopImmediate); err != nil {
			t.Fatal(err)
		}
		var n int
		query(t, urls.Owner, "SELECT n FROM kept", &n)
		if n != 7 || pg.Address() != before {
			t.Errorf("after the restart: n = %d at %s, want 7 at %s", n, pg.Address(), before)
		}
	})

	t.Run("a database can be cloned", func(t *testing.T) {
		copied, err := pg.CloneDatabase(ctx, "two", "one")
		if err != nil {
			t.Fatal(err)
		}
		var n int
		query(t, copied.Owner, "SELECT n FROM kept", &n)
		if n != 7 {
			t.Errorf("the clone holds %d, want 7", n)
		}
	})

	t.Run("TCP asks for the password", func(t *testing.T) {
		var one int
		network := pg.NetworkURLs("one").App
		query(t, network, "SELECT 1", &one)
		user, rest, _ := strings.Cut(network, ":")
		_, host, _ := strings.Cut(rest, "@")
		if conn, err := pgx.Connect(ctx, user+"://"+postgres.AppRole+":wrong@"+host); err == nil {
			_ = conn.Close(ctx)
			t.Error("a wrong password was accepted")
		}
	})
}

func TestPostgresKeepsAChosenFolder(t *testing.T) {
	t.Parallel()
	dir := sharedDir(t)
	ctx := t.Context()
	first, err := postgres.Start(ctx, postgres.Options{Dir: dir, Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	urls, err := first.CreateDatabase(ctx, "kept")
	if err != nil {
		t.Fatal(err)
	}
	run(t, urls.Owner, "CREATE TABLE kept AS SELECT 3 AS n")

	if _, err := postgres.Start(ctx, postgres.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second server in the same folder: error %v, want one that says it is in use", err)
	}
	if err := first.Stop(postgres.StopFast); err != nil {
		t.Fatal(err)
	}
	second, err := postgres.Start(ctx, postgres.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Stop(postgres.StopImmediate)
	if there, err := second.HasDatabase(ctx, "kept"); err != nil || !there {
		t.Fatalf("HasDatabase() = %t, %v; want true", there, err)
	}
	var n int
	query(t, second.NetworkURLs("kept").Owner, "SELECT n FROM kept", &n)
	if n != 3 {
		t.Errorf("the kept table holds %d, want 3", n)
	}
}

func TestPostgresNamesItsLogWhenItCannotStart(t *testing.T) {
	t.Parallel()
	_, err := postgres.Start(t.Context(), postgres.Options{Settings: map[string]string{"shared_buffers": "a lot"}})
	if err == nil || !strings.Contains(err.Error(), "postgres.log") || !strings.Contains(err.Error(), "shared_buffers") {
		t.Errorf("error %v, want one that names the log and shows the complaint", err)
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func query(t *testing.T, url, text string, into ...any) {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), text).Scan(into...); err != nil {
		t.Fatalf("query %q: %v", text, err)
	}
}

func run(t *testing.T, url, text string) {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), text); err != nil {
		t.Fatalf("run %q: %v", text, err)
	}
}
