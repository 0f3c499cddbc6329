package store

import (
	"context"
	"fmt"
	"github.com/capstan-cd/capstan/shared/logkey"
	"io/fs"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/capstan-cd/capstan/hub/store/migrations"
	"github.com/capstan-cd/capstan/shared/fault"
)

// The roles that the schema grants rights to. The users of the URLs must be one
// of them, or a member of one.
const (
	appRole    = "capstan_app"
	systemRole = "capstan_system"
)

// Migrate brings the database to the schema of this program. It connects as
// the owner of the database, who is used for nothing else. Roles that do not
// exist are created if the owner may do so. Replicas that start together wait
// for each other. A newer schema is not changed. Migrations that the database
// lacks are run in order, also those that are older than the newest one which
// it has.
func Migrate(ctx context.Context, ownerURL string, log *slog.Logger) error {
	cfg, err := pgx.ParseConfig(ownerURL)
	if err != nil {
		return fault.New(fault.Invalid, "the database URL of the owner cannot be read")
	}
	cfg.RuntimeParams["application_name"] = "capstan-migrate"
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return classify(fmt.Errorf("connect as owner: %w", err))
	}
	err = createRoles(ctx, conn)
	_ = conn.Close(ctx)
	if err != nil {
		return classify(err)
	}
	return classify(migrate(ctx, cfg, migrations.Files, log))
}

func migrate(ctx context.Context, cfg *pgx.ConnConfig, files fs.FS, log *slog.Logger) error {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300), lock.WithUnlockTimeout(1, 10))
	if err != nil {
		return fmt.Errorf("make migration lock: %w", err)
	}
	sql := stdlib.OpenDB(*cfg)
	defer sql.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, sql, files,
		goose.WithSessionLocker(locker), goose.WithAllowOutofOrder(true), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return fmt.Errorf("migrate database: %w", err)
	}
	for _, r := range results {
		log.InfoContext(ctx, "database migrated", logkey.Migration, r.Source.Version, logkey.Duration, r.Duration)
	}
	return nil
}

const (
	selectRole = `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)`
	createApp  = `CREATE ROLE capstan_app LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE`
	createSys  = `CREATE ROLE capstan_system LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE`
)

// createRoles creates missing roles, without passwords: set one to log in over
// a network.
func createRoles(ctx context.Context, conn *pgx.Conn) error {
	for role, statement := range map[string]string{appRole: createApp, systemRole: createSys} {
		var there bool
		if err := conn.QueryRow(ctx, selectRole, role).Scan(&there); err != nil {
			return fmt.Errorf("read role %s: %w", role, err)
		}
		if there {
			continue
		}
		_, err := conn.Exec(ctx, statement)
		switch code(err) {
		case duplicateObject, uniqueViolation: // another replica was faster
			continue
		case insufficientRights:
			return fault.With(fault.Wrap(fault.Denied, err, "it does not exist and the owner of the database may not create it"),
				"database role "+role, "run as an administrator: "+statement)
		}
		if err != nil {
			return fmt.Errorf("create role %s: %w", role, err)
		}
	}
	return nil
}

const (
	selectSelf = `
		SELECT r.rolname, r.rolsuper OR r.rolbypassrls,
		       EXISTS (SELECT FROM pg_class c WHERE c.relowner = r.oid AND c.relnamespace = 'public'::regnamespace)
		FROM   pg_roles r
		WHERE  r.rolname = current_user`
	selectVersions = `SELECT DISTINCT version_id FROM goose_db_version WHERE is_applied ORDER BY version_id`
)

// check refuses to work with roles that row security does not bind, and with
// a schema that lacks a migration, whichever it is.
func (db *DB) check(ctx context.Context) error {
	for _, pool := range []*pgxpool.Pool{db.app, db.system} {
		var name string
		var unbound, owns bool
		if err := pool.QueryRow(ctx, selectSelf).Scan(&name, &unbound, &owns); err != nil {
			return classify(fmt.Errorf("check the database role: %w", err))
		}
		if unbound || owns {
			return fault.With(fault.New(fault.Invalid, "row security does not bind it, so tenants would not be kept apart"),
				"database role "+name, "connect as capstan_app and capstan_system, neither superuser nor owner of the tables")
		}
	}
	has, err := list(ctx, db.system, "migrations", pgx.RowTo[int64], selectVersions)
	if c := code(err); err != nil && c != "42P01" && c != insufficientRights {
		return classify(err)
	}
	needs, err := needed(migrations.Files)
	if err != nil {
		return err
	}
	lacks := slices.DeleteFunc(needs, func(v int64) bool { return slices.Contains(has, v) })
	if len(lacks) > 0 {
		return fault.With(fault.New(fault.Invalid, "its schema lacks migrations that this program needs: %v", lacks),
			"database", "run capstan-hub migrate with the owner's URL first")
	}
	return nil
}

// needed returns the numbers of the migrations, in order.
func needed(files fs.FS) ([]int64, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	out := make([]int64, len(names))
	for i, name := range names {
		if out[i], err = goose.NumericComponent(name); err != nil {
			return nil, fmt.Errorf("number of migration %q: %w", name, err)
		}
	}
	return out, nil
}
