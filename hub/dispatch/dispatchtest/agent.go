package dispatchtest

import (
	"bytes"
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/hashchain"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// Link serves dispatch over memory for one cluster, as the daemon does for
// the cluster of a certificate.
func (w *World) Link(tenant hub.TenantID, cluster hub.ClusterID) *grpc.ClientConn {
	w.T.Helper()
	caller := func(context.Context) (hub.TenantID, hub.ClusterID, error) { return tenant, cluster, nil }
	ln := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	linkv1.RegisterDesiredServer(server, w.Streams.Desired(caller))
	linkv1.RegisterBlobsServer(server, w.Streams.Blobs(caller))
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(tunnel.Control().MaxMessage)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-done
	})
	return conn
}

// An Agent keeps what an agent keeps: a cursor and the states of applications.
type Agent struct {
	T             *testing.T
	Stream        grpc.BidiStreamingClient[linkv1.FollowUp, linkv1.FollowDown]
	Cursor        *linkv1.Cursor
	States        map[string][32]byte
	Operations    []string
	Blobs         map[string][]byte
	Kinds         []linkv1.RowKind
	Resets        int
	KeepsSettings bool        // it keeps settings
	Ahead         *linkv1.Row // settings that came ahead of their turn
	Stop          context.CancelFunc
}

// NewAgent makes an agent that holds nothing.
func NewAgent(t *testing.T) *Agent {
	return &Agent{T: t, Cursor: &linkv1.Cursor{}, States: map[string][32]byte{}, Blobs: map[string][]byte{}}
}

// Follow opens a stream at the agent's cursor.
func (a *Agent) Follow(conn *grpc.ClientConn) *Agent {
	a.T.Helper()
	if a.Stop != nil {
		a.Stop()
	}
	ctx, cancel := context.WithTimeout(a.T.Context(), Timeout)
	a.Stop = cancel
	a.T.Cleanup(cancel)
	var err error
	if a.Stream, err = linkv1.NewDesiredClient(conn).Follow(ctx); err != nil {
		a.T.Fatal(err)
	}
	a.Send(&linkv1.FollowUp{Message: &linkv1.FollowUp_Start{Start: a.Cursor}})
	return a
}

// Send sends one message.
func (a *Agent) Send(up *linkv1.FollowUp) {
	a.T.Helper()
	if err := a.Stream.Send(up); err != nil {
		a.T.Fatal(err)
	}
}

// Ack acknowledges all that came, and answers a barrier; 0: none.
func (a *Agent) Ack(barrier uint64, root []byte) {
	a.Send(&linkv1.FollowUp{Message: &linkv1.FollowUp_Ack{Ack: &linkv1.Ack{Seq: a.Cursor.Seq, Barrier: barrier, Root: root}}})
}

// ReadToBarrier reads until a barrier, and proves what an agent would prove.
func (a *Agent) ReadToBarrier() *linkv1.Barrier {
	a.T.Helper()
	for {
		down, err := a.Stream.Recv()
		if err != nil {
			a.T.Fatal(err)
		}
		if r := down.GetRewound(); r != nil {
			a.T.Fatalf("rewound: %s", r.Reason)
		}
		if b := down.GetBarrier(); b != nil {
			if b.Seq != a.Cursor.Seq {
				a.T.Fatalf("the log is closed at row %d, the agent is at %d", b.Seq, a.Cursor.Seq)
			}
			if !bytes.Equal(b.Root, a.Root()) {
				a.T.Fatal("the barrier's root is not that of the rows that were sent")
			}
			return b
		}
		a.Apply(down.GetBatch())
	}
}

// Apply takes a batch over, and proves that its rows follow from each other.
func (a *Agent) Apply(b *linkv1.Batch) {
	a.T.Helper()
	if b.Reset_ {
		a.Resets++
		a.States, a.Cursor = map[string][32]byte{}, &linkv1.Cursor{Settings: a.KeepsSettings}
	}
	if b.Settings != nil {
		a.Ahead = b.Settings
	}
	a.Cursor.Incarnation = b.Incarnation
	for _, blob := range b.Blobs {
		a.Blobs[string(blob.Digest)] = blob.Sealed
	}
	for _, r := range b.Rows {
		if r.Seq <= a.Cursor.Seq {
			a.T.Fatalf("row %d came after row %d", r.Seq, a.Cursor.Seq)
		}
		if r.Kind != linkv1.RowKind_ROW_KIND_UNSPECIFIED && r.Seq == a.Cursor.Seq+1 && a.Cursor.Seq > 0 &&
			!bytes.Equal(r.Chain, hashchain.Next(a.Cursor.Chain, r.Seq, int32(r.Kind), r.AppId, r.Body)) {
			a.T.Fatalf("row %d does not follow from the one before", r.Seq)
		}
		a.applyRow(r)
		a.Kinds = append(a.Kinds, r.Kind)
		a.Cursor.Seq, a.Cursor.Chain = r.Seq, r.Chain
	}
}

func (a *Agent) applyRow(r *linkv1.Row) {
	a.T.Helper()
	switch r.Kind {
	case linkv1.RowKind_ROW_KIND_SETTINGS:
		if a.KeepsSettings {
			a.States[r.AppId] = hashchain.Leaf(r.AppId, r.Body)
		}
	case linkv1.RowKind_ROW_KIND_STATE:
		a.States[r.AppId] = hashchain.Leaf(r.AppId, r.Body)
	case linkv1.RowKind_ROW_KIND_FORGET:
		delete(a.States, r.AppId)
	case linkv1.RowKind_ROW_KIND_OPERATION:
		var op linkv1.Operation
		if err := proto.Unmarshal(r.Body, &op); err != nil {
			a.T.Fatal(err)
		}
		a.Operations = append(a.Operations, op.GetSnapshot().GetRevision())
	}
}

// Root is the root hash of the states that the agent holds.
func (a *Agent) Root() []byte { return hashchain.Root(a.States) }

// Receipt reads the cluster and returns its convergence receipt.
func (w *World) Receipt() *hub.Receipt {
	w.T.Helper()
	var c hub.Cluster
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		var err error
		c, err = tx.Cluster(ctx, "prod")
		return err
	})
	w.Cluster = c
	return c.Receipt
}

// Eventually waits for what another goroutine is about to store.
func (w *World) Eventually(what string, holds func() bool) {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(w.T.Context(), Timeout)
	defer cancel()
	for !holds() {
		if ctx.Err() != nil {
			w.T.Fatalf("%s: not in time", what)
		}
	}
}

// Fetch asks for blobs and returns those served, those named as missing, and
// how it ended: io.EOF, or why not all came.
func Fetch(t *testing.T, conn *grpc.ClientConn, digests ...[]byte) (map[string][]byte, int, error) {
	t.Helper()
	out, missing := map[string][]byte{}, 0
	stream, err := linkv1.NewBlobsClient(conn).Fetch(t.Context(), &linkv1.FetchRequest{Digests: digests})
	if err != nil {
		return out, missing, err
	}
	for {
		reply, err := stream.Recv()
		if err != nil {
			return out, missing, err
		}
		for _, b := range reply.Blobs {
			out[string(b.Digest)] = b.Sealed
		}
		missing += len(reply.Missing)
	}
}
