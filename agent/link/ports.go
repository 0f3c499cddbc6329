package link

import (
	"context"
	"time"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// Vault stores the agent's identity, with its private key, where only the agent
// can read it: a Secret of its own namespace.
type Vault interface {
	// Load returns what was saved last. The error is fault.Missing when there
	// is nothing.
	Load(ctx context.Context) (Identity, error)
	// Save replaces it. It is durable when Save returns.
	Save(ctx context.Context, id Identity) error
}

// Facts are reported to the hub when a session opens.
type Facts struct {
	Fingerprint string   // UID of the namespace kube-system
	KubeVersion string   // such as "v1.35.4"
	APIVersions []string // "apps/v1", "apps/v1/Deployment" …, sorted
	Readyz      string   // "ok", or what the API server's /readyz said
}

// Cluster returns facts for each Hello. It returns known facts when the API
// server is unreachable, with Readyz saying so.
type Cluster interface {
	Facts(ctx context.Context) (Facts, error)
}

// Desired is the agent's copy of the desired log. One goroutine calls it.
type Desired interface {
	// Cursor is how far the copy goes.
	Cursor() *linkv1.Cursor
	// StoreBatch stores a batch; it is durable on return, and is then
	// acknowledged. An error ends the stream, which restarts from Cursor after
	// a pause.
	StoreBatch(ctx context.Context, b *linkv1.Batch) error
	// Root is the root hash over all application states.
	Root() []byte
	// Rewound reports that the hub's log does not contain the agent's cursor:
	// the copy stays enforced, nothing is pruned, and an admin decides. An
	// empty reason means that it does.
	Rewound(reason string)
	// Respond handles messages other than rows: Confirmed, Hold and Compare. It
	// returns the reply to the hub; nil: none.
	Respond(ctx context.Context, down *linkv1.FollowDown) (*linkv1.FollowUp, error)
}

// Reports returns what to report to the hub, and receives acknowledgements.
type Reports interface {
	// Next waits for the next report. Epoch is that of the configuration, and
	// seq counts 1, 2, 3 … within it. Each report is returned once. If ctx ends
	// while Next waits, it returns an error, and no report is lost. The link
	// stores each report until it is acknowledged, and sends it again after a
	// reconnect.
	Next(ctx context.Context) (*linkv1.ReportUp, error)
	// Acked says that the hub has stored all reports up to seq, and how many
	// bytes may be outstanding; 0: as many as before.
	Acked(epoch string, seq, credit uint64)
	// Resnapshot requests everything again as a snapshot.
	Resnapshot()
	// Compare is the hub's answer to a report with sums.
	Compare(c *linkv1.Compare)
	// Grant says how many bytes of snapshots may be outstanding; 0: as many as
	// before.
	Grant(snapshots uint64)
}

// Sessions is notified of sessions that open and close.
type Sessions interface {
	// Opened is called with the hub's answer before anything else flows. An
	// error closes the session again.
	Opened(ctx context.Context, hello *linkv1.HelloResponse) error
	// Revoked is called when the hub sends a new list of the tenant's revoked
	// agents.
	Revoked(of []*linkv1.Revoked)
	// Closed receives the reason as a sentence for users.
	Closed(err error)
}

// Load is the content of a heartbeat. It is read before each one.
type Load struct {
	Backlog uint32        // records that wait to be sent
	Seq     uint64        // newest row of the desired log that is stored
	Lag     time.Duration // age of the oldest change that the hub has not stored; 0: none
	Leader  bool          // the agent holds the Lease of its cluster
	// Incomplete says that the hub does not have everything yet that was seen
	// since the start.
	Incomplete bool
}
