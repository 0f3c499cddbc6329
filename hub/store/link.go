package store

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// maxAttemptsKept is how many uses of a join token are remembered.
const maxAttemptsKept = 20

const (
	selectAuthority = `SELECT sealed FROM directory.authority`
	insertAuthority = `INSERT INTO directory.authority (sealed) VALUES ($1)`

	selectJoinToken    = `SELECT tenant_id, enrolment_id FROM directory.join_token WHERE hash = $1`
	selectJoinPrefixes = `SELECT tenant_id, enrolment_id FROM directory.join_token WHERE prefix = $1 LIMIT 10`
	selectInvitation   = `
		SELECT e.id, e.tenant_id AS tenant, e.cluster_id AS cluster, e.prefix, e.expires_at, e.used_at, e.created_by, e.attempts,
		       c.name AS cluster_name, e.agent_id, e.used_key AS key
		FROM   enrolment e
		JOIN   cluster c ON c.tenant_id = e.tenant_id AND c.id = e.cluster_id
		WHERE  e.tenant_id = $1 AND e.id = $2`
	lockEnrolment = `SELECT cluster_id, used_key, attempts FROM enrolment WHERE tenant_id = $1 AND id = $2 FOR UPDATE`
	useEnrolment  = `
		UPDATE enrolment SET used_at = coalesce(used_at, @now), used_key = @key, agent_id = @agent
		WHERE  tenant_id = @tenant AND id = @id`
	dropOtherTokens = `
		SELECT directory.drop_join_tokens(ARRAY(SELECT id FROM enrolment WHERE tenant_id = $1 AND cluster_id = $2 AND id <> $3))`
	joinCluster = `
		UPDATE cluster
		SET    agent_id = @agent, fingerprint = @fingerprint, agent_version = @agent_version, updated_at = @now, version = version + 1
		WHERE  tenant_id = @tenant AND id = @id`
	noteRefusal = `UPDATE cluster SET refusal = $3 WHERE tenant_id = $1 AND id = $2`
	// A clone stays visible until it is dealt with: a connection of the
	// original does not prove that it is gone.
	dropRefusal = `
		UPDATE cluster SET refusal = NULL
		WHERE  tenant_id = $1 AND id = $2 AND refusal IS NOT NULL AND refusal ->> 'stage' <> 'fingerprint'`
	noteAttempts   = `UPDATE enrolment SET attempts = $3 WHERE tenant_id = $1 AND id = $2`
	putCertificate = `SELECT directory.put_certificate(@serial, @cluster, @agent, @not_before, @not_after)`

	insertCertificate = `
		INSERT INTO directory.certificate (serial, tenant_id, cluster_id, agent_id, not_before, not_after)
		VALUES (@serial, @tenant, @cluster, @agent, @not_before, @not_after)
		ON CONFLICT (serial) DO NOTHING`
	selectRevocationVersion = `SELECT version FROM directory.revocation_version`
	selectRevocations       = `
		SELECT agent_id, serial, tenant_id::text AS tenant, until, '' AS cluster FROM directory.revocation WHERE until > $1
		UNION ALL
		SELECT '', '', tenant_id::text, since, cluster_id::text FROM directory.quarantine
		ORDER  BY 4`

	selectSuspended = `SELECT suspended FROM directory.tenant WHERE id = $1 AND ready`
	selectMember    = `
		SELECT c.name, c.agent_id, c.fingerprint, c.rejected, q.since IS NOT NULL
		FROM   cluster c LEFT JOIN directory.my_quarantine q ON q.cluster_id = c.id
		WHERE  c.tenant_id = $1 AND c.id = $2`
	attachAgent = `SELECT directory.attach_agent(@cluster, @session, @replica, @at, @epoch, @instance, @leader, @address, @life)`
	detachAgent = `SELECT directory.detach_agent($1, $2)`
	updateFacts = `
		UPDATE cluster
		SET    agent_version = @agent_version, fingerprint = @fingerprint, kube_version = @kube_version, api_versions = @api_versions, readyz = @readyz, upgradable = @upgradable, features = @features,
		       updated_at = CASE WHEN (kube_version, api_versions) IS DISTINCT FROM (@kube_version, @api_versions) THEN now() ELSE updated_at END
		WHERE  tenant_id = @tenant AND id = @id
		  AND  (agent_version, fingerprint, kube_version, api_versions, readyz, upgradable, features) IS DISTINCT FROM (@agent_version, @fingerprint, @kube_version, @api_versions, @readyz, @upgradable, @features)`
	clusterFacts = `SELECT kube_version, api_versions FROM cluster WHERE tenant_id = $1 AND id = $2 FOR UPDATE`
	clusterApps  = `SELECT id FROM application WHERE tenant_id = $1 AND cluster_id = $2`
)

// Authority returns what PutAuthority stored, unwrapped. The error is
// fault.Missing when nothing was stored yet.
func (s *System) Authority(ctx context.Context) ([]byte, error) {
	var sealed []byte
	if err := s.db.system.QueryRow(ctx, selectAuthority).Scan(&sealed); err != nil {
		return nil, classify(missing(err, "there is no certificate authority yet"))
	}
	plain, err := s.db.keys.Unwrap(sealed)
	if err != nil {
		return nil, fmt.Errorf("unwrap certificate authority: %w", err)
	}
	return plain, nil
}

// PutAuthority stores the private authority once, wrapped with the master
// key. The error is fault.Conflict if there is one already.
func (s *System) PutAuthority(ctx context.Context, secret []byte) error {
	sealed, err := s.db.keys.Wrap(secret)
	if err != nil {
		return fmt.Errorf("wrap certificate authority: %w", err)
	}
	_, err = exec(ctx, s.db.system, "insert authority", insertAuthority, sealed)
	if code(err) == uniqueViolation {
		return fault.New(fault.Conflict, "there is a certificate authority already")
	}
	return classify(err)
}

// EnrolmentByHash finds an invitation by the hash of its token, used and
// expired ones too.
func (s *System) EnrolmentByHash(ctx context.Context, hash [32]byte) (hub.Invitation, error) {
	const none = "there is no such join token"
	var held bool
	if err := s.db.system.QueryRow(ctx, selectHeld).Scan(&held); err != nil {
		return hub.Invitation{}, classify(err)
	}
	if held {
		return hub.Invitation{}, errHeld()
	}
	var tenant hub.TenantID
	var id hub.EnrolmentID
	if err := s.db.system.QueryRow(ctx, selectJoinToken, hash[:]).Scan(&tenant, &id); err != nil {
		return hub.Invitation{}, classify(missing(err, none))
	}
	var out hub.Invitation
	err := s.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *Tenant) (err error) {
		out, err = one(ctx, t.tx, "enrolment", pgx.RowToStructByName[hub.Invitation], selectInvitation, tenant, id)
		return missing(err, none)
	})
	return out, err
}

// Redeem stores a redemption whole: the invitation is used, the agent becomes
// the cluster's, its certificate is known, and an agent that it replaces is
// revoked. Other join tokens of the cluster stop working. The error is
// fault.Conflict if another key used the invitation first; the same key may
// redeem again, because its first answer may be lost, until the agent that it
// made is no longer the cluster's.
func (s *System) Redeem(ctx context.Context, r hub.Redemption) error {
	c := r.Certificate
	return s.db.InTenant(ctx, c.Tenant, func(ctx context.Context, t *Tenant) error {
		former, attempts, err := t.lockInvitation(ctx, r)
		if err != nil {
			return err
		}
		at := micro(r.At)
		b := &pgx.Batch{}
		b.Queue(dropOtherTokens, t.id, c.Cluster, r.Enrolment)
		b.Queue(useEnrolment, pgx.StrictNamedArgs{"tenant": t.id, "id": r.Enrolment, "now": at, "key": r.Key, "agent": c.AgentID})
		b.Queue(joinCluster, pgx.StrictNamedArgs{
			"tenant": t.id, "id": c.Cluster, "agent": c.AgentID, "fingerprint": r.Fingerprint, "agent_version": r.AgentVersion,
			"now": at,
		})
		b.Queue(putCertificate, pgx.StrictNamedArgs{
			"serial": c.Serial, "cluster": c.Cluster, "agent": c.AgentID, "not_before": micro(c.NotBefore),
			"not_after": micro(c.NotAfter),
		})
		if former != "" && former != c.AgentID {
			b.Queue(revokeAgent, c.Cluster, former)
		}
		b.Queue(noteAttempts, t.id, r.Enrolment, lastAttempts(attempts, hub.Attempt{At: at, Address: r.Address, Stage: "issued"}))
		if err := t.tx.SendBatch(ctx, b).Close(); err != nil {
			return fmt.Errorf("redeem enrolment %q: %w", r.Enrolment, err)
		}
		t.changed(changeCluster, string(c.Cluster))
		return nil
	})
}

// lockInvitation locks what a redemption changes and refuses one that is not
// allowed. It returns the cluster's agent until now and the attempts to use the
// token.
func (t *Tenant) lockInvitation(ctx context.Context, r hub.Redemption) (former string, attempts []hub.Attempt, err error) {
	if !hub.ValidID(string(r.Enrolment)) {
		return "", nil, fault.New(fault.Missing, "there is no such join token")
	}
	var cluster hub.ClusterID
	var key []byte
	if err := t.tx.QueryRow(ctx, lockEnrolment, t.id, r.Enrolment).Scan(&cluster, &key, &attempts); err != nil {
		return "", nil, missing(err, "there is no such join token")
	}
	if cluster != r.Certificate.Cluster {
		return "", nil, fault.New(fault.Invalid, "the join token is for another cluster")
	}
	if key != nil && !bytes.Equal(key, r.Key) {
		return "", nil, fault.New(fault.Conflict, "the join token was used already")
	}
	if former, err = t.lockAgent(ctx, cluster); err != nil {
		return "", nil, err
	}
	if key != nil && former != r.Certificate.AgentID {
		return "", nil, fault.New(fault.Conflict, "the join token was used already, and another agent has taken the place of the one that it made")
	}
	return former, attempts, nil
}

func lastAttempts(have []hub.Attempt, a hub.Attempt) []hub.Attempt {
	have = append(have, a)
	return have[max(0, len(have)-maxAttemptsKept):]
}

// Attempted records one use of a join token on the enrolments with that prefix.
// An unknown prefix is no error: outsiders try tokens too.
func (s *System) Attempted(ctx context.Context, prefix string, a hub.Attempt) error {
	type place struct {
		tenant    hub.TenantID
		enrolment hub.EnrolmentID
	}
	places, err := list(ctx, s.db.system, "join tokens", func(row pgx.CollectableRow) (p place, err error) {
		err = row.Scan(&p.tenant, &p.enrolment)
		return p, err
	}, selectJoinPrefixes, prefix)
	if err != nil {
		return classify(err)
	}
	a.At = micro(a.At)
	for _, p := range places {
		err := s.db.InTenant(ctx, p.tenant, func(ctx context.Context, t *Tenant) error {
			var cluster hub.ClusterID
			var key []byte
			var attempts []hub.Attempt
			if err := t.tx.QueryRow(ctx, lockEnrolment, t.id, p.enrolment).Scan(&cluster, &key, &attempts); err != nil {
				return missing(err, "there is no such join token")
			}
			t.changed(changeCluster, string(cluster))
			b := &pgx.Batch{}
			b.Queue(noteAttempts, t.id, p.enrolment, lastAttempts(attempts, a))
			b.Queue(noteRefusal, t.id, cluster, hub.Refusal{
				At: a.At, Address: a.Address, Stage: a.Stage, Message: clean(a.Message), AgentVersion: a.AgentVersion,
			})
			if err := t.tx.SendBatch(ctx, b).Close(); err != nil {
				return fmt.Errorf("note attempt: %w", err)
			}
			return nil
		})
		if err != nil && fault.KindOf(err) != fault.Missing {
			return err
		}
	}
	return nil
}

// Refused records why a cluster's agent was not admitted.
func (s *System) Refused(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, r hub.Refusal) error {
	if !hub.ValidID(string(tenant)) || !hub.ValidID(string(cluster)) {
		return noCluster()
	}
	r.At, r.Message = micro(r.At), clean(r.Message)
	return s.db.InTenant(ctx, tenant, func(ctx context.Context, t *Tenant) error {
		n, err := exec(ctx, t.tx, "note refusal", noteRefusal, t.id, cluster, r)
		if err == nil && n == 0 {
			return noCluster()
		}
		if err == nil {
			t.changed(changeCluster, string(cluster))
		}
		return err
	})
}

// Renewed notes a further certificate of an agent.
func (s *System) Renewed(ctx context.Context, c hub.Certificate) error {
	_, err := exec(ctx, s.db.system, "insert certificate", insertCertificate, pgx.StrictNamedArgs{
		"serial": c.Serial, "tenant": c.Tenant, "cluster": c.Cluster, "agent": c.AgentID, "not_before": micro(c.NotBefore),
		"not_after": micro(c.NotAfter),
	})
	return classify(err)
}

// RevocationVersion grows with every revocation.
func (s *System) RevocationVersion(ctx context.Context) (int64, error) {
	var v int64
	err := s.db.system.QueryRow(ctx, selectRevocationVersion).Scan(&v)
	return v, classify(err)
}

// Revocations returns all that may cover a certificate which has not expired at
// that time.
func (s *System) Revocations(ctx context.Context, at time.Time) ([]hub.Revocation, error) {
	out, err := list(ctx, s.db.system, "revocations", pgx.RowToStructByName[hub.Revocation], selectRevocations, at)
	return out, classify(err)
}

// Member returns the stored data of a cluster's agent before it is admitted.
func (s *System) Member(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID) (hub.Member, error) {
	var m hub.Member
	if !hub.ValidID(string(tenant)) || !hub.ValidID(string(cluster)) {
		return m, noCluster()
	}
	if err := s.db.system.QueryRow(ctx, selectSuspended, tenant).Scan(&m.Suspended); err != nil {
		return m, classify(missing(err, "there is no such tenant"))
	}
	err := s.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *Tenant) error {
		err := t.tx.QueryRow(ctx, selectMember, tenant, cluster).Scan(&m.ClusterName, &m.AgentID, &m.Fingerprint, &m.Rejected, &m.Quarantined)
		return missing(err, "there is no such cluster")
	})
	return m, err
}

// Connected stores which replica has an agent and what the agent reported about
// its cluster. When the cluster's version or API list changed, its applications
// are refreshed, because templates may read either.
//
// The error is fault.Conflict while another process of the same identity has
// precedence, at whichever replica it is.
func (s *System) Connected(ctx context.Context, a hub.Attachment) error {
	var refusal string
	err := s.db.InTenant(ctx, a.Tenant, func(ctx context.Context, t *Tenant) error {
		if !hub.ValidID(string(a.Cluster)) {
			return noCluster()
		}
		var version string
		var apis []string
		if err := t.tx.QueryRow(ctx, clusterFacts, t.id, a.Cluster).Scan(&version, &apis); err != nil {
			return missing(err, "there is no such cluster")
		}
		var err error
		if refusal, err = t.attach(ctx, a); err != nil {
			return err
		}
		if refusal != "" {
			t.changed(changeCluster, string(a.Cluster))
			return nil // committed, because users see the refusal
		}
		if err := t.putFacts(ctx, a); err != nil {
			return err
		}
		t.changed(changeCluster, string(a.Cluster))
		if version == a.KubeVersion && equal(apis, a.APIVersions) {
			return nil
		}
		return t.refreshCluster(ctx, a.Cluster, a.At)
	})
	if err != nil {
		return err
	}
	return attachRefused(refusal)
}

// putFacts stores what an attached agent has said of its cluster.
func (t *Tenant) putFacts(ctx context.Context, a hub.Attachment) error {
	_, err := exec(ctx, t.tx, "store facts", updateFacts, pgx.StrictNamedArgs{
		"tenant": t.id, "id": a.Cluster, "agent_version": a.AgentVersion, "fingerprint": a.Fingerprint,
		"kube_version": a.KubeVersion, "api_versions": nonNil(a.APIVersions), "readyz": a.Readyz, "upgradable": a.Upgradable, "features": nonNil(a.Features),
	})
	if err != nil {
		return err
	}
	_, err = exec(ctx, t.tx, "forget the last refusal", dropRefusal, t.id, a.Cluster)
	return err
}

// attachRefused is what an agent is told that was not attached; nil: it was.
func attachRefused(refusal string) error {
	switch refusal {
	case "":
		return nil
	case "leader":
		return fault.With(fault.New(fault.Conflict, "another agent with the same identity is connected and holds the Lease of the cluster"),
			"", "let only one agent run in a cluster; this one is let in as soon as the other is gone")
	}
	return fault.With(fault.New(fault.Conflict, "another process with the same agent identity attached after this one"),
		"", "let only one agent run in a cluster; if its Secret was copied to another cluster, enrol that one with a join token of its own")
}

func equal(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func (t *Tenant) refreshCluster(ctx context.Context, cluster hub.ClusterID, at time.Time) error {
	apps, err := list(ctx, t.tx, "applications of cluster", pgx.RowTo[string], clusterApps, t.id, cluster)
	for _, app := range apps {
		t.enqueue(hub.WorkRefresh, app, at, false)
	}
	return err
}

// Disconnected records that an attachment ended, unless a newer one has
// replaced it.
func (s *System) Disconnected(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, session string) error {
	return s.db.InTenant(ctx, tenant, func(ctx context.Context, t *Tenant) error {
		if !hub.ValidID(string(cluster)) {
			return noCluster()
		}
		var gone bool
		if err := t.tx.QueryRow(ctx, detachAgent, cluster, session).Scan(&gone); err != nil {
			return fmt.Errorf("store end of connection of cluster %q: %w", cluster, err)
		}
		if gone {
			t.changed(changeCluster, string(cluster))
		}
		return nil
	})
}
