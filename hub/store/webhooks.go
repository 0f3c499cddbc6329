package store

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/seal"
)

const (
	// The first tenant is the one that the installation was set up with.
	selectWebhookTargets = `
		SELECT p.tenant_id, p.repository_id, s.sealed,
		       p.tenant_id = (SELECT f.id FROM directory.tenant f WHERE f.ready ORDER BY f.created_at, f.id LIMIT 1)
		FROM   directory.repository_place p
		JOIN   directory.tenant t ON t.id = p.tenant_id AND t.ready
		LEFT   JOIN directory.webhook_secret s ON s.tenant_id = p.tenant_id
		WHERE  p.place = ANY ($1::bytea[])
		ORDER  BY p.tenant_id, p.repository_id`
	// Work is put in order of its keys, as everywhere.
	fetchTargets = `
		SELECT work.put(u.tenant_id, ARRAY[$3], ARRAY[u.repository_id], ARRAY[now()], ARRAY[false])
		FROM   (SELECT * FROM unnest($1::uuid[], $2::uuid[]) AS v (tenant_id, repository_id) ORDER BY 1, 2) u`
)

// A WebhookTarget is a tenant whose repositories are at a place that an event
// names, with the secret that its events have to be signed with.
type WebhookTarget struct {
	Tenant       hub.TenantID
	Repositories []hub.RepositoryID
	Secret       string // of the tenant's own settings; empty: it has none
	First        bool   // it is the oldest tenant of the installation
	Err          error  // Secret cannot be opened
}

// WebhookTargets returns the tenants that have repositories at the places that
// hub.RepoPlace returns, whatever their scheme and port.
func (s *System) WebhookTargets(ctx context.Context, places []string) ([]WebhookTarget, error) {
	hashes := make([][]byte, len(places))
	for i, place := range places {
		sum := sha256.Sum256([]byte(place))
		hashes[i] = sum[:]
	}
	var out []WebhookTarget
	var secrets [][]byte
	err := s.do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		out, secrets = nil, nil
		_, err := list(ctx, tx, "repositories by place", func(row pgx.CollectableRow) (none struct{}, err error) {
			var t WebhookTarget
			var id hub.RepositoryID
			var sealed []byte
			if err := row.Scan(&t.Tenant, &id, &sealed, &t.First); err != nil {
				return none, err
			}
			if last := len(out) - 1; last >= 0 && out[last].Tenant == t.Tenant {
				out[last].Repositories = append(out[last].Repositories, id)
				return none, nil
			}
			t.Repositories = []hub.RepositoryID{id}
			out, secrets = append(out, t), append(secrets, sealed)
			return none, nil
		}, selectWebhookTargets, hashes)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, sealed := range secrets {
		if sealed != nil {
			out[i].Secret, out[i].Err = s.openSetting(ctx, out[i].Tenant, hub.SecretMap, hub.WebhookSecretKey, sealed)
		}
	}
	return out, nil
}

func (s *System) openSetting(ctx context.Context, tenant hub.TenantID, name, key string, sealed []byte) (string, error) {
	keys, err := s.db.Keys(ctx, tenant)
	if err != nil {
		return "", err
	}
	plain, err := seal.Open(keys.Credential, settingFor(tenant, name, key), sealed)
	if err != nil {
		return "", fmt.Errorf("open setting %s of %s: %w", key, name, err)
	}
	return string(plain), nil
}

// FetchTargets enqueues a fetch of the repositories of targets. note is told
// of each before anybody can take the work; it may be told again if the
// transaction is repeated.
func (s *System) FetchTargets(ctx context.Context, targets []WebhookTarget, note func(hub.TenantID, hub.RepositoryID)) error {
	var tenants, ids []string
	for _, t := range targets {
		for _, id := range t.Repositories {
			tenants, ids = append(tenants, string(t.Tenant)), append(ids, string(id))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return s.do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		for i := range ids {
			note(hub.TenantID(tenants[i]), hub.RepositoryID(ids[i]))
		}
		_, err := exec(ctx, tx, "fetch repositories", fetchTargets, tenants, ids, hub.WorkFetch)
		return err
	})
}
