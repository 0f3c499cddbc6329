package api

import (
	"context"
	"maps"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog/tenancy"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// GetSettings answers the settings of the tenant.
func (s *Server) GetSettings(ctx context.Context, _ gen.GetSettingsRequestObject) (gen.GetSettingsResponseObject, error) {
	answer, err := s.settings(ctx)
	if err != nil {
		return nil, err
	}
	return gen.GetSettings200JSONResponse{SettingsAnswerJSONResponse: answer}, nil
}

// PatchSettings changes settings key by key.
func (s *Server) PatchSettings(ctx context.Context, r gen.PatchSettingsRequestObject) (gen.PatchSettingsResponseObject, error) {
	expect, err := expected(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	var changes []hub.SettingChange
	for _, name := range slices.Sorted(maps.Keys(r.Body.Values)) {
		keys := r.Body.Values[name]
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			changes = append(changes, hub.SettingChange{Map: name, Key: key, Value: keys[key]})
		}
	}
	patch, err := s.Catalog.PatchSettings(ctx, callerOf(ctx), changes, expect, r.Params.DryRun)
	if err != nil {
		return nil, err
	}
	answer, err := s.patched(ctx, patch)
	if err != nil {
		return nil, err
	}
	return gen.PatchSettings200JSONResponse{SettingsAnswerJSONResponse: answer}, nil
}

// patched answers the settings after a change.
func (s *Server) patched(ctx context.Context, patch tenancy.SettingsPatch) (gen.SettingsAnswerJSONResponse, error) {
	answer, err := s.settings(ctx)
	if fault.KindOf(err) == fault.Denied { // who may change settings need not see them
		answer.Headers.ETag, answer.Body = etag(patch.Version), apimodel.Settings{Version: patch.Version, Items: []apimodel.Setting{}, Known: []apimodel.KnownSetting{}}
		err = nil
	}
	answer.Body.Warnings = patch.Warnings
	return answer, err
}

func (s *Server) settings(ctx context.Context) (gen.SettingsAnswerJSONResponse, error) {
	all, version, err := s.Catalog.Settings(ctx, callerOf(ctx))
	if err != nil {
		return gen.SettingsAnswerJSONResponse{}, err
	}
	body := apimodel.Settings{Version: version, Items: collect(all, presentSetting), Known: collect(settings.Catalogue(), presentKnown)}
	return gen.SettingsAnswerJSONResponse{Body: body, Headers: gen.SettingsAnswerResponseHeaders{ETag: etag(version)}}, nil
}

func presentSetting(v hub.Setting) apimodel.Setting {
	out := apimodel.Setting{
		Map: v.Map, Key: v.Key, Secret: v.Secret, Used: settings.Unused(v.Map, v.Key) == "", UpdatedAt: v.UpdatedAt.UTC(), UpdatedBy: v.UpdatedBy,
	}
	if !v.Secret {
		out.Value = v.Value
	}
	return out
}

func presentKnown(k settings.Known) apimodel.KnownSetting {
	return apimodel.KnownSetting{Map: k.Map, Key: k.Key, About: k.About, Sample: k.Sample, Used: k.Used}
}
