package report

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// Agreed reports whether the hub has stored all values: a comparison or a
// snapshot has ended since the start, and nothing waits.
func (o *Outbox) Agreed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.whole() && len(o.dirty) == 0 && len(o.closed) == 0 && len(o.sent) == 0
}

// Complete reports whether the hub has had complete data since the start: the
// first snapshot or comparison has ended. Lag covers later changes.
func (o *Outbox) Complete() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.whole()
}

// whole reports whether no snapshot or comparison is due or under way.
func (o *Outbox) whole() bool {
	return !o.snapshots.due && !o.snapshots.sending && !o.cmp.asked && len(o.cmp.wanted) == 0
}

// Delivered waits until the hub has stored all values that were added before
// the call.
func (o *Outbox) Delivered(ctx context.Context) error {
	since := o.clock.Now()
	for !o.deliveredBefore(since) {
		if err := lifecycle.Sleep(ctx, o.clock, deliveryPoll); err != nil {
			return fault.Wrap(fault.Offline, err, "the hub has not stored all reports yet")
		}
	}
	return nil
}

// deliveryPoll is the polling interval of Delivered: about the time of one
// report.
const deliveryPoll = 10 * time.Millisecond

func (o *Outbox) deliveredBefore(t time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.whole() || !o.waiting.IsZero() && !o.waiting.After(t) {
		return false
	}
	return len(o.sent) == 0 || o.sent[0].since.After(t)
}

// remember stores what an acknowledgement of the report confirms.
func (o *Outbox) remember(r *linkv1.ReportUp) {
	s := sent{seq: r.GetSeq(), size: uint64(proto.Size(r)), since: o.waiting}
	if s.since.IsZero() {
		s.since = o.pace.last
	}
	if len(o.dirty) == 0 {
		o.waiting = time.Time{}
	}
	for _, op := range r.GetOperations() {
		if op.GetFinishedUnixNano() != 0 {
			s.operations = append(s.operations, op.GetOperationId())
		}
	}
	o.flow.outstanding += s.size
	if s.snapshot = r.GetSnapshot() != 0; s.snapshot {
		o.flow.snapshotBytes += s.size
	}
	o.sent = append(o.sent, s)
}

// Grant says how many bytes of snapshots may be outstanding from now on; 0: as
// many as before.
func (o *Outbox) Grant(snapshots uint64) {
	if snapshots == 0 {
		return
	}
	o.mu.Lock()
	o.flow.snapshotCredit = snapshots
	o.mu.Unlock()
	o.signal()
}

// Acked says that the hub has stored all reports up to seq, and how many
// bytes may be outstanding from now on; 0: as many as before.
func (o *Outbox) Acked(epoch string, seq, credit uint64) {
	if epoch != o.epoch {
		return
	}
	o.mu.Lock()
	if credit > 0 {
		o.flow.credit = credit
	}
	n := 0
	var over []string
	for n < len(o.sent) && o.sent[n].seq <= seq {
		o.flow.outstanding -= o.sent[n].size
		if o.sent[n].snapshot {
			o.flow.snapshotBytes -= o.sent[n].size
		}
		over = append(over, o.sent[n].operations...)
		n++
	}
	o.sent = o.sent[:copy(o.sent, o.sent[n:])]
	for _, id := range over {
		if v := o.values["o\x00"+id]; v != nil && v.over && !v.dirty {
			delete(o.values, "o\x00"+id)
		}
	}
	o.mu.Unlock()
	for _, id := range over {
		o.delivered(id)
	}
	o.signal()
}
