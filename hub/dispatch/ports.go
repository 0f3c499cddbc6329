package dispatch

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

// Tx is one transaction of one tenant, as the ports that dispatch uses. A
// function that needs one port takes that port.
type Tx struct {
	WorkQueue
	ApplicationLocks
	Destinations
	RefreshResults
	ApplicationRemover
	HistoryLog
	SnapshotStore
	OperationReader
	OperationWriter
	LogWriter
	LogReader
	HolderReader
	TombstoneStore
}

// WorkQueue is the queue of work, inside a transaction.
type WorkQueue interface {
	// Enqueue makes work due; it becomes visible when the transaction commits.
	Enqueue(ctx context.Context, kind, key string, due time.Time, forced bool) error
	// Held says which leases of work, by key and token, are still good; they
	// stay so until the transaction ends.
	Held(ctx context.Context, kind string, leases map[string]int64) (map[string]bool, error)
	// Fetch makes a repository due.
	Fetch(ctx context.Context, id hub.RepositoryID) error
	// Undecided names an application of the same cluster and repository that is
	// still to be looked at, besides some; empty: there is none.
	Undecided(ctx context.Context, app hub.Application, revision string, besides []hub.ApplicationID) (string, error)
}

// ApplicationLocks reads applications and keeps others from changing them.
type ApplicationLocks interface {
	LockApplications(ctx context.Context, ids []hub.ApplicationID) (map[hub.ApplicationID]hub.Application, error)
}

// Destinations are what an application is judged by besides itself.
type Destinations interface {
	ClustersByID(ctx context.Context, ids []hub.ClusterID) (map[hub.ClusterID]hub.Cluster, error)
	// ClusterPlaces returns names, servers, annotations, scopes and times of
	// change.
	ClusterPlaces(ctx context.Context, ids []hub.ClusterID) (map[hub.ClusterID]hub.Cluster, error)
	// ProjectSpecs returns projects with what they inherit.
	ProjectSpecs(ctx context.Context, names []string) (map[string]hub.Project, error)
	RepositoryFor(ctx context.Context, url, project string) (hub.Repository, error)
}

// RefreshResults keeps what came of looking at applications.
type RefreshResults interface {
	SetTargets(ctx context.Context, changes []hub.TargetChange) error
	SetFailures(ctx context.Context, failures []hub.RefreshFailure) error
	Unchanged(ctx context.Context, apps []hub.Unchanged) error
	AcknowledgeRefresh(ctx context.Context, done []hub.RefreshAck) error
	SetCondition(ctx context.Context, app hub.ApplicationID, kind, message string) error
}

// ApplicationRemover takes applications away.
type ApplicationRemover interface {
	MarkDeleting(ctx context.Context, app hub.ApplicationID, cascade bool) error
	RemoveApplication(ctx context.Context, app hub.ApplicationID) error
	RemoveApplications(ctx context.Context, apps []hub.ApplicationID) error
}

// HistoryLog is what applications have deployed.
type HistoryLog interface {
	AppendHistory(ctx context.Context, entries []hub.HistoryEntry) error
	HistoryEntry(ctx context.Context, app hub.ApplicationID, id int64) (hub.HistoryEntry, error)
}

// SnapshotStore keeps rendered manifests, sealed.
type SnapshotStore interface {
	TenantKeys(ctx context.Context) (hub.TenantKeys, error)
	PutObjects(ctx context.Context, objects []hub.SealedObject) error
	PutSnapshots(ctx context.Context, snapshots []hub.Snapshot) error
	Snapshots(ctx context.Context, ids []hub.SnapshotID) (map[hub.SnapshotID]hub.Snapshot, error)
}

// OperationReader finds operations.
type OperationReader interface {
	Operation(ctx context.Context, id hub.OperationID) (hub.Operation, error)
	OperationsByID(ctx context.Context, ids []hub.OperationID) (map[hub.OperationID]hub.Operation, error)
	OpenOperations(ctx context.Context, apps []hub.ApplicationID) (map[hub.ApplicationID]hub.Operation, error)
	// NewestOperations leaves dry runs out.
	NewestOperations(ctx context.Context, apps []hub.ApplicationID) (map[hub.ApplicationID]hub.Operation, error)
}

// OperationWriter stores operations and what becomes of them.
type OperationWriter interface {
	PutOperations(ctx context.Context, ops []hub.Operation) error
	// AddOperations leaves it to SetTargets to note them as the newest.
	AddOperations(ctx context.Context, ops []hub.Operation) error
	EndOperation(ctx context.Context, id hub.OperationID, phase hub.Phase, message string) error
	GiveSnapshots(ctx context.Context, ops []hub.Operation) error
	SetOperationRetry(ctx context.Context, id hub.OperationID, at *time.Time, options hub.OperationOptions) error
}

// LogWriter appends to the desired logs of clusters.
type LogWriter interface {
	LockClusters(ctx context.Context, ids []hub.ClusterID) (map[hub.ClusterID]hub.LogHead, error)
	AppendLogs(ctx context.Context, rows map[hub.ClusterID][]hub.LogRow) error
}

// LogReader reads the desired log of one cluster.
type LogReader interface {
	RowsAfter(ctx context.Context, cluster hub.ClusterID, seq int64, limit int) ([]hub.LogRow, hub.LogHead, error)
	Leaves(ctx context.Context, cluster hub.ClusterID) (map[string][32]byte, error)
}

// HolderReader says which clusters hold states of applications.
type HolderReader interface {
	DesiredClusters(ctx context.Context, app hub.ApplicationID) ([]hub.ClusterID, error)
	Holders(ctx context.Context, apps []hub.ApplicationID) (map[hub.ApplicationID][]hub.ClusterID, error)
}

// TombstoneStore keeps the orders to delete objects.
type TombstoneStore interface {
	OpenTombstones(ctx context.Context, tombstones []hub.Tombstone) error
	CloseTombstones(ctx context.Context, tombstones []hub.Tombstone) error
	Tombstones(ctx context.Context, apps []hub.ApplicationID) (map[hub.ApplicationID][]hub.Tombstone, error)
}
