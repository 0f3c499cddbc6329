package diff_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func read(t *testing.T, text string) *manifest.Object {
	t.Helper()
	objs, err := manifest.Parse("x.yaml", []byte(text), manifest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return objs[0]
}

const want10 = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, annotations: {a: '1', b: '1'}}\nspec: {replicas: 1, selector: {x: y}, template: {spec: {containers: [{name: web, image: v1}]}}}\n"

func TestRespect(t *testing.T) {
	t.Parallel()
	ours := `{"f:metadata":{"f:annotations":{"f:a":{},"f:b":{}}},"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:name":{},"f:image":{}}}}}}}`
	cases := map[string]struct {
		why      string
		rule     diff.Rule
		other    string // fieldsV1 of another manager
		noLive   bool
		liveless string // a field of spec that live lacks
		want     map[string]any
		guarded  bool
	}{
		"no HPA": {
			why:  "only we own replicas: leaving it out would delete it, 10 would become 1",
			rule: diff.Rule{JSONPointers: []string{"/spec/replicas"}}, want: map[string]any{"replicas": int64(10)}, guarded: true,
		},
		"with HPA": {
			why:  "the autoscaler owns it too: we leave it out",
			rule: diff.Rule{JSONPointers: []string{"/spec/replicas"}}, other: `{"f:spec":{"f:replicas":{}}}`, want: map[string]any{"replicas": nil},
		},
		"new object":     {why: "the first apply sends what is desired", rule: diff.Rule{JSONPointers: []string{"/spec/replicas"}}, noLive: true, want: map[string]any{"replicas": int64(1)}},
		"live lacks it":  {rule: diff.Rule{JSONPointers: []string{"/spec/replicas"}}, liveless: "replicas", want: map[string]any{"replicas": int64(1)}},
		"not in desired": {rule: diff.Rule{JSONPointers: []string{"/spec/paused"}}, want: map[string]any{"replicas": int64(1)}},
		"by jq": {
			rule: diff.Rule{JQ: []string{`.spec.template.spec.containers[] | select(.name == "web").image`}}, want: map[string]any{"image": "v9"}, guarded: true,
		},
		"item found by name": {
			why:  "in live a sidecar stands before it",
			rule: diff.Rule{JSONPointers: []string{"/spec/template/spec/containers/0/image"}}, want: map[string]any{"image": "v9"}, guarded: true,
		},
		"by manager": {rule: diff.Rule{Managers: []string{"other"}}, other: `{"f:spec":{"f:replicas":{}}}`, want: map[string]any{"replicas": nil, "image": "v1"}},
		"a map with several owners": {
			why:  "each annotation is judged alone",
			rule: diff.Rule{JSONPointers: []string{"/metadata/annotations"}}, other: `{"f:metadata":{"f:annotations":{".":{},"f:b":{}}}}`,
			want: map[string]any{"a": "live", "b": nil}, guarded: true,
		},
		"an atomic map":   {rule: diff.Rule{JSONPointers: []string{"/spec/selector"}}, want: map[string]any{"selector": map[string]any{"x": "live"}}, guarded: true},
		"the name stays":  {rule: diff.Rule{JSONPointers: []string{"/metadata/name", "/kind"}}, want: map[string]any{"replicas": int64(1)}},
		"rules of others": {rule: diff.Rule{Name: "api", JSONPointers: []string{"/spec/replicas"}}, want: map[string]any{"replicas": int64(1)}},
	}
	for name, c := range cases {
		t.Run("DIFF-15 "+name, func(t *testing.T) {
			t.Parallel()
			c.rule.Group, c.rule.Kind = "apps", "Deployment"
			ignore, err := diff.NewIgnore([]diff.Rule{c.rule})
			if err != nil {
				t.Fatal(err)
			}
			desired := read(t, want10)
			l := read(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, annotations: {a: live, b: live}}\nspec: {replicas: 10, selector: {x: live}, template: {spec: {containers: [{name: sidecar, image: s}, {name: web, image: v9}]}}}\n")
			delete(at(l, "spec"), c.liveless)
			at(l, "metadata")["managedFields"] = []any{}
			manageAs(t, l, manager, "Apply", ours)
			if c.other != "" {
				manageAs(t, l, "other", "Update", c.other)
			}
			if c.noLive {
				l = nil
			}
			before, _ := manifest.Canonical(desired)
			got, guarded, err := diff.Respect(desired, l, ignore, manager)
			if err != nil {
				t.Fatal(err)
			}
			if guarded != c.guarded {
				t.Errorf("guarded = %v, want %v: %s", guarded, c.guarded, c.why)
			}
			for k, v := range c.want {
				if d := cmp.Diff(v, pick(got, k)); d != "" {
					t.Errorf("%s (-want +got):\n%s%s", k, d, c.why)
				}
			}
			if got.GetName() != "web" || got.GetKind() != "Deployment" {
				t.Error("the object lost its name")
			}
			if after, _ := manifest.Canonical(desired); string(after) != string(before) {
				t.Error("the desired object was changed")
			}
		})
	}
}

func pick(o *manifest.Object, field string) any {
	switch field {
	case "image":
		return container(o, 0)["image"]
	case "a", "b":
		return at(o, "metadata", "annotations")[field]
	}
	return at(o, "spec")[field]
}

func manageAs(t *testing.T, o *manifest.Object, who, operation, fields string) {
	t.Helper()
	var f map[string]any
	if err := json.Unmarshal([]byte(fields), &f); err != nil {
		t.Fatal(err)
	}
	meta := at(o, "metadata")
	meta["managedFields"] = append(meta["managedFields"].([]any), map[string]any{"manager": who, "operation": operation, "fieldsV1": f})
}
