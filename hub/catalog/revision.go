package catalog

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Refs returns the branches and tags of a repository as of its last fetch. The
// error is fault.Missing for a repository that the caller may not see.
func (c *Catalog) Refs(ctx context.Context, by hub.Caller, id hub.RepositoryID) ([]hub.Ref, error) {
	var refs []hub.Ref
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		repo, err := r.Tx.Repository(ctx, id)
		if err == nil && !r.seesRepo(repo.Project, repo.URL) {
			err = transact.Missing(access.Repositories, string(id))
		}
		if err != nil {
			return transact.Hide(err, access.Repositories, validation.Shorten(string(id)))
		}
		refs, err = r.Tx.Refs(ctx, id)
		return err
	})
	return refs, err
}

// A Revision is what is known of a revision of an application's source.
type Revision struct {
	Revision string
	Commit   hub.CommitInfo // empty where it is not known
	Source   hub.Source     // that the revision is of
}

// Revision returns what is known of a revision that an application has rendered
// or applied. The error is fault.Missing for any other one.
func (c *Catalog) Revision(ctx context.Context, by hub.Caller, namespace, name, revision string) (Revision, error) {
	var out Revision
	err := c.ofApplication(ctx, by, namespace, name, func(ctx context.Context, r *reader, a hub.Application) error {
		now, here, err := r.rendered(ctx, a, revision)
		if err != nil {
			return err
		}
		if out = now; here && now.Source.RepoURL != "" {
			return nil
		}
		// The spec may have other sources than the snapshot was rendered from.
		before, there, err := r.applied(ctx, a, revision)
		if there {
			out = before
		}
		if err != nil || here || there {
			return err
		}
		return fault.With(fault.New(fault.Missing, "it never had the revision %s", validation.Shorten(revision)), "application "+title(namespace, name),
			"name a revision of its status or of its history")
	})
	return out, err
}

// rendered finds a revision among the snapshots that an application has now.
func (r *reader) rendered(ctx context.Context, a hub.Application, revision string) (Revision, bool, error) {
	spec, err := hub.DecodeSpec(a.Spec)
	if err != nil {
		return Revision{}, false, err
	}
	for _, id := range []hub.SnapshotID{a.Status.Target, a.Status.Accepted} {
		if id == "" {
			continue
		}
		s, err := r.Snapshot(ctx, id)
		if err != nil {
			return Revision{}, false, err
		}
		if out, found := revisionOf(revision, s.Revision, s.Revisions, s.Commit, spec.EffectiveSources()); found {
			return out, true, nil
		}
	}
	return Revision{}, false, nil
}

// mostHistory bounds how far back a revision is looked for.
const mostHistory = 500

// applied finds a revision in the history of an application.
func (r *reader) applied(ctx context.Context, a hub.Application, revision string) (Revision, bool, error) {
	entries, err := r.historyPage(ctx, a, 0, mostHistory)
	if err != nil {
		return Revision{}, false, err
	}
	for _, e := range entries {
		if out, found := revisionOf(revision, e.Revision, e.Revisions, e.Commit, sourcesOf(e.Source)); found {
			return out, true, nil
		}
	}
	return Revision{}, false, nil
}

// sourcesOf reads the sources of an entry of the history.
func sourcesOf(text json.RawMessage) []hub.Source {
	var several []hub.Source
	var one hub.Source
	switch {
	case json.Unmarshal(text, &several) == nil:
		return several
	case json.Unmarshal(text, &one) == nil:
		return []hub.Source{one}
	}
	return nil
}

// revisionOf is a revision among those of one result. The commit is that of the
// first revision.
func revisionOf(asked, first string, all []string, commit hub.CommitInfo, sources []hub.Source) (Revision, bool) {
	at := slices.Index(all, asked)
	if at < 0 && asked != first {
		return Revision{}, false
	}
	out := Revision{Revision: asked}
	if asked == first {
		out.Commit = commit
	}
	if at = max(at, 0); at < len(sources) {
		out.Source = sources[at]
	}
	return out, true
}

// ClientSettings returns the settings of the caller's tenant that every client
// may know, by map and key; secrets are none of them.
func (c *Catalog) ClientSettings(ctx context.Context, by hub.Caller) (map[string]map[string]string, error) {
	out := map[string]map[string]string{}
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		all, _, err := r.Tx.Settings(ctx)
		for _, s := range all {
			if s.Secret {
				continue
			}
			if out[s.Map] == nil {
				out[s.Map] = map[string]string{}
			}
			out[s.Map][s.Key] = s.Value
		}
		return err
	})
	return out, err
}
