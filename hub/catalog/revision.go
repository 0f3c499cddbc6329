package catalog

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/repourl"
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

// SourceView returns what it takes to look into a repository. The error is
// fault.Missing for one that the caller may not see.
func (c *Catalog) SourceView(ctx context.Context, by hub.Caller, id hub.RepositoryID) (hub.SourceView, error) {
	var view hub.SourceView
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		repo, err := r.Tx.Repository(ctx, id)
		if err == nil && !r.seesRepo(repo.Project, repo.URL) {
			err = transact.Missing(access.Repositories, string(id))
		}
		if err != nil {
			return transact.Hide(err, access.Repositories, validation.Shorten(string(id)))
		}
		view, err = r.sourceView(ctx, by.Tenant, repo)
		return err
	})
	return view, err
}

func (r *reader) sourceView(ctx context.Context, tenant hub.TenantID, repo hub.Repository) (hub.SourceView, error) {
	view := hub.SourceView{Tenant: tenant, Repository: repo, Settings: map[string]string{}}
	var err error
	if view.Refs, err = r.Tx.Refs(ctx, repo.ID); err != nil {
		return view, err
	}
	all, _, err := r.Tx.Settings(ctx)
	for _, s := range all {
		if hub.Renders(s.Map, s.Key) {
			view.Settings[s.Key] = s.Value
		}
	}
	return view, err
}

// A Revision is what is known of a revision of an application's source.
type Revision struct {
	Revision string
	Commit   hub.CommitInfo // empty where it is not known
	Source   hub.Source     // that the revision is of
	Tags     []string       // of the commit, as of the last fetch
	// View opens the revision in its repository; nil: the repository is unknown.
	View *hub.SourceView
}

// A RevisionQuery asks for a revision of an application.
type RevisionQuery struct {
	Revision string
	Position int // of the source, from 1; 0: the first source with the revision
}

// Revision returns what is known of a revision that an application has rendered
// or applied. The error is fault.Missing for any other one.
func (c *Catalog) Revision(ctx context.Context, by hub.Caller, namespace, name string, asked RevisionQuery) (Revision, error) {
	var out Revision
	err := c.ofApplication(ctx, by, namespace, name, func(ctx context.Context, r *reader, a hub.Application) error {
		if err := r.revision(ctx, a, asked, &out); err != nil {
			return err
		}
		return r.locate(ctx, by.Tenant, a, &out)
	})
	return out, err
}

// locate finds the repository of a revision, and the tags of a commit.
func (r *reader) locate(ctx context.Context, tenant hub.TenantID, a hub.Application, v *Revision) error {
	spec, err := hub.DecodeSpec(a.Spec)
	if err != nil {
		return err
	}
	url, err := repourl.Normalize(v.Source.RepoURL)
	if err != nil {
		return nil //nolint:nilerr // a source of the history that is none any more
	}
	repo, err := r.Tx.RepositoryFor(ctx, url, spec.Project)
	if fault.KindOf(err) == fault.Missing {
		return nil
	}
	if err != nil {
		return err
	}
	view, err := r.sourceView(ctx, tenant, repo)
	if err != nil {
		return err
	}
	view.Chart, view.Revision = v.Source.Chart, v.Revision
	v.View = &view
	for _, ref := range view.Refs {
		if tag, is := strings.CutPrefix(ref.Name, "refs/tags/"); is && ref.Commit == v.Revision {
			v.Tags = append(v.Tags, tag)
		}
	}
	return nil
}

// revision finds a revision among what an application has rendered or applied.
func (r *reader) revision(ctx context.Context, a hub.Application, revision RevisionQuery, out *Revision) error {
	now, here, err := r.rendered(ctx, a, revision)
	if err != nil {
		return err
	}
	if *out = now; here && now.Source.RepoURL != "" {
		return nil
	}
	if !here {
		if now, here, err = r.compared(a, revision); err != nil {
			return err
		}
		if *out = now; here && now.Source.RepoURL != "" {
			return nil
		}
	}
	// The spec may have other sources than the snapshot was rendered from.
	before, there, err := r.applied(ctx, a, revision)
	if err == nil && !there && !here {
		before, there, err = r.replaced(ctx, a, revision)
	}
	if there {
		*out = before
	}
	if err != nil || here || there {
		return err
	}
	return fault.With(fault.New(fault.Missing, "it never had the revision %s", validation.Shorten(revision.Revision)), "application "+title(a.Namespace, a.Name),
		"name a revision of its status or of its history")
}

// rendered finds a revision among the snapshots that an application has now.
func (r *reader) rendered(ctx context.Context, a hub.Application, revision RevisionQuery) (Revision, bool, error) {
	return r.among(ctx, a, revision, a.Status.Target, a.Status.Accepted)
}

// replaced finds a revision that was rendered and replaced before it was applied,
// as long as its snapshot is kept.
func (r *reader) replaced(ctx context.Context, a hub.Application, revision RevisionQuery) (Revision, bool, error) {
	id, err := r.SnapshotOf(ctx, a.ID, revision.Revision)
	if err != nil {
		return Revision{}, false, err
	}
	return r.among(ctx, a, revision, id)
}

// among finds a revision among snapshots.
func (r *reader) among(ctx context.Context, a hub.Application, revision RevisionQuery, ids ...hub.SnapshotID) (Revision, bool, error) {
	spec, err := hub.DecodeSpec(a.Spec)
	if err != nil {
		return Revision{}, false, err
	}
	for _, id := range ids {
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

// compared finds a revision that an application was compared with without a new
// snapshot: it renders what an earlier one did. Its repository has the rest.
func (r *reader) compared(a hub.Application, revision RevisionQuery) (Revision, bool, error) {
	spec, err := hub.DecodeSpec(a.Spec)
	if err != nil {
		return Revision{}, false, err
	}
	out, found := revisionOf(revision, a.Status.Revision, a.Status.Revisions, hub.CommitInfo{}, spec.EffectiveSources())
	return out, found && revision.Revision != "", nil
}

// mostHistory bounds how far back a revision is looked for.
const mostHistory = 500

// applied finds a revision in the history of an application.
func (r *reader) applied(ctx context.Context, a hub.Application, revision RevisionQuery) (Revision, bool, error) {
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
func revisionOf(asked RevisionQuery, first string, all []string, commit hub.CommitInfo, sources []hub.Source) (Revision, bool) {
	if len(all) == 0 {
		all = []string{first}
	}
	at := slices.Index(all, asked.Revision)
	if asked.Position > 0 {
		at = asked.Position - 1
	}
	if at < 0 || at >= len(all) || all[at] != asked.Revision {
		return Revision{}, false
	}
	out := Revision{Revision: asked.Revision}
	if at == 0 {
		out.Commit = commit
	}
	if at < len(sources) {
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
