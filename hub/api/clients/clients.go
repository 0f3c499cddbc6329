// Package clients has the handlers of the API for what people read beside
// objects: revisions, refs, sync windows and the settings that every client may
// know. They parse, call and present. The API embeds them; rights belong to the
// catalogue.
package clients

import (
	"context"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// Answers handle requests. Many goroutines may use them.
type Answers struct {
	catalog  *catalog.Catalog
	external string
	caller   func(ctx context.Context) hub.Caller
	sources  Sources
}

// New makes them. The address is that of the hub for people; the function
// returns who is calling. Without sources nothing is known of what is in
// repositories.
func New(c *catalog.Catalog, external string, caller func(ctx context.Context) hub.Caller, sources Sources) *Answers {
	return &Answers{c, external, caller, sources}
}

// ListRefs answers the branches and tags of a repository.
func (a *Answers) ListRefs(ctx context.Context, r gen.ListRefsRequestObject) (gen.ListRefsResponseObject, error) {
	refs, err := a.catalog.Refs(ctx, a.caller(ctx), hub.RepositoryID(r.Id))
	if err != nil {
		return nil, err
	}
	out := gen.ListRefs200JSONResponse{Branches: []apimodel.Ref{}, Tags: []apimodel.Ref{}}
	if kind, err := a.published(ctx, r, &out); err != nil || kind != hub.GitRepository {
		return out, err
	}
	for _, ref := range refs {
		if name, is := strings.CutPrefix(ref.Name, "refs/heads/"); is {
			out.Branches = append(out.Branches, apimodel.Ref{Name: name, Commit: ref.Commit})
		}
		if name, is := strings.CutPrefix(ref.Name, "refs/tags/"); is {
			out.Tags = append(out.Tags, apimodel.Ref{Name: name, Commit: ref.Commit})
		}
	}
	return out, nil
}

// GetClientSettings answers the settings that every client may know.
func (a *Answers) GetClientSettings(ctx context.Context, _ gen.GetClientSettingsRequestObject) (gen.GetClientSettingsResponseObject, error) {
	values, err := a.catalog.ClientSettings(ctx, a.caller(ctx))
	if err != nil {
		return nil, err
	}
	c := settings.ForClients(values)
	out := apimodel.ClientSettings{Url: c.URL, TrackingMethod: c.TrackingMethod, AppLabelKey: c.LabelKey}
	if out.Url == "" {
		out.Url = a.external
	}
	out.Help.ChatUrl, out.Help.ChatText, out.Help.BinaryUrls = c.ChatURL, c.ChatText, c.Downloads
	if c.Banner.Content != "" {
		out.Banner.Content, out.Banner.Url, out.Banner.Permanent = c.Banner.Content, c.Banner.URL, c.Banner.Permanent
		out.Banner.Position = apimodel.ClientSettingsBannerPosition(c.Banner.Position)
	}
	out.Features.StatusBadge, out.BadgeUrl, out.StyleUrl, out.Features.Resources = c.Badges, c.BadgeURL, c.Style, !c.ResourcesOff
	out.Features.Impersonation, out.Features.Replace, out.Features.Exec = c.Impersonation, c.Replace, c.Exec
	return gen.GetClientSettings200JSONResponse(out), nil
}
