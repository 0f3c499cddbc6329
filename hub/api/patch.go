package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	maxPatchSteps = 100 // operations of one JSON patch
	patchAttempts = 5   // while others write the same application
)

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
		answer, err := s.putApplication(ctx, a, options)
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
		document, err = mergePatched(document, patch)
	} else {
		document, err = jsonPatched(document, patch)
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

func mergePatched(document, patch []byte) ([]byte, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(patch, &object); err != nil || object == nil {
		return nil, fault.With(fault.New(fault.Invalid, "the patch is no JSON object"), "", "send a merge patch such as {\"spec\":{\"project\":\"shop\"}}")
	}
	out, err := jsonpatch.MergePatch(document, patch)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the patch cannot be applied")
	}
	return out, nil
}

func jsonPatched(document, patch []byte) ([]byte, error) {
	steps, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, fault.With(fault.New(fault.Invalid, "the patch is no array of JSON patch operations"), "",
			"send one such as [{\"op\":\"replace\",\"path\":\"/spec/project\",\"value\":\"shop\"}], or say patchType merge")
	}
	if len(steps) > maxPatchSteps {
		return nil, fault.With(fault.New(fault.Invalid, "the patch has %d operations, and %d are allowed", len(steps), maxPatchSteps), "", "send several patches")
	}
	// What answers leave out must not be copied to where they show it, nor guessed.
	hidden := !bytes.Equal(repourl.RedactJSON(document), document)
	for i, step := range steps {
		switch kind := step.Kind(); {
		case hidden && (kind == "copy" || kind == "move" || kind == "test"):
			return nil, fault.With(fault.New(fault.Invalid, "operation %d of the patch is %q, and the application holds a value that is not shown", i+1, kind), "",
				"use add, replace and remove")
		case kind != "add" && kind != "remove" && kind != "replace" && kind != "copy" && kind != "move" && kind != "test":
			return nil, fault.With(fault.New(fault.Invalid, "operation %d of the patch is %q", i+1, cut(kind)), "", "use add, remove, replace, copy, move or test")
		}
		// One at a time: each may double the document.
		if document, err = steps[i : i+1].Apply(document); err != nil {
			return nil, fault.With(fault.Wrap(fault.Invalid, err, "operation %d of the patch cannot be applied", i+1), "", "look at the application as it is now")
		}
		if len(document) > maxBody {
			return nil, errTooLarge(maxBody)
		}
	}
	return document, nil
}
