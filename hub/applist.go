package hub

import "time"

// The types of this file are what lists of applications are made from.

// A ListedApplication is what a list shows, filters and sorts of an application.
// Its operation has no results.
type ListedApplication struct {
	Application

	Commit CommitInfo // of the target
}

// A ListMark is a moment of the database, up to which a reader of lists has
// everything. The zero value is that of a reader who has nothing.
type ListMark struct {
	Xmin uint64
	// Failing identifies the repositories that could not be read for longer than
	// ErrorGrace, with their errors: time alone changes what is shown of them.
	Failing map[RepositoryID]string
}

// ListChanges are the changes of what lists show since a mark.
type ListChanges struct {
	Mark   ListMark
	Cursor string // of the feed
	All    bool   // everything may have changed
	// Applications may have changed, or be gone. A change of a transaction that
	// ran at the time of the mark may come again.
	Applications []ListChange
	Clusters     bool // one has changed
}

// A ListChange is one change of an application, and the number of its transaction.
type ListChange struct {
	Transaction uint64
	Application ApplicationID
}

// A ListedCluster is what lists show of a cluster.
type ListedCluster struct {
	ID        ClusterID
	Name      string
	Server    string
	Connected bool
	LastSeen  *time.Time
	Lag       time.Duration
}

// Cluster is the cluster without what lists do not show.
func (c ListedCluster) Cluster() Cluster {
	return Cluster{ID: c.ID, Meta: Meta{Name: c.Name}, Server: c.Server, Connected: c.Connected, LastSeen: c.LastSeen, Lag: c.Lag}
}
