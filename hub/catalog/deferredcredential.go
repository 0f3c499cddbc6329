package catalog

import (
	"context"
	"net/url"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// DeferredCredentials lists the credentials for writing and for generators that
// the caller may see.
func (c *Catalog) DeferredCredentials(ctx context.Context, by hub.Caller) ([]hub.DeferredCredential, error) {
	var out []hub.DeferredCredential
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		out = nil
		if err := r.May(access.WriteRepositories, access.Get); err != nil {
			return err
		}
		all, err := r.Tx.DeferredCredentials(ctx)
		for _, d := range all {
			if r.Rights.Check(access.WriteRepositories, access.Get, d.Object()) {
				out = append(out, d)
			}
		}
		return err
	})
	return out, err
}

// DeleteDeferredCredential deletes one.
func (c *Catalog) DeleteDeferredCredential(ctx context.Context, by hub.Caller, id hub.RepositoryID) error {
	return c.write(ctx, by, func(ctx context.Context, w *writer) error {
		all, err := w.Tx.DeferredCredentials(ctx)
		if err != nil {
			return err
		}
		for _, d := range all {
			if d.ID != id {
				continue
			}
			if !w.Rights.Check(access.WriteRepositories, access.Get, d.Object()) {
				return w.Refuse(access.WriteRepositories, access.Delete, d.Object(), transact.Missing(access.WriteRepositories, string(id)))
			}
			if err := w.Need(access.WriteRepositories, access.Delete, d.Object()); err != nil {
				return err
			}
			w.Note(access.Delete, access.WriteRepositories, d.Object(), string(d.Kind), d, nil)
			return w.Tx.DeleteDeferredCredential(ctx, id)
		}
		return transact.Missing(access.WriteRepositories, validation.Shorten(string(id)))
	})
}

// applyDeferred stores a Secret for writing or for generators. With withheld
// values what is stored stays.
func (c *Catalog) applyDeferred(ctx context.Context, by hub.Caller, o *manifest.Object, kind hub.DeferredKind, v map[string]string, withheld, dryRun bool) (transact.Outcome, []string, error) {
	d := hub.DeferredCredential{Kind: kind, Values: v}
	if kind == hub.SCMCredential {
		d.Name = o.GetName()
	} else {
		address, err := repourl.Normalize(v["url"])
		if err != nil {
			return "", nil, err
		}
		d.URL, d.Project, d.Username = address, v["project"], v["username"]
		delete(v, "url")
		delete(v, "project")
	}
	if len(v) == 0 {
		return "", nil, fault.With(fault.New(fault.Invalid, "it holds no credential"), "", "write its values under stringData")
	}
	warnings, err := deferredWarnings(d)
	if err != nil {
		return "", nil, err
	}
	outcome := transact.Unchanged
	err = c.writeOr(ctx, by, dryRun, func(ctx context.Context, w *writer) error {
		all, err := w.Tx.DeferredCredentials(ctx)
		if err != nil {
			return err
		}
		action := access.Create
		for _, old := range all {
			if old.Kind == d.Kind && old.Name == d.Name && old.URL == d.URL && old.Project == d.Project {
				action = access.Update
			}
		}
		if err := w.Need(access.WriteRepositories, action, d.Object()); err != nil || withheld {
			return err
		}
		created, err := w.Tx.PutDeferredCredential(ctx, d)
		if outcome = transact.Configured; created {
			outcome = transact.Created
		}
		w.Note(action, access.WriteRepositories, d.Object(), string(kind), nil, d)
		if err == nil && kind == hub.SCMCredential {
			w.Due = append(w.Due, hub.WorkApplicationSet)
			err = w.WakeSets(ctx)
		}
		return err
	})
	return outcome, warnings, err
}

// deferredWarnings checks a Secret, and says what it is not used for. A url of a
// Secret for generators is the only address that its values are sent to.
func deferredWarnings(d hub.DeferredCredential) ([]string, error) {
	if d.Kind != hub.SCMCredential {
		return []string{"it is stored, and nothing uses it yet: this release does not write to repositories"}, nil
	}
	address, bound := d.Values["url"]
	u, err := url.Parse(address)
	switch {
	case bound && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil):
		return nil, fault.With(fault.New(fault.Invalid, "its url is no address of a Git host"), "", "write it like https://git.example.com, without a user name")
	case bound && u.Scheme == "http":
		return []string{"its values are sent without TLS, because its url begins with http:"}, nil
	}
	return nil, nil
}
