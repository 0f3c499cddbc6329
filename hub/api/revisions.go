package api

import (
	"context"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// ListRefs answers the branches and tags of a repository.
func (s *Server) ListRefs(ctx context.Context, r gen.ListRefsRequestObject) (gen.ListRefsResponseObject, error) {
	refs, err := s.Catalog.Refs(ctx, callerOf(ctx), hub.RepositoryID(r.Id))
	if err != nil {
		return nil, err
	}
	out := gen.ListRefs200JSONResponse{Branches: []apimodel.Ref{}, Tags: []apimodel.Ref{}}
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

// GetRevision answers what is known of a revision of an application.
func (s *Server) GetRevision(ctx context.Context, r gen.GetRevisionRequestObject) (gen.GetRevisionResponseObject, error) {
	v, err := s.Catalog.Revision(ctx, callerOf(ctx), r.Namespace, r.Name, r.Revision)
	if err != nil {
		return nil, err
	}
	out := apimodel.Revision{Revision: v.Revision, Author: v.Commit.Author, Message: v.Commit.Message}
	if !v.Commit.At.IsZero() {
		out.Date = v.Commit.At.UTC()
	}
	if v.Source.Chart != "" {
		out.Chart = apimodel.RevisionChart{Name: v.Source.Chart, Version: v.Revision, Repository: v.Source.RepoURL}
	}
	return gen.GetRevision200JSONResponse(out), nil
}

// GetClientSettings answers the settings that every client may know.
func (s *Server) GetClientSettings(ctx context.Context, _ gen.GetClientSettingsRequestObject) (gen.GetClientSettingsResponseObject, error) {
	values, err := s.Catalog.ClientSettings(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	c := settings.ForClients(values)
	out := apimodel.ClientSettings{Url: c.URL, TrackingMethod: c.TrackingMethod, AppLabelKey: c.LabelKey}
	if out.Url == "" {
		out.Url = s.cfg.ExternalURL
	}
	out.Help.ChatUrl, out.Help.ChatText, out.Help.BinaryUrls = c.ChatURL, c.ChatText, c.Downloads
	if c.Banner.Content != "" {
		out.Banner.Content, out.Banner.Url, out.Banner.Permanent = c.Banner.Content, c.Banner.URL, c.Banner.Permanent
		out.Banner.Position = apimodel.ClientSettingsBannerPosition(c.Banner.Position)
	}
	// A shell and badges are not served.
	out.Features.Impersonation, out.Features.Replace = c.Impersonation, c.Replace
	return gen.GetClientSettings200JSONResponse(out), nil
}
