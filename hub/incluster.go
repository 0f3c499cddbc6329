package hub

import (
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// InCluster is the server URL, and InClusterName the name, by which Argo CD
// calls the cluster that it runs in.
const (
	InCluster     = "https://kubernetes.default.svc"
	InClusterName = "in-cluster"
)

// InClusterKey is the key of SettingsMap by which a tenant switches that
// cluster off as a destination (APP-05).
const InClusterKey = "cluster.inClusterEnabled"

// InClusterOff reports whether a value of InClusterKey switches it off. One that
// is neither true nor false does not.
func InClusterOff(value string) bool {
	on, err := strconv.ParseBool(strings.TrimSpace(value))
	return err == nil && !on
}

// InCluster reports whether a destination names Argo CD's own cluster.
func (d Destination) InCluster() bool {
	return strings.TrimRight(d.Server, "/") == InCluster || d.Name == InClusterName
}

// Admits refuses a destination that stands for Argo CD's own cluster, by its
// own words or because the cluster is called so, while that is switched off.
func (c Cluster) Admits(d Destination) error {
	if !c.InClusterOff || !d.InCluster() && !(Destination{Server: c.Server, Name: c.Name}).InCluster() {
		return nil
	}
	return fault.With(fault.New(fault.Invalid, "destination %s is switched off: %s of %s is false", InClusterName, InClusterKey, SettingsMap), "",
		"name another cluster in spec.destination, or have "+InClusterKey+" set to true")
}
