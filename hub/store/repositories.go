package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	selectRepositories = `
		SELECT id, tenant_id, address, type, name, project, username, credential IS NOT NULL, insecure, plain_http, proxy, no_proxy, lfs, depth, registered, fetched_at, error, error_at, error_since, version, created_at
		FROM   repository
		WHERE  tenant_id = $1
		ORDER  BY address, project`
	selectRepository = `
		SELECT id, tenant_id, address, type, name, project, username, credential IS NOT NULL, insecure, plain_http, proxy, no_proxy, lfs, depth, registered, fetched_at, error, error_at, error_since, version, created_at
		FROM   repository
		WHERE  tenant_id = $1 AND id = $2`
	selectRepositoryByURL = `
		SELECT id, tenant_id, address, type, name, project, username, credential IS NOT NULL, insecure, plain_http, proxy, no_proxy, lfs, depth, registered, fetched_at, error, error_at, error_since, version, created_at
		FROM   repository
		WHERE  tenant_id = $1 AND url = $2`
	// That of the project comes before the one without.
	selectRepositoryFor = `
		SELECT id, tenant_id, address, type, name, project, username, credential IS NOT NULL, insecure, plain_http, proxy, no_proxy, lfs, depth, registered, fetched_at, error, error_at, error_since, version, created_at
		FROM   repository
		WHERE  tenant_id = $1 AND url = ANY ($2)
		ORDER  BY project DESC
		LIMIT  1`
	upsertRepository = `
		INSERT INTO repository AS r (tenant_id, id, url, type, name, project, username, insecure, plain_http, proxy, no_proxy, lfs, depth, registered, created_at)
		VALUES (@tenant, @id, @url, @type, @name, @project, @username, @insecure, @plain, @proxy, @no_proxy, @lfs, @depth, @registered, @now)
		ON CONFLICT (tenant_id, url) DO UPDATE
		SET type = excluded.type, name = excluded.name, project = excluded.project, username = excluded.username,
		    insecure = excluded.insecure, plain_http = excluded.plain_http, proxy = excluded.proxy, no_proxy = excluded.no_proxy, lfs = excluded.lfs, depth = excluded.depth, registered = r.registered OR excluded.registered, version = r.version + 1
		RETURNING id, registered AND NOT EXISTS (SELECT FROM repository o WHERE o.tenant_id = @tenant AND o.id = r.id AND o.registered)`
	updateCredential = `UPDATE repository SET credential = $3 WHERE tenant_id = $1 AND id = $2`
	// A repository that applications name stays known, without its settings.
	deleteRepository = `
		DELETE FROM repository r
		WHERE  r.tenant_id = $1 AND r.id = $2
		  AND  NOT EXISTS (SELECT FROM app_source s WHERE s.tenant_id = $1 AND s.repository_id = $2)
		  AND  NOT EXISTS (SELECT FROM application_set_repository s WHERE s.tenant_id = $1 AND s.repository_id = $2)`
	unregisterRepository = `
		UPDATE repository
		SET    registered = false, credential = NULL, username = '', name = '', project = '', insecure = false, plain_http = false,
		       proxy = '', no_proxy = '', lfs = false, depth = 0, version = version + 1
		WHERE  tenant_id = $1 AND id = $2`
	noteRepositories = `
		INSERT INTO repository (tenant_id, id, url, type, registered, created_at)
		SELECT @tenant, u.id, u.url, u.type, false, @now FROM unnest(@ids::uuid[], @urls::text[], @types::text[], @own_urls::text[]) AS u (id, url, type, own)
		WHERE  NOT EXISTS (SELECT FROM repository p WHERE p.tenant_id = @tenant AND p.url = u.own AND u.own <> u.url)
		ORDER  BY u.url
		ON CONFLICT (tenant_id, url) DO NOTHING
		RETURNING id`

	selectCredential         = `SELECT username, credential, address, proxy, no_proxy FROM repository WHERE tenant_id = $1 AND id = $2`
	selectOwnCredential      = `SELECT credential FROM repository WHERE tenant_id = $1 AND id = $2`
	selectTemplateCredential = `SELECT credential FROM repository_template WHERE tenant_id = $1 AND id = $2`
	// The longest prefix that ends where a path element ends wins.
	selectTemplateFor = `
		SELECT id, username, credential, proxy, no_proxy
		FROM   repository_template
		WHERE  tenant_id = $1 AND (url = $2 OR starts_with($2, rtrim(url, '/') || '/'))
		ORDER  BY length(url) DESC
		LIMIT  1`

	upsertTemplate = `
		INSERT INTO repository_template (tenant_id, id, url, type, name, username, proxy, no_proxy, created_at)
		VALUES (@tenant, @id, @url, @type, @name, @username, @proxy, @no_proxy, @now)
		ON CONFLICT (tenant_id, url) DO UPDATE
		SET type = excluded.type, name = excluded.name, username = excluded.username, proxy = excluded.proxy, no_proxy = excluded.no_proxy
		RETURNING id, created_at`
	updateTemplateCredential = `UPDATE repository_template SET credential = $3 WHERE tenant_id = $1 AND id = $2`
	selectTemplates          = `
		SELECT id, url, type, name, username, proxy, no_proxy, created_at
		FROM   repository_template
		WHERE  tenant_id = $1
		ORDER  BY url`
	deleteTemplate   = `DELETE FROM repository_template WHERE tenant_id = $1 AND id = $2 RETURNING url`
	selectBelowURL   = `SELECT id FROM repository WHERE tenant_id = $1 AND (address = $2 OR starts_with(address, rtrim($2, '/') || '/'))`
	selectFetchDates = `SELECT id FROM repository WHERE tenant_id = $1 AND id = $2`
)

func scanRepository(row pgx.CollectableRow) (r hub.Repository, err error) {
	err = row.Scan(&r.ID, &r.Tenant, &r.URL, &r.Type, &r.Name, &r.Project, &r.Username, &r.HasCredential, &r.Insecure,
		&r.PlainHTTP, &r.Proxy, &r.NoProxy, &r.LFS, &r.Depth, &r.Registered, &r.FetchedAt, &r.Error, &r.ErrorAt, &r.ErrorSince, &r.Version, &r.CreatedAt)
	return r, err
}

func noRepository() error { return fault.New(fault.Missing, "there is no such repository") }

// Repositories returns all repositories in order of URL, those too that only
// applications name.
func (t *Tenant) Repositories(ctx context.Context) ([]hub.Repository, error) {
	return list(ctx, t.tx, "repositories", scanRepository, selectRepositories, t.id)
}

// Repository returns one repository.
func (t *Tenant) Repository(ctx context.Context, id hub.RepositoryID) (hub.Repository, error) {
	if !hub.ValidID(string(id)) {
		return hub.Repository{}, noRepository()
	}
	r, err := one(ctx, t.tx, "repository", scanRepository, selectRepository, t.id, id)
	return r, missing(err, "there is no such repository")
}

// RepositoryFor returns the repository that applications of a project use for a
// normalised URL: the project's own, or else the one without a project.
func (t *Tenant) RepositoryFor(ctx context.Context, url, project string) (hub.Repository, error) {
	r, err := one(ctx, t.tx, "repository", scanRepository, selectRepositoryFor, t.id, []string{url, repourl.Key(url, project)})
	return r, missing(err, "there is no repository %q", url)
}

// RepositoryByURL returns the repository with that normalised URL and without a
// project; with a hub.RepoKey, that of the project.
func (t *Tenant) RepositoryByURL(ctx context.Context, url string) (hub.Repository, error) {
	r, err := one(ctx, t.tx, "repository", scanRepository, selectRepositoryByURL, t.id, url)
	return r, missing(err, "there is no repository %q", url)
}

// PutRepository registers a repository, or changes the one with that URL, and
// has it fetched. A credential of nil leaves the stored one; an empty one
// removes it.
func (t *Tenant) PutRepository(ctx context.Context, r hub.Repository, c *hub.Credential) (hub.Repository, error) {
	if r.URL == "" {
		return hub.Repository{}, fault.New(fault.Invalid, "a repository needs a URL")
	}
	if r.ID == "" {
		r.ID = hub.NewID[hub.RepositoryID]()
	}
	r.Type = r.Type.OrDefault()
	if c != nil && r.Username == "" {
		r.Username = c.Username
	}
	shown, err := hub.ReadProxy(r.Proxy)
	if err != nil {
		return hub.Repository{}, err
	}
	added := false // to those that are registered
	err = t.tx.QueryRow(ctx, upsertRepository, pgx.StrictNamedArgs{
		"tenant": t.id, "id": r.ID, "url": r.URL, "type": r.Type, "name": r.Name, "project": r.Project, "username": r.Username,
		"insecure": r.Insecure, "plain": r.PlainHTTP, "proxy": shown, "no_proxy": r.NoProxy, "lfs": r.LFS, "depth": r.Depth, "registered": r.Registered, "now": micro(time.Now()),
	}).Scan(&r.ID, &added)
	if added {
		t.grows(hub.QuotaRepositories)
	}
	if err != nil {
		return hub.Repository{}, fmt.Errorf("write repository %q: %w", r.URL, err)
	}
	if c, err = t.withProxy(ctx, selectOwnCredential, r.ID, c, r.Proxy); err != nil {
		return hub.Repository{}, err
	}
	if c != nil {
		if err := t.putCredential(ctx, updateCredential, r.ID, *c); err != nil {
			return hub.Repository{}, err
		}
	}
	if r.Project != "" {
		if err := t.takeSources(ctx, r); err != nil {
			return hub.Repository{}, err
		}
	}
	t.fetch(r.ID)
	t.changed(changeRepository, string(r.ID))
	return t.Repository(ctx, r.ID)
}

// withProxy returns the credential to store, or nil if what is stored stays. Of
// a proxy only one with a user name is part of it. A proxy that is given without
// its password keeps the one that is stored for this proxy, and for no other.
func (t *Tenant) withProxy(ctx context.Context, statement string, row hub.RepositoryID, c *hub.Credential, proxy string) (*hub.Credential, error) {
	var sealed []byte
	if err := t.tx.QueryRow(ctx, statement, t.id, row).Scan(&sealed); err != nil {
		return nil, fmt.Errorf("read the stored credential: %w", err)
	}
	old, err := t.unsealed(ctx, row, sealed)
	if err != nil && c == nil {
		return nil, err
	}
	shown, err := hub.ReadProxy(proxy)
	if err != nil {
		return nil, err
	}
	before, err := hub.ReadProxy(old.Proxy)
	switch {
	case strings.Contains(proxy, "@"):
	case err == nil && shown != "" && before == shown:
		proxy = old.Proxy
	default:
		proxy = ""
	}
	if c == nil && old.Proxy == proxy {
		return nil, nil
	}
	if c == nil {
		c = &old
	}
	out := *c
	out.Proxy, out.NoProxy = proxy, ""
	return &out, nil
}

// putCredential seals a credential into its row, or removes it when empty.
func (t *Tenant) putCredential(ctx context.Context, statement string, row hub.RepositoryID, c hub.Credential) error {
	var sealed []byte
	if c != (hub.Credential{}) {
		plain, err := json.Marshal(c) //nolint:gosec // it is sealed before it is stored
		if err != nil {
			return fmt.Errorf("encode credential: %w", err)
		}
		if sealed, err = t.sealCredential(ctx, row, plain); err != nil {
			return fmt.Errorf("seal credential: %w", err)
		}
	}
	_, err := exec(ctx, t.tx, "store credential", statement, t.id, row, sealed)
	return err
}

// PutCredential replaces the credential of a repository; an empty one removes it.
func (t *Tenant) PutCredential(ctx context.Context, id hub.RepositoryID, c hub.Credential) error {
	r, err := t.Repository(ctx, id)
	if err != nil {
		return err
	}
	_, err = t.PutRepository(ctx, r, &c)
	return err
}

// Credential returns what opens a repository: its own credential, else that of
// the template with the longest matching URL prefix, else an empty one.
func (t *Tenant) Credential(ctx context.Context, id hub.RepositoryID) (hub.Credential, error) {
	if !hub.ValidID(string(id)) {
		return hub.Credential{}, noRepository()
	}
	var own, url, proxy, noProxy string
	var sealed []byte
	err := t.tx.QueryRow(ctx, selectCredential, t.id, id).Scan(&own, &sealed, &url, &proxy, &noProxy)
	if err != nil {
		return hub.Credential{}, missing(err, "there is no such repository")
	}
	c, err := t.unsealed(ctx, id, sealed)
	if err != nil {
		return hub.Credential{}, err
	}
	c.Proxy, c.NoProxy = cmp.Or(c.Proxy, proxy), noProxy
	return completed(c, own, url, func() (hub.Credential, error) { return t.TemplateCredential(ctx, url) })
}

// completed returns what opens a repository that has a credential and a user
// name of its own, or neither.
func completed(c hub.Credential, own, url string, templateOf func() (hub.Credential, error)) (hub.Credential, error) {
	username := ""
	// The user name of an SSH address belongs to the address, and does not
	// mean that there is a credential.
	if c.Empty() && (own == "" || repourl.IsSSH(url)) {
		template, err := templateOf()
		if err != nil {
			return hub.Credential{}, err
		}
		if c.Proxy != "" {
			template.Proxy, template.NoProxy = c.Proxy, c.NoProxy
		}
		username, c = template.Username, template
	}
	c.Username = cmp.Or(c.Username, own, username)
	if own != "" && repourl.IsSSH(url) {
		c.Username = own
	}
	return c, nil
}

// TemplateCredential returns the credential of the template with the longest matching
// URL prefix; none is an empty one.
func (t *Tenant) TemplateCredential(ctx context.Context, url string) (hub.Credential, error) {
	var id hub.RepositoryID
	var username, proxy, noProxy string
	var sealed []byte
	err := missing(t.tx.QueryRow(ctx, selectTemplateFor, t.id, url).Scan(&id, &username, &sealed, &proxy, &noProxy), "no template")
	if fault.KindOf(err) == fault.Missing {
		return hub.Credential{}, nil
	}
	if err != nil {
		return hub.Credential{}, fmt.Errorf("find a credential template: %w", err)
	}
	c, err := t.unsealed(ctx, id, sealed)
	c.Username = cmp.Or(c.Username, username)
	c.Proxy, c.NoProxy = cmp.Or(c.Proxy, proxy), noProxy
	return c, err
}

// AccessTo returns what opens the repository with a normalised URL for
// applications of a project, and whether its server's certificate is to be
// verified. An address that is not registered gets the credential of a
// template, or none.
func (t *Tenant) AccessTo(ctx context.Context, url, project string) (c hub.Credential, insecure bool, err error) {
	r, err := t.RepositoryFor(ctx, url, project)
	if err == nil {
		c, err = t.Credential(ctx, r.ID)
		return c, r.Insecure, err
	}
	if fault.KindOf(err) != fault.Missing {
		return c, false, err
	}
	c, err = t.TemplateCredential(ctx, url)
	return c, false, err
}

// unsealed reads the sealed credential of a row; none is an empty one.
func (t *Tenant) unsealed(ctx context.Context, id hub.RepositoryID, sealed []byte) (c hub.Credential, err error) {
	if sealed == nil {
		return c, nil
	}
	plain, err := t.openCredential(ctx, id, sealed)
	if err != nil {
		return c, fmt.Errorf("open credential of %q: %w", id, err)
	}
	if err := json.Unmarshal(plain, &c); err != nil {
		return c, fault.New(fault.Internal, "the credential of %q is not readable", id)
	}
	return c, nil
}

// DeleteRepository deletes a repository with its credential. One that
// applications name stays known, unregistered; where it was a project's, they
// use the one without a project from then on.
func (t *Tenant) DeleteRepository(ctx context.Context, id hub.RepositoryID) error {
	r, err := t.Repository(ctx, id)
	if err != nil {
		return err
	}
	if r.Project != "" {
		if err := t.giveSources(ctx, r); err != nil {
			return err
		}
	}
	n, err := exec(ctx, t.tx, "delete repository", deleteRepository, t.id, id)
	if err != nil {
		return err
	}
	if n > 0 {
		t.removed(changeRepository, string(id))
		return nil
	}
	if n, err = exec(ctx, t.tx, "unregister repository", unregisterRepository, t.id, id); err != nil {
		return err
	}
	if n == 0 {
		return noRepository()
	}
	t.fetch(id)
	t.changed(changeRepository, string(id))
	return nil
}

// Fetch has a repository fetched now.
func (t *Tenant) Fetch(ctx context.Context, id hub.RepositoryID) error {
	if !hub.ValidID(string(id)) {
		return noRepository()
	}
	var found string
	if err := t.tx.QueryRow(ctx, selectFetchDates, t.id, id).Scan(&found); err != nil {
		return missing(err, "there is no such repository")
	}
	t.fetch(id)
	return nil
}

// FetchFor is Fetch for a caller that waits: after the fetch, the applications
// that use the repository are refreshed, whatever it found.
func (t *Tenant) FetchFor(ctx context.Context, id hub.RepositoryID) error {
	if err := t.Fetch(ctx, id); err != nil {
		return err
	}
	t.enqueue(hub.WorkFetch, string(id), time.Now(), true)
	return nil
}

func (t *Tenant) fetch(id hub.RepositoryID) { t.enqueue(hub.WorkFetch, string(id), time.Now(), false) }

// queueRepositories makes URLs known that applications of a project name, and
// has new ones fetched. Those that the project has a repository of its own for
// are known.
func (t *Tenant) queueRepositories(b *pgx.Batch, project string, named []namedRepository) {
	fresh, urls, types := make([]string, len(named)), make([]string, len(named)), make([]string, len(named))
	for i, n := range named {
		fresh[i], urls[i], types[i] = string(hub.NewID[hub.RepositoryID]()), n.url, string(n.kind.OrDefault())
	}
	b.Queue(noteRepositories, pgx.StrictNamedArgs{
		"tenant": t.id, "ids": fresh, "urls": urls, "types": types, "now": micro(time.Now()), "own_urls": repoKeys(urls, project),
	}).Query(func(rows pgx.Rows) error {
		made, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, id := range made {
			t.fetch(hub.RepositoryID(id))
			t.changed(changeRepository, id)
		}
		return err
	})
}

// PutRepositoryTemplate stores a credential for all repositories under a URL
// prefix, and has those fetched. A credential of nil leaves the stored one.
func (t *Tenant) PutRepositoryTemplate(ctx context.Context, r hub.RepositoryTemplate, c *hub.Credential) (hub.RepositoryTemplate, error) {
	if r.URL == "" {
		return hub.RepositoryTemplate{}, fault.New(fault.Invalid, "a credential template needs a URL prefix")
	}
	if r.ID == "" {
		r.ID = hub.NewID[hub.RepositoryID]()
	}
	r.Type = r.Type.OrDefault()
	if c != nil && r.Username == "" {
		r.Username = c.Username
	}
	shown, err := hub.ReadProxy(r.Proxy)
	if err != nil {
		return hub.RepositoryTemplate{}, err
	}
	err = t.tx.QueryRow(ctx, upsertTemplate, pgx.StrictNamedArgs{
		"tenant": t.id, "id": r.ID, "url": r.URL, "type": r.Type, "name": r.Name, "username": r.Username, "proxy": shown, "no_proxy": r.NoProxy, "now": micro(time.Now()),
	}).Scan(&r.ID, &r.CreatedAt)
	if err != nil {
		return hub.RepositoryTemplate{}, fmt.Errorf("write credential template %q: %w", r.URL, err)
	}
	if c, err = t.withProxy(ctx, selectTemplateCredential, r.ID, c, r.Proxy); err != nil {
		return hub.RepositoryTemplate{}, err
	}
	r.Proxy = shown
	if c != nil {
		if err := t.putCredential(ctx, updateTemplateCredential, r.ID, *c); err != nil {
			return hub.RepositoryTemplate{}, err
		}
	}
	return r, t.fetchBelow(ctx, r.URL)
}

// fetchBelow has the repositories fetched that a template speaks of.
func (t *Tenant) fetchBelow(ctx context.Context, prefix string) error {
	below, err := list(ctx, t.tx, "repositories", pgx.RowTo[string], selectBelowURL, t.id, prefix)
	for _, id := range below {
		t.fetch(hub.RepositoryID(id))
	}
	return err
}

// RepositoryTemplates returns all credential templates in order of URL.
func (t *Tenant) RepositoryTemplates(ctx context.Context) ([]hub.RepositoryTemplate, error) {
	return list(ctx, t.tx, "credential templates", pgx.RowToStructByName[hub.RepositoryTemplate], selectTemplates, t.id)
}

// DeleteRepositoryTemplate deletes a credential template.
func (t *Tenant) DeleteRepositoryTemplate(ctx context.Context, id hub.RepositoryID) error {
	const none = "there is no such credential template"
	if !hub.ValidID(string(id)) {
		return fault.New(fault.Missing, none)
	}
	var url string
	if err := t.tx.QueryRow(ctx, deleteTemplate, t.id, id).Scan(&url); err != nil {
		return missing(err, none)
	}
	return t.fetchBelow(ctx, url)
}
