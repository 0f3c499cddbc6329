// Package storetest provides a real database for tests: one Postgres server for
// each test process, migrated once, and a copy of it for each test. Tests
// connect with the hub's roles, never as a superuser. Only tests import it. No
// test sees rows of another, and no server outlives the process.
package storetest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/encryption"
)

const template = "template_capstan"

// A shared server is started by the first test that needs a database.
var shared struct {
	sync.Mutex
	server *server
	err    error
	count  int
}

// Main runs the tests of a package and stops the server afterwards. Without it
// the server ends with the process too, and its folder is removed by the next
// test process.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is Main for tests with cleanup before the process ends: it returns the
// exit code.
func Run(m interface{ Run() int }) int {
	code := m.Run()
	shared.Lock()
	if shared.server != nil {
		if err := shared.server.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	shared.Unlock()
	return code
}

// URLs are the ways into one database.
type URLs struct {
	Owner     string // migrations
	App       string // tenants
	System    string // directory and work
	Superuser string // bypasses all rights: to prepare and to inspect, never to test
}

// Config returns what Open needs.
func (u URLs) Config() store.Config { return store.Config{AppURL: u.App, SystemURL: u.System} }

// Database makes a migrated database of the test's own.
func Database(t testing.TB) URLs {
	t.Helper()
	return database(t, template)
}

// Empty makes a database of the test's own without any schema.
func Empty(t testing.TB) URLs {
	t.Helper()
	return database(t, "template0")
}

func database(t testing.TB, from string) URLs {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	s, name, err := clone(ctx, from)
	if err != nil {
		t.Fatalf("make a test database: %v", err)
	}
	t.Cleanup(func() {
		if err := s.admin(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop the test database: %v", err)
		}
	})
	return s.urls(name)
}

func (s *server) urls(name string) URLs {
	return URLs{
		Owner: s.url("capstan_owner", name), App: s.url("capstan_app", name), System: s.url("capstan_system", name),
		Superuser: s.url(superuser, name),
	}
}

// clone copies a template, one at a time: Postgres allows no two copies of
// one at once.
func clone(ctx context.Context, from string) (*server, string, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = startServer(ctx)
		if shared.err == nil {
			shared.err = shared.server.makeTemplate(ctx)
		}
	}
	if shared.err != nil {
		return nil, "", shared.err
	}
	shared.count++
	name := fmt.Sprintf("test_%d", shared.count)
	return shared.server, name, shared.server.create(ctx, name, from)
}

func (s *server) create(ctx context.Context, name, from string) error {
	return s.admin(ctx,
		"CREATE DATABASE "+name+" OWNER capstan_owner TEMPLATE "+from+" STRATEGY file_copy",
		"REVOKE ALL ON DATABASE "+name+" FROM PUBLIC",
		"GRANT CONNECT ON DATABASE "+name+" TO capstan_app, capstan_system")
}

func (s *server) makeTemplate(ctx context.Context) error {
	if err := s.create(ctx, template, "template0"); err != nil {
		return err
	}
	return store.Migrate(ctx, s.urls(template).Owner, quiet())
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Open makes a database of the test's own and opens it, with a master key of
// its own.
func Open(t testing.TB) *store.DB {
	t.Helper()
	return OpenURLs(t, Database(t).Config())
}

// OpenPatient is Open for tests of what belongs to which replica: however slow
// the machine is, work stays its own replica's.
func OpenPatient(t testing.TB) *store.DB {
	t.Helper()
	cfg := Database(t).Config()
	cfg.HomeWait = time.Hour
	return OpenURLs(t, cfg)
}

// OpenURLs opens a database with a fresh master key and closes it with the
// test.
func OpenURLs(t testing.TB, cfg store.Config) *store.DB {
	t.Helper()
	return OpenKeys(t, cfg, Keys(t))
}

// OpenKeys is OpenURLs with a master key, as each replica of an installation
// has it.
func OpenKeys(t testing.TB, cfg store.Config, keys store.Keys) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), cfg, keys, quiet())
	if err != nil {
		t.Fatalf("open the test database: %v", err)
	}
	t.Cleanup(db.Close)
	return db
}

// Keys makes a master key that lives as long as the test.
func Keys(t testing.TB) store.Keys {
	t.Helper()
	key, err := encryption.NewKey()
	if err != nil {
		t.Fatalf("make a master key: %v", err)
	}
	return masterKey(key)
}

// A masterKey wraps as the hub's own does, without a file.
type masterKey encryption.Key

func (k masterKey) Wrap(plain []byte) ([]byte, error) {
	return encryption.Seal(k, []byte("storetest"), plain)
}

func (k masterKey) Unwrap(wrapped []byte) ([]byte, error) {
	return encryption.Open(k, []byte("storetest"), wrapped)
}

// Tenant makes a tenant of that name.
func Tenant(t testing.TB, db *store.DB, name string) hub.TenantID {
	t.Helper()
	id := hub.NewID[hub.TenantID]()
	if err := db.System().CreateTenant(t.Context(), hub.Tenant{ID: id, Name: name}); err != nil {
		t.Fatalf("create tenant %q: %v", name, err)
	}
	return id
}

// In runs fn in a transaction of a tenant and fails the test on an error.
func In(t testing.TB, db *store.DB, tenant hub.TenantID, fn func(context.Context, *store.Tenant) error) {
	t.Helper()
	if err := db.InTenant(t.Context(), tenant, fn); err != nil {
		t.Fatalf("in tenant: %v", err)
	}
}

// Connect opens one plain connection that ends with the test.
func Connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close(ctx) })
	return conn
}
