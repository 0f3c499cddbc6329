package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	// The digest is that of hub.RefsDigest.
	selectDueRepositories = `
		SELECT r.id, r.tenant_id, r.address, r.type, r.name, r.project, r.username, r.credential IS NOT NULL, r.insecure, r.plain_http, r.proxy, r.no_proxy,
		       r.lfs, r.depth, r.registered, r.fetched_at, r.error, r.error_at, r.error_since, r.version, r.created_at,
		       r.credential, t.id, t.username, t.credential, t.proxy, t.no_proxy,
		       (SELECT sha256(convert_to(string_agg(octet_length(f.name) || ':' || f.name || octet_length(f.commit) || ':' || f.commit, '' ORDER BY f.name COLLATE "C"), 'UTF8'))
		        FROM ref f WHERE f.tenant_id = $1 AND f.repository_id = r.id),
		       EXISTS (SELECT FROM app_source s JOIN application a ON a.tenant_id = s.tenant_id AND a.id = s.application_id
		               WHERE s.tenant_id = $1 AND s.repository_id = r.id AND a.annotations ?| $3)
		FROM   repository r
		LEFT   JOIN LATERAL (
			SELECT t.id, t.username, t.credential, t.proxy, t.no_proxy FROM repository_template t
			WHERE  t.tenant_id = $1 AND (t.url = r.address OR starts_with(r.address, rtrim(t.url, '/') || '/'))
			ORDER  BY length(t.url) DESC LIMIT 1) t ON true
		WHERE  r.tenant_id = $1 AND r.id = ANY ($2::uuid[])`
	// Repositories are locked before items of work, as everywhere. Those that
	// somebody else has locked, and those of which there is more to say, are left
	// out. So are those whose lease was lost.
	finishQuiet = `
		WITH quiet AS MATERIALIZED (
			SELECT r.id FROM repository r
			WHERE  r.tenant_id = $1 AND r.id = ANY ($2::uuid[]) AND r.error = ''
			  AND  NOT EXISTS (SELECT FROM app_source s JOIN application a ON a.tenant_id = s.tenant_id AND a.id = s.application_id
			                   WHERE s.tenant_id = $1 AND s.repository_id = r.id AND a.annotations ?| $6)
			ORDER  BY r.id
			FOR    NO KEY UPDATE OF r SKIP LOCKED
		), released AS MATERIALIZED (
			SELECT l.item_key, l.again
			FROM   (SELECT array_agg(u.key) AS keys, array_agg(u.token) AS tokens, array_agg(u.due) AS dues
			        FROM unnest($2::uuid[], $3::bigint[], $4::timestamptz[]) AS u (key, token, due) JOIN quiet q ON q.id = u.key) c,
			       work.look_again($7, c.keys, c.tokens, c.dues) AS l
		)
		UPDATE repository r
		SET    fetched_at = $5
		FROM   released
		WHERE  r.tenant_id = $1 AND r.id = ANY ($2::uuid[]) AND r.id = released.item_key
		RETURNING r.id, released.again`
)

// DueRepositories returns those repositories of a tenant that there are, with
// what their fetches need, and the values of some settings of the tenant, in one
// round trip.
func (db *DB) DueRepositories(ctx context.Context, tenant hub.TenantID, want []hub.RepositoryID, settings []string) (map[hub.RepositoryID]hub.DueRepository, map[string]string, error) {
	var rows []dueRow
	values := map[string]string{}
	err := db.once(ctx, tenant, "read due repositories", func(b *pgx.Batch) {
		queueList(b, "due repositories", scanDueRepository, &rows, selectDueRepositories, tenant, ids(want), hub.RefreshAnnotations())
		queueSettingValues(b, tenant, hub.SettingsMap, settings, values)
	})
	if err != nil {
		return nil, nil, err
	}
	out := make(map[hub.RepositoryID]hub.DueRepository, len(rows))
	for i := range rows {
		r := &rows[i]
		r.due.Credential, r.due.Err = db.credentialOf(ctx, tenant, r)
		out[r.due.ID] = r.due
	}
	return out, values, nil
}

// A dueRow is what selectDueRepositories returns of one repository.
type dueRow struct {
	due        hub.DueRepository
	sealed     []byte
	template   *hub.RepositoryID
	of         hub.Credential // user name and proxy of the template
	sealedToo  []byte         // what is secret of it
	refsDigest []byte
}

func scanDueRepository(row pgx.CollectableRow) (r dueRow, err error) {
	d := &r.due.Repository
	var username, proxy, noProxy *string
	err = row.Scan(&d.ID, &d.Tenant, &d.URL, &d.Type, &d.Name, &d.Project, &d.Username, &d.HasCredential, &d.Insecure, &d.PlainHTTP, &d.Proxy, &d.NoProxy,
		&d.LFS, &d.Depth, &d.Registered, &d.FetchedAt, &d.Error, &d.ErrorAt, &d.ErrorSince, &d.Version, &d.CreatedAt,
		&r.sealed, &r.template, &username, &r.sealedToo, &proxy, &noProxy, &r.refsDigest, &r.due.Asked)
	if err == nil && r.template != nil {
		r.of = hub.Credential{Username: *username, Proxy: *proxy, NoProxy: *noProxy}
	}
	if len(r.refsDigest) == sha256.Size {
		r.due.Refs = [sha256.Size]byte(r.refsDigest)
	}
	return r, err
}

// credentialOf is Tenant.Credential of a row.
func (db *DB) credentialOf(ctx context.Context, tenant hub.TenantID, r *dueRow) (hub.Credential, error) {
	t := &Tenant{db: db, id: tenant}
	if len(r.sealed) > 0 || len(r.sealedToo) > 0 {
		if _, err := db.Keys(ctx, tenant); err != nil { // with them known, no transaction is needed
			return hub.Credential{}, err
		}
	}
	c, err := t.unsealed(ctx, r.due.ID, r.sealed)
	if err != nil {
		return hub.Credential{}, err
	}
	c.Proxy, c.NoProxy = cmp.Or(c.Proxy, r.due.Proxy), r.due.NoProxy
	return completed(c, r.due.Username, r.due.URL, func() (hub.Credential, error) {
		if r.template == nil {
			return hub.Credential{}, nil
		}
		c, err := t.unsealed(ctx, *r.template, r.sealedToo)
		c.Username, c.Proxy, c.NoProxy = cmp.Or(c.Username, r.of.Username), cmp.Or(c.Proxy, r.of.Proxy), r.of.NoProxy
		return c, err
	})
}

// A QuietFetch is a fetch that found the refs that are stored.
type QuietFetch struct {
	Repository hub.RepositoryID
	Token      int64     // of the lease
	Next       time.Time // when the repository is due again
}

// FinishQuiet records fetches of a tenant that found nothing new: when they
// were, and when the repositories are due again. It ends their leases. It
// returns those that it has recorded, and whether one of them is due already.
// The others have to be stored singly: their lease was lost, or there is more to
// say of them.
func (db *DB) FinishQuiet(ctx context.Context, tenant hub.TenantID, fetches []QuietFetch, at time.Time) (done map[hub.RepositoryID]bool, again bool, err error) {
	var keys []string
	var tokens []int64
	var dues []time.Time
	for _, f := range fetches {
		if !hub.ValidID(string(f.Repository)) {
			return nil, false, fault.New(fault.Internal, "a fetch of %q, which is no id", f.Repository)
		}
		keys, tokens, dues = append(keys, string(f.Repository)), append(tokens, f.Token), append(dues, f.Next)
	}
	done = map[hub.RepositoryID]bool{}
	err = db.once(ctx, tenant, "finish fetches", func(b *pgx.Batch) {
		b.Queue(finishQuiet, tenant, keys, tokens, dues, micro(at), hub.RefreshAnnotations(), hub.WorkFetch).Query(func(rows pgx.Rows) error {
			clear(done)
			var id hub.RepositoryID
			var due bool
			if _, err := pgx.ForEachRow(rows, []any{&id, &due}, func() error {
				done[id] = true
				again = again || due
				return nil
			}); err != nil {
				return fmt.Errorf("read finished fetches: %w", err)
			}
			return nil
		})
	})
	return done, again, err
}
