package generate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/capstan-cd/capstan/hub/generate/template"
	"github.com/capstan-cd/capstan/shared/fault"
)

// patched applies the templatePatch of the set: a strategic merge patch, in
// which lists replace lists. It cannot change the project (ASET-05).
func (r *round) patched(filled, params map[string]any) (map[string]any, error) {
	text, err := r.templates.Fill(*r.set.spec.TemplatePatch, params)
	if err != nil {
		return nil, fmt.Errorf("templatePatch: %w", err)
	}
	v, err := template.YAML("templatePatch", []byte(text))
	if err != nil {
		return nil, err
	}
	if v == nil {
		return filled, nil
	}
	patch, ok := v.(map[string]any)
	if !ok {
		return nil, fault.New(fault.Invalid, "templatePatch is no map")
	}
	if patch, err = exact(patch); err != nil {
		return nil, err
	}
	spec := child(filled, "spec")
	project, there := spec["project"]
	out, err := strategicpatch.StrategicMergeMapPatchUsingLookupPatchMeta(filled, patch, metaOfPatch{})
	if err != nil {
		return nil, fault.New(fault.Invalid, "templatePatch cannot be applied: %w", err)
	}
	patchedSpec := child(out, "spec")
	if patchedSpec == nil {
		return nil, fault.New(fault.Invalid, "templatePatch removes the spec")
	}
	delete(patchedSpec, "project")
	if there {
		patchedSpec["project"] = project
	}
	return out, nil
}

// metaOfPatch says how the fields of an application are patched: finalizers are
// joined, other lists are replaced.
type metaOfPatch struct{ name string }

// Name is the field that it is about.
func (m metaOfPatch) Name() string { return m.name }

// LookupPatchMetadataForStruct is asked for maps.
func (m metaOfPatch) LookupPatchMetadataForStruct(key string) (strategicpatch.LookupPatchMeta, strategicpatch.PatchMeta, error) {
	return metaOfPatch{name: m.name + "." + key}, strategicpatch.PatchMeta{}, nil
}

// LookupPatchMetadataForSlice is asked for lists.
func (m metaOfPatch) LookupPatchMetadataForSlice(key string) (strategicpatch.LookupPatchMeta, strategicpatch.PatchMeta, error) {
	var meta strategicpatch.PatchMeta
	if m.name == ".metadata" && key == "finalizers" {
		meta.SetPatchStrategies([]string{"merge"})
	}
	return metaOfPatch{name: m.name + "." + key}, meta, nil
}
