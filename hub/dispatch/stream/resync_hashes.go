package stream

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch/wire"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/buckethash"
	"github.com/capstan-cd/capstan/shared/fault"
)

// sumsOf spreads leaves over buckets.
func sumsOf(leaves map[string][32]byte) buckethash.Sums {
	sums := buckethash.Sums{}
	for id, leaf := range leaves {
		sums.Add(buckethash.Of(id), buckethash.Leaf(id, leaf[:]))
	}
	return sums
}

// differing asks the agent for its hashes and gives the buckets in which it
// holds other states than the log.
func (f *follower) differing(ctx context.Context) (map[uint16]bool, error) {
	var leaves map[string][32]byte
	err := f.server.store.ReadTenant(ctx, f.tenant, func(ctx context.Context, tx Tx) (err error) {
		_, head, err := tx.RowsAfter(ctx, f.cluster, 0, 1)
		if err != nil {
			return err
		}
		f.until = head.Seq
		leaves, err = tx.Leaves(ctx, f.cluster)
		return err
	})
	if err != nil {
		return nil, err
	}
	mine := sumsOf(f.expectedLeaves(leaves))
	theirs, err := f.requestSums(ctx, nil)
	if err != nil {
		return nil, err
	}
	first, err := mine.DiffFirst(theirs.GetFirst())
	if err != nil || len(first) == 0 {
		return map[uint16]bool{}, err
	}
	if theirs, err = f.requestSums(ctx, first); err != nil {
		return nil, err
	}
	inside := map[uint32]*linkv1.BucketSums{}
	for _, s := range theirs.GetSecond() {
		inside[s.GetBucket()] = s
	}
	out := map[uint16]bool{}
	for _, b := range first {
		s := inside[uint32(b)]
		more, err := mine.DiffSecond(b, s.GetIndex(), s.GetSums())
		if err != nil {
			return nil, err
		}
		for _, d := range more {
			out[d] = true
		}
	}
	return out, nil
}

// requestSums sends one question and waits for its answer. Acknowledgements that come
// in between belong to rows that are being replaced.
func (f *follower) requestSums(ctx context.Context, first []uint8) (*linkv1.Sums, error) {
	q := &linkv1.Compare{}
	for _, b := range first {
		q.First = append(q.First, uint32(b))
	}
	if err := f.stream.Send(&linkv1.FollowDown{Message: &linkv1.FollowDown_Compare{Compare: q}}); err != nil {
		return nil, err
	}
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case _, open := <-f.acks:
			if !open {
				return nil, fault.New(fault.Offline, "the agent left while its state was compared")
			}
		case s := <-f.sums:
			return s, nil
		}
	}
}

// restart makes the agent ready for states from the beginning of the log: all of
// them, or those that it holds differently.
func (f *follower) restart(ctx context.Context) error {
	f.seq, f.lastRead, f.barrier, f.only = 0, 0, nil, nil
	if f.bases != nil {
		f.bases.Forget()
	}
	down := &linkv1.Batch{Reset_: true, Incarnation: f.head.Incarnation}
	if f.compares {
		only, err := f.differing(ctx)
		if err != nil {
			return err
		}
		f.only = only
		down = &linkv1.Batch{Incarnation: f.head.Incarnation, Partial: true}
		for b := range only {
			down.ForgetBuckets = append(down.ForgetBuckets, uint32(b))
		}
	}
	if f.settings && (f.only == nil || f.only[buckethash.Of(string(hub.SettingsRow))]) {
		if err := f.ahead(ctx, down); err != nil {
			return err
		}
	}
	return f.stream.Send(&linkv1.FollowDown{Message: &linkv1.FollowDown_Batch{Batch: down}})
}

// ahead lets a replay bring the settings first: until their row comes, states
// would be enforced as if the tenant had set nothing.
func (f *follower) ahead(ctx context.Context, down *linkv1.Batch) error {
	return f.server.store.ReadTenant(ctx, f.tenant, func(ctx context.Context, tx Tx) error {
		row, found, err := tx.SettingsRow(ctx, f.cluster)
		if found {
			down.Settings = wire.Row(row)
		}
		return err
	})
}
