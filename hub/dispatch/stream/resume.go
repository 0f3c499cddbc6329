package stream

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"github.com/capstan-cd/capstan/shared/logkey"
	"maps"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch/wire"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"google.golang.org/protobuf/proto"
)

// A resumeDecision is what an agent's place in the log means.
type resumeDecision int

const (
	follows  resumeDecision = iota // it is a place of the log: rows after it follow
	replays                        // it is none any more, or there is no copy: everything is compared or sent again
	rewinds                        // the agent holds another past: it gets nothing
	confirms                       // it follows a log that an admin has given up for the present one
)

// A resumeState is the decision about an agent's position in the log, with its
// details.
type resumeState struct {
	decision resumeDecision
	reason   string // of rewinds
	proven   bool   // of rewinds: this hub has signed the place
	noted    bool   // a rewind stands in the books that the agent's place refutes
	by       string // of confirms
	at       time.Time
}

// resumeFrom compares the agent's place with the log. The hub must hold the same
// chain hash at that row: a hub that was restored from a backup does not know
// of it, and would roll its clusters back.
func (f *follower) resumeFrom(ctx context.Context, start *linkv1.Cursor) (resumeState, error) {
	var p resumeState
	lost := start.GetIncarnation() == "" && start.GetGuard() != nil
	start = positionOf(start)
	digestKey, err := f.server.store.DigestKey(ctx, f.tenant)
	if err != nil {
		return p, err
	}
	f.key = proofKey(digestKey)
	err = f.server.store.ReadTenant(ctx, f.tenant, func(ctx context.Context, tx Tx) (err error) {
		p, err = f.compare(ctx, tx, start, lost)
		return err
	})
	if p.decision == rewinds {
		p.proven = start.GetIncarnation() != "" && hmac.Equal(start.GetProof(), f.proof(start.GetIncarnation(), start.GetSeq(), start.GetChain()))
	}
	return p, err
}

// compare reads the log and decides about a place in it; lost says that the
// agent holds nothing any more and only remembers the place.
func (f *follower) compare(ctx context.Context, tx Tx, start *linkv1.Cursor, lost bool) (resumeState, error) {
	var p resumeState
	_, head, err := tx.RowsAfter(ctx, f.cluster, 0, 1)
	if err != nil {
		return p, err
	}
	f.head = head
	noted, err := tx.Rewind(ctx, f.cluster)
	if err != nil {
		return p, err
	}
	if err := f.weigh(ctx, tx, start, head, &p); err != nil {
		return p, err
	}
	p.noted = noted != nil && p.decision == follows
	if noted != nil && p.decision != follows && p.decision != rewinds {
		// Only an agent that holds the very same past may go on while a
		// decision is open.
		p.decision, p.reason = rewinds, noted.Reason
	}
	if lost && p.decision == follows {
		p.decision, f.seq = replays, 0
	}
	return p, nil
}

// positionOf is where the agent was: its cursor, or what it remembers of one.
func positionOf(start *linkv1.Cursor) *linkv1.Cursor {
	if start.GetIncarnation() == "" && start.GetGuard() != nil {
		return start.GetGuard()
	}
	return start
}

func (f *follower) weigh(ctx context.Context, tx Tx, start *linkv1.Cursor, head hub.LogHead, p *resumeState) error {
	switch {
	case start.GetIncarnation() == "":
		p.decision = replays
		return nil
	case start.GetIncarnation() != head.Incarnation:
		by, at, given, err := tx.GivenUp(ctx, f.cluster, start.GetIncarnation())
		if given {
			p.decision, p.by, p.at = confirms, by, at
			return err
		}
		p.decision, p.reason = rewinds, "the hub's log was begun anew"
		return err
	case start.GetSeq() == 0 && len(start.GetChain()) == 0:
		p.decision = replays // it has just gone over, and had no row yet
		return nil
	case start.GetSeq() > uint64(head.Seq):
		p.decision, p.reason = rewinds, fmt.Sprintf("the agent holds row %d, the hub's log ends at %d", start.GetSeq(), head.Seq)
		return nil
	}
	held, found, err := tx.HashAt(ctx, f.cluster, int64(start.GetSeq()))
	switch {
	case err != nil:
		return err
	case !found: // trimmed: compare the whole state instead
		p.decision = replays
		return nil
	case !bytes.Equal(held, start.GetChain()):
		p.decision, p.reason = rewinds, fmt.Sprintf("row %d of the hub's log is not the one that the agent holds", start.GetSeq())
		return nil
	}
	f.seq = int64(start.GetSeq())
	return nil
}

// refuse notes that the agent holds another past and tells it so, unless an
// admin has decided since it was judged.
func (f *follower) refuse(ctx context.Context, start *linkv1.Cursor, p resumeState) (noted bool, err error) {
	at := positionOf(start)
	f.server.log.WarnContext(ctx, "agent and hub disagree about the past; the agent takes no change", logkey.Cluster, f.cluster, logkey.Reason, p.reason, logkey.Proven, p.proven)
	note := hub.Rewind{
		Reason: p.reason, Proven: p.proven, AgentIncarnation: at.GetIncarnation(), AgentSeq: int64(min(at.GetSeq(), 1<<62)), SeenAt: time.Now(),
	}
	err = f.server.store.InTenant(ctx, f.tenant, func(ctx context.Context, tx Tx) (err error) {
		noted, err = tx.NoteRewind(ctx, f.cluster, note)
		return err
	})
	if err != nil || !noted {
		return false, err
	}
	f.server.changed(f.tenant)
	return true, f.stream.Send(&linkv1.FollowDown{Message: &linkv1.FollowDown_Rewound{Rewound: &linkv1.Rewound{Reason: p.reason}}})
}

// decideEvery is how often an agent that gets nothing is looked at anew.
const decideEvery = 4 * time.Second

// decided sends nothing until the agent goes, or an admin has decided.
func (f *follower) decided(ctx context.Context, start *linkv1.Cursor, wake *subscription) error {
	for {
		poll := time.NewTimer(decideEvery)
		select {
		case <-ctx.Done():
			poll.Stop()
			return ctx.Err()
		case _, open := <-f.acks:
			poll.Stop()
			if !open {
				return nil
			}
			continue
		case <-wake.notify:
		case <-poll.C:
		}
		poll.Stop()
		p, err := f.resumeFrom(ctx, start)
		if err != nil {
			return err
		}
		if p.decision == rewinds {
			continue
		}
		return f.serve(ctx, start, p, wake)
	}
}

// confirm moves the agent over to the present log. Generations that the agent
// has seen stay spent: an older one never wins.
func (f *follower) confirm(ctx context.Context, start *linkv1.Cursor, p resumeState) error {
	if err := f.rebase(ctx, start.GetGeneration()); err != nil {
		return err
	}
	f.server.log.WarnContext(ctx, "the agent takes the hub's state, as was decided", logkey.Cluster, f.cluster, logkey.By, p.by)
	return f.stream.Send(&linkv1.FollowDown{Message: &linkv1.FollowDown_Confirmed{Confirmed: &linkv1.Confirmed{
		Incarnation: f.head.Incarnation, From: positionOf(start), By: p.by, AtUnixNano: p.at.UnixNano(),
	}}})
}

// farthest bounds how much higher than the hub's a generation may be that an
// agent claims to have seen.
const farthest = 1 << 32

// rebase writes the states of the cluster's applications anew, with
// generations above the highest that the agent has seen.
func (f *follower) rebase(ctx context.Context, floor uint64) error {
	return f.server.store.InTenant(ctx, f.tenant, func(ctx context.Context, tx Tx) error {
		leaves, err := tx.Leaves(ctx, f.cluster)
		if err != nil {
			return err
		}
		ids := make([]hub.ApplicationID, 0, len(leaves))
		for id := range leaves {
			ids = append(ids, hub.ApplicationID(id))
		}
		apps, err := tx.LockApplications(ctx, ids)
		if err != nil {
			return err
		}
		raised, err := raise(apps, floor)
		if err != nil || len(raised) == 0 {
			return err
		}
		if err := f.restate(ctx, tx, raised); err != nil {
			return err
		}
		if err := f.remake(ctx, tx.Restates, raised); err != nil {
			return err
		}
		return tx.RaiseGenerations(ctx, raised)
	})
}

// raise returns the new generations of those applications that have none above
// the floor.
func raise(apps map[hub.ApplicationID]hub.Application, floor uint64) (map[hub.ApplicationID]int64, error) {
	raised := map[hub.ApplicationID]int64{}
	for id, a := range apps {
		switch {
		case uint64(a.Generation) > floor:
		case floor > uint64(a.Generation)+farthest:
			return nil, fault.New(fault.Invalid, "the agent claims generation %d of application %q, the hub is at %d", floor, a.Name, a.Generation)
		default:
			raised[id] = int64(floor) + 1
		}
	}
	return raised, nil
}

// remake lets operations that have not begun be made anew as soon as the agent
// has refused them: they are of generations that it takes for past.
func (f *follower) remake(ctx context.Context, tx Restates, raised map[hub.ApplicationID]int64) error {
	open, err := tx.OpenOperations(ctx, slices.Collect(maps.Keys(raised)))
	if err != nil {
		return err
	}
	now := time.Now()
	for _, op := range open {
		if op.Phase != hub.Pending {
			continue
		}
		if err := tx.SetOperationRetry(ctx, op.ID, &now, op.Options); err != nil {
			return err
		}
	}
	return nil
}

// restate appends the newest states with other generations.
func (f *follower) restate(ctx context.Context, tx Tx, raised map[hub.ApplicationID]int64) error {
	heads, err := tx.LockClusters(ctx, []hub.ClusterID{f.cluster})
	if err != nil {
		return err
	}
	log := &wire.Appender{Head: heads[f.cluster]}
	for seq := int64(0); ; {
		rows, _, err := tx.RowsAfter(ctx, f.cluster, seq, pageRows)
		if err != nil {
			return err
		}
		if err := addRaised(log, rows, raised); err != nil {
			return err
		}
		if len(rows) < pageRows {
			break
		}
		seq = rows[len(rows)-1].Seq
	}
	return tx.AppendRows(ctx, f.cluster, log.Rows)
}

// addRaised appends those of the rows that are states of applications with new
// generations.
func addRaised(log *wire.Appender, rows []hub.LogRow, raised map[hub.ApplicationID]int64) error {
	for _, r := range rows {
		generation, ok := raised[r.Application]
		if r.Kind != hub.RowState || !ok {
			continue
		}
		row, err := withGeneration(r, generation)
		if err != nil {
			return err
		}
		if err := log.Add(row); err != nil {
			return err
		}
	}
	return nil
}

// withGeneration is a state row that says the same under another generation.
func withGeneration(r hub.LogRow, generation int64) (hub.LogRow, error) {
	var state linkv1.AppState
	if err := proto.Unmarshal(r.Body, &state); err != nil {
		return hub.LogRow{}, fmt.Errorf("read row %d: %w", r.Seq, err)
	}
	state.Generation = uint64(generation)
	body, err := wire.Marshal(&state)
	if err != nil {
		return hub.LogRow{}, err
	}
	row := hub.LogRow{Kind: hub.RowState, Application: r.Application, Body: body}
	for _, digest := range state.GetTombstoneLists() {
		row.Lists = append(row.Lists, hub.Digest(digest))
	}
	return row, nil
}

// proofKey is a tenant's key for signing places in its logs. It follows from
// the digest key, which every backup has.
func proofKey(digestKey [32]byte) []byte {
	h := hmac.New(sha256.New, digestKey[:])
	h.Write([]byte("capstan log proof v1"))
	return h.Sum(nil)
}

// proof signs a place of the cluster's log: an agent that shows it was really
// sent there by this hub, whatever the hub's database knows of it now. Without
// it, any agent could stop the whole hub by a claim.
func (f *follower) proof(incarnation string, seq uint64, chain []byte) []byte {
	h := hmac.New(sha256.New, f.key)
	_, _ = fmt.Fprintf(h, "%s\x00%s\x00", f.cluster, incarnation)
	_ = binary.Write(h, binary.BigEndian, seq)
	h.Write(chain)
	return h.Sum(nil)[:16]
}
