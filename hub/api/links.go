package api

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/deeplink"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// GetProjectLinks answers the links of a project.
func (s *Server) GetProjectLinks(ctx context.Context, r gen.GetProjectLinksRequestObject) (gen.GetProjectLinksResponseObject, error) {
	of, err := s.Catalog.ProjectLinks(ctx, callerOf(ctx), r.Name)
	if err != nil {
		return nil, err
	}
	answer, err := linksAnswer(of.Declared, of, nil)
	return gen.GetProjectLinks200JSONResponse{DeepLinksAnswerJSONResponse: answer}, err
}

// GetApplicationLinks answers the links of an application.
func (s *Server) GetApplicationLinks(ctx context.Context, r gen.GetApplicationLinksRequestObject) (gen.GetApplicationLinksResponseObject, error) {
	of, err := s.Catalog.ApplicationLinks(ctx, callerOf(ctx), r.Namespace, r.Name, nil)
	if err != nil {
		return nil, err
	}
	answer, err := linksAnswer(of.Declared, of, nil)
	return gen.GetApplicationLinks200JSONResponse{DeepLinksAnswerJSONResponse: answer}, err
}

// GetResourceLinks answers the links of a live object, which its agent is asked
// for only if there are some.
func (s *Server) GetResourceLinks(ctx context.Context, r gen.GetResourceLinksRequestObject) (gen.GetResourceLinksResponseObject, error) {
	p := r.Params
	ref := hub.ObjectRef{Group: p.Group, Version: p.Version, Kind: p.Kind, Namespace: p.ResourceNamespace, Name: p.ResourceName}
	of, err := s.Catalog.ApplicationLinks(ctx, callerOf(ctx), r.Namespace, r.Name, &ref)
	if err != nil {
		return nil, err
	}
	var live json.RawMessage
	if of.Declared != "" && of.On != nil {
		if live, err = s.Relay.Get(ctx, *of.On, of.ID, ref); err != nil {
			return nil, err
		}
	}
	answer, err := linksAnswer(of.Declared, of, live)
	return gen.GetResourceLinks200JSONResponse{DeepLinksAnswerJSONResponse: answer}, err
}

// linksAnswer evaluates links over what they may read.
func linksAnswer(declared string, of catalog.Linked, live json.RawMessage) (gen.DeepLinksAnswerJSONResponse, error) {
	answer := gen.DeepLinksAnswerJSONResponse{Items: []apimodel.DeepLink{}}
	all, err := deeplink.Read(declared)
	if err != nil || len(all) == 0 {
		return answer, err
	}
	data, err := linkData(of, live)
	if err != nil {
		return answer, err
	}
	links, problems := deeplink.Evaluate(all, data)
	answer.Items = collect(links, func(l deeplink.Link) apimodel.DeepLink {
		return apimodel.DeepLink{Title: l.Title, Url: l.URL, Description: l.Description, IconClass: l.IconClass}
	})
	answer.Problems = problems
	return answer, nil
}

// linkData is what templates and conditions of links may read, by Argo CD's names.
func linkData(of catalog.Linked, live json.RawMessage) (map[string]any, error) {
	data := map[string]any{}
	put := func(value any, names ...string) error {
		raw, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("write what links may read: %w", err)
		}
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			return fmt.Errorf("read what links may read: %w", err)
		}
		for _, name := range names {
			data[name] = v
		}
		return nil
	}
	if of.Project != nil {
		if err := put(presentProject(*of.Project), "project"); err != nil {
			return nil, err
		}
	}
	if of.ID != "" {
		if err := put(presentApplication(of.View, true), "app", "application"); err != nil {
			return nil, err
		}
	}
	if on := of.On; on != nil {
		cluster := map[string]any{"name": on.Name, "server": on.Server, "labels": on.ShownLabels(), "annotations": on.Annotations, "namespaces": on.Namespaces}
		if err := put(cluster, "cluster"); err != nil {
			return nil, err
		}
	}
	if live != nil {
		return data, put(live, "resource")
	}
	return data, nil
}
