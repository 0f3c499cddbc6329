package catalog

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

// Store opens transactions that are bound to a tenant.
type Store interface {
	InTenant(ctx context.Context, tenant hub.TenantID, do func(ctx context.Context, tx Tx) error) error
	// ReadTenant is InTenant for a transaction that sees one moment and
	// writes nothing.
	ReadTenant(ctx context.Context, tenant hub.TenantID, do func(ctx context.Context, tx Tx) error) error
	Keys(ctx context.Context, tenant hub.TenantID) (hub.TenantKeys, error)
}

// Directory knows the tenants.
type Directory interface {
	CreateTenant(ctx context.Context, t hub.Tenant) error
	Tenants(ctx context.Context) ([]hub.Tenant, error)
	Tenant(ctx context.Context, id hub.TenantID) (hub.Tenant, error)
	TenantByName(ctx context.Context, name string) (hub.Tenant, error)
	PutSetupLink(ctx context.Context, l hub.SetupLink) error
	SetupLink(ctx context.Context, hash [32]byte) (hub.SetupLink, error)
	// UseSetupLink takes a link away; of all who try, one gets it.
	UseSetupLink(ctx context.Context, hash [32]byte, now time.Time) (hub.SetupLink, error)
}

// Tx is one transaction of one tenant. What a method does not find is
// fault.Missing; an object that was changed meanwhile is fault.Conflict.
type Tx interface {
	ID() hub.TenantID
	PolicyVersion() int64
	Policy(ctx context.Context) (text string, version int64, err error)
	accounts
	projects
	repositories
	clusters
	applications
	settingsTx
	records
}

type accounts interface {
	Users(ctx context.Context) ([]hub.User, error)
	User(ctx context.Context, id hub.UserID) (hub.User, error)
	UserByName(ctx context.Context, name string) (hub.User, string, error)
	CreateUser(ctx context.Context, u hub.User, passwordHash string) (hub.User, error)
	UpdateUser(ctx context.Context, u hub.User) error
	SetPassword(ctx context.Context, id hub.UserID, passwordHash string) error
	DeleteUser(ctx context.Context, id hub.UserID) error
	EndSessions(ctx context.Context, id hub.UserID) error
	PutToken(ctx context.Context, t hub.APIToken) error
	Tokens(ctx context.Context, user hub.UserID) ([]hub.APIToken, error)
	DeleteToken(ctx context.Context, user hub.UserID, id hub.TokenID) error
}

type projects interface {
	Project(ctx context.Context, name string) (hub.Project, error)
	// ProjectSpecs returns those of the named projects that there are.
	ProjectSpecs(ctx context.Context, names []string) (map[string]hub.Project, error)
	Projects(ctx context.Context) ([]hub.Project, error)
	CreateProject(ctx context.Context, p hub.Project) (hub.Project, error)
	UpdateProject(ctx context.Context, p hub.Project, expect int64) (hub.Project, error)
	DeleteProject(ctx context.Context, name string) error
}

type repositories interface {
	Repositories(ctx context.Context) ([]hub.Repository, error)
	Repository(ctx context.Context, id hub.RepositoryID) (hub.Repository, error)
	// RepositoryByURL takes a hub.RepoKey.
	RepositoryByURL(ctx context.Context, key string) (hub.Repository, error)
	// RepositoryFor returns the one that applications of a project use.
	RepositoryFor(ctx context.Context, url, project string) (hub.Repository, error)
	// PutRepository registers a repository under its URL, or changes it. A
	// nil credential keeps the stored one.
	PutRepository(ctx context.Context, r hub.Repository, c *hub.Credential) (hub.Repository, error)
	DeleteRepository(ctx context.Context, id hub.RepositoryID) error
	Fetch(ctx context.Context, id hub.RepositoryID) error
	FetchFor(ctx context.Context, id hub.RepositoryID) error // and refresh its applications whatever comes of it
	RepositoryTemplates(ctx context.Context) ([]hub.RepositoryTemplate, error)
	PutRepositoryTemplate(ctx context.Context, t hub.RepositoryTemplate, c *hub.Credential) (hub.RepositoryTemplate, error)
	DeleteRepositoryTemplate(ctx context.Context, id hub.RepositoryID) error
	HostKeys(ctx context.Context) ([]hub.HostKey, error)
	PutHostKeys(ctx context.Context, keys []hub.HostKey) error
	// DeleteHostKeys forgets the keys of a host, or the one of a type.
	DeleteHostKeys(ctx context.Context, host, keyType string) error
}

type clusters interface {
	Cluster(ctx context.Context, name string) (hub.Cluster, error)
	Clusters(ctx context.Context) ([]hub.Cluster, error)
	// ClusterNames returns all clusters with id, name and server alone.
	ClusterNames(ctx context.Context) ([]hub.Cluster, error)
	ClustersByID(ctx context.Context, ids []hub.ClusterID) (map[hub.ClusterID]hub.Cluster, error)
	CreateCluster(ctx context.Context, c hub.Cluster) (hub.Cluster, error)
	UpdateCluster(ctx context.Context, c hub.Cluster, expect int64) (hub.Cluster, error)
	// DeleteCluster removes a cluster that no application is on and revokes
	// its agent.
	DeleteCluster(ctx context.Context, id hub.ClusterID) error
	CreateEnrolment(ctx context.Context, e hub.Enrolment, hash [32]byte) (hub.Enrolment, error)
	Enrolments(ctx context.Context, cluster hub.ClusterID) ([]hub.Enrolment, error)
	// RevokeAgent ends a cluster's agent and its open join tokens.
	RevokeAgent(ctx context.Context, id hub.ClusterID) error
	// AcceptHub begins a new log for a cluster whose agent holds another past.
	AcceptHub(ctx context.Context, id hub.ClusterID, by string, at time.Time) (hub.Rewind, error)
	// KeepCluster ends a quarantine for one of the two clusters.
	KeepCluster(ctx context.Context, id hub.ClusterID, fingerprint string) (hub.Quarantine, error)
	// OrderUpgrade has the agent of a cluster exchange its image.
	OrderUpgrade(ctx context.Context, id hub.ClusterID, u hub.Upgrade) error
}

type applications interface {
	Application(ctx context.Context, namespace, name string) (hub.Application, error)
	ApplicationByID(ctx context.Context, id hub.ApplicationID) (hub.Application, error)
	ApplicationsByID(ctx context.Context, ids []hub.ApplicationID) (map[hub.ApplicationID]hub.Application, error)
	Applications(ctx context.Context, f hub.ApplicationFilter) ([]hub.Application, error)
	// ApplicationsNamed returns those that there are.
	ApplicationsNamed(ctx context.Context, keys []hub.ApplicationKey) ([]hub.Application, error)
	// RenderedBy says of objects of the hub which application has rendered
	// them; those that none has are left out.
	RenderedBy(ctx context.Context, objects []string) (map[string]hub.RenderedBy, error)
	PutRenderedBy(ctx context.Context, r hub.RenderedBy) error
	// LockApplications returns those that are there, and keeps others from
	// changing them until the transaction ends.
	LockApplications(ctx context.Context, ids []hub.ApplicationID) (map[hub.ApplicationID]hub.Application, error)
	// ApplicationsBound returns those whose destinations may stand for another
	// cluster when clusters of these names and servers come or change.
	ApplicationsBound(ctx context.Context, names, servers []string) ([]hub.ApplicationID, error)
	// ForPut returns what a write of an application is judged by; of the
	// application it is what LockApplications is. No name of a cluster: all.
	ForPut(ctx context.Context, key hub.ApplicationKey, project, cluster string) (hub.WriteContext, error)
	CreateApplication(ctx context.Context, a hub.Application) (hub.Application, error)
	UpdateApplication(ctx context.Context, a hub.Application, expect int64) (hub.Application, error)
	// RefreshApplications has all applications of the tenant judged anew.
	RefreshApplications(ctx context.Context) error
	Resources(ctx context.Context, app hub.ApplicationID) ([]hub.Resource, error)
	// HistoryPage returns entries with numbers below before, newest first; 0
	// means from the newest on.
	HistoryPage(ctx context.Context, app hub.ApplicationID, before int64, limit int) ([]hub.HistoryEntry, error)
	HistoryEntry(ctx context.Context, app hub.ApplicationID, id int64) (hub.HistoryEntry, error)
	Operations(ctx context.Context, app hub.ApplicationID, limit int) ([]hub.Operation, error)
	Operation(ctx context.Context, id hub.OperationID) (hub.Operation, error)
	Snapshot(ctx context.Context, id hub.SnapshotID) (hub.Snapshot, error)
	Snapshots(ctx context.Context, ids []hub.SnapshotID) (map[hub.SnapshotID]hub.Snapshot, error)
	Tombstones(ctx context.Context, apps []hub.ApplicationID) (map[hub.ApplicationID][]hub.Tombstone, error)
	Objects(ctx context.Context, digests []hub.Digest) ([]hub.SealedObject, error)
}

type settingsTx interface {
	// Settings returns no value of a secret.
	Settings(ctx context.Context) (all []hub.Setting, version int64, err error)
	// LockSettings comes before any lock on a desired log.
	LockSettings(ctx context.Context) error
	ChangeSettings(ctx context.Context, put, drop []hub.Setting) error
	// SettingValues returns those of some keys that are set and no secrets.
	SettingValues(ctx context.Context, name string, keys []string) (map[string]string, error)
	// RaisePolicy makes compiled rights stale.
	RaisePolicy(ctx context.Context) error
	SettingSecret(ctx context.Context, name, key string) (value string, found bool, err error)
}

type records interface {
	Enqueue(ctx context.Context, kind, key string, due time.Time, forced bool) error
	AppendAudit(ctx context.Context, r hub.AuditRecord) error
	AuditBefore(ctx context.Context, before int64, limit int) ([]hub.AuditRecord, error)
	// VerifyAudit returns the number of the first record that does not fit, or 0.
	VerifyAudit(ctx context.Context) (int64, error)
	FeedCursor(ctx context.Context) (string, error)
	BeginIdempotent(ctx context.Context, key, caller string, hash [32]byte) (status int, body []byte, found bool, err error)
	SettleIdempotent(ctx context.Context, once hub.IdempotencyKey, caller string) error
	FinishIdempotent(ctx context.Context, once hub.IdempotencyKey, caller string, status int, body []byte) error
}

// A Deployer starts and ends operations, inside the caller's transaction. It
// gives the clusters whose agents have something to hear of after the commit.
type Deployer interface {
	Sync(ctx context.Context, tx Tx, app hub.ApplicationID, r hub.SyncRequest) (hub.Operation, error)
	Rollback(ctx context.Context, tx Tx, app hub.ApplicationID, r RollbackRequest, options hub.OperationOptions) (hub.Operation, error)
	// Resume ends the pause that a rollback began.
	Resume(ctx context.Context, tx Tx, app hub.ApplicationID) error
	Terminate(ctx context.Context, tx Tx, app hub.ApplicationID, by hub.Initiator) (hub.Operation, error)
	// Settings gives settings to the agents of clusters.
	Settings(ctx context.Context, tx Tx, bodies map[hub.ClusterID][]byte) error
	Delete(ctx context.Context, tx Tx, app hub.ApplicationID, d hub.Deletion, by hub.Initiator) ([]hub.ClusterID, error)
	// Local is Sync for manifests that came with the request.
	Local(ctx context.Context, tx Tx, keys hub.TenantKeys, app hub.ApplicationID, r hub.SyncRequest) (hub.Operation, error)
	// Approve tells the cluster when a person approved deletions.
	Approve(ctx context.Context, tx Tx, app hub.ApplicationID) (hub.Operation, error)
	// Abandon forgets an application whose cluster is gone, and gives what it
	// leaves behind there.
	Abandon(ctx context.Context, tx Tx, app hub.ApplicationID) ([]hub.ObjectRef, []hub.ClusterID, error)
}

// A RollbackRequest is a person's wish to go back.
type RollbackRequest struct {
	Entry     int64 // of the history
	Prune     bool
	Hooks     *bool // nil: as the application's annotation says
	DryRun    bool
	Reason    string
	Initiator hub.Initiator
}

// Notifier tell other parts of this replica that there is something for them. A
// lost hint costs a delay. None may block.
type Notifier interface {
	Wake(cluster hub.ClusterID)  // its desired log grew
	Changed(tenant hub.TenantID) // its feed grew
	Due(kind string)             // work of this kind is due
	Revoked()                    // agents are no longer good, or good again
	// Arriving says that many objects are being written: work that follows from
	// them does best to wait, for a moment, until arrived is called.
	Arriving(tenant hub.TenantID) (arrived func())
	// Alone says that a request brings one object. It is through when through is
	// called with what follows from it, if anything does, which begins at once or
	// in a moment: others may come like this.
	Alone(tenant hub.TenantID) (through func(follows func()))
}

// An Inviter makes join tokens.
type Inviter interface {
	Invite() (token, prefix string, hash [32]byte, err error)
}

// Permits judges an application against its project and cluster. The error
// is the sentence that its condition shows.
type Permits func(r hub.Refresh, spec hub.ApplicationSpec) error
