package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

const (
	firstCredit = 256 << 10 // bytes that may be outstanding before the hub has said
	headroom    = 4 << 10   // overhead of a message on the wire
)

// outbox keeps reports until the hub has stored them. It outlives sessions, and
// the hub's credit bounds it.
type outbox struct {
	mu      sync.Mutex
	waiting []*linkv1.ReportUp // in order of seq; the hub has not stored them
	bytes   uint64             // of waiting
	credit  uint64
	room    chan struct{} // capacity 1: there may be room for another report
}

func newOutbox() *outbox {
	return &outbox{credit: firstCredit, room: make(chan struct{}, 1)}
}

func size(m *linkv1.ReportUp) uint64 { return uint64(proto.Size(m)) }

// put adds a report to the queue.
func (o *outbox) put(m *linkv1.ReportUp) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting = append(o.waiting, m)
	o.bytes += size(m)
}

// all returns the waiting reports, oldest first.
func (o *outbox) all() []*linkv1.ReportUp {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]*linkv1.ReportUp(nil), o.waiting...)
}

// full reports whether the next report has to wait. If nothing is outstanding,
// one report is always permitted, also with little credit.
func (o *outbox) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.waiting) > 0 && o.bytes >= o.credit
}

// acked removes what the hub has stored. No credit means as much as before.
func (o *outbox) acked(seq, credit uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if credit > 0 {
		o.credit = credit
	}
	var n int
	for n < len(o.waiting) && o.waiting[n].GetSeq() <= seq {
		o.bytes -= size(o.waiting[n])
		n++
	}
	o.waiting = append([]*linkv1.ReportUp(nil), o.waiting[n:]...)
	select {
	case o.room <- struct{}{}:
	default:
	}
}

// report maintains the stream of reports as long as the session is open.
func (c *Client) report(ctx context.Context, a *attachment) error {
	return lifecycle.Loop(ctx, c.cfg.Clock, c.streamWait(), c.streamFailed(ctx, "reports are not accepted"), func(ctx context.Context) error {
		return c.reportOnce(ctx, linkv1.NewObservedClient(a.conn))
	})
}

type reportStream = grpc.BidiStreamingClient[linkv1.ReportUp, linkv1.ReportDown]

// reportOnce sends what the hub has not acknowledged, and then each report
// as it comes.
func (c *Client) reportOnce(ctx context.Context, client linkv1.ObservedClient) error {
	g := lifecycle.NewGroup(ctx)
	g.Go(func(ctx context.Context) error {
		stream, err := client.Report(ctx)
		if err != nil {
			return fmt.Errorf("open the stream of reports: %w", err)
		}
		g.Go(func(ctx context.Context) error { return c.send(ctx, stream) })
		return c.acks(stream)
	})
	return g.Wait()
}

func (c *Client) send(ctx context.Context, stream reportStream) error {
	for _, m := range c.outbox.all() {
		if err := deliver(ctx, stream, m); err != nil {
			return err
		}
	}
	for {
		for c.outbox.full() {
			select {
			case <-c.outbox.room:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		m, err := c.cfg.Reports.Next(ctx)
		if err != nil {
			return err
		}
		m = c.fit(ctx, m)
		c.outbox.put(m) // before it is sent: from here on it cannot be lost
		if err := deliver(ctx, stream, m); err != nil {
			return err
		}
	}
}

// deliver sends one report. When the stream has ended, it waits for the
// receiving side to return the reason.
func deliver(ctx context.Context, stream reportStream, m *linkv1.ReportUp) error {
	failpoint.Here(failpoint.AgentReportBefore)
	err := stream.Send(m)
	failpoint.Here(failpoint.AgentReportAfter)
	if errors.Is(err, io.EOF) {
		<-ctx.Done()
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("send report %d: %w", m.GetSeq(), err)
	}
	return nil
}

// fit empties a report that exceeds the link's limit. Normal reports are far
// below it. One above it must not block all others for ever, and must not make
// the hub delete resources.
func (c *Client) fit(ctx context.Context, m *linkv1.ReportUp) *linkv1.ReportUp {
	if size(m) <= uint64(tunnel.Control().MaxMessage-headroom) {
		return m
	}
	c.cfg.Log.ErrorContext(ctx, "a report exceeded the link's limit and was emptied", logkey.Seq, m.GetSeq(), logkey.Bytes, size(m))
	return &linkv1.ReportUp{Epoch: m.GetEpoch(), Seq: m.GetSeq(), Snapshot: m.GetSnapshot()}
}

func (c *Client) acks(stream reportStream) error {
	for {
		down, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return fault.New(fault.Offline, "the hub ended the stream of reports")
		}
		if err != nil {
			return err
		}
		failpoint.Here(failpoint.AgentReportAcked)
		c.outbox.acked(down.GetAcked(), down.GetCredit())
		c.cfg.Reports.Acked(c.cfg.Epoch, down.GetAcked(), down.GetCredit())
		c.cfg.Reports.Grant(down.GetSnapshotCredit())
		if answer := down.GetCompare(); answer != nil {
			c.cfg.Reports.Compare(answer)
		}
		if down.GetResnapshot() {
			c.cfg.Reports.Resnapshot()
		}
	}
}
