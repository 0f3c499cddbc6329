package validation

import (
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
)

// PickCluster finds the cluster of a destination: by name, by server alias, and for
// Argo CD's own cluster the one called in-cluster, else the only one.
func PickCluster(d hub.Destination, all []hub.Cluster) *hub.Cluster {
	for i := range all {
		if (d.Name != "" && all[i].Name == d.Name) || (d.Server != "" && TrimServer(all[i].Server) == TrimServer(d.Server)) {
			return &all[i]
		}
	}
	if !d.InCluster() {
		return nil
	}
	if i := slices.IndexFunc(all, func(c hub.Cluster) bool { return c.Name == hub.InClusterName }); i >= 0 {
		return &all[i]
	}
	if len(all) == 1 {
		return &all[0]
	}
	return nil
}

// KeepCluster is pick for an application that is on a cluster: a destination that
// does not name one leaves it there as long as that cluster exists. Clusters
// that come and go must not move what runs.
func KeepCluster(d hub.Destination, all []hub.Cluster, now hub.ClusterID) *hub.Cluster {
	if d.InCluster() {
		if i := slices.IndexFunc(all, func(c hub.Cluster) bool { return c.ID == now }); i >= 0 {
			return &all[i]
		}
	}
	return PickCluster(d, all)
}

// DestinationName is the name of a destination's cluster. Without one, all clusters have
// to be read.
func DestinationName(d hub.Destination) string {
	if d.Name == hub.InClusterName || d.Server != "" {
		return ""
	}
	return d.Name
}

// TrimServer is the address of an API server as it is compared: without slashes
// at its end.
func TrimServer(s string) string { return strings.TrimRight(s, "/") }

// SameDestination is the cluster that an application is on, if its
// destination is to stay what it was.
func SameDestination(old hub.Application, spec hub.ApplicationSpec) hub.ClusterID {
	before, err := hub.DecodeSpec(old.Spec)
	if err != nil || before.Destination.Server != spec.Destination.Server || before.Destination.Name != spec.Destination.Name {
		return ""
	}
	return old.Cluster
}
