package store

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

// What many streams read and write at one time is one statement for all.
const (
	selectHeads = `
		SELECT cluster_id, incarnation, seq, chain, (SELECT directory.held())
		FROM   log_head WHERE tenant_id = $1 AND cluster_id = ANY ($2::uuid[])`
	selectPages = `
		SELECT p.n, r.seq, r.kind, r.application_id, r.operation, r.body, r.chain
		FROM   unnest($2::uuid[], $3::bigint[]) WITH ORDINALITY AS p (cluster, after, n)
		CROSS  JOIN LATERAL (
			SELECT r.seq, r.kind, r.application_id, coalesce(r.operation_id::text, '') AS operation, r.body, r.chain
			FROM   log_row r
			LEFT   JOIN desired_head h ON h.tenant_id = r.tenant_id AND h.cluster_id = r.cluster_id AND h.application_id = r.application_id
			LEFT   JOIN operation o ON o.tenant_id = r.tenant_id AND o.id = r.operation_id
			WHERE  r.tenant_id = $1 AND r.cluster_id = p.cluster AND r.seq > p.after
			  AND  ` + rowMatters + `
			ORDER  BY r.seq
			LIMIT  $4) AS r
		ORDER  BY p.n, r.seq`
	selectChains = `
		SELECT p.n, coalesce(
			(SELECT r.chain FROM log_row r WHERE r.tenant_id = $1 AND r.cluster_id = p.cluster AND r.seq = p.seq),
			(SELECT c.chain FROM log_checkpoint c WHERE c.tenant_id = $1 AND c.cluster_id = p.cluster AND c.seq = p.seq))
		FROM   unnest($2::uuid[], $3::bigint[]) WITH ORDINALITY AS p (cluster, seq, n)`
	selectManyLeaves = `SELECT cluster_id, application_id::text, leaf FROM desired_head WHERE tenant_id = $1 AND cluster_id = ANY ($2::uuid[])`

	setAcked = `
		UPDATE log_ack a SET acked_seq = u.seq
		FROM   unnest($2::uuid[], $3::bigint[]) AS u (cluster, seq)
		WHERE  a.tenant_id = $1 AND a.cluster_id = u.cluster AND a.acked_seq < u.seq`
	putReceipts = `
		UPDATE log_ack a
		SET    receipt_seq = u.seq, receipt_root = u.root, receipt_at = u.at, acked_seq = greatest(a.acked_seq, u.seq)
		FROM   unnest(@clusters::uuid[], @seqs::bigint[], @roots::bytea[], @times::timestamptz[]) AS u (cluster, seq, root, at)
		WHERE  a.tenant_id = @tenant AND a.cluster_id = u.cluster
		  AND  ((a.receipt_seq, a.receipt_root) IS DISTINCT FROM (u.seq, u.root) OR a.acked_seq < u.seq)
		RETURNING a.cluster_id`
)

// Heads returns the ends of the desired logs of those of the clusters that there
// are.
func (t *Tenant) Heads(ctx context.Context, clusters []hub.ClusterID) (map[hub.ClusterID]hub.LogHead, error) {
	out := make(map[hub.ClusterID]hub.LogHead, len(clusters))
	_, err := list(ctx, t.tx, "ends of desired logs", func(row pgx.CollectableRow) (none struct{}, err error) {
		return none, scanHead(row, out)
	}, selectHeads, t.id, ids(clusters))
	return out, err
}

func scanHead(row pgx.CollectableRow, into map[hub.ClusterID]hub.LogHead) error {
	var id hub.ClusterID
	var h hub.LogHead
	err := row.Scan(&id, &h.Incarnation, &h.Seq, &h.Chain, &h.Held)
	into[id] = h
	return err
}

// Pages is RowsAfter for many places at once, in their order. Where there is
// no such cluster, the page has no head.
func (t *Tenant) Pages(ctx context.Context, places []hub.LogPlace, limit int) ([]hub.LogPage, error) {
	clusters, after := make([]string, len(places)), make([]int64, len(places))
	for i, p := range places {
		clusters[i], after[i] = string(p.Cluster), p.After
	}
	heads, out := map[hub.ClusterID]hub.LogHead{}, make([]hub.LogPage, len(places))
	b := &pgx.Batch{}
	b.Queue(planOnce)
	b.Queue(selectHeads, t.id, clusters).Query(func(r pgx.Rows) error {
		_, err := pgx.CollectRows(r, func(row pgx.CollectableRow) (none struct{}, err error) { return none, scanHead(row, heads) })
		return err
	})
	b.Queue(selectPages, append([]any{t.id, clusters, after, limit}, lifeParameters...)...).Query(func(r pgx.Rows) error {
		_, err := pgx.CollectRows(r, func(row pgx.CollectableRow) (none struct{}, err error) {
			var n int
			var x hub.LogRow
			if err := row.Scan(&n, &x.Seq, &x.Kind, &x.Application, &x.Operation, &x.Body, &x.Chain); err != nil {
				return none, err
			}
			out[n-1].Rows = append(out[n-1].Rows, x)
			return none, nil
		})
		return err
	})
	known := make([]int64, len(places))
	for i, p := range places {
		known[i] = p.Known.Seq
	}
	hashes := make([][]byte, len(places))
	b.Queue(selectChains, t.id, clusters, known).Query(func(r pgx.Rows) error {
		_, err := pgx.CollectRows(r, func(row pgx.CollectableRow) (none struct{}, err error) {
			var n int
			var hash []byte
			err = row.Scan(&n, &hash)
			hashes[n-1] = hash
			return none, err
		})
		return err
	})
	if err := t.tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("read the desired logs of %d clusters: %w", len(places), err)
	}
	for i, p := range places {
		out[i].Head = heads[p.Cluster]
		out[i].Lost = lost(p.Known, out[i].Head, hashes[i])
	}
	return out, nil
}

// lost reports whether a log has no longer the end that was known. Hash is that
// of the row with its number.
func lost(known, head hub.LogHead, hash []byte) bool {
	switch {
	case known.Incarnation == "" || head.Incarnation == "": // nothing to compare
		return false
	case known.Incarnation != head.Incarnation || known.Seq > head.Seq:
		return true
	case known.Seq == head.Seq:
		hash = head.Chain
	case known.Seq == 0:
		hash = hashchain.First(head.Incarnation)
	}
	return !bytes.Equal(hash, known.Chain)
}

// LeavesOf is Leaves for many clusters at once.
func (t *Tenant) LeavesOf(ctx context.Context, clusters []hub.ClusterID) (map[hub.ClusterID]map[string][32]byte, error) {
	out := make(map[hub.ClusterID]map[string][32]byte, len(clusters))
	for _, id := range clusters {
		out[id] = map[string][32]byte{}
	}
	_, err := list(ctx, t.tx, "desired states", func(row pgx.CollectableRow) (none struct{}, err error) {
		var id hub.ClusterID
		var app string
		var hash []byte
		err = row.Scan(&id, &app, &hash)
		var l [32]byte
		copy(l[:], hash)
		out[id][app] = l
		return none, err
	}, selectManyLeaves, t.id, ids(clusters))
	return out, err
}

// Acknowledge records how far agents have stored their logs, and the proofs
// that hub and agent have the same state. The position in a log never goes
// back.
func (t *Tenant) Acknowledge(ctx context.Context, acks []hub.LogAck) error {
	plain, proven := map[hub.ClusterID]int64{}, map[hub.ClusterID]hub.Receipt{}
	for _, a := range acks {
		if !hub.ValidID(string(a.Cluster)) {
			return noCluster()
		}
		if r := a.Receipt; r != nil && r.Seq >= proven[a.Cluster].Seq {
			proven[a.Cluster] = *r
		}
		plain[a.Cluster] = max(plain[a.Cluster], a.Seq)
	}
	b := &pgx.Batch{}
	if len(proven) > 0 {
		t.queueReceipts(b, proven)
	}
	var clusters []string
	var seqs []int64
	for id, seq := range plain {
		if seq > proven[id].Seq {
			clusters, seqs = append(clusters, string(id)), append(seqs, seq)
		}
	}
	if len(clusters) > 0 {
		b.Queue(setAcked, t.id, clusters, seqs)
	}
	if b.Len() == 0 {
		return nil
	}
	if err := t.tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("store %d acknowledgements: %w", len(acks), err)
	}
	return nil
}

func (t *Tenant) queueReceipts(b *pgx.Batch, of map[hub.ClusterID]hub.Receipt) {
	var clusters []string
	var seqs []int64
	var roots [][]byte
	var times []time.Time
	for id, r := range of {
		clusters, seqs, roots, times = append(clusters, string(id)), append(seqs, r.Seq), append(roots, r.Root), append(times, micro(r.At))
	}
	b.Queue(putReceipts, pgx.StrictNamedArgs{"tenant": t.id, "clusters": clusters, "seqs": seqs, "roots": roots, "times": times}).Query(func(r pgx.Rows) error {
		moved, err := pgx.CollectRows(r, pgx.RowTo[string])
		for _, id := range moved {
			t.changed(changeCluster, id)
		}
		return err
	})
}
