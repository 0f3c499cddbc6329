package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

const (
	lockHeads = `
		SELECT cluster_id, incarnation, seq, chain FROM log_head
		WHERE  tenant_id = $1 AND cluster_id = ANY ($2::uuid[])
		ORDER  BY cluster_id
		FOR UPDATE`
	selectHead = `SELECT incarnation, seq, chain, directory.held() FROM log_head WHERE tenant_id = $1 AND cluster_id = $2`
	moveHeads  = `
		UPDATE log_head h SET seq = u.seq, chain = u.chain
		FROM   unnest($2::uuid[], $3::bigint[], $4::bytea[]) AS u (cluster, seq, chain)
		WHERE  h.tenant_id = $1 AND h.cluster_id = u.cluster`
	insertRows = `
		INSERT INTO log_row (tenant_id, cluster_id, seq, kind, application_id, operation_id, body, chain)
		SELECT @tenant, u.cluster, u.seq, u.kind, u.app, nullif(u.operation, '')::uuid, u.body, u.chain
		FROM   unnest(@clusters::uuid[], @seqs::bigint[], @kinds::smallint[], @apps::uuid[], @operations::text[], @bodies::bytea[], @chains::bytea[])
		       AS u (cluster, seq, kind, app, operation, body, chain)`
	putLeaves = `
		INSERT INTO desired_head AS h (tenant_id, cluster_id, application_id, seq, leaf, lists)
		SELECT @tenant, u.cluster, u.app, u.seq, u.leaf, u.lists
		FROM   unnest(@clusters::uuid[], @apps::uuid[], @seqs::bigint[], @leaves::bytea[], @lists::bytea[]) AS u (cluster, app, seq, leaf, lists)
		ON CONFLICT (tenant_id, cluster_id, application_id) DO UPDATE SET seq = excluded.seq, leaf = excluded.leaf, lists = excluded.lists
		WHERE  h.seq < excluded.seq`
	dropLeaves = `
		DELETE FROM desired_head h USING unnest($2::uuid[], $3::uuid[]) AS u (cluster, app)
		WHERE  h.tenant_id = $1 AND h.cluster_id = u.cluster AND h.application_id = u.app`

	// Only what still matters: the newest state of each application and the
	// newest settings, the operations that are not over with what ends them,
	// and the removals.
	selectRows = `
		SELECT r.seq, r.kind, r.application_id, coalesce(r.operation_id::text, ''), r.body, r.chain
		FROM   log_row r
		LEFT   JOIN desired_head h ON h.tenant_id = r.tenant_id AND h.cluster_id = r.cluster_id AND h.application_id = r.application_id
		LEFT   JOIN operation o ON o.tenant_id = r.tenant_id AND o.id = r.operation_id
		WHERE  r.tenant_id = $1 AND r.cluster_id = $2 AND r.seq > $3
		  AND  ` + rowMatters + `
		ORDER  BY r.seq
		LIMIT  $4`
	// Whether a row r of the log is still needed. The parameters are
	// lifeParameters: the kinds of rows by what supersedes them.
	rowMatters = `
		       CASE WHEN r.kind = ANY ($5::smallint[]) THEN h.seq = r.seq
		            WHEN r.kind = ANY ($6::smallint[]) THEN h.seq IS NULL
		            WHEN r.kind = ANY ($7::smallint[]) THEN o.phase IN ('Pending', 'Running', 'Terminating') END`
	selectChain = `
		SELECT chain FROM log_row WHERE tenant_id = $1 AND cluster_id = $2 AND seq = $3
		UNION ALL
		SELECT chain FROM log_checkpoint WHERE tenant_id = $1 AND cluster_id = $2 AND seq = $3
		LIMIT  1`
	selectSettingsRow = `
		SELECT r.seq, r.kind, r.application_id, '', r.body, r.chain
		FROM   desired_head h
		JOIN   log_row r ON r.tenant_id = h.tenant_id AND r.cluster_id = h.cluster_id AND r.seq = h.seq
		WHERE  h.tenant_id = $1 AND h.cluster_id = $2 AND h.application_id = $3`
	selectLeaves  = `SELECT application_id::text, leaf FROM desired_head WHERE tenant_id = $1 AND cluster_id = $2`
	selectHolders = `SELECT application_id AS app, cluster_id AS cluster FROM desired_head WHERE tenant_id = $1 AND application_id = ANY ($2::uuid[]) ORDER BY application_id, cluster_id`

	openTombstones = `
		INSERT INTO tombstone (tenant_id, application_id, cluster_id, api_group, version, kind, namespace, name, wave, since)
		SELECT @tenant, u.app, u.cluster, u.api_group, u.version, u.kind, u.namespace, u.name, u.wave, u.since
		FROM   unnest(@apps::uuid[], @clusters::uuid[], @groups::text[], @versions::text[], @kinds::text[], @namespaces::text[], @names::text[], @waves::integer[], @since::bigint[])
		       AS u (app, cluster, api_group, version, kind, namespace, name, wave, since)
		ORDER  BY u.app, u.cluster, u.api_group, u.kind, u.namespace, u.name
		ON CONFLICT DO NOTHING`
	closeTombstones = `
		DELETE FROM tombstone t
		USING  unnest(@apps::uuid[], @clusters::uuid[], @groups::text[], @kinds::text[], @namespaces::text[], @names::text[]) AS u (app, cluster, api_group, kind, namespace, name)
		WHERE  t.tenant_id = @tenant AND t.application_id = u.app AND t.cluster_id = u.cluster AND t.api_group = u.api_group
		  AND  t.kind = u.kind AND t.namespace = u.namespace AND t.name = u.name`
	selectTombstones = `
		SELECT application_id, cluster_id, api_group, version, kind, namespace, name, wave, since
		FROM   tombstone
		WHERE  tenant_id = $1 AND application_id = ANY ($2::uuid[])
		ORDER  BY application_id, since, api_group, kind, namespace, name`
)

// LockClusters returns and locks the ends of the desired logs of those of the
// clusters that exist until the transaction ends. Rows are locked in order of
// id.
func (t *Tenant) LockClusters(ctx context.Context, want []hub.ClusterID) (map[hub.ClusterID]hub.LogHead, error) {
	out := make(map[hub.ClusterID]hub.LogHead, len(want))
	_, err := list(ctx, t.tx, "desired log heads", func(row pgx.CollectableRow) (none struct{}, err error) {
		var id hub.ClusterID
		var h hub.LogHead
		err = row.Scan(&id, &h.Incarnation, &h.Seq, &h.Chain)
		out[id] = h
		return none, err
	}, lockHeads, t.id, ids(want))
	if err == nil && t.heads == nil {
		t.heads = make(map[hub.ClusterID]hub.LogHead, len(out))
	}
	if err == nil {
		maps.Copy(t.heads, out)
	}
	return out, err
}

// locked is LockClusters without reading what the transaction has locked
// already.
func (t *Tenant) locked(ctx context.Context, want []hub.ClusterID) (map[hub.ClusterID]hub.LogHead, error) {
	for _, id := range want {
		if _, held := t.heads[id]; !held {
			return t.LockClusters(ctx, want)
		}
	}
	return t.heads, nil
}

// AppendRows adds rows to the desired log of a cluster, as AppendLogs does.
func (t *Tenant) AppendRows(ctx context.Context, cluster hub.ClusterID, rows []hub.LogRow) error {
	return t.AppendLogs(ctx, map[hub.ClusterID][]hub.LogRow{cluster: rows})
}

// AppendLogs adds rows to the desired logs of clusters. They must continue
// them: numbers without a gap after the head, and a chain that follows from
// it. The error is fault.Conflict if they do not, because someone else
// appended.
func (t *Tenant) AppendLogs(ctx context.Context, logs map[hub.ClusterID][]hub.LogRow) error {
	var clusters []hub.ClusterID
	for id, rows := range logs {
		if len(rows) > 0 {
			clusters = append(clusters, id)
		}
	}
	if len(clusters) == 0 {
		return nil
	}
	slices.Sort(clusters)
	heads, err := t.locked(ctx, clusters)
	if err != nil {
		return err
	}
	var a appended
	for _, id := range clusters {
		head, ok := heads[id]
		if !ok {
			return noCluster()
		}
		if err := a.add(id, head, logs[id]); err != nil {
			return err
		}
	}
	b := &pgx.Batch{}
	b.Queue(insertRows, pgx.StrictNamedArgs{
		"tenant": t.id, "clusters": a.cluster, "seqs": a.seq, "kinds": a.kind, "apps": a.app, "operations": a.operation,
		"bodies": a.body, "chains": a.links,
	})
	b.Queue(moveHeads, t.id, a.of, a.heads, a.chains)
	if len(a.put.cluster) > 0 {
		b.Queue(putLeaves, pgx.StrictNamedArgs{
			"tenant": t.id, "clusters": a.put.cluster, "apps": a.put.app, "seqs": a.put.seq, "leaves": a.put.hash,
			"lists": a.put.lists,
		})
	}
	if len(a.drop.cluster) > 0 {
		b.Queue(dropLeaves, t.id, a.drop.cluster, a.drop.app)
	}
	if err := t.tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("append %d rows to the desired logs of %d clusters: %w", len(a.seq), len(clusters), err)
	}
	for i, id := range clusters {
		t.heads[id] = hub.LogHead{Incarnation: heads[id].Incarnation, Seq: a.heads[i], Chain: a.chains[i]}
	}
	return nil
}

// appended is what an append writes, column by column.
type appended struct {
	cluster, app, operation []string
	seq                     []int64
	kind                    []int16
	body, links             [][]byte

	of     []string // clusters whose heads move
	heads  []int64
	chains [][]byte

	put, drop leaves
}

type leaves struct {
	cluster, app []string
	seq          []int64
	hash         [][]byte
	lists        [][]byte
}

// add checks that rows continue the log of a cluster.
func (a *appended) add(cluster hub.ClusterID, head hub.LogHead, rows []hub.LogRow) error {
	newest := map[hub.ApplicationID]*leaf{}
	for i := range rows {
		r := &rows[i]
		next := hashchain.Next(head.Chain, uint64(r.Seq), int32(r.Kind), string(r.Application), r.Body)
		if r.Seq != head.Seq+1 || !bytes.Equal(next, r.Chain) {
			return fault.New(fault.Conflict, "row %d does not continue the desired log of cluster %q, which ends at %d", r.Seq, cluster, head.Seq)
		}
		head.Seq, head.Chain = r.Seq, r.Chain
		switch r.Kind.Life() {
		case hub.WhileNewest:
			newest[r.Application] = &leaf{r.Seq, hashchain.Leaf(string(r.Application), r.Body), r.Lists}
		case hub.WhileForgotten:
			newest[r.Application] = nil
		}
		a.cluster, a.seq, a.kind = append(a.cluster, string(cluster)), append(a.seq, r.Seq), append(a.kind, int16(r.Kind))
		a.app, a.operation = append(a.app, string(r.Application)), append(a.operation, string(r.Operation))
		a.body, a.links = append(a.body, nonNil(r.Body)), append(a.links, r.Chain)
	}
	a.of, a.heads, a.chains = append(a.of, string(cluster)), append(a.heads, head.Seq), append(a.chains, head.Chain)
	for app, l := range newest { // a nil leaf means removed
		to := &a.put
		if l == nil {
			to, l = &a.drop, &leaf{}
		}
		to.cluster, to.app = append(to.cluster, string(cluster)), append(to.app, string(app))
		to.seq, to.hash = append(to.seq, l.seq), append(to.hash, l.hash[:])
		lists := []byte{} // one after the other
		for _, d := range l.lists {
			lists = append(lists, d[:]...)
		}
		to.lists = append(to.lists, lists)
	}
	return nil
}

// A leaf is the newest state row of an application in a cluster.
type leaf struct {
	seq   int64
	hash  [32]byte
	lists []hub.Digest
}

// lifeParameters are the last parameters of statements with rowMatters.
var lifeParameters = []any{kindNumbers(hub.WhileNewest), kindNumbers(hub.WhileForgotten), kindNumbers(hub.WhileOperationOpen)}

// kindNumbers are the numbers of the kinds of rows that live so.
func kindNumbers(l hub.RowLife) []int16 {
	kinds := l.Kinds()
	out := make([]int16, len(kinds))
	for i, k := range kinds {
		out[i] = int16(k)
	}
	return out
}

// RowsAfter returns the rows after seq that still matter, oldest first, and the
// end of the log. Where it left rows out, numbers jump.
func (t *Tenant) RowsAfter(ctx context.Context, cluster hub.ClusterID, seq int64, limit int) ([]hub.LogRow, hub.LogHead, error) {
	head, err := t.head(ctx, cluster)
	if err != nil {
		return nil, head, err
	}
	rows, err := list(ctx, t.tx, "desired log", func(row pgx.CollectableRow) (r hub.LogRow, err error) {
		err = row.Scan(&r.Seq, &r.Kind, &r.Application, &r.Operation, &r.Body, &r.Chain)
		return r, err
	}, selectRows, append([]any{t.id, cluster, seq, limit}, lifeParameters...)...)
	return rows, head, err
}

// SettingsRow returns the newest row with settings of a cluster's log, if there
// is one.
func (t *Tenant) SettingsRow(ctx context.Context, cluster hub.ClusterID) (r hub.LogRow, found bool, err error) {
	err = t.tx.QueryRow(ctx, selectSettingsRow, t.id, cluster, hub.SettingsRow).Scan(&r.Seq, &r.Kind, &r.Application, &r.Operation, &r.Body, &r.Chain)
	if errors.Is(err, pgx.ErrNoRows) {
		return hub.LogRow{}, false, nil
	}
	if err != nil {
		return hub.LogRow{}, false, fmt.Errorf("read the settings in the log of cluster %q: %w", cluster, err)
	}
	return r, true, nil
}

func (t *Tenant) head(ctx context.Context, cluster hub.ClusterID) (h hub.LogHead, err error) {
	if !hub.ValidID(string(cluster)) {
		return h, noCluster()
	}
	err = t.tx.QueryRow(ctx, selectHead, t.id, cluster).Scan(&h.Incarnation, &h.Seq, &h.Chain, &h.Held)
	return h, missing(err, "there is no such cluster")
}

// HashAt returns the chain hash after row seq, if the log has that row or a
// checkpoint of it; 0 is the beginning.
func (t *Tenant) HashAt(ctx context.Context, cluster hub.ClusterID, seq int64) ([]byte, bool, error) {
	head, err := t.head(ctx, cluster)
	switch {
	case err != nil:
		return nil, false, err
	case seq == 0:
		return hashchain.First(head.Incarnation), true, nil
	case seq == head.Seq:
		return head.Chain, true, nil
	}
	var hash []byte
	err = t.tx.QueryRow(ctx, selectChain, t.id, cluster, seq).Scan(&hash)
	if err := missing(err, "none"); fault.KindOf(err) == fault.Missing {
		return nil, false, nil
	}
	return hash, err == nil, err
}

// Leaves returns the leaf of each application whose state a cluster should
// hold; their root is what the agent must answer to a barrier.
func (t *Tenant) Leaves(ctx context.Context, cluster hub.ClusterID) (map[string][32]byte, error) {
	if !hub.ValidID(string(cluster)) {
		return nil, noCluster()
	}
	out := map[string][32]byte{}
	_, err := list(ctx, t.tx, "desired state", func(row pgx.CollectableRow) (none struct{}, err error) {
		var app string
		var hash []byte
		err = row.Scan(&app, &hash)
		var l [32]byte
		copy(l[:], hash)
		out[app] = l
		return none, err
	}, selectLeaves, t.id, cluster)
	return out, err
}

// DesiredClusters returns the clusters whose log still contains the
// application.
func (t *Tenant) DesiredClusters(ctx context.Context, app hub.ApplicationID) ([]hub.ClusterID, error) {
	if !hub.ValidID(string(app)) {
		return nil, noApp()
	}
	held, err := t.Holders(ctx, []hub.ApplicationID{app})
	return held[app], err
}

// Holders is DesiredClusters of several applications.
func (t *Tenant) Holders(ctx context.Context, apps []hub.ApplicationID) (map[hub.ApplicationID][]hub.ClusterID, error) {
	type holder struct {
		App     hub.ApplicationID
		Cluster hub.ClusterID
	}
	all, err := list(ctx, t.tx, "clusters of applications", pgx.RowToStructByName[holder], selectHolders, t.id, ids(apps))
	out := make(map[hub.ApplicationID][]hub.ClusterID, len(apps))
	for _, h := range all {
		out[h.App] = append(out[h.App], h.Cluster)
	}
	return out, err
}

// OpenTombstones stores tombstones of objects. One that is open already is not
// changed.
func (t *Tenant) OpenTombstones(ctx context.Context, tombstones []hub.Tombstone) error {
	if len(tombstones) == 0 {
		return nil
	}
	c := tombstoneColumnsOf(tombstones)
	_, err := exec(ctx, t.tx, "open tombstones", openTombstones, pgx.StrictNamedArgs{
		"tenant": t.id, "apps": c.app, "clusters": c.cluster, "groups": c.group, "versions": c.version, "kinds": c.kind,
		"namespaces": c.namespace, "names": c.name, "waves": c.wave, "since": c.since,
	})
	if code(err) == foreignKeyViolation {
		return fault.New(fault.Missing, "a tombstone is for an application or cluster that is not there")
	}
	return err
}

// CloseTombstones closes tombstones: the objects are gone, or desired again.
// Closing one that is not open is no error.
func (t *Tenant) CloseTombstones(ctx context.Context, tombstones []hub.Tombstone) error {
	if len(tombstones) == 0 {
		return nil
	}
	c := tombstoneColumnsOf(tombstones)
	_, err := exec(ctx, t.tx, "close tombstones", closeTombstones, pgx.StrictNamedArgs{
		"tenant": t.id, "apps": c.app, "clusters": c.cluster, "groups": c.group, "kinds": c.kind, "namespaces": c.namespace,
		"names": c.name,
	})
	return err
}

type tombstoneColumns struct {
	app, cluster, group, version, kind, namespace, name []string
	wave                                                []int32
	since                                               []int64
}

func tombstoneColumnsOf(tombstones []hub.Tombstone) (c tombstoneColumns) {
	for _, s := range tombstones {
		c.app, c.cluster = append(c.app, string(s.Application)), append(c.cluster, string(s.Cluster))
		c.group, c.version, c.kind = append(c.group, s.Group), append(c.version, s.Version), append(c.kind, s.Kind)
		c.namespace, c.name = append(c.namespace, s.Namespace), append(c.name, s.Name)
		c.wave, c.since = append(c.wave, s.Wave), append(c.since, s.Since)
	}
	return c
}

// Tombstones returns the open tombstones of applications.
func (t *Tenant) Tombstones(ctx context.Context, apps []hub.ApplicationID) (map[hub.ApplicationID][]hub.Tombstone, error) {
	out := map[hub.ApplicationID][]hub.Tombstone{}
	_, err := list(ctx, t.tx, "tombstones", func(row pgx.CollectableRow) (none struct{}, err error) {
		var s hub.Tombstone
		err = row.Scan(&s.Application, &s.Cluster, &s.Group, &s.Version, &s.Kind, &s.Namespace, &s.Name, &s.Wave, &s.Since)
		out[s.Application] = append(out[s.Application], s)
		return none, err
	}, selectTombstones, t.id, ids(apps))
	return out, err
}
