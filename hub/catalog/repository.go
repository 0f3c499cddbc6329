package catalog

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
)

// repoObject is what policies call a repository (RBAC-05).
func repoObject(project, url string) string {
	if project == "" {
		return url
	}
	return project + "/" + url
}

func (r *reader) seesRepo(project, url string) bool {
	return r.Rights.Check(access.Repositories, access.Get, repoObject(project, url))
}

// Repositories lists the repositories that the caller may see.
func (c *Catalog) Repositories(ctx context.Context, by hub.Caller) ([]hub.Repository, string, error) {
	var out []hub.Repository
	var cursor string
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		out = nil
		if err := r.May(access.Repositories, access.Get); err != nil {
			return err
		}
		var err error
		if cursor, err = r.cursor(ctx); err != nil {
			return err
		}
		all, err := r.Tx.Repositories(ctx)
		for _, repo := range all {
			if r.seesRepo(repo.Project, repo.URL) {
				out = append(out, repo)
			}
		}
		return err
	})
	return out, cursor, err
}

// Repository returns one repository.
func (c *Catalog) Repository(ctx context.Context, by hub.Caller, id hub.RepositoryID) (hub.Repository, error) {
	var repo hub.Repository
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		var err error
		repo, err = r.Tx.Repository(ctx, id)
		if err == nil && !r.seesRepo(repo.Project, repo.URL) {
			err = transact.Missing(access.Repositories, string(id))
		}
		return transact.Hide(err, access.Repositories, validation.Shorten(string(id)))
	})
	return repo, err
}

// PutRepository registers a repository, or changes the one with this URL and
// project. A nil credential keeps the stored one. It is fetched at once.
func (c *Catalog) PutRepository(ctx context.Context, by hub.Caller, r hub.Repository, cred *hub.Credential, dryRun bool) (hub.Repository, transact.Outcome, []string, error) {
	r, cred, warnings, err := completeRepository(r, cred)
	if err != nil {
		return r, "", nil, err
	}
	var stored hub.Repository
	var out transact.Outcome
	err = c.writeOr(ctx, by, dryRun, func(ctx context.Context, w *writer) error {
		var err error
		stored, out, err = w.putRepository(ctx, r, cred)
		w.Due = append(w.Due, hub.WorkFetch)
		return err
	})
	return stored, out, warnings, err
}

// completeRepository validates a repository with its credential.
func completeRepository(r hub.Repository, cred *hub.Credential) (hub.Repository, *hub.Credential, []string, error) {
	given := r.URL
	normalize := repourl.Normalize
	if r.Type == hub.HelmRepository {
		normalize = repourl.NormalizeCharts // of a registry it may be written without the scheme
	}
	url, err := normalize(given)
	if err != nil {
		return r, nil, nil, err
	}
	r.URL, r.Registered = url, true
	warnings, err := validation.CheckRepository(&r)
	if err == nil && repourl.IsSSH(url) && r.Username == "" {
		r.Username = repourl.SSHUser(given)
	}
	if err == nil {
		cred, err = validation.CheckCredential(url, cred)
	}
	return r, cred, warnings, fault.With(err, "repository "+url, "")
}

// PrepareRepository returns a repository and what opens it, for somebody who may
// register it. Nothing is stored. Without a credential it is that of a template,
// never the stored one: what it is sent to was given by the caller.
func (c *Catalog) PrepareRepository(ctx context.Context, by hub.Caller, r hub.Repository, cred *hub.Credential) (hub.Repository, hub.Credential, []string, error) {
	r, cred, warnings, err := completeRepository(r, cred)
	if err != nil {
		return r, hub.Credential{}, nil, err
	}
	var opens hub.Credential
	err = c.writeOr(ctx, by, true, func(ctx context.Context, w *writer) error {
		if err := w.Need(access.Repositories, access.Create, repoObject(r.Project, r.URL)); err != nil {
			return err
		}
		if cred != nil {
			opens = *cred
			return nil
		}
		var err error
		opens, err = w.Tx.TemplateCredential(ctx, r.URL)
		return err
	})
	if r.Proxy != "" {
		opens.Proxy, opens.NoProxy = r.Proxy, r.NoProxy
	}
	if opens.Username == "" || repourl.IsSSH(r.URL) && r.Username != "" {
		opens.Username = r.Username
	}
	return r, opens, warnings, err
}

func (w *writer) putRepository(ctx context.Context, r hub.Repository, cred *hub.Credential) (hub.Repository, transact.Outcome, error) {
	old, err := w.RepositoryByURL(ctx, repourl.Key(r.URL, r.Project))
	there := err == nil && old.Registered
	if err != nil && fault.KindOf(err) != fault.Missing {
		return r, "", err
	}
	action, outcome := access.Create, transact.Created
	if there {
		action, outcome = access.Update, transact.Configured
		if !w.seesRepo(old.Project, old.URL) {
			return r, "", w.Refuse(access.Repositories, access.Create, r.URL,
				transact.Denied(access.Rule{Resource: access.Repositories, Action: access.Create, Object: repoObject(r.Project, r.URL)}))
		}
		if err := w.Need(access.Repositories, access.Update, repoObject(old.Project, old.URL)); err != nil {
			return r, "", err
		}
	}
	if err := w.Need(access.Repositories, action, repoObject(r.Project, r.URL)); err != nil {
		return r, "", err
	}
	if there && cred == nil && old.Type == r.Type && old.Name == r.Name && old.Project == r.Project && old.Insecure == r.Insecure && old.PlainHTTP == r.PlainHTTP && old.Username == r.Username && old.GitOptions == r.GitOptions {
		return old, transact.Unchanged, nil
	}
	if there {
		r.ID = old.ID
	}
	stored, err := w.Tx.PutRepository(ctx, r, cred)
	if err == nil {
		var before any
		if there {
			before = old
		}
		w.Note(action, access.Repositories, repoObject(r.Project, r.URL), validation.CredentialNote(cred), before, stored)
	}
	return stored, outcome, err
}

// DeleteRepository forgets a repository's registration and credential.
func (c *Catalog) DeleteRepository(ctx context.Context, by hub.Caller, id hub.RepositoryID) error {
	return c.write(ctx, by, func(ctx context.Context, w *writer) error {
		repo, err := w.repoForWrite(ctx, id, access.Delete)
		if err != nil {
			return err
		}
		w.Note(access.Delete, access.Repositories, repoObject(repo.Project, repo.URL), "", repo, nil)
		w.Due = append(w.Due, hub.WorkFetch)
		return w.Tx.DeleteRepository(ctx, id)
	})
}

// FetchRepository has a repository looked at now.
func (c *Catalog) FetchRepository(ctx context.Context, by hub.Caller, id hub.RepositoryID) error {
	return c.write(ctx, by, func(ctx context.Context, w *writer) error {
		repo, err := w.repoForWrite(ctx, id, access.Get)
		if err != nil {
			return err
		}
		w.Note("refresh", access.Repositories, repoObject(repo.Project, repo.URL), "", nil, nil)
		w.Due = append(w.Due, hub.WorkFetch)
		return w.Fetch(ctx, id)
	})
}

func (w *writer) repoForWrite(ctx context.Context, id hub.RepositoryID, action string) (hub.Repository, error) {
	repo, err := w.Tx.Repository(ctx, id)
	if err != nil {
		return repo, transact.Hide(err, access.Repositories, validation.Shorten(string(id)))
	}
	name := repoObject(repo.Project, repo.URL)
	if !w.seesRepo(repo.Project, repo.URL) {
		return repo, w.Refuse(access.Repositories, action, name, transact.Missing(access.Repositories, string(id)))
	}
	return repo, w.Need(access.Repositories, action, name)
}

// RepositoryTemplates lists the credential templates that the caller may see.
func (c *Catalog) RepositoryTemplates(ctx context.Context, by hub.Caller) ([]hub.RepositoryTemplate, error) {
	var out []hub.RepositoryTemplate
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		out = nil
		if err := r.May(access.Repositories, access.Get); err != nil {
			return err
		}
		all, err := r.Tx.RepositoryTemplates(ctx)
		for _, t := range all {
			if r.seesRepo("", t.URL) {
				out = append(out, t)
			}
		}
		return err
	})
	return out, err
}

// PutRepositoryTemplate makes or changes the credential template for a prefix
// of URLs.
func (c *Catalog) PutRepositoryTemplate(ctx context.Context, by hub.Caller, t hub.RepositoryTemplate, cred *hub.Credential, dryRun bool) (hub.RepositoryTemplate, transact.Outcome, error) {
	normalize := repourl.Normalize
	if t.Type == hub.HelmRepository {
		normalize = repourl.NormalizeCharts
	}
	url, err := normalize(t.URL)
	if err != nil {
		return t, "", err
	}
	t.URL, t.Type = url, t.Type.OrDefault()
	if err = validation.CheckGitOptions(hub.GitOptions{Proxy: t.Proxy, NoProxy: t.NoProxy}); err == nil {
		cred, err = validation.CheckCredential(url, cred)
	}
	if err != nil {
		return t, "", fault.With(err, "credential template "+url, "")
	}
	var stored hub.RepositoryTemplate
	var out transact.Outcome
	err = c.writeOr(ctx, by, dryRun, func(ctx context.Context, w *writer) error {
		all, err := w.Tx.RepositoryTemplates(ctx)
		if err != nil {
			return err
		}
		action := access.Create
		out = transact.Created
		for _, old := range all {
			if old.URL == url {
				action, out, t.ID = access.Update, transact.Configured, old.ID
			}
		}
		if err := w.Need(access.Repositories, action, url); err != nil {
			return err
		}
		noted := t
		noted.Proxy, _ = hub.ReadProxy(t.Proxy) // checked; it may hold a password
		w.Note(action, access.Repositories, url, "credential template", nil, noted)
		w.Due = append(w.Due, hub.WorkFetch)
		stored, err = w.Tx.PutRepositoryTemplate(ctx, t, cred)
		return err
	})
	return stored, out, err
}

// DeleteRepositoryTemplate deletes a credential template.
func (c *Catalog) DeleteRepositoryTemplate(ctx context.Context, by hub.Caller, id hub.RepositoryID) error {
	return c.write(ctx, by, func(ctx context.Context, w *writer) error {
		all, err := w.Tx.RepositoryTemplates(ctx)
		if err != nil {
			return err
		}
		for _, t := range all {
			if t.ID != id {
				continue
			}
			if !w.seesRepo("", t.URL) {
				return w.Refuse(access.Repositories, access.Delete, t.URL, transact.Missing(access.Repositories, string(id)))
			}
			if err := w.Need(access.Repositories, access.Delete, t.URL); err != nil {
				return err
			}
			w.Note(access.Delete, access.Repositories, t.URL, "credential template", t, nil)
			return w.Tx.DeleteRepositoryTemplate(ctx, id)
		}
		return transact.Missing(access.Repositories, validation.Shorten(string(id)))
	})
}
