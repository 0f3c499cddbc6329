package diff_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func TestAdopt(t *testing.T) {
	t.Parallel()
	live := func(entries ...any) *manifest.Object {
		return &manifest.Object{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"managedFields": entries}}}
	}
	entry := func(manager, operation string, fields map[string]any) map[string]any {
		return map[string]any{"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}
	}
	leaf := map[string]any{}
	cases := map[string]struct {
		live  *manifest.Object
		want  []any
		taken []string
	}{
		"no former manager": {live(entry("kubectl-edit", "Update", map[string]any{"f:data": leaf})), nil, nil},
		"one manager": {
			live(entry("helm", "Update", map[string]any{"f:data": map[string]any{"f:a": leaf}})),
			[]any{entry("capstan", "Apply", map[string]any{"f:data": map[string]any{"f:a": leaf}})}, []string{"helm"},
		},
		"two managers and ourselves are joined": {
			live(entry("argocd-controller", "Apply", map[string]any{"f:data": map[string]any{"f:a": leaf}}),
				entry("kubectl-client-side-apply", "Update", map[string]any{"f:data": map[string]any{"f:b": leaf}, "f:status": leaf}),
				entry("capstan", "Apply", map[string]any{"f:data": map[string]any{"f:c": leaf}}),
				entry("hpa", "Update", map[string]any{"f:spec": leaf})),
			[]any{entry("hpa", "Update", map[string]any{"f:spec": leaf}),
				entry("capstan", "Apply", map[string]any{"f:data": map[string]any{"f:a": leaf, "f:b": leaf, "f:c": leaf}})},
			[]string{"argocd-controller", "kubectl-client-side-apply"},
		},
		"a leaf and its members are both kept": {
			live(entry("helm", "Update", map[string]any{"f:data": leaf}), entry("kubectl", "Apply", map[string]any{"f:data": map[string]any{"f:b": leaf}})),
			[]any{entry("capstan", "Apply", map[string]any{"f:data": map[string]any{".": leaf, "f:b": leaf}})}, []string{"helm", "kubectl"},
		},
		"entries of subresources stay": {
			live(map[string]any{"manager": "argocd-controller", "operation": "Update", "apiVersion": "v1", "subresource": "status", "fieldsV1": map[string]any{"f:status": leaf}}), nil, nil,
		},
		"entries of another version stay": {
			live(map[string]any{"manager": "helm", "operation": "Update", "apiVersion": "v2", "fieldsV1": map[string]any{"f:x": leaf}}), nil, nil,
		},
		"nonsense stays": {live("x", map[string]any{"manager": int64(1)}), nil, nil},
	}
	for name, c := range cases {
		t.Run("TRK-01 "+name, func(t *testing.T) {
			t.Parallel()
			before := c.live.DeepCopy()
			got, taken := diff.Adopt(c.live, "capstan", diff.Former)
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(c.taken, taken); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(before.Object, c.live.Object); d != "" {
				t.Errorf("the object was changed: %s", d)
			}
		})
	}
}
