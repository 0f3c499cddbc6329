package apply

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/agent/inventory"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

// noSecret is a cluster that has no Secret of the agent yet, and keeps none.
type noSecret struct{}

func (noSecret) Read(context.Context) (map[string][]byte, error) {
	return nil, fault.New(fault.Missing, "none")
}
func (noSecret) Write(context.Context, map[string][]byte) error { return nil }

// engineWithInventory returns an engine with an inventory of its own, and nothing else.
func engineWithInventory(t *testing.T) (*Engine, *inventory.Store) {
	t.Helper()
	store, err := inventory.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- store.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, store.Close()); err != nil {
			t.Error(err)
		}
	})
	secret, err := inventory.OpenSecret(ctx, noSecret{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{Inventory: store, Secret: secret, Log: slog.New(slog.DiscardHandler)}), store
}

// A state and the operation that brings the cluster to it come in one batch.
// A worker that is awake just then must not see one of them alone.
func TestStateAndOperationArriveTogether(t *testing.T) {
	t.Parallel()
	e, store := engineWithInventory(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := e.app("a")
	var alone atomic.Int32
	watched := make(chan struct{})
	go func() { // a worker that is awake all the time
		defer close(watched)
		for ctx.Err() == nil {
			e.arriving.RLock()
			a.mu.Lock()
			if a.newState != (len(a.queue) > 0) {
				alone.Add(1)
			}
			a.mu.Unlock()
			e.arriving.RUnlock()
			runtime.Gosched()
		}
	}()
	prev := hashchain.First("one")
	var seq uint64
	add := func(kind linkv1.RowKind, body proto.Message) *linkv1.Row {
		raw, err := proto.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		seq++
		prev = hashchain.Next(prev, seq, int32(kind), "a", raw)
		return &linkv1.Row{Seq: seq, Kind: kind, AppId: "a", Body: raw, Chain: prev}
	}
	for round := range 300 {
		changes, _, err := store.Stage(&linkv1.Batch{Incarnation: "one", Rows: []*linkv1.Row{
			add(linkv1.RowKind_ROW_KIND_STATE, &linkv1.AppState{Generation: uint64(round + 1)}),
			add(linkv1.RowKind_ROW_KIND_OPERATION, &linkv1.Operation{Id: fmt.Sprint("op-", round)}),
		}})
		if err != nil {
			t.Fatal(err)
		}
		e.Changed(ctx, changes)
		a.mu.Lock()
		fresh, queue := a.newState, a.queue
		a.newState, a.queue = false, nil // as a worker does
		a.mu.Unlock()
		if !fresh || len(queue) != 1 {
			t.Fatalf("fresh %v, queue %v", fresh, queue)
		}
	}
	cancel()
	<-watched
	if n := alone.Load(); n > 0 {
		t.Errorf("B12 the state was seen %d times without its operation", n)
	}
}
