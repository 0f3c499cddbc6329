package hub

// The types of this file are what metrics show of stored rows.

// QueueFigures is how much work of one kind waits.
type QueueFigures struct {
	Kind   string
	Due    int64 // may be claimed now
	Later  int64 // due at a later time
	Leased int64
	Oldest float64 // seconds that the oldest due item has waited
}

// ApplicationFigures is one application.
type ApplicationFigures struct {
	Namespace, Name, Project string
	Labels                   map[string]string
	DestinationNamespace     string
	RepoURL                  string
	Automated                bool
	Server                   string // address of its cluster, or the cluster's name
	Sync, Health             string
	Operation                string // kind of the one under way; empty: none
	ID                       ApplicationID
	Cluster                  ClusterID
	Conditions               []string // types
}

// ClusterFigures is one cluster.
type ClusterFigures struct {
	ID           ClusterID
	Name, Server string
	KubeVersion  string
	APIVersions  int
	Connected    bool
	Replica      string  // that has the agent, or had it last
	LagRows      int64   // of the desired log, not acknowledged
	LagSeconds   float64 // since the oldest of them was written
}
