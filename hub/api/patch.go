package api

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/api/patching"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

const patchAttempts = 5 // while others write the same application

// UpdateApplicationSpec replaces the spec alone.
func (s *Server) UpdateApplicationSpec(ctx context.Context, r gen.UpdateApplicationSpecRequestObject) (gen.UpdateApplicationSpecResponseObject, error) {
	answer, err := s.changed(ctx, r.Namespace, r.Name, r.Params.IfMatch, func(a apimodel.Application) (apimodel.Application, error) {
		a.Spec = *r.Body
		return a, nil
	})
	return gen.UpdateApplicationSpec200JSONResponse{ApplicationAnswerJSONResponse: answer}, err
}

// PatchApplication changes parts of what a person wrote of an application.
func (s *Server) PatchApplication(ctx context.Context, r gen.PatchApplicationRequestObject) (gen.PatchApplicationResponseObject, error) {
	answer, err := s.changed(ctx, r.Namespace, r.Name, r.Params.IfMatch, func(a apimodel.Application) (apimodel.Application, error) {
		return patched(a, []byte(r.Body.Patch), r.Body.PatchType == apimodel.Merge)
	})
	return gen.PatchApplication200JSONResponse{ApplicationAnswerJSONResponse: answer}, err
}

// changed writes what a change makes of an application as it is stored. If
// somebody else writes it meanwhile and the caller expects no version, the
// change is made again.
func (s *Server) changed(ctx context.Context, namespace, name, ifMatch string, change func(apimodel.Application) (apimodel.Application, error)) (gen.ApplicationAnswerJSONResponse, error) {
	var none gen.ApplicationAnswerJSONResponse
	expect, err := expected(ifMatch)
	if err != nil {
		return none, err
	}
	for attempt := 1; ; attempt++ {
		stored, err := s.Catalog.ForUpdate(ctx, callerOf(ctx), namespace, name)
		if err != nil {
			return none, err
		}
		a, err := change(written(stored))
		if err != nil {
			return none, fault.With(err, "application "+name, "")
		}
		if err := checkName("name", a.Metadata.Name, name); err != nil {
			return none, err
		}
		if err := checkName("namespace", a.Metadata.Namespace, namespace); err != nil {
			return none, err
		}
		options := catalog.PutOptions{Update: true, Expect: stored.Version}
		if expect != 0 {
			options.Expect = expect
		}
		answer, _, err := s.putApplication(ctx, a, options)
		var stale *fault.Error
		if expect == 0 && attempt < patchAttempts && errors.As(err, &stale) && stale.Code == transact.CodeStale {
			continue
		}
		return answer, err
	}
}

// written is what a person wrote of an application.
func written(a hub.Application) apimodel.Application {
	return apimodel.Application{
		ApiVersion: validation.ArgoVersion, Kind: validation.KindApplication, Spec: a.Spec,
		Metadata: apimodel.Metadata{Namespace: a.Namespace, Name: a.Name, Labels: a.Labels, Annotations: a.Annotations, Finalizers: a.Finalizers},
	}
}

// patched applies a patch to an application.
func patched(a apimodel.Application, patch []byte, merge bool) (apimodel.Application, error) {
	document, err := json.Marshal(a)
	if err != nil {
		return a, err
	}
	if merge {
		document, err = patching.Merge(document, patch)
	} else {
		document, err = patching.Steps(document, patch, maxBody)
	}
	if errors.Is(err, patching.ErrTooLarge) {
		err = errTooLarge(maxBody)
	}
	if err != nil {
		return a, err
	}
	var out apimodel.Application
	if err := json.Unmarshal(document, &out); err != nil {
		return a, fault.With(fault.Wrap(fault.Invalid, err, "what the patch makes is no application"), "", "change fields to values of their types")
	}
	return out, nil
}
