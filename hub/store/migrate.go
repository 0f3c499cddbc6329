package store

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/capstan-cd/capstan/hub/store/migrations"
	"github.com/capstan-cd/capstan/shared/fault"
)

// The roles that the schema gives rights to. Who the URLs log in as must be
// one of them, or a member of one.
const (
	appRole    = "capstan_app"
	systemRole = "capstan_system"
)

// schemaVersion is the newest migration that this program needs.
const schemaVersion = 15

// Migrate brings the database to the schema of this program. It connects as
// the owner of the database, who is used for nothing else. Roles that do not
// exist are created if the owner may do so. Replicas that start together wait
// for each other. A newer schema is left alone.
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
	return classify(migrate(ctx, cfg, log))
}

func migrate(ctx context.Context, cfg *pgx.ConnConfig, log *slog.Logger) error {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300), lock.WithUnlockTimeout(1, 10))
	if err != nil {
		return fmt.Errorf("make migration lock: %w", err)
	}
	sql := stdlib.OpenDB(*cfg)
	defer sql.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, sql, migrations.Files,
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return fmt.Errorf("migrate database: %w", err)
	}
	for _, r := range results {
		log.InfoContext(ctx, "database migrated", "migration", r.Source.Version, "duration", r.Duration)
	}
	return nil
}

const (
	selectRole = `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)`
	createApp  = `CREATE ROLE capstan_app LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE`
	createSys  = `CREATE ROLE capstan_system LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE`
)

// createRoles makes the roles that are not there, without passwords: whoever
// wants to log in over a network sets one.
func createRoles(ctx context.Context, conn *pgx.Conn) error {
	for role, statement := range map[string]string{appRole: createApp, systemRole: createSys} {
		var there bool
		if err := conn.QueryRow(ctx, selectRole, role).Scan(&there); err != nil {
			return fmt.Errorf("look for role %s: %w", role, err)
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
	selectVersion = `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`
)

// check refuses to work with roles that row security does not bind, and with
// a schema that is too old.
func (db *DB) check(ctx context.Context) error {
	for _, pool := range []*pgxpool.Pool{db.app, db.system} {
		var name string
		var unbound, owns bool
		if err := pool.QueryRow(ctx, selectSelf).Scan(&name, &unbound, &owns); err != nil {
			return classify(fmt.Errorf("look at the database role: %w", err))
		}
		if unbound || owns {
			return fault.With(fault.New(fault.Invalid, "row security does not bind it, so tenants would not be kept apart"),
				"database role "+name, "connect as capstan_app and capstan_system, neither superuser nor owner of the tables")
		}
	}
	var version int64
	err := db.system.QueryRow(ctx, selectVersion).Scan(&version)
	if c := code(err); c == "42P01" || c == insufficientRights || (err == nil && version < schemaVersion) {
		return fault.With(fault.New(fault.Invalid, "its schema is at version %d and this program needs %d", version, schemaVersion),
			"database", "run capstan-hub migrate with the owner's URL first")
	}
	if err != nil {
		return classify(fmt.Errorf("read the schema's version: %w", err))
	}
	return nil
}
