// Package stream serves the desired logs of clusters to their agents over the
// link: it replays what an agent lacks, follows the log, compares what both
// sides hold when the log is at rest, and hands out the blobs that rows refer
// to. It decides nothing about applications and appends no row, except that
// states are written anew with higher generations when an admin has given up
// the past that an agent holds. The daemon runs one Server per replica, and
// dispatch tells it what has been appended. An agent that holds another past
// than the hub gets nothing until a person has decided.
package stream

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/batch"
)

// Store opens transactions that are bound to a tenant.
type Store interface {
	InTenant(ctx context.Context, tenant hub.TenantID, do func(ctx context.Context, tx Tx) error) error
	// ReadTenant writes nothing and sees one moment throughout: rows, head and
	// leaves that it reads belong together.
	ReadTenant(ctx context.Context, tenant hub.TenantID, do func(ctx context.Context, tx Tx) error) error
	// DigestKey returns the tenant's key that objects are named under.
	DigestKey(ctx context.Context, tenant hub.TenantID) ([32]byte, error)
}

// Tx is one transaction of one tenant, as the ports that streams use.
type Tx struct {
	LogReader
	LogEnds
	RewindLog
	Restates
	BlobReader
}

// LogReader reads the log of one cluster.
type LogReader interface {
	RowsAfter(ctx context.Context, cluster hub.ClusterID, seq int64, limit int) ([]hub.LogRow, hub.LogHead, error)
	SettingsRow(ctx context.Context, cluster hub.ClusterID) (row hub.LogRow, found bool, err error)
	HashAt(ctx context.Context, cluster hub.ClusterID, seq int64) ([]byte, bool, error)
	Leaves(ctx context.Context, cluster hub.ClusterID) (map[string][32]byte, error)
}

// LogEnds reads the logs of many clusters, each behind the place where its
// stream is.
type LogEnds interface {
	Heads(ctx context.Context, clusters []hub.ClusterID) (map[hub.ClusterID]hub.LogHead, error)
	Pages(ctx context.Context, places []hub.LogPlace, limit int) ([]hub.LogPage, error)
	LeavesOf(ctx context.Context, clusters []hub.ClusterID) (map[hub.ClusterID]map[string][32]byte, error)
	// Acknowledge notes how far agents have taken their logs.
	Acknowledge(ctx context.Context, acks []hub.LogAck) error
}

// RewindLog is what is known of agents that hold another past than the hub.
type RewindLog interface {
	NoteRewind(ctx context.Context, cluster hub.ClusterID, r hub.Rewind) (noted bool, err error)
	ClearRewind(ctx context.Context, cluster hub.ClusterID) error
	Rewind(ctx context.Context, cluster hub.ClusterID) (*hub.Rewind, error)
	GivenUp(ctx context.Context, cluster hub.ClusterID, incarnation string) (by string, at time.Time, given bool, err error)
	RaiseGenerations(ctx context.Context, generations map[hub.ApplicationID]int64) error
}

// Restates writes the states of a cluster's applications anew.
type Restates interface {
	LockApplications(ctx context.Context, ids []hub.ApplicationID) (map[hub.ApplicationID]hub.Application, error)
	LockClusters(ctx context.Context, ids []hub.ClusterID) (map[hub.ClusterID]hub.LogHead, error)
	AppendRows(ctx context.Context, cluster hub.ClusterID, rows []hub.LogRow) error
	OpenOperations(ctx context.Context, apps []hub.ApplicationID) (map[hub.ApplicationID]hub.Operation, error)
	SetOperationRetry(ctx context.Context, id hub.OperationID, at *time.Time, options hub.OperationOptions) error
}

// BlobReader reads what a cluster may have.
type BlobReader interface {
	Reachable(ctx context.Context, cluster hub.ClusterID, digests []hub.Digest) ([]hub.Digest, error)
	Objects(ctx context.Context, digests []hub.Digest) ([]hub.SealedObject, error)
}

// A Server holds the streams of one replica. Its methods may be used by many
// goroutines.
type Server struct {
	store   Store
	log     *slog.Logger
	wakes   *subscriptions
	heads   *heads
	pages   *batch.Batcher[cursor, logPage]
	acks    *batch.Batcher[hub.LogAck, struct{}]
	batches *batch.Batcher[blobRequest, []hub.SealedObject]
	recent  *recentBlobs
	packed  atomic.Int64       // bytes of states that streams keep as bases
	changed func(hub.TenantID) // hint that the tenant's feed moved; never nil

	elsewhere func(hub.ClusterID) // hint for a cluster without a stream here; may be nil
	bursts    Bursts
}

// New makes a server. Changed is called after each commit that people may want
// to see; it must not block.
func New(store Store, changed func(hub.TenantID), log *slog.Logger) *Server {
	s := &Server{store: store, log: log, bursts: noBursts{}, wakes: newWakes(), heads: newHeads(), recent: newRecentBlobs(8 << 20), changed: changed}
	s.pages, s.acks, s.batches = batch.New(s.read), batch.New(s.acknowledge), batch.New(s.bodies)
	return s
}

// loopLimit is how long a loop may show no sign of life.
const loopLimit = 90 * time.Second

// Run looks after logs that moved without a hint, until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	s.watch(ctx)
	return nil
}
