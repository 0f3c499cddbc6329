package api

import (
	"context"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// ListPauses answers the pauses of automation that concern the caller.
func (s *Server) ListPauses(ctx context.Context, _ gen.ListPausesRequestObject) (gen.ListPausesResponseObject, error) {
	all, err := s.Catalog.Pauses(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	return gen.ListPauses200JSONResponse{Items: collect(all, presentPause)}, nil
}

// BeginPause holds automation for a time.
func (s *Server) BeginPause(ctx context.Context, r gen.BeginPauseRequestObject) (gen.BeginPauseResponseObject, error) {
	length, err := validation.ParseDuration(r.Body.For)
	if err != nil {
		return nil, err
	}
	pause, err := s.Catalog.PauseAutomation(ctx, callerOf(ctx), r.Body.Cluster, r.Body.Reason, length)
	if err != nil {
		return nil, err
	}
	return gen.BeginPause201JSONResponse(presentPause(pause)), nil
}

// EndPause ends a pause.
func (s *Server) EndPause(ctx context.Context, r gen.EndPauseRequestObject) (gen.EndPauseResponseObject, error) {
	if err := s.Catalog.ResumeAutomation(ctx, callerOf(ctx), r.Params.Cluster); err != nil {
		return nil, err
	}
	return gen.EndPause204Response{}, nil
}

func presentPause(p hub.AutomationPause) apimodel.AutomationPause {
	return apimodel.AutomationPause{Cluster: p.Cluster, Reason: p.Reason, By: p.By, Since: p.Since.UTC(), Until: p.Until.UTC()}
}

// AskWhoCan answers who may do something.
func (s *Server) AskWhoCan(ctx context.Context, r gen.AskWhoCanRequestObject) (gen.AskWhoCanResponseObject, error) {
	got, err := s.Catalog.WhoCan(ctx, callerOf(ctx), catalog.RightQuestion{Resource: r.Body.Resource, Action: r.Body.Action, Object: r.Body.Object})
	if err != nil {
		return nil, err
	}
	return gen.AskWhoCan200JSONResponse{Items: collect(got.Holders, presentHolder), Objects: got.Objects, More: got.More}, nil
}

func presentHolder(h catalog.Holder) apimodel.WhoCanItem {
	out := apimodel.WhoCanItem{Subject: h.Subject, Kind: apimodel.UserOrGroup, Count: h.Count, Examples: texts(h.Examples)}
	switch {
	case h.Subject == "":
		out.Kind = apimodel.Everybody
	case h.Account:
		out.Kind = apimodel.Account
	case strings.HasPrefix(h.Subject, "role:"), strings.HasPrefix(h.Subject, "proj:"):
		out.Kind = apimodel.Role
	}
	if h.Rule != nil {
		out.Rule, out.Source, out.Line = h.Rule.String(), h.Rule.Source, h.Rule.Line
	}
	return out
}
