package hub

import (
	"encoding/json"
	"log/slog"
	"slices"
	"time"
)

// A Tenant is an organisation. Nothing of one is visible to another.
type Tenant struct {
	ID          TenantID  `json:"id"`
	Name        string    `json:"name"`
	DisplayName string    `json:"displayName,omitempty"`
	Suspended   bool      `json:"suspended,omitempty"`
	CreatedAt   time.Time `json:"createdAt"`
}

// A Project groups applications and limits what they may do.
type Project struct {
	ID     ProjectID `json:"id"`
	Tenant TenantID  `json:"-"`
	Meta
	Spec json.RawMessage `json:"spec"` // a ProjectSpec as given
}

// A Repository is a source of manifests, with its credential sealed apart.
type Repository struct {
	ID            RepositoryID `json:"id"`
	Tenant        TenantID     `json:"-"`
	URL           string       `json:"url"`            // normalised by NormalizeRepoURL
	Type          string       `json:"type"`           // "git"
	Name          string       `json:"name,omitempty"` // optional display name
	Project       string       `json:"project,omitempty"`
	Username      string       `json:"username,omitempty"` // never the password
	HasCredential bool         `json:"hasCredential"`
	Insecure      bool         `json:"insecure,omitempty"` // do not verify the server: its TLS certificate, or its SSH host key
	Registered    bool         `json:"registered"`         // false: known only because an application names it
	FetchedAt     *time.Time   `json:"fetchedAt,omitempty"`
	Error         string       `json:"error,omitempty"` // the sentence of the last failed fetch; empty when well
	ErrorAt       *time.Time   `json:"errorAt,omitempty"`
	ErrorSince    *time.Time   `json:"errorSince,omitempty"` // the first of the failures in a row
	Version       int64        `json:"version"`
	CreatedAt     time.Time    `json:"createdAt"`
}

// A Credential opens a repository. It never leaves the hub and is never printed.
type Credential struct {
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"` // or a token
	// BearerToken is sent as "Authorization: Bearer" instead of the two
	// above, for hosts that ask for it (CRED-06).
	BearerToken string `json:"bearerToken,omitempty"`
	// SSHPrivateKey opens repositories over SSH (CRED-07).
	SSHPrivateKey string `json:"sshPrivateKey,omitempty"`
	// TLSClientCert and TLSClientKey, both PEM, are shown to a server over
	// HTTPS that asks who connects (CRED-08).
	TLSClientCert string `json:"tlsClientCert,omitempty"`
	TLSClientKey  string `json:"tlsClientKey,omitempty"`
}

// String hides the secret from every formatter.
func (Credential) String() string { return "(credential)" }

// GoString hides the secret from %#v too.
func (Credential) GoString() string { return "(credential)" }

// LogValue hides the secret from logs, those in JSON too.
func (Credential) LogValue() slog.Value { return slog.StringValue("(credential)") }

// A Ref is a name in a repository and the commit that it stands for.
type Ref struct {
	Name   string `json:"name"`   // full: refs/heads/main, refs/tags/v1.0.0, HEAD
	Commit string `json:"commit"` // 40 hex digits; annotated tags are peeled
}

// ErrorGrace is how long a repository that was there before may be away until
// its applications say so. What was fetched stays in force all the while
// (CMPR-04).
const ErrorGrace = 180 * time.Second

// A Cluster is a Kubernetes cluster that an agent speaks for.
type Cluster struct {
	ID     ClusterID `json:"id"`
	Tenant TenantID  `json:"-"`
	Meta
	Server       string     `json:"server,omitempty"` // alias URL that destinations may name; not an address that the hub dials
	KubeVersion  string     `json:"kubeVersion,omitempty"`
	APIVersions  []string   `json:"apiVersions,omitempty"`
	Fingerprint  string     `json:"fingerprint,omitempty"` // UID of the kube-system namespace
	AgentID      string     `json:"agentId,omitempty"`
	AgentVersion string     `json:"agentVersion,omitempty"`
	Connected    bool       `json:"connected"`
	LastSeen     *time.Time `json:"lastSeen,omitempty"`
	Seq          int64      `json:"seq"`      // newest row of its desired log
	AckedSeq     int64      `json:"ackedSeq"` // newest row that the agent has stored
	Refusal      *Refusal   `json:"refusal,omitempty"`
	Receipt      *Receipt   `json:"receipt,omitempty"`

	Backlog    uint32        `json:"backlog,omitempty"` // changes that the agent has not sent yet
	Lag        time.Duration `json:"lag,omitempty"`     // age of the oldest change that is not stored here yet
	Rewind     *Rewind       `json:"rewind,omitempty"`
	Quarantine *Quarantine   `json:"quarantine,omitempty"`
	Refused    *Refused      `json:"refused,omitempty"`
	// Upgradable says that the agent lets the hub upgrade it.
	Upgradable bool     `json:"upgradable,omitempty"`
	Upgrade    *Upgrade `json:"upgrade,omitempty"` // the newest
	// Held says that the hub as a whole waits for an admin: some agent, of
	// whichever tenant, has proved that the hub's past is not the right one.
	Held bool `json:"held,omitempty"`
	// InClusterOff says that the tenant has switched Argo CD's own cluster off
	// as a destination. It is read where destinations are judged.
	InClusterOff bool `json:"-"`
}

// A Refusal is the newest attempt of a cluster's agent to join or to connect
// that the hub refused, and that no connection has followed since.
type Refusal struct {
	At           time.Time `json:"at"`
	Address      string    `json:"address"`
	Stage        string    `json:"stage"`   // token, expired, used, version, csr, store, certificate, suspended, replaced, fingerprint
	Message      string    `json:"message"` // a sentence for people
	AgentVersion string    `json:"agentVersion,omitempty"`
}

// A Receipt proves that hub and agent held the same desired state.
type Receipt struct {
	Seq  int64     `json:"seq"`
	Root []byte    `json:"root"`
	At   time.Time `json:"at"`
}

// SyncStatus says whether live state equals the target.
type SyncStatus string

// The sync states.
const (
	Synced      SyncStatus = "Synced"
	OutOfSync   SyncStatus = "OutOfSync"
	SyncUnknown SyncStatus = "Unknown"
)

// HealthStatus is how well an object or application is; row HLT-01 has the order.
type HealthStatus string

// The health states, best to worst.
const (
	Healthy       HealthStatus = "Healthy"
	Suspended     HealthStatus = "Suspended"
	Progressing   HealthStatus = "Progressing"
	MissingHealth HealthStatus = "Missing"
	Degraded      HealthStatus = "Degraded"
	HealthUnknown HealthStatus = "Unknown"
)

// Phase is where an operation stands.
type Phase string

// The phases. An operation is over in the last three.
const (
	Pending     Phase = "Pending" // in the log, not yet taken up by the agent
	Running     Phase = "Running"
	Terminating Phase = "Terminating"
	Succeeded   Phase = "Succeeded"
	Failed      Phase = "Failed"
	Errored     Phase = "Error"
)

// Over says whether nothing more will happen in this phase.
func (p Phase) Over() bool { return p == Succeeded || p == Failed || p == Errored }

// An Application is the unit of delivery: sources, a destination, a policy.
type Application struct {
	ID     ApplicationID `json:"id"`
	Tenant TenantID      `json:"-"`
	Meta
	Project    string            `json:"project"`
	Spec       json.RawMessage   `json:"spec"`              // an ApplicationSpec as given
	Cluster    ClusterID         `json:"cluster,omitempty"` // resolved destination; empty: unresolved, see conditions
	Generation int64             `json:"generation"`        // grows with each change of spec, target, policy or deletion; the fence of operations
	DeletingAt *time.Time        `json:"deletingAt,omitempty"`
	Cascade    bool              `json:"cascade,omitempty"` // with DeletingAt: objects go too
	Parent     *ApplicationKey   `json:"parent,omitempty"`  // the application that renders it; nil: none does
	Pin        *Pin              `json:"pin,omitempty"`     // set by rollback: paused at an older snapshot
	Status     ApplicationStatus `json:"status"`
}

// A Pin pauses an application at an older snapshot until Git renders something
// else than what was rolled back from, or a person syncs or resumes.
type Pin struct {
	Snapshot SnapshotID `json:"snapshot"`
	History  int64      `json:"history,omitempty"` // entry that was gone back to; 0: not known
	Skipped  string     `json:"skipped"`           // revision that was rolled back from
	// SkippedRevisions has one for each source when there are several.
	SkippedRevisions []string   `json:"skippedRevisions,omitempty"`
	Bad              SnapshotID `json:"bad"` // snapshot of Skipped: newer revisions that render the same are skipped too
	Reason           string     `json:"reason,omitempty"`
	By               string     `json:"by"`
	At               time.Time  `json:"at"`
	// Newest is the newest rendered snapshot of Git, and Revision what it
	// stands for. Empty: Bad and Skipped are.
	Newest    SnapshotID `json:"newest,omitempty"`
	Revision  string     `json:"revision,omitempty"`
	Revisions []string   `json:"revisions,omitempty"`
	// Behind says that Newest holds other objects than Snapshot: against Git
	// the application is OutOfSync.
	Behind bool `json:"behind"`
}

// Git is the newest rendered snapshot of Git, and its revisions.
func (p Pin) Git() (snapshot SnapshotID, revision string, revisions []string) {
	if p.Newest == "" {
		return p.Bad, p.Skipped, p.SkippedRevisions
	}
	return p.Newest, p.Revision, p.Revisions
}

// Sentence says that an application is paused at a revision, since when, by
// whom and why.
func (p Pin) Sentence(revision string) string {
	s := "paused at " + revision[:min(len(revision), 8)] + " since " + p.At.UTC().Format(time.RFC3339) + ", rolled back by " + p.By
	if p.Reason != "" {
		s += " because " + p.Reason
	}
	return s
}

// An ApplicationStatus is what is known of an application. Times say how old.
type ApplicationStatus struct {
	Revision    string       `json:"revision,omitempty"`  // commit that the target snapshot stands for now
	Revisions   []string     `json:"revisions,omitempty"` // one for each source when there are several
	SourceType  string       `json:"sourceType,omitempty"`
	Target      SnapshotID   `json:"target,omitempty"`   // compared with live
	Accepted    SnapshotID   `json:"accepted,omitempty"` // enforced
	Sync        SyncStatus   `json:"sync"`
	Health      HealthStatus `json:"health"`
	HealthCause string       `json:"healthCause,omitempty"` // the worst child and why
	HealthSince *time.Time   `json:"healthSince,omitempty"`
	Conditions  []Condition  `json:"conditions,omitempty"`
	Operation   *Operation   `json:"operation,omitempty"`   // the newest one
	Resources   int          `json:"resources"`             // managed objects in the target
	ComparedAt  *time.Time   `json:"comparedAt,omitempty"`  // by the agent, with the target above
	RefreshedAt *time.Time   `json:"refreshedAt,omitempty"` // sources last resolved and rendered or found unchanged
	Hold        string       `json:"hold,omitempty"`        // why auto-sync waits; empty: it does not
	// PlannedGeneration is the generation that the newest desired state was
	// planned for; behind Generation means that a change of spec waits.
	PlannedGeneration int64 `json:"plannedGeneration,omitempty"`
	// PlannedProject is the version of the project that it was planned for.
	PlannedProject int64 `json:"plannedProject,omitempty"`
	// DeletionHooks are the types of the target's hooks that run when the
	// application is deleted.
	DeletionHooks []string `json:"deletionHooks,omitempty"`
}

// A Condition is one thing that a person should know about an application.
type Condition struct {
	Type    string    `json:"type"` // row APP-17: ComparisonError, InvalidSpecError, SyncError, DeletionError …
	Message string    `json:"message"`
	Since   time.Time `json:"lastTransitionTime"`
}

// Condition types used by the stages.
const (
	InvalidSpecError = "InvalidSpecError" // destination, project or source do not fit
	ComparisonError  = "ComparisonError"  // sources could not be resolved or rendered
	SyncError        = "SyncError"        // automation stopped after a failed operation
	DeletionError    = "DeletionError"
	ImpureWarning    = "ImpureWarning"           // templates use random or time functions
	RenderWarning    = "RenderWarning"           // what a renderer wants people to know
	AgentWarning     = "AgentWarning"            // what an agent wants people to know, such as a field that is fought over
	SharedWarning    = "SharedResourceWarning"   // an object that others track or manage, too
	OrphanedWarning  = "OrphanedResourceWarning" // objects in its namespace that no application manages
	ExcludedWarning  = "ExcludedResourceWarning" // the settings exclude a kind that the application holds
)

// An ObjectRef is one object of a snapshot, without its body.
type ObjectRef struct {
	Digest    Digest `json:"-"`
	Group     string `json:"group"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"` // as applied; empty for cluster-scoped kinds and for "the destination's default"
	Name      string `json:"name"`
	Wave      int32  `json:"wave,omitempty"`
	Hook      string `json:"hook,omitempty"` // hook types, comma separated; empty: an ordinary object
}

// A Snapshot is the result of rendering one set of inputs, for ever.
type Snapshot struct {
	ID          SnapshotID    `json:"id"`
	Tenant      TenantID      `json:"-"`
	Application ApplicationID `json:"application"`
	Revision    string        `json:"revision"` // of the commit that it was first rendered for
	Revisions   []string      `json:"revisions,omitempty"`
	ParamsHash  [32]byte      `json:"-"` // renderer version, source spec, parameters, capabilities answered
	Objects     []ObjectRef   `json:"objects"`
	Inputs      []Input       `json:"-"`
	SourceType  string        `json:"sourceType"`
	Impure      bool          `json:"impure,omitempty"`
	Warnings    []string      `json:"warnings,omitempty"`
	// Lists are the digests of blobs that hold the objects, in order, as
	// serialised link.v1.ObjectLists; none unless there are more than 500.
	Lists     []Digest   `json:"-"`
	Commit    CommitInfo `json:"commit"`
	CreatedAt time.Time  `json:"createdAt"`
}

// CommitInfo is what people see of a commit.
type CommitInfo struct {
	Author  string    `json:"author,omitempty"`
	Message string    `json:"message,omitempty"` // first 500 characters
	At      time.Time `json:"at,omitzero"`
}

// InputKind says what a renderer saw at a path.
type InputKind string

// The kinds of recorded inputs.
const (
	InputFile    InputKind = "file"    // Hash is the blob
	InputList    InputKind = "list"    // Hash covers names and modes of one directory, not contents
	InputTree    InputKind = "tree"    // Hash is the whole tree below
	InputLink    InputKind = "link"    // Hash is the blob of the link itself
	InputMissing InputKind = "missing" // nothing stood there
	InputDir     InputKind = "dir"     // a directory stood there; no hash, and no Tree answers it
	InputRemote  InputKind = "remote"  // Path is an address as the spec writes it, Hash the contents there; no Tree answers it
	InputFact    InputKind = "fact"    // Path is a question about cluster or revision, Hash its answer; no Tree answers it
)

// An Input is one thing that a render read. Source is the index of the
// application's source whose repository it was read from.
type Input struct {
	Source int       `json:"s,omitempty"`
	Kind   InputKind `json:"k"`
	Path   string    `json:"p"`
	Hash   string    `json:"h,omitempty"`
}

// A Resource is one node of an application's tree as the agent last saw it.
type Resource struct {
	Cluster       ClusterID     `json:"-"`
	Application   ApplicationID `json:"-"`
	UID           string        `json:"uid,omitempty"`
	Parent        string        `json:"parent,omitempty"` // uid of the owner; empty: managed directly
	Group         string        `json:"group"`
	Version       string        `json:"version"`
	Kind          string        `json:"kind"`
	Namespace     string        `json:"namespace,omitempty"`
	Name          string        `json:"name"`
	Managed       bool          `json:"managed"` // in the target or a tombstone, as opposed to a child
	Sync          SyncStatus    `json:"status,omitempty"`
	Health        HealthStatus  `json:"health,omitempty"` // empty: the kind has no rule
	Message       string        `json:"message,omitempty"`
	RequiresPrune bool          `json:"requiresPruning,omitempty"`
	Hook          bool          `json:"hook,omitempty"`
	Wave          int32         `json:"syncWave,omitempty"`
	DiffSummary   string        `json:"diff,omitempty"`    // few words: which fields differ
	Links         []string      `json:"links,omitempty"`   // "title|URL" or URL, of http or https
	Confirm       bool          `json:"confirm,omitempty"` // its deletion waits until a person approves
	Info          []Info        `json:"info,omitempty"`    // columns: images, replicas, restarts …
	CreatedAt     *time.Time    `json:"createdAt,omitempty"`
	UpdatedAt     time.Time     `json:"updatedAt"`
	Orphan        bool          `json:"orphaned,omitempty"` // in the application's namespace, and managed by nobody: neither managed nor a child
	Stamp         []byte        `json:"-"`                  // the agent's own hash of it; empty: it gives none
}

// A HistoryEntry is one recorded sync of an application (APP-12).
type HistoryEntry struct {
	ID          int64           `json:"id"` // 1, 2, 3 … within the application
	Application ApplicationID   `json:"-"`
	Operation   OperationID     `json:"operation"`
	Snapshot    SnapshotID      `json:"snapshot"`
	Revision    string          `json:"revision"`
	Revisions   []string        `json:"revisions,omitempty"`
	Source      json.RawMessage `json:"source,omitempty"` // as the spec had it; of several sources the list of them
	Initiator   Initiator       `json:"initiatedBy"`
	Reason      string          `json:"reason,omitempty"`
	StartedAt   time.Time       `json:"deployStartedAt"`
	DeployedAt  time.Time       `json:"deployedAt"`
	Commit      CommitInfo      `json:"commit,omitzero"` // empty where another commit gave the same manifests before
}

// A Change is one step of the feed of a tenant.
type Change struct {
	Cursor string `json:"cursor"` // opaque: it says nothing to who holds it
	Kind   string `json:"kind"`   // application, resources, operation, cluster, repository, project
	ID     string `json:"id"`
	Gone   bool   `json:"gone,omitempty"`
}

// A RowKind is the kind of a row of the desired log; the numbers are those of
// the wire (link.v1.RowKind).
type RowKind int32

// The kinds of rows.
const (
	RowState     RowKind = 1
	RowOperation RowKind = 2
	RowTerminate RowKind = 3
	RowForget    RowKind = 4
	RowSettings  RowKind = 5 // of no application: it carries SettingsRow in its place
)

// A LogRow is one row of a cluster's desired log.
type LogRow struct {
	Seq         int64
	Kind        RowKind
	Application ApplicationID
	Operation   OperationID // for operation and terminate rows
	Body        []byte      // serialised link.v1 message
	Chain       []byte      // chain hash after this row, 32 bytes
	Lists       []Digest    // blobs that a state refers to besides those of its snapshots; not read back
	Objects     []Digest    // what a state lists itself, if whoever made the row has said so; not stored
}

// A LogHead is the end of a cluster's desired log.
type LogHead struct {
	Incarnation string
	Seq         int64
	Chain       []byte
	Held        bool // the hub as a whole waits for an admin, so nothing may be deleted anywhere
}

// A LogPlace is how far a stream has read the desired log of a cluster.
type LogPlace struct {
	Cluster ClusterID
	After   int64   // rows after this one are wanted
	Known   LogHead // end of the log as the stream last saw it; zero: it saw none
}

// A LogPage is what follows a place, and the end of the log at that moment. A
// log may have lost the end that was known, and hold other rows with the same
// numbers: a database that failed over to a standby may lack the last commits.
type LogPage struct {
	Head LogHead
	Rows []LogRow
	Lost bool
}

// A LogAck says how far an agent has stored its log, and with a receipt that
// it holds the very same states.
type LogAck struct {
	Cluster ClusterID
	Seq     int64
	Receipt *Receipt
}

// A Tombstone asks for the deletion of one object. Only a complete snapshot
// that no longer has the object, or the deletion of its application, makes one.
type Tombstone struct {
	Application ApplicationID
	Cluster     ClusterID
	Group       string
	Version     string
	Kind        string
	Namespace   string
	Name        string
	Wave        int32
	Since       int64 // seq of the log row that made it
}

// A ClusterObservation is a report of the agent of one cluster.
type ClusterObservation struct {
	Cluster ClusterID
	Observation
}

// An Observation is one report of an agent, as the store takes it in.
type Observation struct {
	Epoch        string
	Seq          int64
	Applications []ApplicationObservation
	Resources    []Resource
	Gone         []ResourceGone
	Operations   []OperationObservation
	Closed       []Tombstone
	Snapshot     int64 // generation of the snapshot that this belongs to; 0: a delta
	Sweep        int64 // not 0: the snapshot of this generation is complete
	Bounded      bool  // only Buckets were compared, and only they are swept
	Buckets      []uint16
	Sums         *Sums // what the agent holds; nil: it does not ask for a comparison
}

// Passing says whether the report tells of live state alone, which the agent
// can tell again. What ended cannot be told again.
func (o Observation) Passing() bool {
	return len(o.Operations) == 0 && len(o.Closed) == 0 &&
		!slices.ContainsFunc(o.Applications, func(a ApplicationObservation) bool { return a.Gone })
}

// An ApplicationObservation is what an agent says of a whole application.
type ApplicationObservation struct {
	Application ApplicationID
	Target      SnapshotID
	Generation  int64
	Sync        SyncStatus
	Health      HealthStatus
	HealthCause string
	ComparedAt  time.Time
	Warnings    []string
	Notes       []Note   // of types of their own
	Excluded    []string // sentences about kinds that the settings exclude
	Error       string
	Gone        bool
	Stamp       []byte      // the agent's own hash of it; empty: it gives none
	Unblocked   OperationID // that failed because of who owned objects, which is no longer in its way; empty: there is none
}

// A Note is a condition that an agent reports.
type Note struct{ Type, Message string }

// A ResourceGone names a resource that an agent no longer sees.
type ResourceGone struct {
	Application ApplicationID
	UID         string
	Group       string
	Kind        string
	Namespace   string
	Name        string
}

// An OperationObservation is how far an operation came.
type OperationObservation struct {
	Operation   OperationID
	Application ApplicationID
	Phase       Phase
	Message     string
	Results     []ObjectResult
	StartedAt   *time.Time
	FinishedAt  *time.Time
	HealthyAt   *time.Time
	Trace       string // of the agent's span; empty: none
}
