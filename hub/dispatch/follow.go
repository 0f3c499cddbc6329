package dispatch

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/chain"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"google.golang.org/grpc"
)

const (
	pageRows  = 200      // rows read from the store at once
	batchSize = 48 << 10 // bytes of a message on the control lane, unless one row is larger
	followMin = 4 * time.Second
	// maxReplays in a row end the stream: an agent that cannot be convinced
	// comes back at its own, slower pace.
	maxReplays = 3
)

// Caller tells which cluster a stream speaks for, from its certificate.
type Caller func(ctx context.Context) (hub.TenantID, hub.ClusterID, error)

// Desired serves the desired log of the calling cluster.
type Desired struct {
	linkv1.UnimplementedDesiredServer
	d      *Dispatcher
	caller Caller
}

// Desired makes the link service.
func (d *Dispatcher) Desired(caller Caller) *Desired { return &Desired{d: d, caller: caller} }

// Follow replays what the cluster lacks and then follows the log.
func (s *Desired) Follow(stream grpc.BidiStreamingServer[linkv1.FollowUp, linkv1.FollowDown]) error {
	ctx := stream.Context()
	tenant, cluster, err := s.caller(ctx)
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil {
		return fault.New(fault.Invalid, "the first message of Follow must be a cursor")
	}
	f := &follower{d: s.d, tenant: tenant, cluster: cluster, stream: stream, sent: map[hub.Digest]bool{}, acks: make(chan *linkv1.Ack, 16)}
	go f.receive()
	return f.run(ctx, start)
}

// A follower is one stream: only run sends, only receive receives.
type follower struct {
	d       *Dispatcher
	tenant  hub.TenantID
	cluster hub.ClusterID
	stream  grpc.BidiStreamingServer[linkv1.FollowUp, linkv1.FollowDown]
	acks    chan *linkv1.Ack // closed when the agent's side ends
	seq     int64            // last row sent
	barrier *linkv1.Barrier  // last one sent
	replays int              // resets in a row that brought no equal root
	sent    map[hub.Digest]bool
	head    hub.LogHead
}

func (f *follower) receive() {
	defer close(f.acks)
	for {
		up, err := f.stream.Recv()
		if err != nil {
			return
		}
		if ack := up.GetAck(); ack != nil {
			if n := ack.GetUnsupported(); len(n) > 0 {
				f.d.log.WarnContext(f.stream.Context(), "the agent does not know the kind of some rows; it may be older than the hub", "cluster", f.cluster, "rows", n[:min(len(n), 10)])
			}
			select {
			case f.acks <- ack:
			case <-f.stream.Context().Done():
				return
			}
		}
	}
}

func (f *follower) run(ctx context.Context, start *linkv1.Cursor) error {
	wake, stop := f.d.wakes.listen(f.cluster)
	defer stop()
	reset, reason, err := f.begin(ctx, start)
	if err != nil {
		return err
	}
	if reason != "" {
		f.d.log.WarnContext(ctx, "agent and hub disagree about the past; the agent takes no change", "cluster", f.cluster, "reason", reason)
		if err := f.stream.Send(&linkv1.FollowDown{Message: &linkv1.FollowDown_Rewound{Rewound: &linkv1.Rewound{Reason: reason}}}); err != nil {
			return err
		}
		return f.idle(ctx)
	}
	if err := f.advance(ctx, reset); err != nil {
		return err
	}
	for {
		poll := time.NewTimer(followMin + rand.N(followMin/2))
		select {
		case <-ctx.Done():
			poll.Stop()
			return ctx.Err()
		case ack, open := <-f.acks:
			poll.Stop()
			if !open {
				return nil
			}
			if err := f.acked(ctx, ack); err != nil {
				return err
			}
			continue
		case <-wake:
		case <-poll.C:
		}
		poll.Stop()
		if err := f.advance(ctx, false); err != nil {
			return err
		}
	}
}

// idle sends nothing more until the agent goes.
func (f *follower) idle(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case _, open := <-f.acks:
			if !open {
				return nil
			}
		}
	}
}

// begin compares the agent's cursor with the log. Reset asks for a replay
// from the beginning; a reason says that the log was rewound.
func (f *follower) begin(ctx context.Context, start *linkv1.Cursor) (reset bool, reason string, err error) {
	err = f.d.store.ReadTenant(ctx, f.tenant, func(ctx context.Context, tx Tx) error {
		_, head, err := tx.RowsAfter(ctx, f.cluster, 0, 1)
		if err != nil {
			return err
		}
		f.head = head
		if start.Incarnation == "" {
			reset = true
			return nil
		}
		if start.Incarnation != head.Incarnation {
			reason = "the hub's log was begun anew"
			return nil
		}
		if start.Seq > uint64(head.Seq) {
			reason = fmt.Sprintf("the agent holds row %d, the hub's log ends at %d", start.Seq, head.Seq)
			return nil
		}
		if start.Seq == 0 && len(start.Chain) == 0 {
			return nil // it was cut off between the beginning of a replay and its first row
		}
		held := chain.First(head.Incarnation)
		if start.Seq > 0 {
			found := false
			if held, found, err = tx.HashAt(ctx, f.cluster, int64(start.Seq)); err != nil {
				return err
			}
			if !found {
				reset = true // trimmed: compare the whole state instead
				return nil
			}
		}
		if !bytes.Equal(held, start.Chain) {
			reason = fmt.Sprintf("row %d of the hub's log is not the one that the agent holds", start.Seq)
			return nil
		}
		f.seq = int64(start.Seq)
		return nil
	})
	return reset, reason, err
}

// advance sends all rows after the last one sent, and a barrier.
func (f *follower) advance(ctx context.Context, reset bool) error {
	if reset {
		f.seq, f.barrier = 0, nil
		down := &linkv1.Batch{Reset_: true, Incarnation: f.head.Incarnation}
		if err := f.stream.Send(&linkv1.FollowDown{Message: &linkv1.FollowDown_Batch{Batch: down}}); err != nil {
			return err
		}
	}
	for {
		var rows []hub.LogRow
		var leaves map[string][32]byte
		// One moment: a root over newer states than the rows would not be the
		// agent's.
		err := f.d.store.ReadTenant(ctx, f.tenant, func(ctx context.Context, tx Tx) error {
			var err error
			if rows, f.head, err = tx.RowsAfter(ctx, f.cluster, f.seq, pageRows); err != nil {
				return err
			}
			if len(rows) < pageRows && (len(rows) > 0 || f.barrier == nil || f.barrier.Seq != uint64(f.head.Seq)) {
				leaves, err = tx.Leaves(ctx, f.cluster)
			}
			return err
		})
		if err != nil {
			return err
		}
		if err := f.send(rows); err != nil {
			return err
		}
		if len(rows) == pageRows {
			continue
		}
		if leaves == nil {
			return nil
		}
		if err := f.close(); err != nil {
			return err
		}
		f.barrier = &linkv1.Barrier{Seq: uint64(f.head.Seq), Root: chain.Root(leaves)}
		return f.stream.Send(&linkv1.FollowDown{Message: &linkv1.FollowDown_Barrier{Barrier: f.barrier}})
	}
}

// close moves the agent's cursor to the end of the log when the last rows were
// left out, such as an operation that is over: an agent that starts with
// nothing would never arrive there and take the log for a shortened one.
func (f *follower) close() error {
	if f.seq == f.head.Seq {
		return nil
	}
	f.seq = f.head.Seq
	end := &linkv1.Row{Seq: uint64(f.head.Seq), Chain: f.head.Chain}
	down := &linkv1.Batch{Incarnation: f.head.Incarnation, Rows: []*linkv1.Row{end}}
	return f.stream.Send(&linkv1.FollowDown{Message: &linkv1.FollowDown_Batch{Batch: down}})
}

// send cuts rows into messages and adds the bodies that were stored lately.
func (f *follower) send(rows []hub.LogRow) error {
	batch, size := &linkv1.Batch{Incarnation: f.head.Incarnation}, 0
	flush := func() error {
		if len(batch.Rows) == 0 {
			return nil
		}
		down := &linkv1.FollowDown{Message: &linkv1.FollowDown_Batch{Batch: batch}}
		batch, size = &linkv1.Batch{Incarnation: f.head.Incarnation}, 0
		failpoint.Here(failpoint.HubOrderBefore)
		defer failpoint.Here(failpoint.HubOrderAfter)
		return f.stream.Send(down)
	}
	for _, row := range rows {
		blobs, extra := f.inline(row)
		if size > 0 && size+len(row.Body)+extra > batchSize {
			if err := flush(); err != nil {
				return err
			}
		}
		batch.Rows = append(batch.Rows, &linkv1.Row{
			Seq: uint64(row.Seq), Kind: linkv1.RowKind(row.Kind), AppId: string(row.Application), Body: row.Body, Chain: row.Chain,
		})
		batch.Blobs = append(batch.Blobs, blobs...)
		size += len(row.Body) + extra + 64
		f.seq = row.Seq
	}
	return flush()
}

// inline picks the bodies that go along with a state row: those stored lately
// by this replica that this stream has not carried yet.
func (f *follower) inline(row hub.LogRow) (blobs []*linkv1.Blob, size int) {
	if row.Kind != hub.RowState {
		return nil, 0
	}
	for _, digest := range digestsOf(row.Body) {
		if f.sent[digest] {
			continue
		}
		sealed, ok := f.d.recent.get(f.tenant, digest)
		if !ok || size+len(sealed) > batchSize/2 {
			continue
		}
		if len(f.sent) > 20_000 {
			f.sent = map[hub.Digest]bool{}
		}
		f.sent[digest] = true
		blobs = append(blobs, &linkv1.Blob{Digest: digest[:], Sealed: sealed})
		size += len(sealed) + 40
	}
	return blobs, size
}

// acked stores how far the agent is; equal roots become a receipt.
func (f *follower) acked(ctx context.Context, ack *linkv1.Ack) error {
	if ack.Seq > uint64(f.seq) {
		return fault.New(fault.Invalid, "row %d was acknowledged, only rows up to %d were sent", ack.Seq, f.seq)
	}
	receipt := ack.Barrier != 0 && f.barrier != nil && ack.Barrier == f.barrier.Seq
	if receipt && !bytes.Equal(ack.Root, f.barrier.Root) {
		if f.replays++; f.replays > maxReplays {
			return fault.New(fault.Conflict, "the agent's desired state differs from the hub's after %d replays", maxReplays)
		}
		f.d.log.ErrorContext(ctx, "agent's desired state differs at a barrier; replaying it", "cluster", f.cluster, "seq", ack.Barrier)
		return f.advance(ctx, true)
	}
	failpoint.Here(failpoint.HubAckBefore)
	defer failpoint.Here(failpoint.HubAckAfter)
	return f.d.store.InTenant(ctx, f.tenant, func(ctx context.Context, tx Tx) error {
		if receipt {
			f.replays = 0
			return tx.PutReceipt(ctx, f.cluster, hub.Receipt{Seq: int64(ack.Barrier), Root: ack.Root, At: time.Now()})
		}
		return tx.Acked(ctx, f.cluster, int64(ack.Seq))
	})
}
