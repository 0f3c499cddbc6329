package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

const (
	clusterColumns = `
		       c.id, c.tenant_id, c.namespace, c.name, c.labels, c.annotations, c.finalizers, c.version, c.created_at, c.updated_at,
		       c.server, c.project, c.namespaces, c.cluster_resources, c.shard, c.kube_version, c.api_versions, c.fingerprint, c.agent_id, c.agent_version, c.features,
		       coalesce(p.connected, false), p.seen_at, coalesce(h.seq, 0), coalesce(a.acked_seq, 0), a.receipt_seq, a.receipt_root, a.receipt_at,
		       c.refusal, c.upgradable, c.upgrade, coalesce(p.backlog, 0), coalesce(p.lag_ms, 0), coalesce(p.refused, ''), p.refused_at, (SELECT directory.held()),
		       r.since, r.seen_at, r.reason, r.proven, r.agent_incarnation, r.agent_seq, r.hub_seq,
		       q.since, q.known, q.other, q.address`
	allClusters = clusterColumns + `
		FROM   cluster c
		LEFT   JOIN directory.my_presence p ON p.cluster_id = c.id
		LEFT   JOIN directory.my_rewind r ON r.cluster_id = c.id
		LEFT   JOIN directory.my_quarantine q ON q.cluster_id = c.id
		LEFT   JOIN log_head h ON h.tenant_id = c.tenant_id AND h.cluster_id = c.id
		LEFT   JOIN log_ack a ON a.tenant_id = c.tenant_id AND a.cluster_id = c.id
		WHERE  c.tenant_id = $1`
	// Rows of some clusters are looked up for each of them. Tables that have
	// just been filled seem small to the planner, and a join would read all of
	// them for every cluster.
	someClusters = clusterColumns + `
		FROM   cluster c
		LEFT   JOIN LATERAL (SELECT * FROM directory.my_presence x WHERE x.cluster_id = c.id LIMIT 1) p ON true
		LEFT   JOIN LATERAL (SELECT * FROM directory.my_rewind x WHERE x.cluster_id = c.id LIMIT 1) r ON true
		LEFT   JOIN LATERAL (SELECT * FROM directory.my_quarantine x WHERE x.cluster_id = c.id LIMIT 1) q ON true
		LEFT   JOIN LATERAL (SELECT * FROM log_head x WHERE x.tenant_id = $1 AND x.cluster_id = c.id LIMIT 1) h ON true
		LEFT   JOIN LATERAL (SELECT * FROM log_ack x WHERE x.tenant_id = $1 AND x.cluster_id = c.id LIMIT 1) a ON true
		WHERE  c.tenant_id = $1`
	// Three statements and not one with conditions that may be empty: the
	// database plans each for what it is, with its index.
	selectClusters     = `SELECT` + allClusters + ` ORDER BY c.name`
	selectClusterNamed = `SELECT` + someClusters + ` AND c.name = $2`
	selectClustersByID = `SELECT` + someClusters + ` AND c.id = ANY ($2::uuid[]) ORDER BY c.name`
	// What planning and rendering need to know of clusters, for very many
	// applications at once.
	selectClusterPlaces = `SELECT id, name, server, annotations, updated_at` + clusterScope + inCluster + ` FROM cluster WHERE tenant_id = $1 AND id = ANY ($2::uuid[])`
	// The APIs that many clusters serve alike come with the first of them.
	selectClusterPlatforms = `
		SELECT id, name, server, annotations, updated_at` + clusterScope + inCluster + `, kube_version,
		       CASE WHEN row_number() OVER (PARTITION BY api_sum ORDER BY id) = 1 THEN api_versions END
		FROM   cluster
		WHERE  tenant_id = $1 AND id = ANY ($2::uuid[])
		ORDER  BY api_sum, id`
	selectCounts = `
		SELECT a.cluster_id, count(*), coalesce(sum(s.resources), 0)
		FROM   application a
		LEFT   JOIN application_status s ON s.tenant_id = a.tenant_id AND s.application_id = a.id
		WHERE  a.tenant_id = $1 AND `
	selectAllCounts    = selectCounts + `a.cluster_id IS NOT NULL GROUP BY a.cluster_id`
	selectSomeCounts   = selectCounts + `a.cluster_id = ANY ($2::uuid[]) GROUP BY a.cluster_id`
	clusterScope       = `, project, namespaces, cluster_resources`
	inCluster          = `, coalesce((` + selectInCluster + `), '')`
	selectInCluster    = `SELECT value FROM setting WHERE tenant_id = $1 AND map = '` + hub.SettingsMap + `' AND key = '` + hub.InClusterKey + `' AND sealed IS NULL`
	selectClusterNames = `SELECT id, name, server FROM cluster WHERE tenant_id = $1 ORDER BY name`
	insertCluster      = `
		INSERT INTO cluster (tenant_id, id, namespace, name, labels, annotations, finalizers, server, project, namespaces, cluster_resources, shard, created_at, updated_at)
		VALUES (@tenant, @id, @namespace, @name, @labels, @annotations, @finalizers, @server, @project, @namespaces, @cluster_resources, @shard, @now, @now)`
	insertLogHead  = `INSERT INTO log_head (tenant_id, cluster_id, incarnation, chain) VALUES ($1, $2, $3, $4)`
	insertLogAck   = `INSERT INTO log_ack (tenant_id, cluster_id) VALUES ($1, $2)`
	insertObserved = `INSERT INTO observed (tenant_id, cluster_id) VALUES ($1, $2)`
	updateCluster  = `
		UPDATE cluster
		SET    namespace = @namespace, name = @name, labels = @labels, annotations = @annotations, finalizers = @finalizers, server = @server,
		       project = @project, namespaces = @namespaces, cluster_resources = @cluster_resources, shard = @shard, version = version + 1, updated_at = @now
		WHERE  tenant_id = @tenant AND id = @id AND (@version = 0 OR version = @version)`
	clusterUsers   = `SELECT count(*) FROM application WHERE tenant_id = $1 AND cluster_id = $2`
	selectAgent    = `SELECT agent_id FROM cluster WHERE tenant_id = $1 AND id = $2 FOR UPDATE`
	deleteCluster  = `DELETE FROM cluster WHERE tenant_id = $1 AND id = $2`
	clearAgent     = `UPDATE cluster SET agent_id = '', updated_at = $3, version = version + 1 WHERE tenant_id = $1 AND id = $2`
	revokeAgent    = `SELECT directory.revoke_agent($1, $2)`
	dropPresence   = `SELECT directory.drop_presence($1)`
	dropJoinTokens = `SELECT directory.drop_join_tokens(ARRAY(SELECT id FROM enrolment WHERE tenant_id = $1 AND cluster_id = $2))`

	insertEnrolment = `
		INSERT INTO enrolment (tenant_id, id, cluster_id, prefix, expires_at, created_by)
		VALUES (@tenant, @id, @cluster, @prefix, @expires, @created_by)`
	putJoinToken     = `SELECT directory.put_join_token($1, $2, $3, $4)`
	selectEnrolments = `
		SELECT id, tenant_id AS tenant, cluster_id AS cluster, prefix, expires_at, used_at, created_by, attempts
		FROM   enrolment
		WHERE  tenant_id = $1 AND cluster_id = $2
		ORDER  BY created_at DESC, id DESC`
)

func scanCluster(row pgx.CollectableRow) (c hub.Cluster, err error) {
	var receiptSeq *int64
	var root []byte
	var at, refusedAt, rewoundAt, rewindSeen, cloneAt *time.Time
	var lag int64
	var refused string
	var reason, incarnation, known, other, address *string
	var proven *bool
	var agentSeq, hubSeq *int64
	err = row.Scan(&c.ID, &c.Tenant, &c.Namespace, &c.Name, &c.Labels, &c.Annotations, &c.Finalizers, &c.Version, &c.CreatedAt, &c.UpdatedAt,
		&c.Server, &c.Project, &c.Namespaces, &c.ClusterResources, &c.Shard, &c.KubeVersion, &c.APIVersions, &c.Fingerprint, &c.AgentID, &c.AgentVersion, &c.Features,
		&c.Connected, &c.LastSeen, &c.Seq, &c.AckedSeq, &receiptSeq, &root, &at, &c.Refusal, &c.Upgradable, &c.Upgrade,
		&c.Backlog, &lag, &refused, &refusedAt, &c.Held,
		&rewoundAt, &rewindSeen, &reason, &proven, &incarnation, &agentSeq, &hubSeq, &cloneAt, &known, &other, &address)
	c.Lag = time.Duration(lag) * time.Millisecond
	if refusedAt != nil {
		c.Refused = &hub.Refused{Address: refused, At: *refusedAt}
	}
	if rewoundAt != nil {
		c.Rewind = &hub.Rewind{
			Since: *rewoundAt, SeenAt: *rewindSeen, Reason: *reason, Proven: *proven,
			AgentIncarnation: *incarnation, AgentSeq: *agentSeq, HubSeq: *hubSeq,
		}
	}
	if cloneAt != nil {
		c.Quarantine = &hub.Quarantine{Since: *cloneAt, Known: *known, Other: *other, Address: *address}
	}
	if receiptSeq != nil && at != nil {
		c.Receipt = &hub.Receipt{Seq: *receiptSeq, Root: root, At: *at}
	}
	return c, err
}

func noCluster() error { return fault.New(fault.Missing, "there is no such cluster") }

// Clusters returns all clusters in order of name.
func (t *Tenant) Clusters(ctx context.Context) ([]hub.Cluster, error) {
	return list(ctx, t.tx, "clusters", scanCluster, selectClusters, t.id)
}

// ClusterCounts returns numbers about clusters, which may be all; a cluster
// without applications is left out.
func (t *Tenant) ClusterCounts(ctx context.Context, want []hub.ClusterID) (map[hub.ClusterID]hub.ClusterCounts, error) {
	out := map[hub.ClusterID]hub.ClusterCounts{}
	statement, args := selectAllCounts, []any{t.id}
	if len(want) > 0 {
		statement, args = selectSomeCounts, append(args, ids(want))
	}
	_, err := list(ctx, t.tx, "numbers of clusters", func(row pgx.CollectableRow) (none struct{}, err error) {
		var id hub.ClusterID
		var n hub.ClusterCounts
		err = row.Scan(&id, &n.Applications, &n.Objects)
		out[id] = n
		return none, err
	}, statement, args...)
	return out, err
}

// ClusterNames is Clusters with only id, name and server: a tenant may have
// thousands.
func (t *Tenant) ClusterNames(ctx context.Context) ([]hub.Cluster, error) {
	return list(ctx, t.tx, "names of clusters", func(row pgx.CollectableRow) (c hub.Cluster, err error) {
		err = row.Scan(&c.ID, &c.Name, &c.Server)
		return c, err
	}, selectClusterNames, t.id)
}

// Cluster returns one cluster by its name.
func (t *Tenant) Cluster(ctx context.Context, name string) (hub.Cluster, error) {
	c, err := one(ctx, t.tx, "cluster", scanCluster, selectClusterNamed, t.id, name)
	return c, missing(err, "there is no cluster %q", name)
}

// ClustersByID returns those of the clusters that there are.
func (t *Tenant) ClustersByID(ctx context.Context, want []hub.ClusterID) (map[hub.ClusterID]hub.Cluster, error) {
	found, err := list(ctx, t.tx, "clusters", scanCluster, selectClustersByID, t.id, ids(want))
	out := make(map[hub.ClusterID]hub.Cluster, len(found))
	for _, c := range found {
		out[c.ID] = c
	}
	return out, err
}

// ClusterPlaces returns the clusters that exist, with their names, servers,
// annotations, scopes and the time of their last change. Each has InClusterOff set if
// the tenant has disabled the destination in-cluster.
func (t *Tenant) ClusterPlaces(ctx context.Context, want []hub.ClusterID) (map[hub.ClusterID]hub.Cluster, error) {
	out := make(map[hub.ClusterID]hub.Cluster, len(want))
	_, err := list(ctx, t.tx, "places of clusters", func(row pgx.CollectableRow) (none struct{}, err error) {
		c := hub.Cluster{Tenant: t.id}
		var enabled string
		err = row.Scan(&c.ID, &c.Name, &c.Server, &c.Annotations, &c.UpdatedAt, &c.Project, &c.Namespaces, &c.ClusterResources, &enabled)
		c.InClusterOff = hub.InClusterOff(enabled)
		out[c.ID] = c
		return none, err
	}, selectClusterPlaces, t.id, ids(want))
	return out, err
}

// clusterPlatforms returns places with what templates may read. Clusters that
// serve the same APIs share the list.
func (t *Tenant) clusterPlatforms(ctx context.Context, want []hub.ClusterID) (map[hub.ClusterID]hub.Cluster, error) {
	out := make(map[hub.ClusterID]hub.Cluster, len(want))
	var served []string // by all clusters that follow, until one brings a list of its own
	_, err := list(ctx, t.tx, "platforms of clusters", func(row pgx.CollectableRow) (none struct{}, err error) {
		c := hub.Cluster{Tenant: t.id}
		var enabled string
		var first []string
		err = row.Scan(&c.ID, &c.Name, &c.Server, &c.Annotations, &c.UpdatedAt, &c.Project, &c.Namespaces, &c.ClusterResources, &enabled, &c.KubeVersion, &first)
		if first != nil {
			served = first
		}
		c.APIVersions = served
		c.InClusterOff = hub.InClusterOff(enabled)
		out[c.ID] = c
		return none, err
	}, selectClusterPlatforms, t.id, ids(want))
	return out, err
}

// ClusterByID returns one cluster.
func (t *Tenant) ClusterByID(ctx context.Context, id hub.ClusterID) (hub.Cluster, error) {
	found, err := t.ClustersByID(ctx, []hub.ClusterID{id})
	if err != nil {
		return hub.Cluster{}, err
	}
	c, ok := found[id]
	if !ok {
		return hub.Cluster{}, noCluster()
	}
	return c, nil
}

// CreateCluster makes a cluster with an empty desired log of its own
// incarnation. An empty ID or time is filled in.
func (t *Tenant) CreateCluster(ctx context.Context, c hub.Cluster) (hub.Cluster, error) {
	if c.ID == "" {
		c.ID = hub.NewID[hub.ClusterID]()
	}
	if c.CreatedAt.IsZero() {
		c.CreatedAt = time.Now()
	}
	c.Tenant, c.Version, c.CreatedAt = t.id, 1, micro(c.CreatedAt)
	c.UpdatedAt = c.CreatedAt
	_, err := exec(ctx, t.tx, "insert cluster", insertCluster, pgx.StrictNamedArgs{
		"tenant": t.id, "id": c.ID, "namespace": c.Namespace, "name": c.Name, "labels": labels(c.Labels),
		"annotations": labels(c.Annotations), "finalizers": nonNil(c.Finalizers), "server": c.Server, "now": c.CreatedAt,
		"project": c.Project, "namespaces": nonNil(c.Namespaces), "cluster_resources": c.ClusterResources, "shard": c.Shard,
	})
	if err != nil {
		return hub.Cluster{}, clusterFault(err, c)
	}
	incarnation := uuid.NewString()
	b := &pgx.Batch{}
	b.Queue(insertLogHead, t.id, c.ID, incarnation, hashchain.First(incarnation))
	b.Queue(insertLogAck, t.id, c.ID)
	b.Queue(insertObserved, t.id, c.ID)
	if err := t.tx.SendBatch(ctx, b).Close(); err != nil {
		return hub.Cluster{}, fmt.Errorf("begin desired log of cluster %q: %w", c.Name, err)
	}
	t.changed(changeCluster, string(c.ID))
	t.grows(hub.QuotaClusters)
	return c, t.WakeSets(ctx)
}

func clusterFault(err error, c hub.Cluster) error {
	object := "cluster " + c.Name
	switch {
	case violates(err, "cluster_name"):
		return taken(object)
	case violates(err, "cluster_server"):
		return fault.With(fault.New(fault.Conflict, "another cluster has the server alias %q", c.Server), object, "choose another server alias")
	case code(err) == checkViolation:
		return fault.New(fault.Invalid, "a cluster needs a name")
	}
	return err
}

// UpdateCluster changes what users wrote of a cluster. The error is
// fault.Conflict if its version is not the expected one; 0 expects any.
func (t *Tenant) UpdateCluster(ctx context.Context, c hub.Cluster, expect int64) (hub.Cluster, error) {
	if !hub.ValidID(string(c.ID)) {
		return hub.Cluster{}, noCluster()
	}
	n, err := exec(ctx, t.tx, "update cluster", updateCluster, pgx.StrictNamedArgs{
		"tenant": t.id, "id": c.ID, "version": expect, "namespace": c.Namespace, "name": c.Name, "labels": labels(c.Labels),
		"annotations": labels(c.Annotations), "finalizers": nonNil(c.Finalizers), "server": c.Server, "now": micro(time.Now()),
		"project": c.Project, "namespaces": nonNil(c.Namespaces), "cluster_resources": c.ClusterResources, "shard": c.Shard,
	})
	if err != nil {
		return hub.Cluster{}, clusterFault(err, c)
	}
	now, err := t.ClusterByID(ctx, c.ID)
	if err != nil {
		return hub.Cluster{}, err
	}
	if n == 0 {
		return hub.Cluster{}, stale("cluster " + now.Name)
	}
	t.changed(changeCluster, string(c.ID))
	return now, t.WakeSets(ctx)
}

// DeleteCluster deletes a cluster: its agent is revoked, its join tokens become
// invalid, and nothing in it is touched. The error is fault.Conflict while
// applications are on it.
func (t *Tenant) DeleteCluster(ctx context.Context, id hub.ClusterID) error {
	agent, err := t.lockAgent(ctx, id)
	if err != nil {
		return err
	}
	var apps int
	if err := t.tx.QueryRow(ctx, clusterUsers, t.id, id).Scan(&apps); err != nil {
		return fmt.Errorf("count applications of cluster %q: %w", id, err)
	}
	if apps > 0 {
		return fault.With(fault.New(fault.Conflict, "%d applications are on it", apps), "cluster", "move or delete them first")
	}
	b := &pgx.Batch{}
	if agent != "" {
		b.Queue(revokeAgent, id, agent)
	}
	b.Queue(dropJoinTokens, t.id, id)
	b.Queue(dropPresence, id)
	b.Queue(dropRewind, id)
	b.Queue(dropQuarantine, id)
	b.Queue(deleteCluster, t.id, id)
	if err := t.tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("delete cluster %q: %w", id, err)
	}
	t.removed(changeCluster, string(id))
	return t.WakeSets(ctx)
}

// RevokeAgent ends the agent of a cluster with all its certificates, and the
// cluster's open join tokens. A new agent needs a new join token.
func (t *Tenant) RevokeAgent(ctx context.Context, id hub.ClusterID) error {
	agent, err := t.lockAgent(ctx, id)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(dropJoinTokens, t.id, id)
	if agent != "" {
		b.Queue(revokeAgent, id, agent)
		b.Queue(clearAgent, t.id, id, micro(time.Now()))
	}
	if err := t.tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("revoke the agent of cluster %q: %w", id, err)
	}
	t.changed(changeCluster, string(id))
	return nil
}

func (t *Tenant) lockAgent(ctx context.Context, id hub.ClusterID) (string, error) {
	if !hub.ValidID(string(id)) {
		return "", noCluster()
	}
	var agent string
	if err := t.tx.QueryRow(ctx, selectAgent, t.id, id).Scan(&agent); err != nil {
		return "", missing(err, "there is no such cluster")
	}
	return agent, nil
}

// CreateEnrolment stores an invitation for an agent. The token is known by
// hash only.
func (t *Tenant) CreateEnrolment(ctx context.Context, e hub.Enrolment, hash [32]byte) (hub.Enrolment, error) {
	if e.ID == "" {
		e.ID = hub.NewID[hub.EnrolmentID]()
	}
	if !hub.ValidID(string(e.Cluster)) {
		return hub.Enrolment{}, noCluster()
	}
	if err := t.open(ctx); err != nil {
		return hub.Enrolment{}, err
	}
	e.Tenant, e.ExpiresAt = t.id, micro(e.ExpiresAt)
	_, err := exec(ctx, t.tx, "insert enrolment", insertEnrolment, pgx.StrictNamedArgs{
		"tenant": t.id, "id": e.ID, "cluster": e.Cluster, "prefix": e.Prefix, "expires": e.ExpiresAt, "created_by": e.CreatedBy,
	})
	if code(err) == foreignKeyViolation {
		return hub.Enrolment{}, noCluster()
	}
	if err != nil {
		return hub.Enrolment{}, err
	}
	_, err = exec(ctx, t.tx, "list join token", putJoinToken, hash[:], e.ID, e.Prefix, e.ExpiresAt)
	t.changed(changeCluster, string(e.Cluster))
	return e, err
}

// Enrolments returns the invitations of a cluster, newest first.
func (t *Tenant) Enrolments(ctx context.Context, cluster hub.ClusterID) ([]hub.Enrolment, error) {
	if !hub.ValidID(string(cluster)) {
		return nil, noCluster()
	}
	return list(ctx, t.tx, "enrolments", pgx.RowToStructByName[hub.Enrolment], selectEnrolments, t.id, cluster)
}
