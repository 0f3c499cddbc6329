package store

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/encryption"
)

const (
	// The first tenant is the one that the installation was set up with.
	selectWebhookTargets = `
		SELECT p.tenant_id, p.repository_id, p.application_id, p.set_id,
		       ARRAY (SELECT k.key FROM directory.webhook_key k WHERE k.tenant_id = p.tenant_id ORDER BY k.key),
		       ARRAY (SELECT k.sealed FROM directory.webhook_key k WHERE k.tenant_id = p.tenant_id ORDER BY k.key),
		       p.tenant_id = (SELECT f.id FROM directory.tenant f WHERE f.ready ORDER BY f.created_at, f.id LIMIT 1)
		FROM   (SELECT r.tenant_id, r.repository_id, NULL::uuid AS application_id, NULL::uuid AS set_id FROM directory.repository_place r WHERE r.place = ANY ($1::bytea[])
		        UNION
		        SELECT b.tenant_id, NULL, b.application_id, NULL FROM directory.base_place b WHERE b.place = ANY ($1::bytea[])
		        UNION
		        SELECT s.tenant_id, NULL, NULL, s.set_id FROM directory.set_place s WHERE s.place = ANY ($2::bytea[])) p
		JOIN   directory.tenant t ON t.id = p.tenant_id AND t.ready
		ORDER  BY p.tenant_id, p.repository_id, p.application_id, p.set_id`
	// Work is put in order of its keys, as everywhere.
	fetchTargets = `
		SELECT work.put(u.tenant_id, ARRAY[u.kind], ARRAY[u.key], ARRAY[now() + u.wait], ARRAY[u.kind = '` + hub.WorkApplicationSet + `'])
		FROM   (SELECT * FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::interval[]) AS v (tenant_id, kind, key, wait) ORDER BY 1, 2, 3) u`
	// The time is the hub's, with which that of listings is compared.
	markBases = `
		WITH held AS (
			SELECT b.tenant_id, b.application_id, b.place FROM directory.base_place b
			WHERE  (b.tenant_id, b.application_id) IN (SELECT u.tenant, u.application FROM unnest(@tenants::uuid[], @applications::uuid[]) AS u (tenant, application))
			ORDER  BY b.tenant_id, b.application_id, b.place
			FOR    UPDATE
		)
		UPDATE directory.base_place b
		SET    pushed_at = greatest(b.pushed_at, @at::timestamptz)
		FROM   held h
		WHERE  b.tenant_id = h.tenant_id AND b.application_id = h.application_id AND b.place = h.place`
)

// A WebhookTarget is a tenant with repositories at the address of an event, with
// applications that use a base there, or with sets that list what is there. Its events must prove one of the
// secrets.
type WebhookTarget struct {
	Tenant       hub.TenantID
	Repositories []hub.RepositoryID
	Applications []hub.ApplicationID // that use a base
	Sets         []hub.ApplicationSetID
	SetWait      time.Duration     // how long they wait, so that several events are one reconcile
	Secrets      map[string]string // of the tenant's own settings, by their keys
	First        bool              // it is the oldest tenant of the installation
	Err          error             // a secret cannot be opened
	// Waits are how long repositories wait before they are fetched; a
	// repository that is not there is fetched at once.
	Waits map[hub.RepositoryID]time.Duration
}

// hashesOf are the hashes of places, as the directory has them.
func hashesOf(places []string) [][]byte {
	out := make([][]byte, len(places))
	for i, place := range places {
		sum := sha256.Sum256([]byte(place))
		out[i] = sum[:]
	}
	return out
}

// WebhookTargets returns the tenants that have repositories, or use bases, at the
// places that repourl.Place returns, whatever their scheme and port. watched are
// those with which sets watch them.
func (s *System) WebhookTargets(ctx context.Context, places, watched []string) ([]WebhookTarget, error) {
	var out []WebhookTarget
	var sealed []map[string][]byte
	err := s.do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		out, sealed = nil, nil
		_, err := list(ctx, tx, "repositories by place", func(row pgx.CollectableRow) (none struct{}, err error) {
			var t WebhookTarget
			var repository *hub.RepositoryID
			var application *hub.ApplicationID
			var set *hub.ApplicationSetID
			var keys []string
			var values [][]byte
			if err := row.Scan(&t.Tenant, &repository, &application, &set, &keys, &values, &t.First); err != nil {
				return none, err
			}
			at := &t
			if last := len(out) - 1; last >= 0 && out[last].Tenant == t.Tenant {
				at = &out[last]
			}
			if repository != nil {
				at.Repositories = append(at.Repositories, *repository)
			}
			if application != nil {
				at.Applications = append(at.Applications, *application)
			}
			if set != nil {
				at.Sets = append(at.Sets, *set)
			}
			if at != &t {
				return none, nil
			}
			secrets := make(map[string][]byte, len(keys))
			for i, key := range keys {
				secrets[key] = values[i]
			}
			out, sealed = append(out, t), append(sealed, secrets)
			return none, nil
		}, selectWebhookTargets, hashesOf(places), hashesOf(watched))
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i].Secrets, out[i].Err = s.openSettings(ctx, out[i].Tenant, hub.SecretMap, sealed[i])
	}
	return out, nil
}

// openSettings opens sealed settings of a tenant, by their keys.
func (s *System) openSettings(ctx context.Context, tenant hub.TenantID, name string, sealed map[string][]byte) (map[string]string, error) {
	if len(sealed) == 0 {
		return nil, nil
	}
	keys, err := s.db.Keys(ctx, tenant)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(sealed))
	for key, value := range sealed {
		plain, err := encryption.Open(keys.Credential, settingFor(tenant, name, key), value)
		if err != nil {
			return nil, fmt.Errorf("open setting %s of %s: %w", key, name, err)
		}
		out[key] = string(plain)
	}
	return out, nil
}

// FetchTargets enqueues a fetch of the repositories of targets, a reconcile of
// their sets that asks their hosts again, and a refresh of their applications, for
// which no older listing of a base is used any more. note
// is called for each repository before the work is visible; it may be called again
// if the transaction is repeated.
func (s *System) FetchTargets(ctx context.Context, targets []WebhookTarget, note func(hub.TenantID, hub.RepositoryID)) error {
	var tenants, kinds, keys, owners, users []string
	var waits []time.Duration
	add := func(tenant hub.TenantID, kind, key string, wait time.Duration) {
		tenants, kinds, keys, waits = append(tenants, string(tenant)), append(kinds, kind), append(keys, key), append(waits, wait)
	}
	for _, t := range targets {
		for _, id := range t.Repositories {
			add(t.Tenant, hub.WorkFetch, string(id), t.Waits[id])
		}
		for _, id := range t.Sets {
			add(t.Tenant, hub.WorkApplicationSet, string(id), t.SetWait)
		}
		for _, id := range t.Applications {
			add(t.Tenant, hub.WorkRefresh, string(id), 0)
			owners, users = append(owners, string(t.Tenant)), append(users, string(id))
		}
	}
	if len(keys) == 0 {
		return nil
	}
	now := time.Now()
	return s.do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		for _, t := range targets {
			for _, id := range t.Repositories {
				note(t.Tenant, id)
			}
		}
		if len(users) > 0 {
			if _, err := exec(ctx, tx, "note pushes to bases", markBases, pgx.StrictNamedArgs{"tenants": owners, "applications": users, "at": now}); err != nil {
				return err
			}
		}
		_, err := exec(ctx, tx, "fetch repositories", fetchTargets, tenants, kinds, keys, waits)
		return err
	})
}
