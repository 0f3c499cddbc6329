package bulk_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/bulk"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// work has some items once, and remembers which were done.
type work struct {
	items []hub.WorkItem
	done  chan string
}

func (w *work) Claim(ctx context.Context, _ string, _ int) ([]hub.WorkItem, error) {
	if len(w.items) == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	out := w.items
	w.items = nil
	return out, nil
}

func (w *work) Done(_ context.Context, items []hub.WorkItem) error {
	w.done <- items[0].Key
	return nil
}

func (w *work) Later(_ context.Context, items []hub.WorkItem, _ time.Time) error {
	w.done <- items[0].Key + " later"
	return nil
}

// catalog takes long for the part of one request.
type catalog struct{ slow hub.BulkID }

func (c catalog) AdvanceBulk(ctx context.Context, _ hub.TenantID, id hub.BulkID) (over bool, err error) {
	if id == c.slow {
		err = lifecycle.Sleep(ctx, lifecycle.System{}, time.Second)
	}
	return err == nil, err
}

func TestStage(t *testing.T) {
	t.Parallel()
	t.Run("the part of a request that ends first does not end those of others", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := &work{items: []hub.WorkItem{{Kind: hub.WorkBulk, Key: "slow"}, {Kind: hub.WorkBulk, Key: "quick"}}, done: make(chan string, 2)}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() {
				ended <- bulk.New(w, catalog{"slow"}, lifecycle.System{}, slog.New(slog.DiscardHandler)).Run(ctx)
			}()
			if got := []string{<-w.done, <-w.done}; !slices.Equal(got, []string{"quick", "slow"}) {
				t.Errorf("%v", got)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	})
}
