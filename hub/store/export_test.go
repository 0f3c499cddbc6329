package store

import (
	"context"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/capstan-cd/capstan/hub"
)

// Settings acquires every connection of the tenants' pool at once and returns
// the tenant setting of each.
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

// RowsOfClaim is how many rows a claim goes through in all steps of its plan.
// It claims nothing.
func RowsOfClaim(ctx context.Context, db *DB, kind string, limit int, lease time.Duration, shared bool) (int, error) {
	statement, args := claimWork, []any{kind, "somebody", limit, lease, []hub.TenantID{}}
	if shared {
		statement, args = claimShare, append(args, []string{"somebody"}, defaultHomeWait)
	}
	tx, err := db.system.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	var plans []struct{ Plan planStep }
	if err := tx.QueryRow(ctx, "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) "+statement, args...).Scan(&plans); err != nil {
		return 0, err
	}
	return plans[0].Plan.rows(), nil
}

// A planStep is a step of an executed plan, as the server reports it.
type planStep struct {
	Rows    float64    `json:"Actual Rows"`
	Loops   float64    `json:"Actual Loops"`
	Dropped float64    `json:"Rows Removed by Filter"`
	Unmet   float64    `json:"Rows Removed by Join Filter"`
	Steps   []planStep `json:"Plans"`
}

func (p planStep) rows() int {
	n := int((p.Rows + p.Dropped + p.Unmet) * p.Loops)
	for _, step := range p.Steps {
		n += step.rows()
	}
	return n
}

// Plans returns how often the connection of a transaction has planned its
// statements with lists: custom plans, and generic plans.
func Plans(ctx context.Context, t *Tenant) (own, general int, err error) {
	err = t.tx.QueryRow(ctx, `
		SELECT coalesce(sum(custom_plans), 0), coalesce(sum(generic_plans), 0)
		FROM   pg_prepared_statements WHERE statement LIKE '%unnest(%'`).Scan(&own, &general)
	return own, general, err
}

// CursorOf is the cursor of a place that the tests name in plain.
func (t *Tenant) CursorOf(ctx context.Context, plain string) (string, error) {
	p, _ := parsePosition(plain)
	return t.cursor(ctx, p)
}

// LifeParameters are those of the statements that read the log.
func LifeParameters() []any { return lifeParameters }
