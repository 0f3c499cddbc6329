package agenttest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kindOfTest is a kind that only one test uses.
type kindOfTest struct {
	w              *world
	group, plural  string
	kind, versions string
	conversion     string
}

// newKind defines a kind in a group of its own, served in the versions given;
// the first one is stored.
func (w *world) newKind(kind string, versions ...string) *kindOfTest {
	k := &kindOfTest{w: w, kind: kind, plural: strings.ToLower(kind) + "s", group: strings.ToLower(kind) + "." + strings.ReplaceAll(w.namespace, "-", "") + ".example.com"}
	k.serve(versions...)
	return k
}

// serve sets the served versions. One with a "-" before it is not served any
// more, one with a "~" is deprecated.
func (k *kindOfTest) serve(versions ...string) {
	var list []string
	for i, v := range versions {
		name, off := strings.CutPrefix(v, "-")
		name, old := strings.CutPrefix(name, "~")
		list = append(list, fmt.Sprintf("{name: %s, served: %v, deprecated: %v, storage: %v, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}", name, !off, old, i == 0))
	}
	k.versions = strings.Join(list, ", ")
}

func (k *kindOfTest) definition() string {
	return fmt.Sprintf(`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.%[2]s}
spec:
  group: %[2]s
  scope: Namespaced
  names: {kind: %[3]s, plural: %[1]s, singular: %[4]s, listKind: %[3]sList}
  versions: [%[5]s]
%[6]s`, k.plural, k.group, k.kind, strings.TrimSuffix(k.plural, "s"), k.versions, k.conversion)
}

// define makes the kind and waits until it is served.
func (k *kindOfTest) define() {
	k.w.t.Helper()
	if err := shared.Apply(k.w.t.Context(), k.definition()); err != nil {
		k.w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(k.w.t.Context(), waitLimit)
	defer cancel()
	if _, err := shared.WaitFor(ctx, crds, "", k.plural+"."+k.group, established); err != nil {
		k.w.t.Fatal(err)
	}
	k.w.t.Cleanup(func() { _ = shared.Delete(context.Background(), k.definition()) })
}

func established(o *unstructured.Unstructured) error {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Established" && m["status"] == "True" {
			return nil
		}
	}
	return errSame
}

func (k *kindOfTest) manifest(version, name, more string) string {
	return fmt.Sprintf("---\napiVersion: %s/%s\nkind: %s\nmetadata: {name: %s, namespace: NS%s}\nspec: {size: 1}\n", k.group, version, k.kind, name, more)
}

func (k *kindOfTest) at(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.group, Version: version, Resource: k.plural}
}

func TestKinds(t *testing.T) {
	w := newWorld(t)
	t.Run("FT-K4 a definition that is not Established is reported with the reason, and its objects are applied once it is", func(t *testing.T) {
		first, second := w.newKind("Gadget", "v1"), w.newKind("Gadget", "v1")
		second.plural = "gadgettwos" // its kind is taken until the other definition goes
		first.define()
		a := w.application()
		both := second.definition() + second.manifest("v1", "late", ", annotations: {argocd.argoproj.io/sync-wave: '1'}")
		op := w.ended(a.begin(both, nil), "Failed")
		if !strings.Contains(op.GetMessage(), "gadgettwos."+second.group) || !strings.Contains(op.GetMessage(), "already in use") || message(op, "Gadget", "late") != "(no result)" {
			t.Errorf("message is %q, of the object %q", op.GetMessage(), message(op, "Gadget", "late"))
		}
		if err := shared.Delete(t.Context(), first.definition()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		if _, err := shared.WaitFor(ctx, crds, "", second.plural+"."+second.group, established); err != nil {
			t.Fatal(err)
		}
		a.deploy(both)
		w.live(second.at("v1"), "late", exists)
		a.synced()
		t.Cleanup(func() { _ = shared.Delete(context.Background(), second.definition()) })
	})
}
