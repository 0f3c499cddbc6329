package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/buckethash"
)

const (
	stampApps = `
		UPDATE application_status s
		SET    report_cluster = u.cluster, report_mark = u.mark, report_bucket = u.bucket, report_leaf = u.leaf
		FROM   unnest(@clusters::uuid[], @marks::bigint[], @apps::uuid[], @buckets::integer[], @leaves::bigint[]) AS u (cluster, mark, app, bucket, leaf)
		WHERE  s.tenant_id = @tenant AND s.application_id = u.app
		  AND  (s.report_cluster, s.report_mark, s.report_bucket, s.report_leaf) IS DISTINCT FROM (u.cluster, u.mark, u.bucket, u.leaf)`
	sweepStamps = `
		UPDATE application_status SET report_cluster = NULL
		WHERE  tenant_id = $1 AND report_cluster = $2 AND report_mark <> $3 AND report_bucket = ANY ($4::integer[])`
	selectSums = `
		SELECT bucket, bit_xor(leaf) FROM (
			SELECT bucket, leaf FROM resource WHERE tenant_id = $1 AND cluster_id = $2
			UNION ALL
			SELECT report_bucket, report_leaf FROM application_status WHERE tenant_id = $1 AND report_cluster = $2) AS held
		GROUP  BY bucket`
)

// unstamped is the leaf of what came without a hash of the agent's: no agent
// has it.
const unstamped = 1

// stamped returns bucket and leaf of a thing.
func stamped(key string, stamp []byte) (bucket int32, leaf int64) {
	if len(stamp) == 0 {
		return int32(buckethash.Of(key)), unstamped
	}
	return int32(buckethash.Of(key)), int64(buckethash.Leaf(key, stamp))
}

// queueStamps notes which report on an application the hub has.
func (t *Tenant) queueStamps(b *pgx.Batch, reports []report) {
	var cluster, app []string
	var bucket []int32
	var mark, leaf []int64
	for _, r := range reports {
		for _, a := range r.Applications {
			in, sum := stamped(buckethash.Application(string(a.Application)), a.Stamp)
			cluster, mark, app = append(cluster, string(r.cluster)), append(mark, r.at.version), append(app, string(a.Application))
			bucket, leaf = append(bucket, in), append(leaf, sum)
		}
	}
	if len(app) > 0 {
		b.Queue(stampApps, pgx.StrictNamedArgs{
			"tenant": t.id, "clusters": cluster, "marks": mark, "apps": app, "buckets": bucket, "leaves": leaf,
		})
	}
}

// compare finds where the agent's data differs from what the hub has stored;
// nil if it sent no hashes.
func (t *Tenant) compare(ctx context.Context, cluster hub.ClusterID, asked *hub.Sums) (*hub.Comparison, error) {
	if asked == nil {
		return nil, nil
	}
	held := buckethash.Sums{}
	_, err := list(ctx, t.tx, "hashes of what is observed", func(row pgx.CollectableRow) (none struct{}, err error) {
		var bucket int32
		var sum int64
		if err = row.Scan(&bucket, &sum); err == nil && sum != 0 {
			held[uint16(bucket)] = uint64(sum)
		}
		return none, err
	}, selectSums, t.id, cluster)
	if err != nil {
		return nil, fmt.Errorf("compare what is observed of cluster %q: %w", cluster, err)
	}
	out := &hub.Comparison{}
	if len(asked.Second) == 0 {
		out.First, err = held.DiffFirst(asked.First)
		return out, err
	}
	for first, s := range asked.Second {
		more, err := held.DiffSecond(first, s.Index, s.Sums)
		if err != nil {
			return nil, err
		}
		out.Second = append(out.Second, more...)
	}
	return out, nil
}

func integers(in []uint16) []int32 {
	out := make([]int32, len(in))
	for i, v := range in {
		out[i] = int32(v)
	}
	return out
}
