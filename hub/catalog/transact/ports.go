package transact

import (
	"context"
	"encoding/json"
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

// Tx is one transaction of one tenant, as the ports that the catalogue uses. A
// function that needs one port takes that port. What a method does not find is
// fault.Missing; an object that was changed meanwhile is fault.Conflict.
type Tx struct {
	PolicyReader
	AccountPorts
	ProjectPorts
	RepositoryPorts
	ClusterPorts
	ApplicationPorts
	SettingPorts
	RecordPorts
	// Deploy starts and ends operations in this transaction.
	Deploy Deployer
}

// PolicyReader is what rights are compiled from.
type PolicyReader interface {
	ID() hub.TenantID
	PolicyVersion() int64
}

// AccountPorts are those for people and their tokens.
type AccountPorts struct {
	UserReader
	UserWriter
	PasswordStore
	SessionStore
	TokenStore
	ExchangeStore
	SCIMTokenStore
	SCIMUserStore
	SCIMGroupStore
	PersonReader
	SignInStore
	DeviceReader
	DeviceStore
}

// UserReader finds accounts.
type UserReader interface {
	Users(ctx context.Context) ([]hub.User, error)
	User(ctx context.Context, id hub.UserID) (hub.User, error)
	UserByName(ctx context.Context, name string) (hub.User, string, error)
}

// PersonReader finds the accounts of people of identity providers.
type PersonReader interface {
	UserBySubject(ctx context.Context, p hub.Person) (hub.User, error)
	// AdoptPerson gives the account that SCIM has made for a person to them.
	AdoptPerson(ctx context.Context, p hub.Person) (hub.User, error)
	// LocalNames returns those of the names that local accounts have.
	LocalNames(ctx context.Context, names []string) ([]string, error)
}

// SignInStore keeps sign-ins that have begun at a provider, and what it said.
type SignInStore interface {
	PutSignIn(ctx context.Context, s hub.SignIn) error
	// TakeSignIn removes it: of all who try, one gets it.
	TakeSignIn(ctx context.Context, hash, browser [32]byte, now time.Time) (hub.SignIn, error)
	PutSignInTest(ctx context.Context, s hub.SignInTest) error
	// SignInTest is one of a user; TakeSignInDraft is what is tested, once.
	SignInTest(ctx context.Context, id hub.SignInTestID, user hub.UserID, now time.Time) (hub.SignInTest, error)
	TakeSignInDraft(ctx context.Context, id hub.SignInTestID, now time.Time) (hub.SignInTest, error)
	FinishSignInTest(ctx context.Context, id hub.SignInTestID, report hub.SignInReport) error
	PutSessionClaims(ctx context.Context, c hub.SessionClaims) error
	// SessionClaims are without proof; TakeSessionClaims removes them.
	SessionClaims(ctx context.Context, hash [32]byte, now time.Time) (hub.SessionClaims, error)
	TakeSessionClaims(ctx context.Context, hash [32]byte, challenge string, now time.Time) (hub.SessionClaims, error)
}

// DeviceStore keeps sign-ins of devices that have begun.
type DeviceStore interface {
	PutDeviceLogin(ctx context.Context, d hub.DeviceLogin) error
	// DeviceLogins returns how many there are, in all and from an address.
	DeviceLogins(ctx context.Context, address string, now time.Time) (all, here int, err error)
	// DecideDeviceLogin takes effect once.
	DecideDeviceLogin(ctx context.Context, d hub.DeviceLogin, now time.Time) error
	DeleteDeviceLogin(ctx context.Context, hash [32]byte) error
}

// DeviceReader finds sign-ins of devices: open ones by the hash of their code, and
// any by the hash of the device's secret, which says whether it asks too early.
type DeviceReader interface {
	DeviceLogin(ctx context.Context, code [32]byte, now time.Time) (hub.DeviceLogin, error)
	PollDeviceLogin(ctx context.Context, hash [32]byte, now time.Time) (d hub.DeviceLogin, early bool, err error)
}

// UserWriter changes accounts.
type UserWriter interface {
	CreateUser(ctx context.Context, u hub.User, passwordHash string) (hub.User, error)
	UpdateUser(ctx context.Context, u hub.User) error
	SetPassword(ctx context.Context, id hub.UserID, passwordHash string) error
	Language(ctx context.Context, id hub.UserID) (string, error)
	SetLanguage(ctx context.Context, id hub.UserID, language string) error
	DeleteUser(ctx context.Context, id hub.UserID) error
}

// PasswordStore exchanges hashes of passwords, and ends sessions.
type PasswordStore interface {
	// UpgradePassword replaces a hash by another one of the same password.
	UpgradePassword(ctx context.Context, id hub.UserID, old, passwordHash string) error
	// HasOldPasswords reports whether there is a hash in the form of Argo CD.
	HasOldPasswords(ctx context.Context) (bool, error)
	EndSessions(ctx context.Context, id hub.UserID) error
}

// SessionStore lists and ends the sessions of an account.
type SessionStore interface {
	// Sessions are those that have not ended, with the hashes of their secrets.
	Sessions(ctx context.Context, user hub.UserID) ([]hub.Session, error)
	EndSession(ctx context.Context, user hub.UserID, id hub.SessionID) error
	// EndOtherSessions ends all but one, and all if that is empty. It returns how many.
	EndOtherSessions(ctx context.Context, user hub.UserID, but hub.SessionID) (int, error)
}

// TokenStore keeps the API tokens of accounts.
type TokenStore interface {
	PutToken(ctx context.Context, t hub.APIToken) error
	Tokens(ctx context.Context, user hub.UserID) ([]hub.APIToken, error)
	DeleteToken(ctx context.Context, user hub.UserID, id hub.TokenID) error
}

// RoleTokenStore keeps the tokens of roles of projects. They end with their
// project or role.
type RoleTokenStore interface {
	PutRoleToken(ctx context.Context, t hub.RoleToken) error
	RoleTokens(ctx context.Context, project string) ([]hub.RoleToken, error)
	RoleToken(ctx context.Context, id hub.TokenID) (hub.RoleToken, error)
	DeleteRoleToken(ctx context.Context, id hub.TokenID) error
}

// ExchangeStore keeps tokens that were given for those of other issuers.
type ExchangeStore interface {
	// PutExchangedToken is fault.Conflict if the other issuer's token was
	// exchanged before.
	PutExchangedToken(ctx context.Context, t hub.ExchangedToken) error
	ExchangedToken(ctx context.Context, id hub.TokenID, now time.Time) (hub.ExchangedToken, error)
}

// SCIMTokenStore keeps the tokens of identity providers that provision people.
type SCIMTokenStore interface {
	PutSCIMToken(ctx context.Context, t hub.SCIMToken) error
	SCIMTokens(ctx context.Context) ([]hub.SCIMToken, error)
	DeleteSCIMToken(ctx context.Context, id hub.TokenID) error
}

// SCIMUserStore keeps the people whom identity providers have provisioned. Each
// is an account of the same id, and ends with it.
type SCIMUserStore interface {
	SCIMUsers(ctx context.Context, q hub.SCIMQuery) (page []hub.SCIMUser, total int, err error)
	PutSCIMUser(ctx context.Context, u hub.SCIMUser) (hub.SCIMUser, error)
	// GroupsOf returns the names of the groups of an account.
	GroupsOf(ctx context.Context, id hub.UserID) ([]string, error)
}

// SCIMGroupStore keeps their groups.
type SCIMGroupStore interface {
	SCIMGroups(ctx context.Context, q hub.SCIMQuery) (page []hub.SCIMGroup, total int, err error)
	PutSCIMGroup(ctx context.Context, g hub.SCIMGroup) (hub.SCIMGroup, error)
	DeleteSCIMGroup(ctx context.Context, id string) error
}

// ProjectPorts are those for projects.
type ProjectPorts struct {
	ProjectReader
	ProjectWriter
	RoleTokenStore
}

// ProjectReader finds projects.
type ProjectReader interface {
	Project(ctx context.Context, name string) (hub.Project, error)
	// EffectiveProject is Project with what the project inherits.
	EffectiveProject(ctx context.Context, name string) (hub.Project, error)
	// ProjectSpecs returns those of the named projects that there are, with what
	// they inherit.
	ProjectSpecs(ctx context.Context, names []string) (map[string]hub.Project, error)
	Projects(ctx context.Context) ([]hub.Project, error)
}

// ProjectWriter changes projects.
type ProjectWriter interface {
	// RefreshProject has the applications of a project judged anew.
	RefreshProject(ctx context.Context, name string) error
	CreateProject(ctx context.Context, p hub.Project) (hub.Project, error)
	UpdateProject(ctx context.Context, p hub.Project, expect int64) (hub.Project, error)
	DeleteProject(ctx context.Context, name string) error
}

// RepositoryPorts are those for repositories and how they are reached.
type RepositoryPorts struct {
	RepositoryReader
	RepositoryWriter
	TemplateStore
	DeferredStore
	HostKeyStore
}

// RepositoryReader finds repositories.
type RepositoryReader interface {
	Repositories(ctx context.Context) ([]hub.Repository, error)
	Repository(ctx context.Context, id hub.RepositoryID) (hub.Repository, error)
	// RepositoryByURL takes a hub.RepoKey.
	RepositoryByURL(ctx context.Context, key string) (hub.Repository, error)
	// RepositoryFor returns the one that applications of a project use.
	RepositoryFor(ctx context.Context, url, project string) (hub.Repository, error)
	// Refs returns branches and tags as of the last fetch.
	Refs(ctx context.Context, id hub.RepositoryID) ([]hub.Ref, error)
}

// RepositoryWriter changes repositories and has them fetched.
type RepositoryWriter interface {
	// PutRepository registers a repository under its URL, or changes it. A
	// nil credential keeps the stored one.
	PutRepository(ctx context.Context, r hub.Repository, c *hub.Credential) (hub.Repository, error)
	DeleteRepository(ctx context.Context, id hub.RepositoryID) error
	Fetch(ctx context.Context, id hub.RepositoryID) error
	AcceptContents(ctx context.Context, id hub.RepositoryID, refs []string) error
	FetchFor(ctx context.Context, id hub.RepositoryID) error // and refresh its applications whatever comes of it
}

// TemplateStore keeps credentials for repositories by the beginning of a URL.
type TemplateStore interface {
	TemplateCredential(ctx context.Context, url string) (hub.Credential, error)
	RepositoryTemplates(ctx context.Context) ([]hub.RepositoryTemplate, error)
	PutRepositoryTemplate(ctx context.Context, t hub.RepositoryTemplate, c *hub.Credential) (hub.RepositoryTemplate, error)
	DeleteRepositoryTemplate(ctx context.Context, id hub.RepositoryID) error
}

// DeferredStore keeps credentials that no fetch uses.
type DeferredStore interface {
	DeferredCredentials(ctx context.Context) ([]hub.DeferredCredential, error)
	PutDeferredCredential(ctx context.Context, d hub.DeferredCredential) (created bool, err error)
	DeleteDeferredCredential(ctx context.Context, id hub.RepositoryID) error
}

// HostKeyStore keeps the keys of SSH servers.
type HostKeyStore interface {
	HostKeys(ctx context.Context) ([]hub.HostKey, error)
	PutHostKeys(ctx context.Context, keys []hub.HostKey) error
	// DeleteHostKeys forgets the keys of a host, or the one of a type.
	DeleteHostKeys(ctx context.Context, host, keyType string) error
}

// ClusterPorts are those for clusters and their agents.
type ClusterPorts struct {
	ClusterReader
	ClusterWriter
	Enroller
	TrustWriter
}

// ClusterReader finds clusters.
type ClusterReader interface {
	Cluster(ctx context.Context, name string) (hub.Cluster, error)
	Clusters(ctx context.Context) ([]hub.Cluster, error)
	// ClusterNames returns all clusters with id, name and server alone.
	ClusterNames(ctx context.Context) ([]hub.Cluster, error)
	ClustersByID(ctx context.Context, ids []hub.ClusterID) (map[hub.ClusterID]hub.Cluster, error)
	// ClusterCounts returns numbers about these clusters, or about all.
	ClusterCounts(ctx context.Context, want []hub.ClusterID) (map[hub.ClusterID]hub.ClusterCounts, error)
}

// ClusterWriter changes clusters.
type ClusterWriter interface {
	CreateCluster(ctx context.Context, c hub.Cluster) (hub.Cluster, error)
	UpdateCluster(ctx context.Context, c hub.Cluster, expect int64) (hub.Cluster, error)
	// DeleteCluster removes a cluster that no application is on and revokes
	// its agent.
	DeleteCluster(ctx context.Context, id hub.ClusterID) error
	// OrderUpgrade has the agent of a cluster exchange its image.
	OrderUpgrade(ctx context.Context, id hub.ClusterID, u hub.Upgrade) error
}

// Enroller keeps the invitations of agents.
type Enroller interface {
	CreateEnrolment(ctx context.Context, e hub.Enrolment, hash [32]byte) (hub.Enrolment, error)
	Enrolments(ctx context.Context, cluster hub.ClusterID) ([]hub.Enrolment, error)
}

// TrustWriter decides which agents and which past of a cluster are good.
type TrustWriter interface {
	// RevokeAgent ends a cluster's agent and its open join tokens.
	RevokeAgent(ctx context.Context, id hub.ClusterID) error
	// AcceptHub begins a new log for a cluster whose agent holds another past.
	AcceptHub(ctx context.Context, id hub.ClusterID, by string, at time.Time) (hub.Rewind, error)
	// KeepCluster ends a quarantine for one of the two clusters.
	KeepCluster(ctx context.Context, id hub.ClusterID, fingerprint string) (hub.Quarantine, error)
}

// ApplicationPorts are those for applications and what became of them.
type ApplicationPorts struct {
	ApplicationReader
	PlaceReader
	ListReader
	ObjectReader
	RevisionReader
	ApplicationLocks
	ApplicationWriter
	RefreshReader
	RenderedStore
	HistoryReader
	OperationReader
	SnapshotReader
	SetReader
	SetWriter
	SetMemberStore
}

// ApplicationReader finds applications.
type ApplicationReader interface {
	Application(ctx context.Context, namespace, name string) (hub.Application, error)
	ApplicationByID(ctx context.Context, id hub.ApplicationID) (hub.Application, error)
	ApplicationsByID(ctx context.Context, ids []hub.ApplicationID) (map[hub.ApplicationID]hub.Application, error)
	Applications(ctx context.Context, f hub.ApplicationFilter) ([]hub.Application, error)
	// ApplicationsNamed returns those that there are.
	ApplicationsNamed(ctx context.Context, keys []hub.ApplicationKey) ([]hub.Application, error)
}

// PlaceReader finds what policies call applications.
type PlaceReader interface {
	// ApplicationPlaces returns all applications with id, project and name alone.
	ApplicationPlaces(ctx context.Context) ([]hub.ApplicationPlace, error)
}

// ListReader reads what lists of applications are made from.
type ListReader interface {
	// ListChanges returns what may have changed since a mark.
	ListChanges(ctx context.Context, since hub.ListMark) (hub.ListChanges, error)
	ListedApplications(ctx context.Context, ids []hub.ApplicationID) ([]hub.ListedApplication, error)
	AllListed(ctx context.Context) ([]hub.ListedApplication, error)
	ListedClusters(ctx context.Context) ([]hub.ListedCluster, error)
}

// ObjectReader reads managed objects of several applications.
type ObjectReader interface {
	ListedObjects(ctx context.Context, f hub.ObjectFilter) ([]hub.ListedObject, error)
	CountObjects(ctx context.Context, f hub.ObjectFilter) ([]hub.ObjectCount, error)
}

// ApplicationLocks finds applications that are about to be written.
type ApplicationLocks interface {
	// LockApplications returns those that are there, and keeps others from
	// changing them until the transaction ends.
	LockApplications(ctx context.Context, ids []hub.ApplicationID) (map[hub.ApplicationID]hub.Application, error)
	// ApplicationsBound returns those whose destinations may stand for another
	// cluster when clusters of these names and servers come or change.
	ApplicationsBound(ctx context.Context, names, servers []string) ([]hub.ApplicationID, error)
	// ForPut returns what a write of an application is judged by; of the
	// application it is what LockApplications is. No name of a cluster: all.
	ForPut(ctx context.Context, key hub.ApplicationKey, project, cluster string) (hub.WriteContext, error)
}

// RefreshReader reads what a render of applications needs.
type RefreshReader interface {
	// Refreshes has the newest of their snapshots, as many as recent says.
	Refreshes(ctx context.Context, ids []hub.ApplicationID, recent int) ([]hub.Refresh, error)
}

// ApplicationWriter changes applications.
type ApplicationWriter interface {
	CreateApplication(ctx context.Context, a hub.Application) (hub.Application, error)
	UpdateApplication(ctx context.Context, a hub.Application, expect int64) (hub.Application, error)
	// RefreshApplications has all applications of the tenant judged anew.
	RefreshApplications(ctx context.Context) error
}

// RenderedStore keeps which application has rendered an object of the hub.
type RenderedStore interface {
	// RenderedBy says of objects of the hub which application has rendered
	// them; those that none has are left out.
	RenderedBy(ctx context.Context, objects []string) (map[string]hub.RenderedBy, error)
	PutRenderedBy(ctx context.Context, r hub.RenderedBy) error
}

// SetReader finds application sets.
type SetReader interface {
	ApplicationSet(ctx context.Context, namespace, name string) (hub.ApplicationSet, error)
	ApplicationSetByID(ctx context.Context, id hub.ApplicationSetID) (hub.ApplicationSet, error)
	ApplicationSets(ctx context.Context) ([]hub.ApplicationSet, error)
	// SetResources returns the applications of a set as its status lists them.
	SetResources(ctx context.Context, set hub.ApplicationSetID, limit int) ([]hub.SetResource, error)
}

// SetWriter changes application sets. Watches say what wakes a set.
type SetWriter interface {
	// LockApplicationSet keeps others from changing a set until the transaction ends.
	LockApplicationSet(ctx context.Context, id hub.ApplicationSetID) (hub.ApplicationSet, error)
	CreateApplicationSet(ctx context.Context, s hub.ApplicationSet, watches []string) (hub.ApplicationSet, error)
	UpdateApplicationSet(ctx context.Context, s hub.ApplicationSet, watches []string, expect int64) (hub.ApplicationSet, error)
	// PutApplicationSetStatus does not change the version.
	PutApplicationSetStatus(ctx context.Context, id hub.ApplicationSetID, status hub.ApplicationSetStatus) error
	// AcknowledgeSetRefresh removes the annotation that asked for it.
	AcknowledgeSetRefresh(ctx context.Context, id hub.ApplicationSetID) error
	// MarkSetDeleting has the reconcile delete the set.
	MarkSetDeleting(ctx context.Context, id hub.ApplicationSetID, how hub.SetDeletion) error
	// RemoveApplicationSet leaves the applications without an owner.
	RemoveApplicationSet(ctx context.Context, id hub.ApplicationSetID) error
}

// SetMemberStore keeps which set has generated an application, and what wakes sets.
type SetMemberStore interface {
	SetMembers(ctx context.Context, set hub.ApplicationSetID) ([]hub.SetMember, error)
	MembersOf(ctx context.Context, apps []hub.ApplicationID) (map[hub.ApplicationID]hub.SetMember, error)
	PutSetMember(ctx context.Context, m hub.SetMember) error
	DropSetMember(ctx context.Context, app hub.ApplicationID) error
	// PutSetRepositories has pushes to these repositories wake the set.
	PutSetRepositories(ctx context.Context, s hub.ApplicationSet, urls []string) error
	// PutSetPlaces has events of these places of Git hosts wake the set.
	PutSetPlaces(ctx context.Context, id hub.ApplicationSetID, places []string) error
	// RefreshSet has a set reconciled and its repositories fetched.
	RefreshSet(ctx context.Context, id hub.ApplicationSetID) error
	// WakeSets has all sets reconciled.
	WakeSets(ctx context.Context) error
	// WakeSetsOf has the sets of these applications reconciled.
	WakeSetsOf(ctx context.Context, apps []hub.ApplicationID) error
}

// HistoryReader reads what an application has deployed.
type HistoryReader interface {
	// HistoryPage returns entries with numbers below before, newest first; 0
	// means from the newest on.
	HistoryPage(ctx context.Context, app hub.ApplicationID, before int64, limit int) ([]hub.HistoryEntry, error)
	HistoryEntry(ctx context.Context, app hub.ApplicationID, id int64) (hub.HistoryEntry, error)
}

// OperationReader finds operations.
type OperationReader interface {
	Operations(ctx context.Context, app hub.ApplicationID, limit int) ([]hub.Operation, error)
	Operation(ctx context.Context, id hub.OperationID) (hub.Operation, error)
}

// RevisionReader finds what was rendered from a revision.
type RevisionReader interface {
	// SnapshotOf returns the newest snapshot; empty: none is kept.
	SnapshotOf(ctx context.Context, app hub.ApplicationID, revision string) (hub.SnapshotID, error)
}

// SnapshotReader reads manifests, and the objects that they stand for.
type SnapshotReader interface {
	Snapshot(ctx context.Context, id hub.SnapshotID) (hub.Snapshot, error)
	Snapshots(ctx context.Context, ids []hub.SnapshotID) (map[hub.SnapshotID]hub.Snapshot, error)
	Objects(ctx context.Context, digests []hub.Digest) ([]hub.SealedObject, error)
	Resources(ctx context.Context, app hub.ApplicationID) ([]hub.Resource, error)
	Tombstones(ctx context.Context, apps []hub.ApplicationID) (map[hub.ApplicationID][]hub.Tombstone, error)
}

// SettingPorts are those for what a tenant has set.
type SettingPorts struct {
	SettingReader
	SettingWriter
	PolicyVersionStore
}

// PolicyVersionStore keeps what the policy was after each change.
type PolicyVersionStore interface {
	// AddPolicyVersion assigns the number. The settings are locked.
	AddPolicyVersion(ctx context.Context, v hub.PolicyVersion) error
	PolicyVersions(ctx context.Context, before int64, limit int) ([]hub.PolicyVersion, error)
	PolicyVersionAt(ctx context.Context, number int64) (hub.PolicyVersion, error)
}

// SettingReader reads settings.
type SettingReader interface {
	// Settings returns no value of a secret.
	Settings(ctx context.Context) (all []hub.Setting, version int64, err error)
	// SettingValues returns those of some keys that are set and no secrets.
	SettingValues(ctx context.Context, name string, keys []string) (map[string]string, error)
	// SettingsOf returns the settings of some maps that have one of the keys, or
	// one that begins with prefix, and are no secrets.
	SettingsOf(ctx context.Context, maps, keys []string, prefix string) ([]hub.Setting, error)
	SettingSecret(ctx context.Context, name, key string) (value string, found bool, err error)
}

// SettingWriter changes settings.
type SettingWriter interface {
	// LockSettings comes before any lock on a desired log.
	LockSettings(ctx context.Context) error
	ChangeSettings(ctx context.Context, put, drop []hub.Setting) error
	// RaisePolicy makes compiled rights stale.
	RaisePolicy(ctx context.Context) error
}

// RecordPorts are those for what a write leaves besides the object.
type RecordPorts struct {
	AuditLog
	AuditKeeper
	QuotaStore
	FeedQueue
	IdempotencyStore
	BulkReader
	BulkWriter
	DeliveryStore
}

// BulkReader finds bulk requests.
type BulkReader interface {
	Bulk(ctx context.Context, id hub.BulkID) (hub.Bulk, error)
	// Bulks returns the newest ones of an owner.
	Bulks(ctx context.Context, owner string, limit int) ([]hub.Bulk, error)
	// BulkItems returns those after an ordinal, in one state or, if empty, in any.
	BulkItems(ctx context.Context, id hub.BulkID, state hub.BulkState, after, limit int) ([]hub.BulkItem, error)
	// OpenBulks counts those of the tenant that have not finished.
	OpenBulks(ctx context.Context) (int, error)
}

// BulkWriter changes bulk requests.
type BulkWriter interface {
	CreateBulk(ctx context.Context, b hub.Bulk, items []hub.BulkItem) error
	// SettleBulkItem says that an item is done. The error is fault.Conflict if it
	// is not pending any more.
	SettleBulkItem(ctx context.Context, m hub.BulkMark) error
	// NoteBulkItems stores what became of items; what is done stays done.
	NoteBulkItems(ctx context.Context, id hub.BulkID, items []hub.BulkItem) error
	// CancelBulk ends what is pending.
	CancelBulk(ctx context.Context, id hub.BulkID, why string, now time.Time) error
	// FinishBulk ends a request of which nothing is pending.
	FinishBulk(ctx context.Context, id hub.BulkID, now time.Time) error
}

// AuditLog keeps who did what.
type AuditLog interface {
	AppendAudit(ctx context.Context, r hub.AuditRecord) error
	SearchAudit(ctx context.Context, f hub.AuditFilter) (hub.AuditPage, error)
	// Audit returns the records after a number, oldest first.
	Audit(ctx context.Context, after int64, limit int) ([]hub.AuditRecord, error)
	AuditHead(ctx context.Context) (hub.AuditHead, error)
	// VerifyAudit returns the number of the first record that does not fit, or 0.
	VerifyAudit(ctx context.Context) (int64, error)
}

// AuditKeeper limits the age of the log.
type AuditKeeper interface {
	// KeepAudit sets after how many days records are removed; 0: never.
	KeepAudit(ctx context.Context, days int) error
}

// QuotaStore keeps what the tenant may have, and counts what it has.
type QuotaStore interface {
	Counts(ctx context.Context) (hub.TenantCounts, error)
	Usage(ctx context.Context) (hub.Usage, error)
	// Quotas returns the tenant's own limits.
	Quotas(ctx context.Context) (hub.Quotas, error)
	// PerSet returns how many applications a set may have; 0: any number.
	PerSet(ctx context.Context) (int, error)
	PutQuotas(ctx context.Context, put hub.Quotas, drop []hub.Quota) error
}

// FeedQueue is the place of the transaction in the feed, and the work that
// follows from it.
type FeedQueue interface {
	FeedCursor(ctx context.Context) (string, error)
	Enqueue(ctx context.Context, kind, key string, due time.Time, forced bool) error
}

// IdempotencyStore keeps the answers of requests that may be repeated.
type IdempotencyStore interface {
	BeginIdempotent(ctx context.Context, key, caller string, hash [32]byte) (status int, body []byte, found bool, err error)
	SettleIdempotent(ctx context.Context, once hub.IdempotencyKey, caller string) error
	FinishIdempotent(ctx context.Context, once hub.IdempotencyKey, caller string, status int, body []byte) error
}

// A Deployer starts and ends operations, inside the transaction that it is
// given with. It says which clusters' agents have something to hear of after
// the commit.
type Deployer struct {
	Operator
	Remover
	AgentSettings
}

// Operator starts and ends operations of applications that stay.
type Operator interface {
	Sync(ctx context.Context, app hub.ApplicationID, r hub.SyncRequest) (hub.Operation, error)
	// Local is Sync for manifests that came with the request.
	Local(ctx context.Context, keys hub.TenantKeys, app hub.ApplicationID, r hub.SyncRequest) (hub.Operation, error)
	Rollback(ctx context.Context, app hub.ApplicationID, r RollbackRequest, options hub.OperationOptions) (hub.Operation, error)
	// Resume ends the pause that a rollback began.
	Resume(ctx context.Context, app hub.ApplicationID) error
	Terminate(ctx context.Context, app hub.ApplicationID, by hub.Initiator) (hub.Operation, error)
}

// Remover deletes applications.
type Remover interface {
	Delete(ctx context.Context, app hub.ApplicationID, d hub.Deletion, by hub.Initiator) ([]hub.ClusterID, error)
	// Approve tells the cluster when a person approved deletions.
	Approve(ctx context.Context, app hub.ApplicationID) (hub.Operation, error)
	// Abandon forgets an application whose cluster is gone, and gives what it
	// leaves behind there.
	Abandon(ctx context.Context, app hub.ApplicationID) ([]hub.ObjectRef, []hub.ClusterID, error)
}

// AgentSettings gives settings to the agents of clusters.
type AgentSettings interface {
	SendSettings(ctx context.Context, bodies map[hub.ClusterID][]byte) error
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

// Notifier tells other parts of this replica that there is something for them. A
// lost hint costs a delay. None may block.
type Notifier interface {
	Wake(cluster hub.ClusterID)  // its desired log grew
	Changed(tenant hub.TenantID) // its feed grew
	Due(kind string)             // work of this kind is due
	Revoked()                    // agents are no longer good, or good again
	// Credentials means that sessions, tokens or accounts of the tenant have ended
	// or have changed.
	Credentials(tenant hub.TenantID)
}

// DeliveryStore finds messages to recipients, and has them sent.
type DeliveryStore interface {
	Deliveries(ctx context.Context, f hub.DeliveryFilter) ([]hub.Delivery, error)
	Delivery(ctx context.Context, id hub.DeliveryID) (hub.Delivery, error)
	// DeliveryMessage has secrets of the tenant: it goes into another delivery
	// and nowhere else.
	DeliveryMessage(ctx context.Context, id hub.DeliveryID) (json.RawMessage, error)
	// PutDelivery makes a pending message work.
	PutDelivery(ctx context.Context, d hub.Delivery) (stored bool, err error)
	DeliveriesSince(ctx context.Context, after time.Time) (int64, error)
}
