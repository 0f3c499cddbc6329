package render_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func object(kind, namespace, name string, annotations ...string) *manifest.Object {
	o := &manifest.Object{Object: map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name}}}
	if namespace != "" {
		o.SetNamespace(namespace)
	}
	for i := 0; i+1 < len(annotations); i += 2 {
		a := o.GetAnnotations()
		if a == nil {
			a = map[string]string{}
		}
		a[annotations[i]] = annotations[i+1]
		o.SetAnnotations(a)
	}
	return o
}

func assemble(objs ...*manifest.Object) ([]hub.ObjectRef, []string, error) {
	var in []render.Rendered
	for i, o := range objs {
		in = append(in, render.Rendered{File: string(rune('a'+i)) + ".yaml", Object: o})
	}
	made, warnings, err := render.Assemble(in, "shop", render.Limits{})
	var refs []hub.ObjectRef
	for _, m := range made {
		refs = append(refs, m.Ref)
	}
	return refs, warnings, err
}

func TestAssemble(t *testing.T) {
	t.Parallel()
	t.Run("ENG-04 objects are in a stable order, with their references", func(t *testing.T) {
		t.Parallel()
		role := object("ClusterRole", "", "r")
		role.SetAPIVersion("rbac.authorization.k8s.io/v1")
		refs, warnings, err := assemble(object("Service", "", "b"), object("Service", "", "a", "argocd.argoproj.io/sync-wave", "-3"),
			role, object("Namespace", "", "n"), object("Job", "x", "j", "argocd.argoproj.io/hook", "PostSync,PreSync"))
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		want := []hub.ObjectRef{
			{Version: "v1", Kind: "Namespace", Name: "n"},
			{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole", Name: "r"},
			{Version: "v1", Kind: "Service", Name: "a", Wave: -3},
			{Version: "v1", Kind: "Service", Name: "b"},
			{Version: "v1", Kind: "Job", Namespace: "x", Name: "j", Hook: "PreSync,PostSync"},
		}
		if d := cmp.Diff(want, refs); d != "" {
			t.Errorf("references (-want +got):\n%s", d)
		}
	})
	t.Run("SRC-12 the same object twice", func(t *testing.T) {
		t.Parallel()
		refs, warnings, err := assemble(object("ConfigMap", "", "a"), object("ConfigMap", "shop", "a"), object("ConfigMap", "other", "a"))
		if err != nil || len(refs) != 2 || len(warnings) != 1 || !strings.HasPrefix(warnings[0], render.RepeatedResource) {
			t.Errorf("references %v, warnings %q, %v", refs, warnings, err)
		}
	})
	t.Run("HELM-18 a Helm test is no part of the application", func(t *testing.T) {
		t.Parallel()
		refs, _, err := assemble(object("Pod", "", "t", "helm.sh/hook", "test"), object("Pod", "", "crd", "helm.sh/hook", "crd-install"))
		if err != nil || len(refs) != 1 || refs[0].Name != "crd" || refs[0].Hook != "" {
			t.Errorf("references %v, %v", refs, err)
		}
	})
	t.Run("HOOK-02 an unknown hook is reported", func(t *testing.T) {
		t.Parallel()
		refs, warnings, err := assemble(object("Job", "", "j", "argocd.argoproj.io/hook", "PreSnyc"))
		if err != nil || len(refs) != 1 || refs[0].Hook != "Skip" || len(warnings) != 1 || !strings.Contains(warnings[0], "PreSnyc") {
			t.Errorf("references %v, warnings %q, %v", refs, warnings, err)
		}
	})
	t.Run("SRC-20 generateName is for hooks", func(t *testing.T) {
		t.Parallel()
		hook, plain := object("Job", "", "", "argocd.argoproj.io/hook", "Sync"), object("Job", "", "")
		hook.SetGenerateName("j-")
		plain.SetGenerateName("j-")
		again := hook.DeepCopy()
		refs, warnings, err := assemble(hook, again)
		if err != nil || len(refs) != 2 || refs[0].Name != "j-" || len(warnings) != 0 {
			t.Errorf("references %v, warnings %v, %v", refs, warnings, err)
		}
		refs, _, err = assemble(plain, object("ConfigMap", "", "other"))
		if err != nil || len(refs) != 2 || refs[1].Name != "j-*" || refs[1].Hook != "" {
			t.Errorf("references %v, %v: one such object must not keep the others from being rendered", refs, err)
		}
	})
	t.Run("ENG-02 a wave that is no number is 0, and reported with the object", func(t *testing.T) {
		t.Parallel()
		refs, warnings, err := assemble(object("ConfigMap", "shop", "a", "argocd.argoproj.io/sync-wave", "first"))
		if err != nil || len(refs) != 1 || refs[0].Wave != 0 || len(warnings) != 1 || !strings.HasPrefix(warnings[0], `ConfigMap shop/a: annotation sync-wave is "first"`) {
			t.Errorf("references %v, warnings %q, %v", refs, warnings, err)
		}
	})
	t.Run("SYNC-14 an invalid option of an object is reported", func(t *testing.T) {
		t.Parallel()
		_, warnings, err := assemble(object("ConfigMap", "shop", "a", "argocd.argoproj.io/sync-options", "Validate=maybe,PruneLast=true,Replace"))
		if err != nil || len(warnings) != 1 || !strings.HasPrefix(warnings[0], `ConfigMap shop/a: sync option Validate has the value "maybe"`) {
			t.Errorf("warnings %q, %v", warnings, err)
		}
	})
	for name, c := range map[string]struct {
		o    *manifest.Object
		says []string
	}{
		"no kind":       {&manifest.Object{Object: map[string]any{"apiVersion": "v1", "metadata": map[string]any{"name": "x"}}}, []string{"a.yaml", "no kind"}},
		"no apiVersion": {&manifest.Object{Object: map[string]any{"kind": "X"}}, []string{"no apiVersion"}},
		"no name":       {object("ConfigMap", "", ""), []string{"a.yaml", "metadata.name"}},
		"nothing":       {&manifest.Object{}, []string{"not a Kubernetes object"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := assemble(c.o)
			if fault.KindOf(err) != fault.Invalid {
				t.Fatalf("error %v, want one of kind %q", err, fault.Invalid)
			}
			for _, s := range c.says {
				if !strings.Contains(fault.Sentence(err), s) {
					t.Errorf("%q does not say %q", fault.Sentence(err), s)
				}
			}
		})
	}
}
