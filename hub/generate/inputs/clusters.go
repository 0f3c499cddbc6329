package inputs

import (
	"cmp"
	"context"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate"
	"github.com/capstan-cd/capstan/hub/plan"
)

// Clusters returns the clusters that the set may deploy to.
func (in *inputs) Clusters(context.Context) ([]generate.Cluster, error) {
	reached, err := in.reached()
	if err != nil {
		return nil, err
	}
	var out []generate.Cluster
	for _, c := range in.view.Clusters {
		if !reached(c) {
			continue
		}
		local := c.Name == hub.InClusterName || c.Server == hub.InCluster
		server := c.Server
		if local {
			server = cmp.Or(server, hub.InCluster)
		}
		out = append(out, generate.Cluster{
			Name: c.Name, Server: server, Project: c.Project, Labels: c.ShownLabels(), Annotations: c.Annotations,
			Implicit: local && len(c.Labels) == 0,
		})
	}
	return out, nil
}

// reached returns which clusters are listed: those that the destinations of the
// project reach in some namespace, and that belong to no other project.
func (in *inputs) reached() (func(hub.Cluster) bool, error) {
	if in.view.Project == nil {
		return func(hub.Cluster) bool { return true }, nil
	}
	spec, err := in.view.Project.Effective()
	if err != nil {
		return nil, err
	}
	name := in.project()
	return func(c hub.Cluster) bool {
		switch {
		case c.Project != "" && c.Project != name, spec.PermitOnlyProjectScopedClusters && c.Project != name:
			return false
		}
		whole := hub.Destination{Server: c.Server, Name: c.Name}
		if c.Name == hub.InClusterName {
			whole.Server = cmp.Or(whole.Server, hub.InCluster)
		}
		reached := c.Project == name
		for _, d := range spec.Destinations {
			if !plan.SameCluster(d, whole) {
				continue
			}
			denies := strings.HasPrefix(d.Server, "!") || strings.HasPrefix(d.Name, "!")
			if denies && strings.TrimPrefix(d.Namespace, "!") == "*" {
				return false
			}
			reached = reached || !denies && !strings.HasPrefix(d.Namespace, "!")
		}
		return reached
	}, nil
}
