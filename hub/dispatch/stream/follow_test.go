package stream_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/daemon/storeports"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/dispatch/dispatchtest"
	"github.com/capstan-cd/capstan/hub/dispatch/stream"
	"github.com/capstan-cd/capstan/hub/store"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

func TestFollow(t *testing.T) {
	t.Parallel()
	w := dispatchtest.New(t, dispatchtest.Automated)
	conn := w.Link(w.Tenant, w.Cluster.ID)
	a := dispatchtest.NewAgent(t).Follow(conn)
	t.Run("an empty log is closed with the root of nothing", func(t *testing.T) {
		if b := a.ReadToBarrier(); b.Seq != 0 || a.Resets != 1 {
			t.Errorf("barrier %d after %d resets", b.Seq, a.Resets)
		}
	})
	t.Run("rows are sent as they are written, with the bodies that they need", func(t *testing.T) {
		w.Render("r1", "a", "b")
		b := a.ReadToBarrier()
		if b.Seq != 2 || len(a.Operations) != 1 || len(a.Blobs) != 2 {
			t.Errorf("barrier %d, operations %v, %d blobs", b.Seq, a.Operations, len(a.Blobs))
		}
	})
	t.Run("INV-5 an equal root becomes a receipt, and the acknowledged row is kept", func(t *testing.T) {
		a.Ack(a.Cursor.Seq, a.Root())
		w.Eventually("receipt", func() bool { return w.Receipt() != nil && w.Receipt().Seq == 2 })
		if !bytes.Equal(w.Receipt().Root, a.Root()) {
			t.Error("the receipt holds another root")
		}
		a.Ack(0, nil)
		w.Eventually("acknowledgement", func() bool { w.Receipt(); return w.Cluster.AckedSeq == 2 })
	})
	w.End(hub.Succeeded, "")
	t.Run("a resumed stream sends only what is new", func(t *testing.T) {
		a.Follow(conn)
		if a.ReadToBarrier(); a.Resets != 1 || len(a.Operations) != 1 {
			t.Errorf("%d resets, operations %v", a.Resets, a.Operations)
		}
		w.Render("r2", "a")
		if a.ReadToBarrier(); a.Resets != 1 || len(a.Operations) != 2 || a.Operations[1] != "r2" {
			t.Errorf("%d resets, operations %v", a.Resets, a.Operations)
		}
	})
	w.End(hub.Succeeded, "")
	t.Run("INV-2 an agent that lost everything gets the newest states and no operation that is over", func(t *testing.T) {
		lost := dispatchtest.NewAgent(t).Follow(conn)
		b := lost.ReadToBarrier()
		if len(lost.Operations) != 0 || len(lost.States) != 1 || lost.Cursor.Seq != 4 || b.Seq != 4 {
			t.Errorf("operations %v, %d states, cursor %d, barrier %d, rows %v", lost.Operations, len(lost.States), lost.Cursor.Seq, b.Seq, lost.Kinds)
		}
		lost.Follow(conn)
		lost.ReadToBarrier()
		if lost.Resets != 1 {
			t.Error("its cursor is not accepted the next time")
		}
		w.Render("r3", "a", "c")
		lost.ReadToBarrier()
		if len(lost.Operations) != 1 || lost.Operations[0] != "r3" {
			t.Errorf("operations %v", lost.Operations)
		}
	})
}

// Applications are rendered beside each other: their rows come in another order
// than their bodies were stored in.
func TestBodiesStoredOutOfOrder(t *testing.T) {
	t.Parallel()
	w := dispatchtest.New(t, dispatchtest.Automated)
	var elsewhere hub.Cluster
	w.In(func(ctx context.Context, tx *store.Tenant) (err error) {
		elsewhere, err = tx.CreateCluster(ctx, hub.Cluster{ID: hub.NewID[hub.ClusterID](), Meta: hub.Meta{Name: "other"}})
		return err
	})
	first, cart := w.AddApplication("first", dispatchtest.Automated, elsewhere.ID), w.AddApplication("cart", dispatchtest.Automated, w.Cluster.ID)
	a := dispatchtest.NewAgent(t).Follow(w.Link(w.Tenant, w.Cluster.ID))
	a.ReadToBarrier()
	w.Submit(w.RenderedOf(first.ID, "r1", "early")) // stored first, and not sent here
	w.Submit(w.RenderedOf(w.App.ID, "r1", "late"))
	a.ReadToBarrier()
	w.Submit(w.RenderedOf(cart.ID, "r1", "early"))
	if a.ReadToBarrier(); len(a.Blobs) != 2 {
		t.Errorf("%d bodies went along with the rows of two applications of one object each, want both", len(a.Blobs))
	}
}

func TestFollowRefusesAnotherPast(t *testing.T) {
	t.Parallel()
	w := dispatchtest.New(t, dispatchtest.Automated)
	w.Render("r1", "a")
	conn := w.Link(w.Tenant, w.Cluster.ID)
	good := dispatchtest.NewAgent(t).Follow(conn)
	good.ReadToBarrier()
	cases := map[string]struct {
		why    string
		change func(*linkv1.Cursor)
	}{
		"another incarnation": {"the hub was set up anew", func(c *linkv1.Cursor) { c.Incarnation = "5e1d1a2e-0000-4000-8000-000000000000" }},
		"a higher number":     {"the hub was restored from an older copy", func(c *linkv1.Cursor) { c.Seq++ }},
		"the highest number":  {"it must not wrap around", func(c *linkv1.Cursor) { c.Seq = 1<<64 - 1 }},
		"another chain":       {"the hub was restored and went on differently", func(c *linkv1.Cursor) { c.Chain = bytes.Repeat([]byte{7}, 32) }},
		"no chain":            {"nothing proves a common past", func(c *linkv1.Cursor) { c.Chain = nil }},
		"chain of row 0":      {"the beginning is checked too", func(c *linkv1.Cursor) { c.Seq = 0 }},
	}
	for name, c := range cases {
		t.Run("INV-3 "+name+" is answered with Rewound and no row", func(t *testing.T) {
			a := dispatchtest.NewAgent(t)
			a.Cursor = proto.CloneOf(good.Cursor)
			c.change(a.Cursor)
			a.Follow(conn)
			down, err := a.Stream.Recv()
			if err != nil || down.GetRewound().GetReason() == "" {
				t.Fatalf("%s: %v, %v", c.why, down, err)
			}
			w.Streams.Wake(w.Cluster.ID)
			if err := a.Stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			if down, err := a.Stream.Recv(); err == nil {
				t.Fatalf("%s: %v was sent all the same", c.why, down)
			}
		})
	}
	t.Run("a stream must begin with a cursor", func(t *testing.T) {
		stream, err := linkv1.NewDesiredClient(conn).Follow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&linkv1.FollowUp{Message: &linkv1.FollowUp_Ack{Ack: &linkv1.Ack{}}}); err != nil {
			t.Fatal(err)
		}
		if down, err := stream.Recv(); err == nil {
			t.Errorf("got %v", down)
		}
	})
	t.Run("rows that were never sent cannot be acknowledged", func(t *testing.T) {
		good.Cursor.Seq = 99
		good.Ack(0, nil)
		if down, err := good.Stream.Recv(); err == nil {
			t.Errorf("got %v", down)
		}
	})
}

// meddled is a database in which something happens once, before the next
// transaction that writes.
type meddled struct {
	dispatchtest.StreamStore
	first *atomic.Pointer[func()]
}

func (d meddled) InTenant(ctx context.Context, id hub.TenantID, do func(context.Context, stream.Tx) error) error {
	if first := d.first.Swap(nil); first != nil {
		(*first)()
	}
	return d.StreamStore.InTenant(ctx, id, do)
}

func TestFollowDecidedMeanwhile(t *testing.T) {
	t.Parallel()
	w := dispatchtest.New(t, dispatchtest.Automated)
	w.Render("r1", "a")
	var first atomic.Pointer[func()]
	w.Streams = stream.New(meddled{dispatchtest.StreamStore{DB: w.DB}, &first}, func(hub.TenantID) {}, dispatchtest.Log(t))
	conn := w.Link(w.Tenant, w.Cluster.ID)
	a := dispatchtest.NewAgent(t).Follow(conn)
	a.ReadToBarrier()
	a.Cursor.Seq += 10 // rows of which the hub, restored from a backup, knows nothing
	t.Run("FT-D9 INV-8 an admin's decision between the check of an agent and its record is not undone", func(t *testing.T) {
		decide := func() {
			w.In(func(ctx context.Context, tx *store.Tenant) error {
				_, err := tx.NoteRewind(ctx, w.Cluster.ID, hub.Rewind{Reason: "noted by the stream before", AgentIncarnation: a.Cursor.Incarnation, AgentSeq: int64(a.Cursor.Seq), SeenAt: time.Now()})
				return err
			})
			w.In(func(ctx context.Context, tx *store.Tenant) error {
				_, err := tx.AcceptHub(ctx, w.Cluster.ID, "ada", time.Now())
				return err
			})
		}
		first.Store(&decide)
		a.Follow(conn)
		if down, err := a.Stream.Recv(); err != nil || down.GetConfirmed().GetBy() != "ada" {
			t.Fatalf("got %v, %v; want that the decision is told", down, err)
		}
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			r, err := tx.Rewind(ctx, w.Cluster.ID)
			if r != nil {
				t.Errorf("the hub still says %+v", r)
			}
			return err
		})
	})
}

func TestFollowAfterAnEmptyReplay(t *testing.T) {
	t.Parallel()
	w := dispatchtest.New(t, dispatchtest.Automated)
	conn := w.Link(w.Tenant, w.Cluster.ID)
	a := dispatchtest.NewAgent(t).Follow(conn)
	a.ReadToBarrier()
	a.Ack(0, a.Root())
	t.Run("FT-L6 FT-A1 an agent that was disconnected before the first row continues, and does not count as rewound", func(t *testing.T) {
		if a.Cursor.Incarnation == "" || a.Cursor.Seq != 0 {
			t.Fatalf("cursor %v", a.Cursor)
		}
		for _, held := range [][]byte{nil, hashchain.First(a.Cursor.Incarnation)} {
			a.Cursor.Chain = held
			a.Follow(conn).ReadToBarrier()
		}
	})
}

func TestUnequalRoot(t *testing.T) {
	t.Parallel()
	w := dispatchtest.New(t, dispatchtest.Automated)
	w.Render("r1", "a")
	w.End(hub.Succeeded, "")
	a := dispatchtest.NewAgent(t).Follow(w.Link(w.Tenant, w.Cluster.ID))
	b := a.ReadToBarrier()
	t.Run("INV-5 an unequal root causes a replay", func(t *testing.T) {
		a.States[string(hub.NewID[hub.ApplicationID]())] = [32]byte{1}
		a.Ack(b.Seq, a.Root())
		if b = a.ReadToBarrier(); a.Resets != 2 {
			t.Errorf("%d resets", a.Resets)
		}
		a.Ack(b.Seq, a.Root())
		w.Eventually("receipt", func() bool { return w.Receipt() != nil })
	})
	t.Run("INV-9 an agent that still differs does not get replays without end", func(t *testing.T) {
		for range 3 {
			a.Ack(b.Seq, []byte("wrong"))
			b = a.ReadToBarrier()
		}
		a.Ack(b.Seq, []byte("wrong"))
		if down, err := a.Stream.Recv(); err == nil {
			t.Errorf("got %v", down)
		}
	})
	t.Run("a log without applications is closed after a replay too", func(t *testing.T) {
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Delete(ctx, storeports.Dispatch(tx), w.App.ID, hub.Deletion{}, hub.Initiator{Username: "jane"})
			return err
		})
		a := dispatchtest.NewAgent(t).Follow(w.Link(w.Tenant, w.Cluster.ID))
		b := a.ReadToBarrier()
		a.Ack(b.Seq, []byte("wrong"))
		if a.ReadToBarrier(); a.Resets != 2 || len(a.States) != 0 {
			t.Errorf("%d resets, %d states", a.Resets, len(a.States))
		}
	})
}

// A racer writes to the log between two reads of one transaction.
type racer struct {
	dispatchtest.StreamStore
	between func()
}

type racingEnds struct {
	stream.LogEnds
	between func()
}

func (r racer) ReadTenant(ctx context.Context, id hub.TenantID, do func(context.Context, stream.Tx) error) error {
	return r.StreamStore.ReadTenant(ctx, id, func(ctx context.Context, tx stream.Tx) error {
		tx.LogEnds = racingEnds{tx.LogEnds, r.between}
		return do(ctx, tx)
	})
}

func (r racingEnds) LeavesOf(ctx context.Context, clusters []hub.ClusterID) (map[hub.ClusterID]map[string][32]byte, error) {
	r.between()
	return r.LogEnds.LeavesOf(ctx, clusters)
}

func TestBarrierReadsOneSnapshot(t *testing.T) {
	t.Parallel()
	w := dispatchtest.New(t, dispatchtest.Automated)
	w.Render("r1", "a")
	once := false
	between := func() {
		if !once {
			once = true
			w2 := *w
			w2.Render("r2", "b")
		}
	}
	w.Streams = stream.New(racer{dispatchtest.StreamStore{DB: w.DB}, between}, func(hub.TenantID) {}, slog.New(slog.DiscardHandler))
	a := dispatchtest.NewAgent(t).Follow(w.Link(w.Tenant, w.Cluster.ID))
	t.Run("INV-5 rows written meanwhile belong to the next barrier", func(t *testing.T) {
		if b := a.ReadToBarrier(); b.Seq != 2 {
			t.Fatalf("barrier %d", b.Seq)
		}
		w.Streams.Wake(w.Cluster.ID)
		if b := a.ReadToBarrier(); b.Seq != 4 {
			t.Fatalf("barrier %d", b.Seq)
		}
	})
}

func TestManyRows(t *testing.T) {
	t.Parallel()
	w := dispatchtest.New(t, dispatchtest.Automated)
	conn := w.Link(w.Tenant, w.Cluster.ID)
	const apps = 230 // more than a page of the store
	results := make([]hub.Rendered, apps)
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		for i := range results {
			app, err := tx.CreateApplication(ctx, hub.Application{
				ID: hub.NewID[hub.ApplicationID](), Meta: hub.Meta{Namespace: "argocd", Name: fmt.Sprintf("app-%d", i)}, Project: "default",
				Spec: []byte(dispatchtest.Automated), Cluster: w.Cluster.ID,
			})
			if err != nil {
				return err
			}
			results[i] = dispatchtest.Rendered(app, "r1", fmt.Sprintf("object-%d", i))
		}
		return nil
	})
	if err := w.Dispatcher.Rendered(t.Context(), w.Tenant, results); err != nil {
		t.Fatal(err)
	}
	a := dispatchtest.NewAgent(t).Follow(conn)
	t.Run("a replay of several pages is complete and in order", func(t *testing.T) {
		if b := a.ReadToBarrier(); b.Seq != 2*apps || len(a.States) != apps || len(a.Operations) != apps {
			t.Errorf("barrier %d, %d states, %d operations", b.Seq, len(a.States), len(a.Operations))
		}
	})
}
