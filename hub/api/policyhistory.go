package api

import (
	"context"
	"strconv"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog/tenancy"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// ListPolicyVersions answers what the access policy was after each change.
func (s *Server) ListPolicyVersions(ctx context.Context, r gen.ListPolicyVersionsRequestObject) (gen.ListPolicyVersionsResponseObject, error) {
	all, more, err := s.Catalog.PolicyHistory(ctx, callerOf(ctx), r.Params.Before, r.Params.Limit)
	if err != nil {
		return nil, err
	}
	return gen.ListPolicyVersions200JSONResponse{Items: collect(all, presentPolicyVersion), More: more}, nil
}

// GetPolicyVersion answers one version of the access policy.
func (s *Server) GetPolicyVersion(ctx context.Context, r gen.GetPolicyVersionRequestObject) (gen.GetPolicyVersionResponseObject, error) {
	number, err := versionNumber(r.Number)
	if err != nil {
		return nil, err
	}
	v, err := s.Catalog.PastPolicy(ctx, callerOf(ctx), number)
	if err != nil {
		return nil, err
	}
	change := func(c tenancy.PolicyChange) apimodel.PolicyKeyChange {
		return apimodel.PolicyKeyChange{Key: c.Key, Before: c.Before, After: c.After}
	}
	return gen.GetPolicyVersion200JSONResponse{
		Version: presentPolicyVersion(v.PolicyVersion), Values: v.Values, Changes: collect(v.Changes, change), Since: collect(v.Since, change),
	}, nil
}

// RevertPolicy makes the access policy what it was in a version.
func (s *Server) RevertPolicy(ctx context.Context, r gen.RevertPolicyRequestObject) (gen.RevertPolicyResponseObject, error) {
	number, err := versionNumber(r.Number)
	if err != nil {
		return nil, err
	}
	expect, err := expected(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	patch, err := s.Catalog.RevertPolicy(ctx, callerOf(ctx), number, expect, r.Params.DryRun)
	if err != nil {
		return nil, err
	}
	answer, err := s.patched(ctx, patch)
	if err != nil {
		return nil, err
	}
	return gen.RevertPolicy200JSONResponse{SettingsAnswerJSONResponse: answer}, nil
}

// versionNumber reads the number of a version, whose form the document has checked.
func versionNumber(text string) (int64, error) {
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fault.New(fault.Invalid, "%q is no number of a version", text)
	}
	return number, nil
}

func presentPolicyVersion(v hub.PolicyVersion) apimodel.PolicyVersion {
	return apimodel.PolicyVersion{Number: v.Number, At: v.At.UTC(), By: v.By, Reverts: v.Reverts, Changed: texts(v.Changed)}
}
