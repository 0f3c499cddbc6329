package clients

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Sources looks into repositories for forms that people fill in.
type Sources interface {
	// Plugins are those that applications of a tenant may use.
	Plugins(tenant hub.TenantID) []hub.DeclaredPlugin
	// Apps finds the sources in a repository, and says at which commit.
	Apps(ctx context.Context, view hub.SourceView) (commit string, found []hub.FoundSource, err error)
	// Details describes the source of a view.
	Details(ctx context.Context, view hub.SourceView) (hub.SourceDetails, error)
	// Info returns what is known of the revision of a view.
	Info(ctx context.Context, view hub.SourceView) (hub.CommitInfo, error)
	// List returns the charts or tags that a repository publishes.
	List(ctx context.Context, view hub.SourceView) (hub.Listing, error)
}

// ListPlugins answers the plugins of the tenant.
func (a *Answers) ListPlugins(ctx context.Context, _ gen.ListPluginsRequestObject) (gen.ListPluginsResponseObject, error) {
	out := gen.ListPlugins200JSONResponse{Items: []apimodel.ConfigPlugin{}}
	if a.sources == nil {
		return out, nil
	}
	for _, p := range a.sources.Plugins(a.caller(ctx).Tenant) {
		one := apimodel.ConfigPlugin{Name: p.Name, Discovers: p.Discovers}
		if err := convert(p.Parameters, &one.Parameters); err != nil {
			return nil, err
		}
		out.Items = append(out.Items, one)
	}
	return out, nil
}

// ListRepositoryApps answers the sources in a repository.
func (a *Answers) ListRepositoryApps(ctx context.Context, r gen.ListRepositoryAppsRequestObject) (gen.ListRepositoryAppsResponseObject, error) {
	view, err := a.view(ctx, r.Id, r.Params.Revision)
	if err != nil {
		return nil, err
	}
	view.Chart = r.Params.Chart
	commit, found, err := a.sources.Apps(ctx, view)
	if err != nil {
		return nil, err
	}
	out := gen.ListRepositoryApps200JSONResponse{Commit: commit, Items: []apimodel.RepositoryApp{}}
	for _, f := range found {
		out.Items = append(out.Items, apimodel.RepositoryApp{Path: f.Path, Chart: f.Chart, Type: apimodel.RepositoryAppType(f.Type)})
	}
	return out, nil
}

// GetAppDetails answers what a directory of a repository is.
func (a *Answers) GetAppDetails(ctx context.Context, r gen.GetAppDetailsRequestObject) (gen.GetAppDetailsResponseObject, error) {
	view, err := a.view(ctx, r.Id, r.Params.Revision)
	if err != nil {
		return nil, err
	}
	view.Path, view.Chart, view.Plugin, view.Application = r.Params.Path, r.Params.Chart, r.Params.Plugin, r.Params.Application
	if view.Path == "" && view.Chart == "" {
		view.Path = "."
	}
	details, err := a.sources.Details(ctx, view)
	if err != nil {
		return nil, err
	}
	var out apimodel.AppDetails
	if err := convert(details, &out); err != nil {
		return nil, err
	}
	return gen.GetAppDetails200JSONResponse(out), nil
}

// ListOCITags answers the tags of a registry.
func (a *Answers) ListOCITags(ctx context.Context, r gen.ListOCITagsRequestObject) (gen.ListOCITagsResponseObject, error) {
	view, err := a.view(ctx, r.Id, "")
	if err != nil {
		return nil, err
	}
	if !view.Repository.Registry() {
		return nil, fault.With(fault.New(fault.Invalid, "it is no repository of an OCI registry"), "repository "+view.Repository.URL, "list its refs, or its charts")
	}
	view.Chart = r.Params.Chart
	l, err := a.sources.List(ctx, view)
	if err != nil {
		return nil, err
	}
	return gen.ListOCITags200JSONResponse{Tags: append([]string{}, l.Tags...)}, nil
}

// ListHelmCharts answers the charts of an index.
func (a *Answers) ListHelmCharts(ctx context.Context, r gen.ListHelmChartsRequestObject) (gen.ListHelmChartsResponseObject, error) {
	view, err := a.view(ctx, r.Id, "")
	if err != nil {
		return nil, err
	}
	if view.Repository.Registry() || view.Repository.Type != hub.HelmRepository {
		return nil, fault.With(fault.New(fault.Invalid, "it is no chart repository with an index"), "repository "+view.Repository.URL, "list the tags of a registry, or the applications of a Git repository")
	}
	l, err := a.sources.List(ctx, view)
	if err != nil {
		return nil, err
	}
	out := gen.ListHelmCharts200JSONResponse{Items: []apimodel.PublishedChart{}}
	for _, c := range l.Charts {
		out.Items = append(out.Items, apimodel.PublishedChart{Name: c.Name, Versions: append([]string{}, c.Versions...)})
	}
	return out, nil
}

// view reads what the caller may see of a repository.
func (a *Answers) view(ctx context.Context, id, revision string) (hub.SourceView, error) {
	view, err := a.catalog.SourceView(ctx, a.caller(ctx), hub.RepositoryID(id))
	if err == nil && a.sources == nil {
		err = errNoSources()
	}
	view.Revision = revision
	return view, err
}

// convert copies a value into the model of the API, which has the same form.
func convert(from, into any) error {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("present: %w", err)
	}
	return nil
}
