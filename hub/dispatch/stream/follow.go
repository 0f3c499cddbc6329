package stream

import (
	"bytes"
	"context"
	"github.com/capstan-cd/capstan/shared/logkey"
	"maps"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch/wire"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/buckethash"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/hashchain"
	"google.golang.org/grpc"
)

const (
	pageRows  = 200      // rows read from the store at once
	batchSize = 48 << 10 // bytes of a message on the control lane, unless one row is larger
	// maxReplays in a row end the stream: an agent that cannot be convinced
	// comes back at its own, slower pace.
	maxReplays = 3
)

// Caller tells which cluster a stream speaks for, from its certificate.
type Caller func(ctx context.Context) (hub.TenantID, hub.ClusterID, error)

// Desired serves the desired log of the calling cluster.
type Desired struct {
	linkv1.UnimplementedDesiredServer
	server *Server
	caller Caller
}

// Desired makes the link service.
func (s *Server) Desired(caller Caller) *Desired { return &Desired{server: s, caller: caller} }

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
	f := &follower{
		server: s.server, tenant: tenant, cluster: cluster, stream: stream, sentBlobs: wire.NewSentBlobs(s.server.recent.newest()), abilities: abilities{compares: start.GetCompares(), settings: start.GetSettings()},
		acks: make(chan *linkv1.Ack, 16), sums: make(chan *linkv1.Sums, 1),
	}
	if start.GetPacks() {
		f.bases = wire.NewBases(&s.server.packed)
		defer f.bases.Forget()
	}
	defer f.countInBurst(false)
	go f.receive()
	return f.run(ctx, start)
}

// A follower is one stream: only run sends, only receive receives.
type follower struct {
	server  *Server
	tenant  hub.TenantID
	cluster hub.ClusterID
	stream  grpc.BidiStreamingServer[linkv1.FollowUp, linkv1.FollowDown]
	acks    chan *linkv1.Ack // closed when the agent's side ends
	sums    chan *linkv1.Sums
	key     []byte // of proofs
	abilities
	position
	replay
	barrier    *linkv1.Barrier // last one sent
	barrierDue <-chan struct{} // closed when the next one is to be sent; nil: none is due
	proven     bool            // it was answered with an equal root
	inBurst    bool            // it counts among those that were sent rows of a burst
	held       bool            // the agent was told that nothing may be deleted
	sentBlobs  wire.SentBlobs  // bodies
	bases      *wire.Bases     // nil: the agent does not unpack rows
	head       hub.LogHead
}

// abilities are what the agent says that it can do.
type abilities struct {
	compares bool // it can say which states it holds
	settings bool // it keeps settings
}

// A position is how far the stream is, in rows of the log.
type position struct {
	seq      int64 // last row sent
	lastRead int64 // last row read; what lies between is held by the agent already
	stored   int64 // last row that the agent has
}

// A replay is how the log is sent from its beginning.
type replay struct {
	replays int             // resets in a row that brought no equal root
	only    map[uint16]bool // buckets that are replayed, up to row until; nil: all
	until   int64
}

// equal reports whether the agent was found to hold the state of a row already.
func (r *replay) equal(row hub.LogRow) bool {
	return r.only != nil && row.Kind.Life() == hub.WhileNewest && row.Seq <= r.until && !r.only[buckethash.Of(string(row.Application))]
}

func (f *follower) receive() {
	defer close(f.acks)
	for {
		up, err := f.stream.Recv()
		if err != nil {
			return
		}
		switch m := up.GetMessage().(type) {
		case *linkv1.FollowUp_Ack:
			if n := m.Ack.GetUnsupported(); len(n) > 0 {
				f.server.log.WarnContext(f.stream.Context(), "the agent does not know the kind of some rows; it may be older than the hub", logkey.Cluster, f.cluster, logkey.Rows, n[:min(len(n), 10)])
			}
			select {
			case f.acks <- m.Ack:
			case <-f.stream.Context().Done():
				return
			}
		case *linkv1.FollowUp_Sums:
			select {
			case f.sums <- m.Sums:
			default: // nobody asked
			}
		}
	}
}

func (f *follower) run(ctx context.Context, start *linkv1.Cursor) error {
	wake, stop := f.server.wakes.Subscribe(f.cluster)
	defer stop()
	for {
		p, err := f.resumeFrom(ctx, start)
		if err != nil {
			return err
		}
		if p.decision != rewinds {
			return f.serve(ctx, start, p, wake)
		}
		switch noted, err := f.refuse(ctx, start, p); {
		case err != nil:
			return err
		case noted:
			return f.decided(ctx, start, wake)
		}
	}
}

// serve brings an agent whose past is the hub's up to date, and follows the
// log from there.
func (f *follower) serve(ctx context.Context, start *linkv1.Cursor, p resumeState, wake *subscription) error {
	if p.noted {
		err := f.server.store.InTenant(ctx, f.tenant, func(ctx context.Context, tx Tx) error { return tx.ClearRewind(ctx, f.cluster) })
		if err != nil {
			return err
		}
		f.server.changed(f.tenant)
	}
	if p.decision == confirms {
		if err := f.confirm(ctx, start, p); err != nil {
			return err
		}
	}
	if err := f.advance(ctx, advanceOptions{reset: p.decision != follows}); err != nil {
		return err
	}
	return f.followLog(ctx, wake)
}

// followLog sends what is appended to the log, until the agent goes.
func (f *follower) followLog(ctx context.Context, wake *subscription) error {
	at, leave := f.server.heads.add(f.tenant, f.cluster)
	defer leave()
	for {
		known := headVersionOf(f.head)
		at.known.Store(&known)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ack, open := <-f.acks:
			if !open {
				return nil
			}
			if err := f.acked(ctx, ack); err != nil {
				return err
			}
			continue
		case <-wake.notify:
		case <-f.barrierDue:
		}
		at.known.Store(nil)
		if err := f.advance(ctx, advanceOptions{pushed: f.server.wakes.pushed(wake), barrierAfter: f.server.bursts.Quiet()}); err != nil {
			return err
		}
	}
}

// An advanceOptions is how a stream goes on.
type advanceOptions struct {
	reset        bool             // from the beginning
	pushed       *wire.PushedRows // rows that are known already; nil: none
	barrierAfter <-chan struct{}  // closed when a barrier may be sent; nil: at once
}

// advance sends all rows after the last one sent, and a barrier. While a change
// is being sent to many clusters, the barrier is deferred: asking each cluster
// for its root hash would delay those that have no rows yet.
func (f *follower) advance(ctx context.Context, l advanceOptions) error {
	f.barrierDue = nil
	if l.barrierAfter != nil {
		f.countInBurst(true)
	}
	if l.reset {
		if err := f.restart(ctx); err != nil {
			return err
		}
	}
	for {
		p, err := f.nextPage(ctx, l)
		if err != nil {
			return err
		}
		l.pushed = nil
		f.head = p.Head
		if err := f.sendHold(); err != nil {
			return err
		}
		if err := f.send(p.Rows); err != nil {
			return err
		}
		switch {
		case p.more:
			continue
		case p.leaves != nil:
			return f.sendBarrier(p.leaves)
		case p.due:
			f.barrierDue = l.barrierAfter
		}
		if f.seq <= f.stored {
			f.countInBurst(false) // nothing was to be sent
		}
		return nil
	}
}

// nextPage reads what follows the last row sent. It is of one moment: a root
// over newer states than the rows would not be the agent's.
func (f *follower) nextPage(ctx context.Context, l advanceOptions) (logPage, error) {
	want := cursor{LogPlace: hub.LogPlace{Cluster: f.cluster, After: max(f.seq, f.lastRead), Known: f.head}, barrier: -1, leavesLater: l.barrierAfter != nil, pushed: l.pushed}
	if f.barrier != nil {
		want.barrier = int64(f.barrier.Seq)
	}
	p, err := f.server.pages.Do(ctx, string(f.tenant), want)
	if err == nil && p.Lost {
		// The next stream is judged by the place of the agent.
		err = fault.New(fault.Conflict, "the hub's log no longer holds row %d, which was its last: the database went back to an earlier state", f.head.Seq)
	}
	return p, err
}

// sendBarrier asks the agent whether it holds all that the log says.
func (f *follower) sendBarrier(leaves map[string][32]byte) error {
	if err := f.close(); err != nil {
		return err
	}
	f.proven = false
	f.barrier = &linkv1.Barrier{Seq: uint64(f.head.Seq), Root: hashchain.Root(f.expectedLeaves(leaves))}
	return f.stream.Send(&linkv1.FollowDown{Message: &linkv1.FollowDown_Barrier{Barrier: f.barrier}})
}

// countInBurst counts the stream among those that have not acknowledged rows of a
// burst, or no longer.
func (f *follower) countInBurst(out bool) {
	if out == f.inBurst {
		return
	}
	n := 1
	if !out {
		n = -1
	}
	f.inBurst = out
	f.server.bursts.Sent(n)
}

// sendHold tells the agent whether anything may be deleted at all. What it was
// told was read in one moment with the rows that come after it.
func (f *follower) sendHold() error {
	if f.held == f.head.Held {
		return nil
	}
	f.held = f.head.Held
	reason := ""
	if f.held {
		reason = "the hub was restored from a backup, and an admin has not decided yet"
	}
	return f.stream.Send(&linkv1.FollowDown{Message: &linkv1.FollowDown_Hold{Hold: &linkv1.Hold{Reason: reason}}})
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
	down := &linkv1.Batch{Incarnation: f.head.Incarnation, Rows: []*linkv1.Row{end}, Proof: f.proof(f.head.Incarnation, end.Seq, end.Chain)}
	return f.stream.Send(&linkv1.FollowDown{Message: &linkv1.FollowDown_Batch{Batch: down}})
}

// send cuts rows into messages and adds the bodies that were stored lately.
func (f *follower) send(rows []hub.LogRow) error {
	m := message{f: f}
	page := map[hub.Digest]uint64{}
	for _, row := range rows {
		if f.equal(row) {
			continue
		}
		blobs, extra := f.inline(row, page)
		out := wire.Row(row)
		if f.bases != nil {
			if err := f.bases.Pack(row, out); err != nil {
				return err
			}
		}
		if err := m.add(out, blobs, extra); err != nil {
			return err
		}
		f.seq = row.Seq
	}
	for _, number := range page {
		f.sentBlobs.Add(number)
	}
	if len(rows) > 0 {
		f.lastRead = rows[len(rows)-1].Seq
	}
	return m.flush()
}

// A message is the batch of rows that is sent next.
type message struct {
	f     *follower
	rows  []*linkv1.Row
	blobs []*linkv1.Blob
	size  int // in bytes
}

// add adds a row with its bodies. A message that would become too large is sent
// before.
func (m *message) add(row *linkv1.Row, blobs []*linkv1.Blob, blobSize int) error {
	size := len(row.Body) + len(row.Packed) + blobSize
	if m.size > 0 && m.size+size > batchSize {
		if err := m.flush(); err != nil {
			return err
		}
	}
	m.rows, m.blobs = append(m.rows, row), append(m.blobs, blobs...)
	m.size += size + 64
	return nil
}

// flush sends the rows that were added, if there are any.
func (m *message) flush() error {
	if len(m.rows) == 0 {
		return nil
	}
	last := m.rows[len(m.rows)-1]
	incarnation := m.f.head.Incarnation
	batch := &linkv1.Batch{Incarnation: incarnation, Rows: m.rows, Blobs: m.blobs, Proof: m.f.proof(incarnation, last.Seq, last.Chain)}
	m.rows, m.blobs, m.size = nil, nil, 0
	failpoint.Here(failpoint.HubOrderBefore)
	defer failpoint.Here(failpoint.HubOrderAfter)
	return m.f.stream.Send(&linkv1.FollowDown{Message: &linkv1.FollowDown_Batch{Batch: batch}})
}

// expectedLeaves are those of the states in the log that the agent should hold. One
// that is too old to know of settings is not asked for them. Other streams may
// read the same leaves, so they stay as they are.
func (f *follower) expectedLeaves(leaves map[string][32]byte) map[string][32]byte {
	if _, there := leaves[string(hub.SettingsRow)]; !there || f.settings {
		return leaves
	}
	leaves = maps.Clone(leaves)
	delete(leaves, string(hub.SettingsRow))
	return leaves
}

// inline picks the bodies that go along with a state row: those stored since
// the stream began, or since the last rows that it sent; page has those that
// went along with other rows of this time. Older ones the agent holds, or
// fetches.
func (f *follower) inline(row hub.LogRow, page map[hub.Digest]uint64) (blobs []*linkv1.Blob, size int) {
	if row.Kind != hub.RowState {
		return nil, 0
	}
	listed := row.Objects
	if listed == nil {
		listed = wire.Digests(row.Body)
	}
	for _, digest := range listed {
		sealed, number, ok := f.server.recent.get(f.tenant, digest)
		if _, went := page[digest]; !ok || went || f.sentBlobs.Has(number) {
			continue
		}
		page[digest] = number
		if size+len(sealed) > batchSize/2 {
			continue
		}
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
		f.server.log.ErrorContext(ctx, "agent's desired state differs at a barrier; replaying it", logkey.Cluster, f.cluster, logkey.Seq, ack.Barrier)
		return f.advance(ctx, advanceOptions{reset: true})
	}
	a := hub.LogAck{Cluster: f.cluster, Seq: int64(ack.Seq)}
	switch {
	case receipt:
		f.replays = 0
		a.Receipt = &hub.Receipt{Seq: int64(ack.Barrier), Root: ack.Root, At: time.Now()}
	case f.barrier != nil && ack.Seq <= f.barrier.Seq && !f.proven:
		return nil // the answer to the barrier is on its way and says more
	}
	if _, err := f.server.acks.Do(ctx, string(f.tenant), a); err != nil {
		return err
	}
	f.proven = f.proven || receipt
	if f.stored = a.Seq; f.stored >= f.seq {
		f.countInBurst(false)
	}
	return nil
}

// acknowledge stores what several agents have said.
func (s *Server) acknowledge(ctx context.Context, tenant string, acks []hub.LogAck) ([]struct{}, error) {
	failpoint.Here(failpoint.HubAckBefore)
	defer failpoint.Here(failpoint.HubAckAfter)
	err := s.store.InTenant(ctx, hub.TenantID(tenant), func(ctx context.Context, tx Tx) error { return tx.Acknowledge(ctx, acks) })
	return make([]struct{}, len(acks)), err
}
