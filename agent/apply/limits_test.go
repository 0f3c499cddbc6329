package apply

import (
	"testing"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// The agent checks a project's limits again; patterns must mean there what
// they mean in the hub.
func TestLimitsReadPatternsAsTheHub(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		globs     []string
		namespace string
		want      bool
	}{
		"PROJ-03 an empty list permits all":                   {nil, "shop", true},
		"PROJ-03 a star":                                      {[]string{"shop-*"}, "shop-a", true},
		"PROJ-03 alternatives permit":                         {[]string{"{shop,bank}"}, "bank", true},
		"PROJ-03 alternatives deny":                           {[]string{"*", "!{kube-*,default}"}, "default", false},
		"PROJ-03 a class denies":                              {[]string{"*", "!kube-[a-z]*"}, "kube-system", false},
		"PROJ-03 a denial wins over a permit that follows it": {[]string{"!shop", "*"}, "shop", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := matchesNamespace(c.globs, c.namespace); got != c.want {
				t.Errorf("matchesNamespace(%q, %q) = %t", c.globs, c.namespace, got)
			}
		})
	}
	secrets := []*linkv1.KindRule{{Group: "", Kind: "{Secret,ConfigMap}"}}
	if !matchesKind(secrets, manifest.Key{Kind: "Secret", Namespace: "shop", Name: "a"}) {
		t.Error("PROJ-09 a rule with alternatives does not match one of them")
	}
}

func TestManagedNamespaces(t *testing.T) {
	t.Parallel()
	l := &linkv1.Limits{ManagedNamespaces: []string{"bank"}, ClusterAllow: []*linkv1.KindRule{{Group: "*", Kind: "*"}}}
	secret, role := manifest.Key{Kind: "Secret", Namespace: "shop", Name: "x"}, manifest.Key{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "x"}
	if permit(l, "shop", secret, true) == nil {
		t.Error("CLU-06 an object in a namespace that is not managed is permitted")
	}
	if permit(l, "shop", role, false) == nil {
		t.Error("CLU-06 a cluster-scoped object is permitted without clusterResources")
	}
}
