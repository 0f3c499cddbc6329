package daemon

import (
	"context"
	"errors"
	"fmt"
	"github.com/capstan-cd/capstan/shared/logkey"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

const (
	// collectEvery is how often what nothing refers to any more is removed.
	collectEvery = time.Hour
	// statisticsEvery is the interval at which tables that have grown much are
	// searched: thousands of applications may be created in a minute.
	statisticsEvery = 3 * time.Second
	// mostTables are looked at in one go: some may change while they are.
	mostTables = 20
)

// addCollector removes what has outlived its use: objects of old snapshots,
// answered changes, expired sessions. Replicas may do it side by side.
func (p *parts) addCollector(context.Context) error {
	p.add("collector", func(ctx context.Context) error {
		failed := func(err error) {
			p.log.WarnContext(ctx, "old rows were not collected; the next round tries again", logkey.Error, err)
		}
		return lifecycle.Every(ctx, p.clock, collectEvery, 0.2, failed, p.collect)
	})
	p.add("statistics", func(ctx context.Context) error {
		failed := func(err error) {
			p.log.WarnContext(ctx, "the database's statistics were not refreshed; it does so by itself in time", logkey.Error, err)
		}
		return lifecycle.Every(ctx, p.clock, statisticsEvery, 0.2, failed, func(ctx context.Context) error {
			for range mostTables {
				p.queue.pacer.Wait(ctx, "") // it would take the time of a change that many wait for
				if more, err := p.db.System().RefreshStatistics(ctx); err != nil || !more {
					return err
				}
			}
			return nil
		})
	})
	return nil
}

func (p *parts) collect(ctx context.Context) error {
	system := p.db.System()
	errs := []error{p.inParts(ctx, func() (bool, error) { return system.Collect(ctx, p.clock.Now()) })}
	tenants, err := system.Tenants(ctx)
	errs = append(errs, err)
	for _, t := range tenants {
		err := p.inParts(ctx, func() (more bool, err error) {
			err = p.db.InTenant(ctx, t.ID, func(ctx context.Context, tx *store.Tenant) error {
				more, err = tx.Collect(ctx, p.clock.Now())
				return err
			})
			return more, err
		})
		errs = append(errs, inTenant(t.ID, err))
		err = p.inParts(ctx, func() (more bool, err error) {
			err = p.db.InTenant(ctx, t.ID, func(ctx context.Context, tx *store.Tenant) error {
				more, err = tx.PruneAudit(ctx)
				return err
			})
			return more, err
		})
		errs = append(errs, inTenant(t.ID, err))
		err = p.db.InTenant(ctx, t.ID, func(ctx context.Context, tx *store.Tenant) error { return tx.MeasureStorage(ctx) })
		errs = append(errs, inTenant(t.ID, err))
	}
	return errors.Join(errs...)
}

func inTenant(t hub.TenantID, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("tenant %s: %w", t, err)
}

// inParts collects part after part, each in a transaction of its own, with
// room for others between them.
func (p *parts) inParts(ctx context.Context, part func() (more bool, err error)) error {
	for {
		begun := p.clock.Now()
		if more, err := part(); err != nil || !more {
			return err
		}
		if err := lifecycle.Sleep(ctx, p.clock, p.clock.Now().Sub(begun)); err != nil {
			return err
		}
	}
}
