package store

import (
	"context"
	"io/fs"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Settings takes every connection of the tenants' pool at once and gives the
// tenant setting of each.
func (db *DB) Settings(ctx context.Context) ([]string, error) {
	var out []string
	var held []*pgxpool.Conn
	defer func() {
		for _, c := range held {
			c.Release()
		}
	}()
	for range db.app.Config().MaxConns {
		c, err := db.app.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		held = append(held, c)
		var setting string
		if err := c.QueryRow(ctx, `SELECT coalesce(current_setting('app.tenant_id', true), '')`).Scan(&setting); err != nil {
			return nil, err
		}
		out = append(out, setting)
	}
	return out, nil
}

// MigrateWith is Migrate of a program that has other migrations.
func MigrateWith(ctx context.Context, ownerURL string, files fs.FS) error {
	cfg, err := pgx.ParseConfig(ownerURL)
	if err != nil {
		return err
	}
	return migrate(ctx, cfg, files, slog.New(slog.DiscardHandler))
}

// TraceSystem has a tracer see what the system role sends from now on.
func TraceSystem(ctx context.Context, db *DB, tracer pgx.QueryTracer) error {
	cfg := db.system.Config()
	cfg.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	db.system.Close()
	db.system = pool
	return nil
}
