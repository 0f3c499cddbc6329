package validation

import (
	"net/url"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// CheckCluster validates the name, labels and annotations of a cluster.
func CheckCluster(cl hub.Cluster) error {
	if err := CheckLabel("cluster", cl.Name); err != nil {
		return err
	}
	if cl.Server != "" {
		u, err := url.Parse(cl.Server)
		if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return fault.With(fault.New(fault.Invalid, "server is no URL of a cluster"), "cluster "+cl.Name, "write it like https://prod.k8s.example.com")
		}
	}
	return fault.With(checkMaps(cl.Labels, cl.Annotations), "cluster "+cl.Name, "")
}

// ClusterNames is what policies call a cluster: its name, and its server URL
// as Argo CD does (RBAC-05).
func ClusterNames(c hub.Cluster) []string {
	if c.Server == "" {
		return []string{c.Name}
	}
	return []string{c.Name, c.Server}
}

// WithoutCluster leaves one out.
func WithoutCluster(all []hub.Cluster, id hub.ClusterID) []hub.Cluster {
	return slices.DeleteFunc(all, func(c hub.Cluster) bool { return c.ID == id })
}

// WithCluster puts one in, instead of what it is otherwise; by name, as the
// store lists them.
func WithCluster(all []hub.Cluster, cl hub.Cluster) []hub.Cluster {
	all = append(WithoutCluster(all, cl.ID), cl)
	slices.SortFunc(all, func(a, b hub.Cluster) int { return strings.Compare(a.Name, b.Name) })
	return all
}
