package resync_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/agent/inventory"
	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch/stream"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/buckethash"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

// state appends a state of each application to the cluster's log.
func (w *world) state(generation uint64) {
	w.t.Helper()
	storetest.In(w.t, w.db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		heads, err := tx.LockClusters(ctx, []hub.ClusterID{w.cluster.ID})
		if err != nil {
			return err
		}
		head := heads[w.cluster.ID]
		var rows []hub.LogRow
		for _, app := range w.apps {
			body, err := proto.Marshal(&linkv1.AppState{Name: string(app), Generation: generation})
			if err != nil {
				return err
			}
			r := hub.LogRow{Seq: head.Seq + 1, Kind: hub.RowState, Application: app, Body: body}
			r.Chain = hashchain.Next(head.Chain, uint64(r.Seq), int32(r.Kind), string(app), body)
			head.Seq, head.Chain = r.Seq, r.Chain
			rows = append(rows, r)
		}
		return tx.AppendRows(ctx, w.cluster.ID, rows)
	})
}

// follower is an agent's side of one stream.
type follower struct {
	t           *testing.T
	copied      desired
	stream      grpc.BidiStreamingClient[linkv1.FollowUp, linkv1.FollowDown]
	states      int // rows of states that came
	resets      int
	lastMessage *linkv1.FollowDown // the last message that was no row
}

func (w *world) follow(t *testing.T, copied *inventory.Store, change func(*linkv1.Cursor)) *follower {
	t.Helper()
	d := stream.New(desiredStore{w.db}, func(hub.TenantID) {}, w.log)
	ln := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	linkv1.RegisterDesiredServer(server, d.Desired(func(context.Context) (hub.TenantID, hub.ClusterID, error) { return w.tenant, w.cluster.ID, nil }))
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(func() {
		cancel()
		_ = conn.Close()
		server.Stop()
		<-done
	})
	f := &follower{t: t, copied: desired{copied}}
	if f.stream, err = linkv1.NewDesiredClient(conn).Follow(ctx); err != nil {
		t.Fatal(err)
	}
	start := f.copied.Cursor()
	if change != nil {
		change(start)
	}
	f.send(&linkv1.FollowUp{Message: &linkv1.FollowUp_Start{Start: start}})
	return f
}

func (f *follower) send(up *linkv1.FollowUp) {
	f.t.Helper()
	if err := f.stream.Send(up); err != nil {
		f.t.Fatal(err)
	}
}

// barrier takes what comes until the log is at rest, and answers with a root.
func (f *follower) barrier() *linkv1.Barrier {
	f.t.Helper()
	for {
		down, err := f.stream.Recv()
		if err != nil {
			f.t.Fatal(err)
		}
		switch m := down.GetMessage().(type) {
		case *linkv1.FollowDown_Batch:
			if err := f.copied.StoreBatch(f.t.Context(), m.Batch); err != nil {
				f.t.Fatal(err)
			}
			if m.Batch.GetReset_() {
				f.resets++
			}
			for _, r := range m.Batch.GetRows() {
				if r.GetKind() == linkv1.RowKind_ROW_KIND_STATE {
					f.states++
				}
			}
		case *linkv1.FollowDown_Barrier:
			return m.Barrier
		case *linkv1.FollowDown_Rewound:
			f.lastMessage = down
			return nil
		default:
			f.lastMessage = down
			if up, _ := f.copied.Respond(f.t.Context(), down); up != nil {
				f.send(up)
			}
		}
	}
}

func (f *follower) answer(b *linkv1.Barrier) {
	f.send(&linkv1.FollowUp{Message: &linkv1.FollowUp_Ack{Ack: &linkv1.Ack{Seq: f.copied.Store.Cursor().Seq, Barrier: b.GetSeq(), Root: f.copied.Root()}}})
}

func open(t *testing.T) *inventory.Store {
	t.Helper()
	s, err := inventory.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-done
		_ = s.Close()
	})
	return s
}

func TestDesiredBuckets(t *testing.T) {
	w := newWorld(t, 120)
	w.state(1)
	copied := open(t)
	f := w.follow(t, copied, nil)
	b := f.barrier()
	t.Run("an agent that has nothing gets everything once", func(t *testing.T) {
		if f.states != 120 || f.resets != 0 {
			t.Errorf("%d states, %d resets", f.states, f.resets)
		}
	})
	t.Run("12.3 only the buckets that differ are sent again, and those of others stay stored", func(t *testing.T) {
		// One bucket of the copy is lost, the place is not.
		at, lost := copied.Cursor(), 0
		for _, app := range w.apps { // ids are made anew each time, so it may hold others, too
			if buckethash.Of(string(app)) == buckethash.Of(string(w.apps[7])) {
				lost++
			}
		}
		_, commit, err := copied.Stage(&linkv1.Batch{
			Incarnation: at.Incarnation, Partial: true, ForgetBuckets: []uint32{uint32(buckethash.Of(string(w.apps[7])))},
			Rows: []*linkv1.Row{{Seq: at.Seq, Chain: at.Chain}}, Proof: at.Proof,
		})
		if err != nil || commit.Wait(t.Context()) != nil {
			t.Fatal(err)
		}
		if _, there := copied.App(string(w.apps[7])); there || len(copied.Apps()) != 120-lost {
			t.Fatalf("%d states are left", len(copied.Apps()))
		}
		f.states = 0
		f.answer(b)
		b = f.barrier()
		if f.states != lost || f.resets != 0 || len(copied.Apps()) != 120 {
			t.Errorf("%d states came, %d resets, %d are held", f.states, f.resets, len(copied.Apps()))
		}
		if want := copied.Root(); string(want) != string(b.GetRoot()) {
			t.Error("the roots differ")
		}
	})
	t.Run("FT-L7 a trimmed log costs only hashes when nothing differs", func(t *testing.T) {
		f := w.follow(t, copied, func(c *linkv1.Cursor) {
			c.Guard = proto.CloneOf(c) // as if the place were known and the rows not
			c.Incarnation, c.Seq, c.Chain, c.Proof = "", 0, nil, nil
		})
		b := f.barrier()
		if f.states != 0 || string(b.GetRoot()) != string(copied.Root()) {
			t.Errorf("%d states came", f.states)
		}
	})
	t.Run("SEC-K3 a cursor that this hub did not sign stops only that agent", func(t *testing.T) {
		f := w.follow(t, copied, func(c *linkv1.Cursor) { c.Seq, c.Proof = c.Seq+5, []byte("made up") })
		if f.barrier() != nil || f.lastMessage.GetRewound() == nil {
			t.Fatal("the agent was served")
		}
		storetest.In(t, w.db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			c, err := tx.ClusterByID(ctx, w.cluster.ID)
			if err == nil && (c.Rewind == nil || c.Rewind.Proven || c.Held) {
				t.Errorf("cluster %+v", c)
			}
			return err
		})
	})
	t.Run("an agent with equal hashes is served again, and the record is removed", func(t *testing.T) {
		f := w.follow(t, copied, nil)
		if f.barrier() == nil {
			t.Fatal("it was refused")
		}
		storetest.In(t, w.db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			c, err := tx.ClusterByID(ctx, w.cluster.ID)
			if err == nil && c.Rewind != nil {
				t.Errorf("cluster %+v", c)
			}
			return err
		})
	})
	t.Run("FT-D9 another cluster's proof stops deletion here too, and rows are still sent", func(t *testing.T) {
		var other hub.Cluster
		storetest.In(t, w.db, w.tenant, func(ctx context.Context, tx *store.Tenant) (err error) {
			if other, err = tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: "other"}}); err != nil {
				return err
			}
			_, err = tx.NoteRewind(ctx, other.ID, hub.Rewind{Reason: "behind", Proven: true, SeenAt: time.Now()})
			return err
		})
		w.state(2)
		f := w.follow(t, copied, nil)
		f.barrier()
		if f.lastMessage.GetHold().GetReason() == "" || f.states != 120 {
			t.Errorf("told %v, %d states", f.lastMessage, f.states)
		}
	})
}
