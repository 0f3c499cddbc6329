package link

import (
	"context"
	"time"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// Vault keeps the agent's identity, with its private key, where only the
// agent can read it: a Secret of its own namespace.
type Vault interface {
	// Load returns what was saved last. The error is fault.Missing when there
	// is nothing.
	Load(ctx context.Context) (Identity, error)
	// Save replaces it. It is durable when Save returns.
	Save(ctx context.Context, id Identity) error
}

// Facts is what a hub is told of the cluster when a session opens.
type Facts struct {
	Fingerprint string   // UID of the namespace kube-system
	KubeVersion string   // such as "v1.35.4"
	APIVersions []string // "apps/v1", "apps/v1/Deployment" …, sorted
	Readyz      string   // "ok", or what the API server's /readyz said
}

// Cluster is asked for facts at each Hello. It answers from what it knows
// when the API server is away, with Readyz saying so.
type Cluster interface {
	Facts(ctx context.Context) (Facts, error)
}

// Desired holds the agent's copy of the desired log. One goroutine calls it.
type Desired interface {
	// Cursor is how far the copy goes.
	Cursor() *linkv1.Cursor
	// StoreBatch stores a batch; what it took is durable when it returns, and is
	// then acknowledged. An error ends the stream, which starts again from
	// Cursor after a pause.
	StoreBatch(ctx context.Context, b *linkv1.Batch) error
	// Root is the root hash over all application states.
	Root() []byte
	// Rewound says that hub and agent disagree about the past: the copy is
	// kept and enforced, nothing is pruned, and a person decides. An empty
	// reason says that they agree, or agree again.
	Rewound(reason string)
	// Respond takes what is no row: Confirmed, Hold and Compare. It gives what
	// to say to the hub; nil: nothing.
	Respond(ctx context.Context, down *linkv1.FollowDown) (*linkv1.FollowUp, error)
}

// Reports gives what the hub should hear, and learns what it has heard.
type Reports interface {
	// Next waits for the next report. Epoch is that of the configuration, and
	// seq counts 1, 2, 3 … within it. A report is given once: when ctx ends
	// while Next waits, it gives an error and keeps what it has. The link keeps each report until
	// it is acknowledged and sends it again after a reconnect.
	Next(ctx context.Context) (*linkv1.ReportUp, error)
	// Acked says that the hub has stored all reports up to seq, and how many
	// bytes may be outstanding; 0: as many as before.
	Acked(epoch string, seq, credit uint64)
	// Resnapshot asks for everything again as a snapshot.
	Resnapshot()
	// Compare is the hub's answer to a report with sums.
	Compare(c *linkv1.Compare)
	// Grant says how many bytes of snapshots may be outstanding; 0: as many as
	// before.
	Grant(snapshots uint64)
}

// Sessions hears of sessions that open and close.
type Sessions interface {
	// Opened is called with the hub's answer before anything else flows. An
	// error closes the session again.
	Opened(ctx context.Context, hello *linkv1.HelloResponse) error
	// Revoked is called when the hub tells anew which agents of the tenant are
	// no longer good.
	Revoked(of []*linkv1.Revoked)
	// Closed gives the reason in a sentence for people.
	Closed(err error)
}

// Load is what a heartbeat carries. It is asked for before each beat.
type Load struct {
	Backlog uint32        // records that wait to be sent
	Seq     uint64        // newest row of the desired log that is stored
	Lag     time.Duration // age of the oldest change that the hub has not stored; 0: none
	Leader  bool          // the agent holds the Lease of its cluster
	// Incomplete says that the hub does not have everything yet that was seen
	// since the start.
	Incomplete bool
}
