package hub

import "time"

// An ObjectFilter chooses managed objects of several applications. Empty fields
// choose all.
type ObjectFilter struct {
	Applications []ApplicationID // these alone; none: nothing
	Clusters     []ClusterID
	// Expired are the clusters of which nothing is known now: the states of
	// their objects are Unknown.
	Expired    []ClusterID
	Kinds      []string
	Namespaces []string
	Sync       []SyncStatus
	Health     []HealthStatus // empty in it: the kind has no rule
	Text       string         // part of the name, any case
	After      ObjectPlace
	Limit      int
}

// An ObjectPlace is where a managed object stands in the list of all.
type ObjectPlace struct {
	Kind, Namespace, Name, Group string
	Application                  ApplicationID
	Cluster                      ClusterID
}

// A ListedObject is what a list shows of a managed object.
type ListedObject struct {
	ObjectPlace
	Version       string
	Sync          SyncStatus
	Health        HealthStatus
	Message       string
	RequiresPrune bool
	CreatedAt     *time.Time
}

// An ObjectCount says how many objects of a filter have a value. One field of
// kind, namespace, cluster, application, sync and health counts, named by Field.
type ObjectCount struct {
	Field string
	Value string
	Count int
}
