package dispatch

import (
	"context"
	"fmt"
	"github.com/capstan-cd/capstan/shared/logkey"

	"github.com/capstan-cd/capstan/hub"
)

// stillOurs leaves out what came of work that another replica has taken over:
// it may have seen newer commits, and an older result must not undo its own.
// The leases of what is given stay good until the transaction ends.
func stillOurs[T any](ctx context.Context, d *Dispatcher, queue WorkQueue, all []T, of func(T) (hub.ApplicationID, int64)) ([]T, error) {
	leases := map[string]int64{}
	for _, v := range all {
		if app, token := of(v); token != 0 {
			leases[string(app)] = token
		}
	}
	if len(leases) == 0 {
		return all, nil
	}
	held, err := queue.Held(ctx, WorkRefresh, leases)
	if err != nil {
		return nil, fmt.Errorf("look at %d leases: %w", len(leases), err)
	}
	good := make([]T, 0, len(all))
	for _, v := range all {
		if app, token := of(v); token == 0 || held[string(app)] {
			good = append(good, v)
		}
	}
	if lost := len(all) - len(good); lost > 0 {
		d.log.WarnContext(ctx, "another replica has taken work over; its results count", logkey.Count, lost)
	}
	return good, nil
}
