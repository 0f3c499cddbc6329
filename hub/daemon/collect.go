package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/run"
)

const (
	// collectEvery is how often what nothing refers to any more is removed.
	collectEvery = time.Hour
	// statisticsEvery is how often tables that have grown much are looked for:
	// thousands of applications may be created in a minute.
	statisticsEvery = 3 * time.Second
)

// addCollector removes what has outlived its use: objects of old snapshots,
// answered changes, expired sessions. Replicas may do it side by side.
func (p *parts) addCollector(context.Context) error {
	p.add("collector", func(ctx context.Context) error {
		failed := func(err error) {
			p.log.WarnContext(ctx, "old rows were not collected; the next round tries again", "error", err)
		}
		return run.Every(ctx, p.clock, collectEvery, 0.2, failed, p.collect)
	})
	p.add("statistics", func(ctx context.Context) error {
		failed := func(err error) {
			p.log.WarnContext(ctx, "the database's statistics were not refreshed; it does so by itself in time", "error", err)
		}
		return run.Every(ctx, p.clock, statisticsEvery, 0.2, failed, func(ctx context.Context) error {
			_, err := p.db.System().RefreshStatistics(ctx)
			return err
		})
	})
	return nil
}

func (p *parts) collect(ctx context.Context) error {
	system := p.db.System()
	errs := []error{system.Collect(ctx, p.clock.Now())}
	tenants, err := system.Tenants(ctx)
	errs = append(errs, err)
	for _, t := range tenants {
		err := p.db.InTenant(ctx, t.ID, func(ctx context.Context, tx *store.Tenant) error { return tx.Collect(ctx, p.clock.Now()) })
		if err != nil {
			errs = append(errs, fmt.Errorf("tenant %s: %w", t.ID, err))
		}
	}
	return errors.Join(errs...)
}
