package validation

import (
	"net/url"
	"slices"
	"strconv"
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
	if err := checkScope(cl.ClusterScope); err != nil {
		return fault.With(err, "cluster "+cl.Name, "")
	}
	return fault.With(checkMaps(cl.Labels, cl.Annotations), "cluster "+cl.Name, "")
}

// maxManaged is how many namespaces a cluster's registration may list: agents
// get the list with every application.
const maxManaged = 500

func checkScope(s hub.ClusterScope) error {
	if s.Project != "" {
		if err := CheckLabel("project", s.Project); err != nil {
			return err
		}
	}
	if len(s.Namespaces) > maxManaged {
		return fault.With(fault.New(fault.Exceeded, "it lists %d namespaces, and at most %d are possible", len(s.Namespaces), maxManaged), "", "leave namespaces out to manage all")
	}
	for i, n := range s.Namespaces {
		if err := CheckLabel("namespace", n); err != nil {
			return err
		}
		if slices.Index(s.Namespaces, n) != i {
			return fault.New(fault.Invalid, "the namespace %q is there twice", n)
		}
	}
	if s.Shard != nil && *s.Shard < 0 {
		return fault.New(fault.Invalid, "shard is below 0")
	}
	return nil
}

// ReadScope takes the keys of a cluster Secret that limit the cluster (CLU-01).
// An entry of namespaces that is no name, such as a glob, matches nothing in
// Argo CD; CheckCluster refuses it.
func ReadScope(v map[string]string) (hub.ClusterScope, error) {
	s := hub.ClusterScope{Project: PopString(v, "project")}
	for _, n := range strings.Split(PopString(v, "namespaces"), ",") {
		if n = strings.TrimSpace(n); n != "" {
			s.Namespaces = append(s.Namespaces, n)
		}
	}
	if on := PopString(v, "clusterResources"); on != "" {
		all, err := strconv.ParseBool(on)
		if err != nil {
			return s, fault.With(fault.New(fault.Invalid, "its key clusterResources is neither true nor false"), "", "")
		}
		s.ClusterResources = all
	}
	if shard := PopString(v, "shard"); shard != "" {
		n, err := strconv.ParseInt(shard, 10, 32)
		if err != nil {
			return s, fault.New(fault.Invalid, "its key shard is no number")
		}
		s.Shard = &n
	}
	return s, nil
}

// ClusterNames is what policies call a cluster: its name, and its server URL
// as Argo CD does (RBAC-05). One that belongs to a project is called by these
// with the project in front, too.
func ClusterNames(c hub.Cluster) []string {
	names := []string{c.Name}
	if c.Server != "" {
		names = append(names, c.Server)
	}
	if c.Project != "" {
		for _, n := range slices.Clone(names) {
			names = append(names, c.Project+"/"+n)
		}
	}
	return names
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
