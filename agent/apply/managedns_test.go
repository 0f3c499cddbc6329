package apply

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func liveNamespace(t *testing.T, meta string) *manifest.Object {
	t.Helper()
	all, err := manifest.Parse("ns.yaml", []byte("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n"+meta), manifest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

func TestManagedNamespace(t *testing.T) {
	t.Parallel()
	state := &linkv1.AppState{Name: "web", Namespace: "shop", Policy: &linkv1.Policy{NamespaceLabels: map[string]string{"team": "a"}}}
	t.Run("SYNC-27 a Namespace among the manifests takes precedence", func(t *testing.T) {
		t.Parallel()
		if m := managedNamespace(state, nil); m == nil || m.labels["team"] != "a" {
			t.Errorf("without a manifest %+v is managed", m)
		}
		own := &snapshot{objects: map[manifest.Key]*desired{namespaceKey("shop"): {}}}
		if m := managedNamespace(state, own); m != nil {
			t.Errorf("%+v is managed, and the manifests have the namespace", m)
		}
	})
	t.Run("SYNC-27 labels and annotations that differ are named", func(t *testing.T) {
		t.Parallel()
		m := &nsMeta{app: "web", namespace: "shop", labels: map[string]string{"team": "a", "tier": "x"}, annotations: map[string]string{"note": "hello"}}
		fields, taken := m.lacks(liveNamespace(t, "  labels: {team: a, other: '1'}\n  annotations: {note: bye}\n"), nil)
		if want := []string{"metadata.labels.tier", "metadata.annotations.note"}; !cmp.Equal(fields, want) || len(taken) > 0 {
			t.Errorf("fields %v, taken %v, want %v", fields, taken, want)
		}
	})
}

func TestManagedNamespaceOfTwoApplications(t *testing.T) {
	t.Parallel()
	first := &nsMeta{app: "a", namespace: "shop", labels: map[string]string{"team": "one", "tier": "x"}}
	second := &nsMeta{app: "b", namespace: "shop", labels: map[string]string{"team": "two", "zone": "y"}}
	live := liveNamespace(t, `  labels: {team: one, tier: x, loose: z}
  managedFields:
  - {manager: capstan-ns, operation: Apply, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {'f:metadata': {'f:labels': {'f:team': {}, 'f:tier': {}}}}}
  - {manager: capstan, operation: Apply, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {'f:metadata': {'f:labels': {'f:loose': {}}}}}
`)
	t.Run("SYNC-27 an application preserves what another one manages", func(t *testing.T) {
		t.Parallel()
		got := second.desiredOf(live, true, []*nsMeta{first}, "capstan-ns")
		if want := map[string]string{"team": "one", "tier": "x", "zone": "y"}; !cmp.Equal(got, want) {
			t.Errorf("the second writes %v, want %v", got, want)
		}
		got = first.desiredOf(live, true, []*nsMeta{second}, "capstan-ns")
		if want := map[string]string{"team": "one", "tier": "x"}; !cmp.Equal(got, want) {
			t.Errorf("the first writes %v, want %v", got, want)
		}
	})
	t.Run("SYNC-27 of a key that two set differently the first one decides", func(t *testing.T) {
		t.Parallel()
		fields, taken := second.lacks(live, []*nsMeta{first})
		want := []string{"namespace shop: the label team is set otherwise by application a of this cluster, which counts"}
		if !cmp.Equal(taken, want) || !cmp.Equal(fields, []string{"metadata.labels.zone"}) {
			t.Errorf("fields %v, taken %v", fields, taken)
		}
		if fields, taken := first.lacks(live, []*nsMeta{second}); len(fields)+len(taken) > 0 {
			t.Errorf("the first lacks %v, %v", fields, taken)
		}
	})
	t.Run("SYNC-27 a key that is not managed any more is removed", func(t *testing.T) {
		t.Parallel()
		less := &nsMeta{app: "a", namespace: "shop", labels: map[string]string{"team": "one"}}
		e := &Engine{Config: Config{Manager: Manager}}
		if e.carries(less, live, nil) {
			t.Error("the label tier is left as it is")
		}
		if !e.carries(first, live, []*nsMeta{second}) {
			t.Error("a namespace that is as it should be is written")
		}
	})
}
