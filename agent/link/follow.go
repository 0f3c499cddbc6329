package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// streamWait is the back-off of a stream that fails while its session is open.
func (c *Client) streamWait() lifecycle.Backoff {
	return lifecycle.Backoff{First: firstWait, Max: 30 * time.Second, Rand: c.cfg.Random}
}

func (c *Client) streamFailed(ctx context.Context, what string) func(error, time.Duration) {
	return func(err error, wait time.Duration) {
		c.cfg.Log.WarnContext(ctx, what, logkey.Error, err, logkey.Wait, wait) //nolint:sloglint // constant text of the caller
	}
}

// follow maintains the stream of desired state as long as the session is open.
func (c *Client) follow(ctx context.Context, a *attachment) error {
	return lifecycle.Loop(ctx, c.cfg.Clock, c.streamWait(), c.streamFailed(ctx, "desired state does not arrive"), func(ctx context.Context) error {
		return c.followOnce(ctx, linkv1.NewDesiredClient(a.conn))
	})
}

type followStream = grpc.BidiStreamingClient[linkv1.FollowUp, linkv1.FollowDown]

func (c *Client) followOnce(ctx context.Context, client linkv1.DesiredClient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream in every case
	stream, err := client.Follow(ctx)
	if err != nil {
		return fmt.Errorf("follow desired state: %w", err)
	}
	start := &linkv1.FollowUp{Message: &linkv1.FollowUp_Start{Start: c.cfg.Desired.Cursor()}}
	if err := stream.Send(start); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("follow desired state: %w", err)
	}
	for agreed := false; ; {
		down, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return fault.New(fault.Offline, "the hub ended the stream of desired state")
		}
		if err != nil {
			return fmt.Errorf("follow desired state: %w", err)
		}
		if down.GetRewound() == nil && !agreed {
			agreed = true // the hub has accepted our position and sends what follows
			c.cfg.Desired.Rewound("")
		}
		if err := c.handle(ctx, stream, down); err != nil {
			return err
		}
	}
}

// handle processes one message of the hub.
func (c *Client) handle(ctx context.Context, stream followStream, down *linkv1.FollowDown) error {
	switch m := down.GetMessage().(type) {
	case *linkv1.FollowDown_Batch:
		failpoint.Here(failpoint.AgentBatchBefore)
		if err := c.cfg.Desired.StoreBatch(ctx, m.Batch); err != nil {
			return fmt.Errorf("store desired state: %w", err)
		}
		failpoint.Here(failpoint.AgentBatchAfter)
		defer failpoint.Here(failpoint.AgentAckAfter)
		return ack(stream, &linkv1.Ack{Seq: c.cfg.Desired.Cursor().GetSeq(), Unsupported: c.unsupported(ctx, m.Batch)})
	case *linkv1.FollowDown_Barrier:
		seq := c.cfg.Desired.Cursor().GetSeq()
		if seq < m.Barrier.GetSeq() {
			return fault.New(fault.Conflict, "the hub closed the log at row %d, but only %d arrived", m.Barrier.GetSeq(), seq)
		}
		return ack(stream, &linkv1.Ack{Seq: seq, Barrier: m.Barrier.GetSeq(), Root: c.cfg.Desired.Root()})
	case *linkv1.FollowDown_Rewound:
		c.cfg.Log.WarnContext(ctx, "hub and agent disagree about the past; nothing is pruned until a person decides", logkey.Reason, m.Rewound.GetReason())
		c.cfg.Desired.Rewound(m.Rewound.GetReason())
	case *linkv1.FollowDown_Confirmed, *linkv1.FollowDown_Hold, *linkv1.FollowDown_Compare:
		up, err := c.cfg.Desired.Respond(ctx, down)
		if err != nil || up == nil {
			return err
		}
		if err := stream.Send(up); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("answer the hub: %w", err)
		}
	}
	return nil // also for messages of a newer hub
}

// unsupported returns the kinds of rows that this agent does not know, to
// report to the hub.
func (c *Client) unsupported(ctx context.Context, b *linkv1.Batch) (seqs []uint64) {
	for _, r := range b.GetRows() {
		if _, known := linkv1.RowKind_name[int32(r.GetKind())]; !known {
			seqs = append(seqs, r.GetSeq())
		}
	}
	if len(seqs) > 0 {
		c.cfg.Log.WarnContext(ctx, "the hub sent rows of a kind that this agent does not know; upgrade the agent", logkey.Count, len(seqs), logkey.Seq, seqs[0])
	}
	return seqs
}

// ack replies to the hub. The end of the stream is no error here: the next
// receive returns its cause.
func ack(stream followStream, a *linkv1.Ack) error {
	err := stream.Send(&linkv1.FollowUp{Message: &linkv1.FollowUp_Ack{Ack: a}})
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("acknowledge desired state: %w", err)
	}
	return nil
}
