package clients

import (
	"context"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// published adds the tags of a registry, or the versions of a chart, to the refs
// of a repository that is none of Git. It returns the repository's type.
func (a *Answers) published(ctx context.Context, r gen.ListRefsRequestObject, out *gen.ListRefs200JSONResponse) (hub.RepositoryKind, error) {
	view, err := a.catalog.SourceView(ctx, a.caller(ctx), hub.RepositoryID(r.Id))
	kind := view.Repository.Type.OrDefault()
	if err != nil || kind == hub.GitRepository {
		return kind, err
	}
	if a.sources == nil {
		return kind, errNoSources()
	}
	view.Chart = r.Params.Chart
	l, err := a.sources.List(ctx, view)
	if err != nil {
		return kind, err
	}
	names := l.Tags
	if !view.Repository.Registry() {
		if names, err = versionsOf(l, view.Chart); err != nil {
			return kind, err
		}
	}
	for _, name := range names {
		out.Tags = append(out.Tags, apimodel.Ref{Name: name})
	}
	return kind, nil
}

func versionsOf(l hub.Listing, chart string) ([]string, error) {
	if chart == "" {
		return nil, fault.With(fault.New(fault.Invalid, "it is a repository of charts, and none is named"), "", "name a chart, or list the charts")
	}
	for _, c := range l.Charts {
		if c.Name == chart {
			return c.Versions, nil
		}
	}
	return nil, fault.New(fault.Missing, "the index has no chart %q", chart)
}

func errNoSources() error {
	return fault.New(fault.Offline, "this hub does not look into repositories")
}

// GetRevision answers what is known of a revision of an application. What its
// repository does not serve any more is left out.
func (a *Answers) GetRevision(ctx context.Context, r gen.GetRevisionRequestObject) (gen.GetRevisionResponseObject, error) {
	v, err := a.revision(ctx, r.Namespace, r.Name, catalog.RevisionQuery{Revision: r.Revision, Position: r.Params.SourcePosition})
	if err != nil {
		return nil, err
	}
	if info, err := a.info(ctx, v); err == nil {
		v.Commit = info
	}
	out := apimodel.Revision{Revision: v.Revision, Author: v.Commit.Author, Message: v.Commit.Message, Tags: v.Tags, Signature: signature(v)}
	if !v.Commit.At.IsZero() {
		out.Date = v.Commit.At.UTC()
	}
	if v.Source.Chart != "" || v.Commit.Chart != nil {
		out.Chart = chartOf(v)
	}
	if v.Commit.Artifact != nil {
		out.Artifact = artifactOf(*v.Commit.Artifact)
	}
	return gen.GetRevision200JSONResponse(out), nil
}

// GetRevisionMetadata answers author, date, message, tags and signature of a
// commit.
func (a *Answers) GetRevisionMetadata(ctx context.Context, r gen.GetRevisionMetadataRequestObject) (gen.GetRevisionMetadataResponseObject, error) {
	v, err := a.details(ctx, r.Namespace, r.Name, catalog.RevisionQuery{Revision: r.Revision, Position: r.Params.SourcePosition})
	if err != nil {
		return nil, err
	}
	if v.Source.Kind() != hub.GitRepository {
		return nil, otherKind(v, "commit of a Git repository", "ask for its chartdetails or ocimetadata")
	}
	out := apimodel.RevisionMetadata{Revision: v.Revision, Author: v.Commit.Author, Message: v.Commit.Message, Tags: v.Tags, Signature: signature(v)}
	if !v.Commit.At.IsZero() {
		out.Date = v.Commit.At.UTC()
	}
	return gen.GetRevisionMetadata200JSONResponse(out), nil
}

// GetRevisionChart answers what the Chart.yaml of a chart says.
func (a *Answers) GetRevisionChart(ctx context.Context, r gen.GetRevisionChartRequestObject) (gen.GetRevisionChartResponseObject, error) {
	v, err := a.details(ctx, r.Namespace, r.Name, catalog.RevisionQuery{Revision: r.Revision, Position: r.Params.SourcePosition})
	if err != nil {
		return nil, err
	}
	if v.Commit.Chart == nil {
		return nil, otherKind(v, "chart", "ask for its metadata or ocimetadata")
	}
	return gen.GetRevisionChart200JSONResponse(chartOf(v)), nil
}

// GetRevisionArtifact answers the standard annotations of an OCI artifact.
func (a *Answers) GetRevisionArtifact(ctx context.Context, r gen.GetRevisionArtifactRequestObject) (gen.GetRevisionArtifactResponseObject, error) {
	v, err := a.details(ctx, r.Namespace, r.Name, catalog.RevisionQuery{Revision: r.Revision, Position: r.Params.SourcePosition})
	if err != nil {
		return nil, err
	}
	if v.Commit.Artifact == nil {
		return nil, otherKind(v, "artifact of an OCI repository", "ask for its metadata or chartdetails")
	}
	return gen.GetRevisionArtifact200JSONResponse(artifactOf(*v.Commit.Artifact)), nil
}

func (a *Answers) revision(ctx context.Context, namespace, name string, asked catalog.RevisionQuery) (catalog.Revision, error) {
	return a.catalog.Revision(ctx, a.caller(ctx), namespace, name, asked)
}

// details is a revision with all that its repository knows of it.
func (a *Answers) details(ctx context.Context, namespace, name string, asked catalog.RevisionQuery) (catalog.Revision, error) {
	v, err := a.revision(ctx, namespace, name, asked)
	if err == nil {
		v.Commit, err = a.info(ctx, v)
	}
	return v, err
}

// info is what was stored of a revision, or what its repository says. Only the
// commit of the first source is stored.
func (a *Answers) info(ctx context.Context, v catalog.Revision) (hub.CommitInfo, error) {
	stored := v.Commit
	known := stored.Author != "" || stored.Message != "" || !stored.At.IsZero() || stored.Chart != nil || stored.Artifact != nil
	switch {
	case known:
		return stored, nil
	case v.View == nil:
		return stored, fault.With(fault.New(fault.Missing, "the repository of the revision is not known any more"), v.Source.RepoURL, "")
	case a.sources == nil:
		return stored, errNoSources()
	}
	info, err := a.sources.Info(ctx, *v.View)
	info.Integrity = stored.Integrity
	return info, err
}

func otherKind(v catalog.Revision, want, fix string) error {
	return fault.With(fault.New(fault.Invalid, "it is no %s", want), "revision "+v.Revision, fix)
}

// signature says that a commit was verified as its project demands.
func signature(v catalog.Revision) string {
	if v.Commit.Integrity == "" {
		return ""
	}
	return "Verified"
}

func chartOf(v catalog.Revision) apimodel.RevisionChart {
	out := apimodel.RevisionChart{Name: v.Source.Chart, Version: v.Revision, Repository: v.Source.RepoURL}
	c := v.Commit.Chart
	if c == nil {
		return out
	}
	if out.Name == "" {
		out.Name = c.Name
	}
	if strings.HasPrefix(out.Version, "sha256:") {
		out.Version = c.Version
	}
	out.Description, out.Home, out.AppVersion, out.Maintainers = c.Description, c.Home, c.AppVersion, c.Maintainers
	return out
}

func artifactOf(i hub.ArtifactInfo) apimodel.RevisionArtifact {
	return apimodel.RevisionArtifact{
		Title: i.Title, Description: i.Description, Version: i.Version, Revision: i.Revision,
		Url: i.URL, Source: i.Source, Authors: i.Authors, Created: i.Created,
	}
}
