package dispatch_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/store"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/hashchain"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// link serves dispatch over memory for one cluster, as the daemon does for
// the cluster of a certificate.
func (w *world) link(tenant hub.TenantID, cluster hub.ClusterID) *grpc.ClientConn {
	w.t.Helper()
	caller := func(context.Context) (hub.TenantID, hub.ClusterID, error) { return tenant, cluster, nil }
	ln := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	linkv1.RegisterDesiredServer(server, w.d.Desired(caller))
	linkv1.RegisterBlobsServer(server, w.d.Blobs(caller))
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(tunnel.Control().MaxMessage)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-done
	})
	return conn
}

// agent keeps what an agent keeps: a cursor and the states of applications.
type agent struct {
	t             *testing.T
	stream        grpc.BidiStreamingClient[linkv1.FollowUp, linkv1.FollowDown]
	cursor        *linkv1.Cursor
	apps          map[string][32]byte
	ops           []string
	blobs         map[string][]byte
	kinds         []linkv1.RowKind
	resets        int
	keepsSettings bool        // it keeps settings
	ahead         *linkv1.Row // settings that came ahead of their turn
	stop          context.CancelFunc
}

func newAgent(t *testing.T) *agent {
	return &agent{t: t, cursor: &linkv1.Cursor{}, apps: map[string][32]byte{}, blobs: map[string][]byte{}}
}

// follow opens a stream at the agent's cursor.
func (a *agent) follow(conn *grpc.ClientConn) *agent {
	a.t.Helper()
	if a.stop != nil {
		a.stop()
	}
	ctx, cancel := context.WithTimeout(a.t.Context(), retryPause)
	a.stop = cancel
	a.t.Cleanup(cancel)
	var err error
	if a.stream, err = linkv1.NewDesiredClient(conn).Follow(ctx); err != nil {
		a.t.Fatal(err)
	}
	a.send(&linkv1.FollowUp{Message: &linkv1.FollowUp_Start{Start: a.cursor}})
	return a
}

func (a *agent) send(up *linkv1.FollowUp) {
	a.t.Helper()
	if err := a.stream.Send(up); err != nil {
		a.t.Fatal(err)
	}
}

func (a *agent) ack(barrier uint64, root []byte) {
	a.send(&linkv1.FollowUp{Message: &linkv1.FollowUp_Ack{Ack: &linkv1.Ack{Seq: a.cursor.Seq, Barrier: barrier, Root: root}}})
}

// readToBarrier reads until a barrier, and proves what an agent would prove.
func (a *agent) readToBarrier() *linkv1.Barrier {
	a.t.Helper()
	for {
		down, err := a.stream.Recv()
		if err != nil {
			a.t.Fatal(err)
		}
		if r := down.GetRewound(); r != nil {
			a.t.Fatalf("rewound: %s", r.Reason)
		}
		if b := down.GetBarrier(); b != nil {
			if b.Seq != a.cursor.Seq {
				a.t.Fatalf("the log is closed at row %d, the agent is at %d", b.Seq, a.cursor.Seq)
			}
			if !bytes.Equal(b.Root, a.root()) {
				a.t.Fatal("the barrier's root is not that of the rows that were sent")
			}
			return b
		}
		a.batch(down.GetBatch())
	}
}

func (a *agent) batch(b *linkv1.Batch) {
	a.t.Helper()
	if b.Reset_ {
		a.resets++
		a.apps, a.cursor = map[string][32]byte{}, &linkv1.Cursor{Settings: a.keepsSettings}
	}
	if b.Settings != nil {
		a.ahead = b.Settings
	}
	a.cursor.Incarnation = b.Incarnation
	for _, blob := range b.Blobs {
		a.blobs[string(blob.Digest)] = blob.Sealed
	}
	for _, r := range b.Rows {
		if r.Seq <= a.cursor.Seq {
			a.t.Fatalf("row %d came after row %d", r.Seq, a.cursor.Seq)
		}
		if r.Kind != linkv1.RowKind_ROW_KIND_UNSPECIFIED && r.Seq == a.cursor.Seq+1 && a.cursor.Seq > 0 &&
			!bytes.Equal(r.Chain, hashchain.Next(a.cursor.Chain, r.Seq, int32(r.Kind), r.AppId, r.Body)) {
			a.t.Fatalf("row %d does not follow from the one before", r.Seq)
		}
		switch r.Kind {
		case linkv1.RowKind_ROW_KIND_SETTINGS:
			if a.keepsSettings {
				a.apps[r.AppId] = hashchain.Leaf(r.AppId, r.Body)
			}
		case linkv1.RowKind_ROW_KIND_STATE:
			a.apps[r.AppId] = hashchain.Leaf(r.AppId, r.Body)
		case linkv1.RowKind_ROW_KIND_FORGET:
			delete(a.apps, r.AppId)
		case linkv1.RowKind_ROW_KIND_OPERATION:
			var op linkv1.Operation
			if err := proto.Unmarshal(r.Body, &op); err != nil {
				a.t.Fatal(err)
			}
			a.ops = append(a.ops, op.GetSnapshot().GetRevision())
		}
		a.kinds = append(a.kinds, r.Kind)
		a.cursor.Seq, a.cursor.Chain = r.Seq, r.Chain
	}
}

func (a *agent) root() []byte { return hashchain.Root(a.apps) }

func (w *world) receipt() *hub.Receipt {
	w.t.Helper()
	var c hub.Cluster
	w.in(func(ctx context.Context, tx *store.Tenant) error {
		var err error
		c, err = tx.Cluster(ctx, "prod")
		return err
	})
	w.cluster = c
	return c.Receipt
}

// eventually waits for what another goroutine is about to store.
func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), retryPause)
	defer cancel()
	for !holds() {
		if ctx.Err() != nil {
			w.t.Fatalf("%s: not in time", what)
		}
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	conn := w.link(w.tenant, w.cluster.ID)
	a := newAgent(t).follow(conn)
	t.Run("an empty log is closed with the root of nothing", func(t *testing.T) {
		if b := a.readToBarrier(); b.Seq != 0 || a.resets != 1 {
			t.Errorf("barrier %d after %d resets", b.Seq, a.resets)
		}
	})
	t.Run("rows come as they are written, with the bodies that they need", func(t *testing.T) {
		w.render("r1", "a", "b")
		b := a.readToBarrier()
		if b.Seq != 2 || len(a.ops) != 1 || len(a.blobs) != 2 {
			t.Errorf("barrier %d, operations %v, %d blobs", b.Seq, a.ops, len(a.blobs))
		}
	})
	t.Run("INV-5 an equal root becomes a receipt, and the acknowledged row is kept", func(t *testing.T) {
		a.ack(a.cursor.Seq, a.root())
		w.eventually("receipt", func() bool { return w.receipt() != nil && w.receipt().Seq == 2 })
		if !bytes.Equal(w.receipt().Root, a.root()) {
			t.Error("the receipt holds another root")
		}
		a.ack(0, nil)
		w.eventually("acknowledgement", func() bool { w.receipt(); return w.cluster.AckedSeq == 2 })
	})
	w.end(hub.Succeeded, "")
	t.Run("a resumed stream sends only what is new", func(t *testing.T) {
		a.follow(conn)
		if a.readToBarrier(); a.resets != 1 || len(a.ops) != 1 {
			t.Errorf("%d resets, operations %v", a.resets, a.ops)
		}
		w.render("r2", "a")
		if a.readToBarrier(); a.resets != 1 || len(a.ops) != 2 || a.ops[1] != "r2" {
			t.Errorf("%d resets, operations %v", a.resets, a.ops)
		}
	})
	w.end(hub.Succeeded, "")
	t.Run("INV-2 an agent that lost everything gets the newest states and no operation that is over", func(t *testing.T) {
		lost := newAgent(t).follow(conn)
		b := lost.readToBarrier()
		if len(lost.ops) != 0 || len(lost.apps) != 1 || lost.cursor.Seq != 4 || b.Seq != 4 {
			t.Errorf("operations %v, %d states, cursor %d, barrier %d, rows %v", lost.ops, len(lost.apps), lost.cursor.Seq, b.Seq, lost.kinds)
		}
		lost.follow(conn)
		lost.readToBarrier()
		if lost.resets != 1 {
			t.Error("its cursor is not accepted the next time")
		}
		w.render("r3", "a", "c")
		lost.readToBarrier()
		if len(lost.ops) != 1 || lost.ops[0] != "r3" {
			t.Errorf("operations %v", lost.ops)
		}
	})
}

// Applications are rendered beside each other: their rows come in another order
// than their bodies were stored in.
func TestBodiesStoredOutOfOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	var elsewhere hub.Cluster
	w.in(func(ctx context.Context, tx *store.Tenant) (err error) {
		elsewhere, err = tx.CreateCluster(ctx, hub.Cluster{ID: hub.NewID[hub.ClusterID](), Meta: hub.Meta{Name: "other"}})
		return err
	})
	first, cart := w.addApplication("first", automated, elsewhere.ID), w.addApplication("cart", automated, w.cluster.ID)
	a := newAgent(t).follow(w.link(w.tenant, w.cluster.ID))
	a.readToBarrier()
	w.hand(w.of(first.ID, "r1", "early")) // stored first, and not sent here
	w.hand(w.of(w.app.ID, "r1", "late"))
	a.readToBarrier()
	w.hand(w.of(cart.ID, "r1", "early"))
	if a.readToBarrier(); len(a.blobs) != 2 {
		t.Errorf("%d bodies went along with the rows of two applications of one object each, want both", len(a.blobs))
	}
}

func TestFollowRefusesAnotherPast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	w.render("r1", "a")
	conn := w.link(w.tenant, w.cluster.ID)
	good := newAgent(t).follow(conn)
	good.readToBarrier()
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
			a := newAgent(t)
			a.cursor = proto.CloneOf(good.cursor)
			c.change(a.cursor)
			a.follow(conn)
			down, err := a.stream.Recv()
			if err != nil || down.GetRewound().GetReason() == "" {
				t.Fatalf("%s: %v, %v", c.why, down, err)
			}
			w.d.Wake(w.cluster.ID)
			if err := a.stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			if down, err := a.stream.Recv(); err == nil {
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
		good.cursor.Seq = 99
		good.ack(0, nil)
		if down, err := good.stream.Recv(); err == nil {
			t.Errorf("got %v", down)
		}
	})
}

// meddled is a database in which something happens once, before the next
// transaction that writes.
type meddled struct {
	db
	first *atomic.Pointer[func()]
}

func (d meddled) InTenant(ctx context.Context, id hub.TenantID, do func(context.Context, dispatch.Tx) error) error {
	if first := d.first.Swap(nil); first != nil {
		(*first)()
	}
	return d.db.InTenant(ctx, id, do)
}

func TestFollowDecidedMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	w.render("r1", "a")
	var first atomic.Pointer[func()]
	w.d = dispatch.New(meddled{db{w.db}, &first}, work{w.db.System()}, func(hub.TenantID) {}, slog.New(slog.NewTextHandler(testWriter{t}, nil)))
	conn := w.link(w.tenant, w.cluster.ID)
	a := newAgent(t).follow(conn)
	a.readToBarrier()
	a.cursor.Seq += 10 // rows of which the hub, restored from a backup, knows nothing
	t.Run("FT-D9 INV-8 a decision that an admin takes between judging an agent and noting it is not undone", func(t *testing.T) {
		decide := func() {
			w.in(func(ctx context.Context, tx *store.Tenant) error {
				_, err := tx.NoteRewind(ctx, w.cluster.ID, hub.Rewind{Reason: "noted by the stream before", AgentIncarnation: a.cursor.Incarnation, AgentSeq: int64(a.cursor.Seq), SeenAt: time.Now()})
				return err
			})
			w.in(func(ctx context.Context, tx *store.Tenant) error {
				_, err := tx.AcceptHub(ctx, w.cluster.ID, "ada", time.Now())
				return err
			})
		}
		first.Store(&decide)
		a.follow(conn)
		if down, err := a.stream.Recv(); err != nil || down.GetConfirmed().GetBy() != "ada" {
			t.Fatalf("got %v, %v; want that the decision is told", down, err)
		}
		w.in(func(ctx context.Context, tx *store.Tenant) error {
			r, err := tx.Rewind(ctx, w.cluster.ID)
			if r != nil {
				t.Errorf("the hub still says %+v", r)
			}
			return err
		})
	})
}

func TestFollowAfterAnEmptyReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	conn := w.link(w.tenant, w.cluster.ID)
	a := newAgent(t).follow(conn)
	a.readToBarrier()
	a.ack(0, a.root())
	t.Run("FT-L6 FT-A1 an agent that was cut off before the first row goes on, and is not told to be rewound", func(t *testing.T) {
		if a.cursor.Incarnation == "" || a.cursor.Seq != 0 {
			t.Fatalf("cursor %v", a.cursor)
		}
		for _, held := range [][]byte{nil, hashchain.First(a.cursor.Incarnation)} {
			a.cursor.Chain = held
			a.follow(conn).readToBarrier()
		}
	})
}

func TestUnequalRoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	w.render("r1", "a")
	w.end(hub.Succeeded, "")
	a := newAgent(t).follow(w.link(w.tenant, w.cluster.ID))
	b := a.readToBarrier()
	t.Run("INV-5 an unequal root is answered with a replay", func(t *testing.T) {
		a.apps[string(hub.NewID[hub.ApplicationID]())] = [32]byte{1}
		a.ack(b.Seq, a.root())
		if b = a.readToBarrier(); a.resets != 2 {
			t.Errorf("%d resets", a.resets)
		}
		a.ack(b.Seq, a.root())
		w.eventually("receipt", func() bool { return w.receipt() != nil })
	})
	t.Run("INV-9 an agent that stays different is not replayed to without end", func(t *testing.T) {
		for range 3 {
			a.ack(b.Seq, []byte("wrong"))
			b = a.readToBarrier()
		}
		a.ack(b.Seq, []byte("wrong"))
		if down, err := a.stream.Recv(); err == nil {
			t.Errorf("got %v", down)
		}
	})
	t.Run("a log without applications is closed after a replay too", func(t *testing.T) {
		w.in(func(ctx context.Context, tx *store.Tenant) error {
			_, err := dispatch.Delete(ctx, tx, w.app.ID, hub.Deletion{}, hub.Initiator{Username: "jane"})
			return err
		})
		a := newAgent(t).follow(w.link(w.tenant, w.cluster.ID))
		b := a.readToBarrier()
		a.ack(b.Seq, []byte("wrong"))
		if a.readToBarrier(); a.resets != 2 || len(a.apps) != 0 {
			t.Errorf("%d resets, %d states", a.resets, len(a.apps))
		}
	})
}

// A racer writes to the log between two reads of one transaction.
type racer struct {
	db
	between func()
}

type racingTx struct {
	dispatch.Tx
	between func()
}

func (r racer) ReadTenant(ctx context.Context, id hub.TenantID, do func(context.Context, dispatch.Tx) error) error {
	return r.db.ReadTenant(ctx, id, func(ctx context.Context, tx dispatch.Tx) error { return do(ctx, racingTx{tx, r.between}) })
}

func (r racingTx) LeavesOf(ctx context.Context, clusters []hub.ClusterID) (map[hub.ClusterID]map[string][32]byte, error) {
	r.between()
	return r.Tx.LeavesOf(ctx, clusters)
}

func TestBarrierIsOfOneMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	w.render("r1", "a")
	writer, once := w.d, false
	between := func() {
		if !once {
			once = true
			w2 := *w
			w2.d = writer
			w2.render("r2", "b")
		}
	}
	w.d = dispatch.New(racer{db{w.db}, between}, work{w.db.System()}, func(hub.TenantID) {}, slog.New(slog.DiscardHandler))
	a := newAgent(t).follow(w.link(w.tenant, w.cluster.ID))
	t.Run("INV-5 rows written meanwhile belong to the next barrier", func(t *testing.T) {
		if b := a.readToBarrier(); b.Seq != 2 {
			t.Fatalf("barrier %d", b.Seq)
		}
		w.d.Wake(w.cluster.ID)
		if b := a.readToBarrier(); b.Seq != 4 {
			t.Fatalf("barrier %d", b.Seq)
		}
	})
}

func TestManyRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	conn := w.link(w.tenant, w.cluster.ID)
	const apps = 230 // more than a page of the store
	results := make([]hub.Rendered, apps)
	w.in(func(ctx context.Context, tx *store.Tenant) error {
		for i := range results {
			app, err := tx.CreateApplication(ctx, hub.Application{
				ID: hub.NewID[hub.ApplicationID](), Meta: hub.Meta{Namespace: "argocd", Name: fmt.Sprintf("app-%d", i)}, Project: "default",
				Spec: []byte(automated), Cluster: w.cluster.ID,
			})
			if err != nil {
				return err
			}
			results[i] = rendered(app, "r1", fmt.Sprintf("object-%d", i))
		}
		return nil
	})
	if err := w.d.Rendered(t.Context(), w.tenant, results); err != nil {
		t.Fatal(err)
	}
	a := newAgent(t).follow(conn)
	t.Run("a replay of several pages is complete and in order", func(t *testing.T) {
		if b := a.readToBarrier(); b.Seq != 2*apps || len(a.apps) != apps || len(a.ops) != apps {
			t.Errorf("barrier %d, %d states, %d operations", b.Seq, len(a.apps), len(a.ops))
		}
	})
}

func rendered(app hub.Application, revision string, names ...string) hub.Rendered {
	r := hub.Rendered{Application: app.ID, Generation: app.Generation, Revision: revision, Revisions: []string{revision}}
	r.Snapshot = hub.Snapshot{Application: app.ID, Revision: revision, Revisions: r.Revisions, SourceType: "Directory", CreatedAt: time.Now(), Inputs: []hub.Input{}}
	for _, n := range names {
		r.Snapshot.Objects = append(r.Snapshot.Objects, hub.ObjectRef{Version: "v1", Kind: "ConfigMap", Name: n})
		r.Bodies = append(r.Bodies, fmt.Appendf(nil, `{"apiVersion":"v1","data":{"r":%q},"kind":"ConfigMap","metadata":{"name":%q}}`, revision, n))
	}
	return r
}
