package dispatch

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch/wire"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// touched lists the clusters whose logs the change appends to.
func (c *change) touched() []hub.ClusterID {
	seen := map[hub.ClusterID]bool{}
	for _, m := range slices.Concat(c.moved, c.tries) {
		seen[m.state.App.Cluster] = true
	}
	for _, e := range slices.Concat(c.ends, c.forget) {
		seen[e.cluster] = true
	}
	out := make([]hub.ClusterID, 0, len(seen))
	for id := range seen {
		out = append(out, id)
	}
	slices.SortFunc(out, func(a, b hub.ClusterID) int { return strings.Compare(string(a), string(b)) })
	return out
}

// write appends the rows of all decisions to the logs, clusters locked in the
// order of their ids, and stores targets, operations and tombstones.
func (c *change) write(ctx context.Context) error {
	for _, step := range [...]func(context.Context) error{c.writeLogs, c.writeTombstones, c.writeOperations, c.writeTargets} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// writeLogs makes and appends the rows.
func (c *change) writeLogs(ctx context.Context) error {
	clusters := c.touched()
	if len(clusters) == 0 {
		return nil
	}
	heads, err := c.tx.LockClusters(ctx, clusters)
	if err != nil {
		return err
	}
	logs := make(map[hub.ClusterID][]hub.LogRow, len(clusters))
	for _, cluster := range clusters {
		head, there := heads[cluster]
		if !there {
			return fmt.Errorf("cluster %s vanished while its log was written", cluster)
		}
		if logs[cluster], err = c.rows(ctx, cluster, head); err != nil {
			return err
		}
	}
	c.pushRows(heads, logs)
	if len(c.lists) > 0 {
		if err := c.tx.PutObjects(ctx, c.lists); err != nil {
			return err
		}
	}
	failpoint.Here(failpoint.HubRowsBefore)
	if err := c.tx.AppendLogs(ctx, logs); err != nil {
		return err
	}
	failpoint.Here(failpoint.HubRowsAfter)
	return nil
}

// writeTombstones opens those that the decisions need, and closes those that
// they make void.
func (c *change) writeTombstones(ctx context.Context) error {
	if len(c.opened) > 0 {
		if err := c.tx.OpenTombstones(ctx, c.opened); err != nil {
			return err
		}
	}
	if closed := c.revived(); len(closed) > 0 {
		if err := c.tx.CloseTombstones(ctx, closed); err != nil {
			return err
		}
	}
	failpoint.Here(failpoint.HubTombstonesAfter)
	return nil
}

// writeOperations stores new operations, and the snapshots of those that waited
// for one.
func (c *change) writeOperations(ctx context.Context) error {
	if len(c.ops) > 0 {
		failpoint.Here(failpoint.HubOperationsBefore)
		if err := c.putOperations(ctx); err != nil {
			return err
		}
		failpoint.Here(failpoint.HubOperationsAfter)
	}
	if len(c.given) == 0 {
		return nil
	}
	return c.tx.GiveSnapshots(ctx, c.given)
}

// writeTargets stores what is desired now. It comes after the operations, which
// targets name.
func (c *change) writeTargets(ctx context.Context) error {
	if len(c.targets) == 0 {
		return nil
	}
	if err := c.tx.SetTargets(ctx, c.targets); err != nil {
		return err
	}
	failpoint.Here(failpoint.HubTargetsAfter)
	return nil
}

// putOperations stores new operations. Most come with a new target, and one
// row says both.
func (c *change) putOperations(ctx context.Context) error {
	of := make(map[hub.ApplicationID]*hub.TargetChange, len(c.targets))
	for i := range c.targets {
		of[c.targets[i].Application] = &c.targets[i]
	}
	var with, without []hub.Operation
	for _, op := range c.ops {
		if t := of[op.Application]; t != nil {
			t.Operation = op.ID
			with = append(with, op)
		} else {
			without = append(without, op)
		}
	}
	if err := c.tx.AddOperations(ctx, with); err != nil {
		return err
	}
	return c.tx.PutOperations(ctx, without)
}

// pushRows notes what the streams may send without reading it: rows of which each
// matters, as a stream that reads would find them.
func (c *change) pushRows(heads map[hub.ClusterID]hub.LogHead, logs map[hub.ClusterID][]hub.LogRow) {
	c.pushed = make(map[hub.ClusterID]*wire.PushedRows, len(logs))
	for cluster, rows := range logs {
		if len(rows) == 0 || len(rows) > wire.MaxPushedRows {
			continue
		}
		states := map[hub.ApplicationID]bool{}
		all := true
		for _, r := range rows {
			switch r.Kind {
			case hub.RowState:
				all = all && !states[r.Application]
				states[r.Application] = true
			case hub.RowOperation:
			default:
				all = false
			}
		}
		if last := rows[len(rows)-1]; all {
			c.pushed[cluster] = &wire.PushedRows{From: heads[cluster], To: hub.LogHead{Incarnation: heads[cluster].Incarnation, Seq: last.Seq, Chain: last.Chain}, Rows: rows}
		}
	}
}

// rows makes the rows of one cluster, numbered and chained from its head. All
// states come before the first operation, so that an agent that begins to
// delete knows who lists the object now.
func (c *change) rows(ctx context.Context, cluster hub.ClusterID, head hub.LogHead) ([]hub.LogRow, error) {
	log := &wire.Appender{Head: head}
	for i := range c.moved {
		m := &c.moved[i]
		if m.state.App.Cluster != cluster {
			continue
		}
		if err := c.appendState(ctx, log, m); err != nil {
			return nil, fmt.Errorf("application %q: %w", m.state.App.Name, err)
		}
	}
	for _, m := range slices.Concat(c.moved, c.tries) {
		if m.state.App.Cluster != cluster || m.op == nil {
			continue
		}
		if err := c.appendOperation(log, &m); err != nil {
			return nil, fmt.Errorf("application %q: %w", m.state.App.Name, err)
		}
	}
	if err := c.appendEnds(log, cluster); err != nil {
		return nil, err
	}
	return log.Rows, nil
}

// appendEnds appends the rows that are no new states.
func (c *change) appendEnds(log *wire.Appender, cluster hub.ClusterID) error {
	for _, e := range slices.Concat(c.ends, c.forget) {
		if e.cluster != cluster {
			continue
		}
		if err := log.Add(e.row); err != nil {
			return err
		}
	}
	return nil
}

func (c *change) appendState(ctx context.Context, log *wire.Appender, m *moved) error {
	seq := log.Head.Seq + 1
	for i := range m.opened {
		m.opened[i].Since = seq
	}
	for i := range m.state.Tombstones {
		if m.state.Tombstones[i].Since == 0 {
			m.state.Tombstones[i].Since = seq
		}
	}
	c.opened = append(c.opened, m.opened...)
	body, lists, err := m.state.Body(c.keys(ctx))
	if err != nil {
		return err
	}
	row := hub.LogRow{Kind: hub.RowState, Application: m.state.App.ID, Body: body, Objects: m.state.Listed()}
	if len(lists) > 0 {
		keys, err := c.tx.TenantKeys(ctx)
		if err != nil {
			return err
		}
		sealed, err := wire.SealLists(keys, lists)
		if err != nil {
			return err
		}
		c.lists = append(c.lists, sealed...)
		for _, l := range lists {
			row.Lists = append(row.Lists, l.Digest)
		}
	}
	return log.Add(row)
}

func (c *change) appendOperation(log *wire.Appender, m *moved) error {
	body, err := wire.OperationBody(*m.op, m.state.Spec, m.own)
	if err != nil {
		return err
	}
	if err := log.Add(hub.LogRow{Kind: hub.RowOperation, Application: m.state.App.ID, Operation: m.op.ID, Body: body}); err != nil {
		return err
	}
	if c.open[m.op.Application].ID == m.op.ID {
		c.given = append(c.given, *m.op)
		return nil
	}
	c.ops = append(c.ops, *m.op)
	return nil
}

// revived lists tombstones that a newer snapshot makes void.
func (c *change) revived() []hub.Tombstone {
	var out []hub.Tombstone
	for _, m := range c.moved {
		kept := map[manifest.Key]bool{}
		for _, t := range m.state.Tombstones {
			kept[keyOfTombstone(t)] = true
		}
		for _, t := range c.tombstones[m.state.App.ID] {
			if !kept[keyOfTombstone(t)] && t.Cluster == m.state.App.Cluster {
				out = append(out, t)
			}
		}
	}
	return out
}

// terminate notes a row that ends an operation early.
func (c *change) terminate(op hub.Operation, actor string) error {
	body, err := wire.Marshal(&linkv1.Terminate{OperationId: string(op.ID), Actor: actor})
	if err != nil {
		return err
	}
	c.ends = append(c.ends, end{op.Cluster, hub.LogRow{
		Kind: hub.RowTerminate, Application: op.Application, Operation: op.ID, Body: body,
	}})
	return nil
}

// leave notes rows that make clusters stop managing an application.
func (c *change) leave(app hub.ApplicationID, clusters ...hub.ClusterID) {
	for _, cluster := range clusters {
		c.forget = append(c.forget, end{cluster, hub.LogRow{Kind: hub.RowForget, Application: app}})
	}
}
