package plan_test

import (
	"slices"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/plan"
)

func TestLimits(t *testing.T) {
	t.Parallel()
	prod := hub.Placement{Destination: hub.Destination{Name: "prod", Server: "https://prod"}}
	own, narrow := prod, prod
	own.Project = "shop"
	narrow.ClusterScope = hub.ClusterScope{Namespaces: []string{"a", "b"}, ClusterResources: true}
	all := []hub.GroupKind{{Group: "*", Kind: "*"}}
	for name, c := range map[string]struct {
		at         hub.Placement
		project    hub.ProjectSpec
		namespaces []string
		cluster    int // rules that permit cluster-scoped kinds
	}{
		"PROJ-03 entries of the cluster": {prod, hub.ProjectSpec{Destinations: []hub.Destination{{Name: "prod", Namespace: "a"}, {Name: "dev", Namespace: "b"}}}, []string{"a"}, 0},
		"PROJ-03 without an entry the agent is sent a denial, not an empty list": {prod,
			hub.ProjectSpec{ClusterResourceWhitelist: all, Destinations: []hub.Destination{{Name: "dev", Namespace: "b"}}}, []string{"!*"}, 0},
		"CLU-07 a cluster of the project":                {own, hub.ProjectSpec{ClusterResourceWhitelist: all}, []string{"*"}, 1},
		"CLU-07 with a denial":                           {own, hub.ProjectSpec{Destinations: []hub.Destination{{Name: "*", Namespace: "!b"}}}, []string{"!b", "*"}, 0},
		"CLU-01 CLU-06 the namespaces of a registration": {narrow, hub.ProjectSpec{Destinations: []hub.Destination{{Name: "*", Namespace: "*"}}}, []string{"*"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := plan.Limits(c.at, "shop", c.project)
			if !slices.Equal(got.GetNamespaces(), c.namespaces) || len(got.GetClusterAllow()) != c.cluster {
				t.Errorf("limits %v", got)
			}
			if !slices.Equal(got.GetManagedNamespaces(), c.at.Namespaces) || got.GetClusterResources() != c.at.ClusterResources {
				t.Errorf("managed namespaces %v", got)
			}
		})
	}
}
