package plan

import (
	"strings"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// Limits reduces the project to what concerns the destination's cluster. A
// destination that is written by server alone is matched by server, and one
// by name by name; the application was permitted before by both. A cluster that belongs
// to the project is permitted as a whole, except what an entry denies.
func Limits(cluster hub.Placement, name string, project hub.ProjectSpec) *linkv1.Limits {
	l := &linkv1.Limits{
		ClusterAllow: kindRules(project.ClusterResourceWhitelist), ClusterDeny: kindRules(project.ClusterResourceBlacklist),
		NamespacedAllow: kindRules(project.NamespaceResourceWhitelist), NamespacedAllowSet: project.NamespaceResourceWhitelist != nil,
		NamespacedDeny:    kindRules(project.NamespaceResourceBlacklist),
		ManagedNamespaces: cluster.Namespaces, ClusterResources: cluster.ClusterResources,
	}
	for _, d := range project.Destinations {
		if SameCluster(d, cluster.Destination) {
			l.Namespaces = append(l.Namespaces, namespaceRule(d))
		}
	}
	if cluster.Project != "" && cluster.Project == name {
		l.Namespaces = append(l.Namespaces, "*") // managed_namespaces narrow it
	}
	if len(l.Namespaces) == 0 { // the agent takes an empty list for every namespace
		l.Namespaces, l.ClusterAllow = []string{"!*"}, nil
	}
	return l
}

// namespaceRule is the glob of a destination entry; an entry that denies
// anywhere denies its namespaces.
func namespaceRule(d hub.Destination) string {
	deny := strings.HasPrefix(d.Server, "!") || strings.HasPrefix(d.Name, "!") || strings.HasPrefix(d.Namespace, "!")
	if deny {
		return "!" + strings.TrimPrefix(d.Namespace, "!")
	}
	return d.Namespace
}

func kindRules(kinds []hub.GroupKind) []*linkv1.KindRule {
	out := make([]*linkv1.KindRule, len(kinds))
	for i, k := range kinds {
		out[i] = &linkv1.KindRule{Group: k.Group, Kind: k.Kind, Name: k.Name}
	}
	return out
}
