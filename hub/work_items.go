package hub

import "time"

// A Refresh is one application that is refreshed, with all that the decision
// needs. The store loads many at once.
type Refresh struct {
	Application Application
	Project     *Project // nil: there is none of that name
	Cluster     *Cluster // nil: the destination is unresolved
	Sources     []SourceState
	Recent      []Snapshot // newest first, with ParamsHash and Inputs, without Objects
	Forced      bool       // render even if no input changed
	// Settings are those of the tenant that Renders names, by key. All
	// applications of one load share the map.
	Settings map[string]string
	// PublicKeys are those that signatures of commits are checked with, as
	// texts; they are there where a project demands signatures.
	PublicKeys []string
	// BasesPushed is when an event last said that a base was pushed to; zero: none
	// has. A listing of a base that began before is too old.
	BasesPushed time.Time
}

// A DecodedSpec is what the spec of an application means at a version of it.
// Nobody changes what is behind its pointers: others read them.
type DecodedSpec struct {
	Version int64
	Spec    ApplicationSpec
}

// A SourceState is what is known of the repository behind one source, in the
// order of the application's sources.
type SourceState struct {
	Repository Repository
	Refs       []Ref
}

// Unchanged says that an application stands at new commits whose inputs are
// those of the snapshot that it already has as its target.
type Unchanged struct {
	Application ApplicationID
	Revision    string
	Revisions   []string
	RefreshedAt time.Time
	Lease       int64 // of the work that it came from; 0: none guards it
}

// A Rendered is the complete, error-free result of rendering one application,
// or an older snapshot with the same inputs.
type Rendered struct {
	Application ApplicationID
	Generation  int64    // of the application that was rendered; a newer one voids the result
	Snapshot    Snapshot // without ID when it is new
	Reused      bool     // Snapshot is an old one: only its ID counts
	Bodies      [][]byte // canonical JSON in the order of Snapshot.Objects; empty for an old snapshot
	Revision    string   // commit that it stands for now
	Revisions   []string
	Operation   OperationID  // it was rendered for this operation alone; empty: for the target
	Trace       string       // what it continues; empty: nothing
	Lease       int64        // of the work that it came from; 0: none guards it
	Spec        *DecodedSpec // when it began; nil: that is not known any more
}

// A RefreshFailure is why an application could not be resolved or rendered.
// Its desired state stays what it was.
type RefreshFailure struct {
	Application ApplicationID
	Generation  int64
	Condition   string      // InvalidSpecError or ComparisonError
	Message     string      // one sentence for people
	Operation   OperationID // that alone has failed; empty: the application has
	Lease       int64       // of the work that it came from; 0: none guards it
}

// A WorkItem is one entry of the work queue, leased to one replica. It contains
// ids only.
type WorkItem struct {
	Kind   string
	Tenant TenantID
	Key    string
	Forced bool
	Token  int64 // distinguishes a later enqueueing from the one that was claimed
	// Attempts counts the earlier claims that did not end in Done.
	Attempts int
	// Trace continues what asked for the work; it is known on the replica that
	// was asked, and empty elsewhere.
	Trace string
	// Pushed is what a Git host has said of a repository that is to be fetched;
	// it is known on the replica that was told, and zero elsewhere and where
	// anything else made the work due.
	Pushed Pushed
}

// A Pushed is what a Git host says was pushed. Anybody may have said it, late
// or twice: it is a reason to ask the host, and never what is deployed.
type Pushed struct {
	Ref    string    // such as refs/heads/main
	Commit string    // where it is said to be now
	At     time.Time // when the event came
}

// A SealedObject is one stored object body: sealed with the tenant's object
// key, its digest as associated data.
type SealedObject struct {
	Digest Digest
	Sealed []byte
	Size   int // bytes of canonical JSON
}

// A TargetChange moves what an application is compared with and, if Accepted
// is set, what is enforced.
type TargetChange struct {
	Application ApplicationID
	Target      SnapshotID
	Accepted    SnapshotID // empty: unchanged
	Revision    string
	Revisions   []string
	SourceType  string
	Resources   int
	Pin         *Pin // nil: unchanged
	Unpin       bool
	Hold        string
	Generation  int64 // becomes both the generation and the planned generation
	Project     int64 // version of the project that it was planned for
	Warnings    []string
	Impure      bool // a template of the target uses random values or the time
	// DeletionHooks are the types of the target's hooks that run when the
	// application is deleted.
	DeletionHooks []string
	// Refreshed says that its sources have just been looked at, so that earlier
	// errors about them are over. An operation on what was rendered before
	// says nothing about them.
	Refreshed bool
	// Operation becomes the newest of the application; empty: it keeps the one
	// that it has.
	Operation OperationID
}

// A RefreshAck is a look at an application's sources that its annotation asked
// for and that is done.
type RefreshAck struct {
	Application ApplicationID
	Version     int64 // of the application that was looked at; a newer one may ask again
}
