package store

import (
	"context"
	"fmt"
	"github.com/capstan-cd/capstan/shared/logkey"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// defaultAttachment is after how long an attachment expires that is not
// renewed.
const defaultAttachment = 30 * time.Second

const (
	beatReplica = `
		INSERT INTO directory.replica (id, name, address, draining, until) VALUES (@id, @name, @address, @draining, now() + @life::interval)
		ON CONFLICT (id) DO UPDATE SET draining = excluded.draining, seen_at = now(), until = excluded.until`
	selectReplicas = `SELECT id, name, address, draining FROM directory.replica WHERE until > now() ORDER BY id`
	forgetFormer   = `DELETE FROM directory.replica WHERE name = $1 AND id <> $2 RETURNING id`
	dropReplica    = `DELETE FROM directory.replica WHERE id = $1`
	dropReplicas   = `
		DELETE FROM directory.replica WHERE id IN (SELECT r.id FROM directory.replica r WHERE r.until <= now() FOR UPDATE SKIP LOCKED)
		RETURNING id`
	// What they had leased is free at once. If one of them only slept, it
	// finds its leases lost when it writes.
	freeWork = `UPDATE work.item SET ready = least(ready, now()) WHERE owner = ANY ($1::text[]) AND token IS NOT NULL`

	// Attachments are renewed, and presence is noted, in one statement for
	// all tenants. Those that are not found any more are given back.
	renewAgents = `
		WITH u AS MATERIALIZED (
			SELECT * FROM unnest(@tenants::uuid[], @clusters::uuid[], @sessions::text[], @times::timestamptz[], @backlogs::bigint[], @lags::bigint[], @leaders::boolean[], @incomplete::boolean[])
			       AS u (tenant_id, cluster_id, session_id, at, backlog, lag, leader, incomplete)
			ORDER BY tenant_id, cluster_id
		), held AS (
			UPDATE directory.agent_attachment a
			SET    seen_at = now(), until = now() + a.life
			FROM   u
			WHERE  a.tenant_id = u.tenant_id AND a.cluster_id = u.cluster_id AND a.session_id = u.session_id
			RETURNING a.session_id
		), noted AS (
			UPDATE directory.presence p
			SET    seen_at = greatest(p.seen_at, u.at), backlog = u.backlog, leader = u.leader,
			       lag_ms = CASE WHEN u.incomplete -- what is known is as old as before
			                     THEN greatest(u.lag, p.lag_ms + extract(epoch FROM greatest(p.seen_at, u.at) - p.seen_at) * 1000)::bigint ELSE u.lag END
			FROM   u
			WHERE  p.tenant_id = u.tenant_id AND p.cluster_id = u.cluster_id AND p.session_id = u.session_id
		)
		SELECT u.session_id FROM u WHERE NOT EXISTS (SELECT FROM held h WHERE h.session_id = u.session_id)`
	selectAttachment = `
		SELECT tenant_id AS tenant, cluster_id AS cluster, replica, CASE WHEN until > now() THEN coalesce(session_id, '') ELSE '' END AS session, fence
		FROM   directory.agent_attachment
		WHERE  tenant_id = $1 AND cluster_id = $2 AND lane = 'control'`
	selectAttachments = `
		SELECT tenant_id AS tenant, cluster_id AS cluster, replica, coalesce(session_id, '') AS session, fence
		FROM   directory.agent_attachment
		WHERE  lane = 'control' AND fence > $1
		ORDER  BY fence`
)

// Beat renews a replica's row, and returns all live replicas, itself included.
// Leases of replicas that have been silent too long are released.
func (s *System) Beat(ctx context.Context, r hub.Replica, life time.Duration) ([]hub.Replica, error) {
	var out []hub.Replica
	err := s.do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := exec(ctx, tx, "note that the replica lives", beatReplica, pgx.StrictNamedArgs{
			"id": r.ID, "name": r.Name, "address": r.Address, "draining": r.Draining, "life": life,
		}); err != nil {
			return err
		}
		dead, err := list(ctx, tx, "replicas that are gone", pgx.RowTo[string], dropReplicas)
		if err != nil {
			return err
		}
		if len(dead) > 0 {
			s.db.log.WarnContext(ctx, "replicas are gone; their work is free", logkey.Replicas, dead)
			if _, err := exec(ctx, tx, "free the work of replicas that are gone", freeWork, dead); err != nil {
				return err
			}
		}
		out, err = list(ctx, tx, "replicas", pgx.RowToStructByName[hub.Replica], selectReplicas)
		return err
	})
	return out, err
}

// Leave records that a replica has stopped, and releases its leases.
func (s *System) Leave(ctx context.Context, replica string) error {
	return s.do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := exec(ctx, tx, "take leave", dropReplica, replica); err != nil {
			return err
		}
		_, err := exec(ctx, tx, "free the work of a replica that stops", freeWork, []string{replica})
		return err
	})
}

// attach makes a session the attachment of its cluster, or returns the reason
// why another one stays.
func (t *Tenant) attach(ctx context.Context, a hub.Attachment) (refusal string, err error) {
	life := a.Lease
	if life == 0 {
		life = defaultAttachment
	}
	err = t.tx.QueryRow(ctx, attachAgent, pgx.StrictNamedArgs{
		"cluster": a.Cluster, "session": a.Session, "replica": a.Replica, "at": micro(a.At), "epoch": a.Epoch,
		"instance": a.Instance, "leader": a.Leader, "address": clean(a.Address), "life": life,
	}).Scan(&refusal)
	if err != nil {
		return "", fmt.Errorf("store connection of cluster %q: %w", a.Cluster, err)
	}
	return refusal, nil
}

// RenewAttachments renews attachments, those of all tenants in one statement.
// It returns the sessions that are attached no more, because a newer one has
// replaced them.
func (s *System) RenewAttachments(ctx context.Context, heartbeats []hub.Heartbeat) (lost []string, err error) {
	if len(heartbeats) == 0 {
		return nil, nil
	}
	var tenants, clusters, sessions []string
	var times []time.Time
	var backlogs, lags []int64
	var leaders, incomplete []bool
	for _, v := range heartbeats {
		tenants, clusters, sessions = append(tenants, string(v.Tenant)), append(clusters, string(v.Cluster)), append(sessions, v.Session)
		times, backlogs = append(times, micro(v.At)), append(backlogs, int64(v.Backlog))
		lags, leaders = append(lags, v.Lag.Milliseconds()), append(leaders, v.Leader)
		incomplete = append(incomplete, v.Incomplete)
	}
	err = retry(ctx, func() error {
		lost, err = list(ctx, s.db.system, "living agents", pgx.RowTo[string], renewAgents, pgx.StrictNamedArgs{
			"tenants": tenants, "clusters": clusters, "sessions": sessions, "times": times, "backlogs": backlogs, "lags": lags,
			"leaders": leaders, "incomplete": incomplete,
		})
		return err
	})
	return lost, err
}

// Attachment returns where the agent of a cluster is attached now. The error is
// fault.Offline if it is nowhere.
func (s *System) Attachment(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID) (hub.AgentHome, error) {
	if !hub.ValidID(string(tenant)) || !hub.ValidID(string(cluster)) {
		return hub.AgentHome{}, noCluster()
	}
	p, err := one(ctx, s.db.system, "attachment", pgx.RowToStructByName[hub.AgentHome], selectAttachment, tenant, cluster)
	if err := missing(err, "none"); fault.KindOf(err) == fault.Missing || err == nil && p.Session == "" {
		return hub.AgentHome{}, fault.New(fault.Offline, "the agent of the cluster is not connected")
	}
	return p, classify(err)
}

// Attachments returns what changed after a fence, in order; after zero, all.
// Expired ones are included: the reader knows which replicas are alive.
func (s *System) Attachments(ctx context.Context, after int64) ([]hub.AgentHome, error) {
	out, err := list(ctx, s.db.system, "attachments", pgx.RowToStructByName[hub.AgentHome], selectAttachments, after)
	return out, classify(err)
}
