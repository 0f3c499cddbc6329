package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

const (
	selectHeld   = `SELECT directory.held()`
	putRewind    = `SELECT directory.put_rewind(@cluster, @reason, @proven, @incarnation, @agent_seq, @former, @hub_seq, @seen)`
	dropRewind   = `SELECT directory.drop_rewind($1)`
	selectRewind = `
		SELECT since, seen_at, reason, proven, agent_incarnation, agent_seq, former, hub_seq FROM directory.my_rewind WHERE cluster_id = $1`
	putQuarantine    = `SELECT directory.put_quarantine(@cluster, @known, @other, @address, @since)`
	dropQuarantine   = `SELECT directory.drop_quarantine($1)`
	selectQuarantine = `SELECT since, known, other, address FROM directory.my_quarantine WHERE cluster_id = $1`
	keepFingerprint  = `
		UPDATE cluster SET fingerprint = @fingerprint, rejected = array_append(array_remove(array_remove(rejected, @fingerprint), @rejected), @rejected),
		       updated_at = @now, version = version + 1
		WHERE  tenant_id = @tenant AND id = @id`

	lockHead = `SELECT incarnation, seq FROM log_head WHERE tenant_id = $1 AND cluster_id = $2 FOR UPDATE`
	beginLog = `UPDATE log_head SET incarnation = @incarnation, seq = @seq, chain = @chain WHERE tenant_id = @tenant AND cluster_id = @cluster`
	putPast  = `
		INSERT INTO log_past (tenant_id, cluster_id, incarnation, given_up_at, given_up_by)
		SELECT @tenant, @cluster, u.incarnation, @at, @by FROM unnest(@incarnations::text[]) AS u (incarnation) WHERE u.incarnation <> ''
		ON CONFLICT DO NOTHING`
	selectPast = `SELECT given_up_by, given_up_at FROM log_past WHERE tenant_id = $1 AND cluster_id = $2 AND incarnation = $3`
	putPoint   = `
		INSERT INTO log_checkpoint (tenant_id, cluster_id, seq, chain) VALUES ($1, $2, $3, $4)
		ON CONFLICT (tenant_id, cluster_id, seq) DO UPDATE SET chain = excluded.chain`
	raiseGenerations = `
		UPDATE application_status s
		SET    planned_generation = CASE WHEN s.planned_generation = s.generation THEN u.generation ELSE s.planned_generation END,
		       generation = u.generation
		FROM   unnest($2::uuid[], $3::bigint[]) AS u (app, generation)
		WHERE  s.tenant_id = $1 AND s.application_id = u.app AND s.generation < u.generation`

	mergeRevocations = `
		WITH fresh AS (
			SELECT u.agent_id, u.until, row_number() OVER () AS n
			FROM   unnest($2::text[], $3::timestamptz[]) AS u (agent_id, until)
			WHERE  u.until > now()
			  AND  NOT EXISTS (SELECT FROM directory.revocation r WHERE r.tenant_id = $1 AND r.agent_id = u.agent_id)
		), next AS (
			UPDATE directory.revocation_version SET version = version + (SELECT count(*) FROM fresh)
			WHERE EXISTS (SELECT FROM fresh)
			RETURNING version
		)
		INSERT INTO directory.revocation (version, tenant_id, agent_id, until)
		SELECT next.version - f.n + 1, $1, f.agent_id, f.until FROM fresh f, next`

	// Rows that the agent has not stored yet, or that are still valid, stay,
	// and so does the newest one that it has stored: its position is always
	// known, and an unknown earlier position is the agent's own loss. Of the
	// rest a chain hash is stored now and then.
	trimRows = `
		WITH gone AS (
			DELETE FROM log_row r
			WHERE  r.tenant_id = $1 AND (r.cluster_id, r.seq) IN (
			         SELECT x.cluster_id, x.seq
			         FROM   log_row x
			         JOIN   log_ack a ON a.tenant_id = $1 AND a.cluster_id = x.cluster_id
			         WHERE  x.tenant_id = $1 AND x.seq < a.acked_seq AND x.created_at < $2
			           AND  NOT EXISTS (SELECT FROM desired_head h WHERE h.tenant_id = $1 AND h.cluster_id = x.cluster_id
			                            AND h.application_id = x.application_id AND h.seq = x.seq)
			           AND  NOT EXISTS (SELECT FROM operation o WHERE o.tenant_id = $1 AND o.id = x.operation_id
			                            AND o.phase IN ('Pending', 'Running', 'Terminating'))
			         LIMIT $3)
			RETURNING r.cluster_id, r.seq, r.chain
		), kept AS (
			INSERT INTO log_checkpoint (tenant_id, cluster_id, seq, chain)
			SELECT $1, cluster_id, seq, chain FROM gone WHERE seq % 64 = 0
			ON CONFLICT DO NOTHING
		)
		SELECT FROM gone`
)

func errHeld() error {
	return fault.With(fault.New(fault.Conflict, "it is closed: agents have proved that this hub was restored from a backup"), "enrolment",
		"an admin must accept or mend the hub's state first; see `capstan cluster list`")
}

// open refuses what is not allowed while the hub waits for an admin.
func (t *Tenant) open(ctx context.Context) error {
	var held bool
	if err := t.tx.QueryRow(ctx, selectHeld).Scan(&held); err != nil {
		return fmt.Errorf("check whether the hub was restored: %w", err)
	}
	if held {
		return errHeld()
	}
	return nil
}

// NoteRewind records that a cluster's agent has another log than the hub. A
// proven one stops enrolment, invalidates all open join tokens and stops
// deletion, for everyone, until no proven one is left. Nothing is recorded if
// an admin has abandoned that log in between: the record would undo the
// decision.
func (t *Tenant) NoteRewind(ctx context.Context, cluster hub.ClusterID, r hub.Rewind) (noted bool, err error) {
	var incarnation string
	var seq int64
	if err := t.tx.QueryRow(ctx, lockHead, t.id, cluster).Scan(&incarnation, &seq); err != nil {
		return false, missing(err, "there is no such cluster")
	}
	if r.AgentIncarnation != incarnation {
		_, _, given, err := t.GivenUp(ctx, cluster, r.AgentIncarnation)
		if err != nil {
			return false, err
		}
		open, err := t.Rewind(ctx, cluster)
		if err != nil {
			return false, err
		}
		if given && open == nil {
			return false, nil
		}
	}
	_, err = exec(ctx, t.tx, "note a rewind", putRewind, pgx.StrictNamedArgs{
		"cluster": cluster, "reason": clean(r.Reason), "proven": r.Proven, "incarnation": clean(r.AgentIncarnation),
		"agent_seq": r.AgentSeq, "former": r.Former, "hub_seq": seq, "seen": micro(r.SeenAt),
	})
	t.changed(changeCluster, string(cluster))
	return err == nil, err
}

// ClearRewind removes what NoteRewind recorded: hub and agent agree again.
func (t *Tenant) ClearRewind(ctx context.Context, cluster hub.ClusterID) error {
	_, err := exec(ctx, t.tx, "clear a rewind", dropRewind, cluster)
	t.changed(changeCluster, string(cluster))
	return err
}

// Rewind returns what is noted of a cluster's agent; nil: hub and agent agree.
func (t *Tenant) Rewind(ctx context.Context, cluster hub.ClusterID) (*hub.Rewind, error) {
	r, err := one(ctx, t.tx, "rewind", pgx.RowToStructByName[hub.Rewind], selectRewind, cluster)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &r, err
}

// AcceptHub accepts the hub's state for a cluster whose agent has another log:
// its log begins a new incarnation, and the former ones are abandoned, so that
// the agent may switch. It returns what was recorded. The error is
// fault.Conflict if hub and agent agree.
func (t *Tenant) AcceptHub(ctx context.Context, cluster hub.ClusterID, by string, at time.Time) (hub.Rewind, error) {
	r, err := t.Rewind(ctx, cluster)
	if err != nil {
		return hub.Rewind{}, err
	}
	if r == nil {
		return hub.Rewind{}, fault.New(fault.Conflict, "hub and agent agree about the past; there is nothing to accept")
	}
	var former string
	var seq int64
	if err := t.tx.QueryRow(ctx, lockHead, t.id, cluster).Scan(&former, &seq); err != nil {
		return *r, missing(err, "there is no such cluster")
	}
	if r.Proven { // an unsigned number is not used
		seq = max(seq, r.AgentSeq)
	}
	seq++ // no row has it: the first of the new log follows from none of the former
	fresh := uuid.NewString()
	b := &pgx.Batch{}
	b.Queue(putPast, pgx.StrictNamedArgs{
		"tenant": t.id, "cluster": cluster, "incarnations": []string{former, r.AgentIncarnation, r.Former}, "at": micro(at),
		"by": by,
	})
	b.Queue(beginLog, pgx.StrictNamedArgs{
		"tenant": t.id, "cluster": cluster, "incarnation": fresh, "seq": seq, "chain": hashchain.First(fresh),
	})
	delete(t.heads, cluster)
	b.Queue(putPoint, t.id, cluster, seq, hashchain.First(fresh))
	b.Queue(dropRewind, cluster)
	if err := t.tx.SendBatch(ctx, b).Close(); err != nil {
		return *r, fmt.Errorf("begin a new log for cluster %q: %w", cluster, err)
	}
	t.changed(changeCluster, string(cluster))
	return *r, nil
}

// GivenUp returns who abandoned an incarnation of a cluster's log, and when.
func (t *Tenant) GivenUp(ctx context.Context, cluster hub.ClusterID, incarnation string) (by string, at time.Time, given bool, err error) {
	err = t.tx.QueryRow(ctx, selectPast, t.id, cluster, clean(incarnation)).Scan(&by, &at)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", time.Time{}, false, nil
	}
	return by, at, err == nil, err
}

// RaiseGenerations moves generations of applications up. None goes back.
func (t *Tenant) RaiseGenerations(ctx context.Context, generations map[hub.ApplicationID]int64) error {
	var apps []string
	var to []int64
	for app, g := range generations {
		apps, to = append(apps, string(app)), append(to, g)
		t.appChanged(app)
	}
	_, err := exec(ctx, t.tx, "raise generations", raiseGenerations, t.id, apps, to)
	return err
}

// Restored begins a new incarnation of the logs of all clusters that have an
// agent: the database was restored from a backup, so agents may be ahead of it.
// They accept no change until an admin accepts the hub's state. It returns the
// number of these clusters.
func (db *DB) Restored(ctx context.Context, at time.Time) (int, error) {
	tenants, err := db.System().Tenants(ctx)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, tenant := range tenants {
		err := db.InTenant(ctx, tenant.ID, func(ctx context.Context, t *Tenant) error {
			logs, err := t.restoredAll(ctx, at)
			n += logs
			return err
		})
		if err != nil {
			return n, fmt.Errorf("tenant %q: %w", tenant.Name, err)
		}
	}
	return n, nil
}

// restoredAll begins the logs of one tenant anew and counts them.
func (t *Tenant) restoredAll(ctx context.Context, at time.Time) (n int, err error) {
	clusters, err := t.Clusters(ctx)
	if err != nil {
		return 0, err
	}
	for _, c := range clusters {
		if c.AgentID == "" {
			continue
		}
		if err := t.restored(ctx, c.ID, at); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func (t *Tenant) restored(ctx context.Context, cluster hub.ClusterID, at time.Time) error {
	var former string
	var seq int64
	if err := t.tx.QueryRow(ctx, lockHead, t.id, cluster).Scan(&former, &seq); err != nil {
		return missing(err, "there is no such cluster")
	}
	seq++ // as in AcceptHub
	fresh := uuid.NewString()
	b := &pgx.Batch{}
	b.Queue(beginLog, pgx.StrictNamedArgs{
		"tenant": t.id, "cluster": cluster, "incarnation": fresh, "seq": seq, "chain": hashchain.First(fresh),
	})
	delete(t.heads, cluster)
	b.Queue(putPoint, t.id, cluster, seq, hashchain.First(fresh))
	if err := t.tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("begin a new log for cluster %q: %w", cluster, err)
	}
	_, err := t.NoteRewind(ctx, cluster, hub.Rewind{
		Reason: "the hub was restored from a backup", Proven: true, Former: former, SeenAt: at,
	})
	return err
}

// Quarantine blocks every agent of a cluster, because another Kubernetes
// cluster uses its identity. It reports whether that is new.
func (s *System) Quarantine(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, q hub.Quarantine) (fresh bool, err error) {
	err = s.db.InTenant(ctx, tenant, func(ctx context.Context, t *Tenant) error {
		t.changed(changeCluster, string(cluster))
		return t.tx.QueryRow(ctx, putQuarantine, pgx.StrictNamedArgs{
			"cluster": cluster, "known": clean(q.Known), "other": clean(q.Other), "address": clean(q.Address), "since": micro(q.Since),
		}).Scan(&fresh)
	})
	return fresh, err
}

// KeepCluster ends a quarantine: the Kubernetes cluster of the fingerprint has
// the identity, and the other one is refused from now on. The error is
// fault.Conflict if there is no quarantine, and fault.Invalid if the
// fingerprint is neither's.
func (t *Tenant) KeepCluster(ctx context.Context, cluster hub.ClusterID, fingerprint string) (hub.Quarantine, error) {
	var q hub.Quarantine
	err := t.tx.QueryRow(ctx, selectQuarantine, cluster).Scan(&q.Since, &q.Known, &q.Other, &q.Address)
	if errors.Is(err, pgx.ErrNoRows) {
		return q, fault.New(fault.Conflict, "it is not in quarantine")
	}
	if err != nil {
		return q, fmt.Errorf("read the quarantine of cluster %q: %w", cluster, err)
	}
	rejected := q.Other
	switch fingerprint {
	case q.Known:
	case q.Other:
		rejected = q.Known
	default:
		return q, fault.With(fault.New(fault.Invalid, "%q is the fingerprint of neither cluster", fingerprint), "", fmt.Sprintf("choose %s or %s", q.Known, q.Other))
	}
	b := &pgx.Batch{}
	b.Queue(keepFingerprint, pgx.StrictNamedArgs{
		"tenant": t.id, "id": cluster, "fingerprint": fingerprint, "rejected": rejected, "now": micro(time.Now()),
	})
	b.Queue(dropQuarantine, cluster)
	if err := t.tx.SendBatch(ctx, b).Close(); err != nil {
		return q, fmt.Errorf("end the quarantine of cluster %q: %w", cluster, err)
	}
	t.changed(changeCluster, string(cluster))
	return q, nil
}

// MergeRevocations restores revocations that this database has lost. The caller
// has checked that they are the hub's own.
func (s *System) MergeRevocations(ctx context.Context, tenant hub.TenantID, of []hub.Revocation) error {
	var agents []string
	var until []time.Time
	for _, r := range of {
		agents, until = append(agents, r.AgentID), append(until, micro(r.Until))
	}
	return retry(ctx, func() error {
		_, err := exec(ctx, s.db.system, "merge revocations", mergeRevocations, tenant, agents, until)
		return err
	})
}
