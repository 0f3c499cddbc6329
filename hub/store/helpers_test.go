package store_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

// now is a time that the database stores without loss.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A world is a tenant with a row in every table, all texts marked.
type world struct {
	mark       string
	tenant     hub.TenantID
	user       hub.User
	token      hub.APIToken
	project    hub.Project
	repository hub.Repository
	template   hub.RepositoryTemplate
	cluster    hub.Cluster
	enrolment  hub.Enrolment
	app        hub.Application
	set        hub.ApplicationSet
	snapshot   hub.Snapshot
	operation  hub.Operation
	bulk       hub.BulkID
	delivery   hub.Delivery
	object     hub.SealedObject
}

func spec(url string) []byte {
	return []byte(`{"project":"shop","source":{"repoURL":"` + url + `","path":"x"},"destination":{"name":"prod","namespace":"shop"}}`)
}

// newApp is an application as catalog would hand it over.
func newApp(name, url string, cluster hub.ClusterID) hub.Application {
	return hub.Application{Meta: hub.Meta{Namespace: "argocd", Name: name}, Project: "default", Spec: spec(url), Cluster: cluster}
}

func newOperation(app hub.Application, snapshot hub.SnapshotID) hub.Operation {
	return hub.Operation{
		ID: hub.NewID[hub.OperationID](), Application: app.ID, Cluster: app.Cluster, Kind: hub.SyncOperation, Snapshot: snapshot,
		Fence: app.Generation, Phase: hub.Pending, OperationTimes: hub.OperationTimes{CreatedAt: now(), Deadline: now().Add(time.Hour)},
	}
}

func newSnapshot(app hub.Application, objects ...hub.ObjectRef) hub.Snapshot {
	return hub.Snapshot{
		ID: hub.NewID[hub.SnapshotID](), Tenant: app.Tenant, Application: app.ID, Revision: "c0ffee", SourceType: "Directory", Objects: objects,
		Inputs: []hub.Input{{Kind: hub.InputFile, Path: "x/a.yaml", Hash: "abc"}}, CreatedAt: now(),
	}
}

// rows continues a log.
func rows(head hub.LogHead, more ...hub.LogRow) []hub.LogRow {
	for i := range more {
		r := &more[i]
		r.Seq = head.Seq + 1
		r.Chain = hashchain.Next(head.Chain, uint64(r.Seq), int32(r.Kind), string(r.Application), r.Body)
		head.Seq, head.Chain = r.Seq, r.Chain
	}
	return more
}

// build fills a tenant. name must be fit for a tenant; every text is marked
// with it unless same is set: then both have equal names.
func build(t testing.TB, db *store.DB, name, texts string) *world {
	t.Helper()
	w := &world{mark: texts, tenant: storetest.Tenant(t, db, name)}
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		w.people(t, ctx, tx)
		w.places(t, ctx, tx)
		w.state(t, ctx, tx)
		w.messages(t, ctx, tx)
		return nil
	})
	w.outside(t, db)
	return w
}

func (w *world) people(t testing.TB, ctx context.Context, tx *store.Tenant) {
	w.user = must[hub.User](t)(tx.CreateUser(ctx, hub.User{Name: w.mark, Roles: []string{hub.RoleReadOnly}}, "hash of "+w.mark))
	w.token = hub.APIToken{
		ID: hub.NewID[hub.TokenID](), User: w.user.ID, Name: w.mark, Prefix: w.mark, CreatedAt: now(), Hash: sha256.Sum256([]byte(w.tenant + "token")),
	}
	check(t, tx.PutToken(ctx, w.token))
	check(t, tx.PutSignIn(ctx, hub.SignIn{
		Hash: sha256.Sum256([]byte(w.tenant + "state")), Browser: sha256.Sum256([]byte(w.tenant)), Provider: w.mark, Callback: w.mark, ReturnTo: w.mark,
		ExpiresAt: now().Add(time.Hour),
	}))
	check(t, tx.PutSignInTest(ctx, hub.SignInTest{
		ID: hub.NewID[hub.SignInTestID](), User: w.user.ID, Provider: w.mark, Name: w.mark, Callback: w.mark,
		Draft: hub.SignInDraft{Values: map[string]string{w.mark: w.mark}}, StartedAt: now(), ExpiresAt: now().Add(time.Hour),
	}))
	check(t, tx.PutSessionClaims(ctx, hub.SessionClaims{
		Hash: sha256.Sum256([]byte(w.tenant + "claims")), User: w.user.ID, Provider: w.mark, Groups: []string{w.mark}, Proof: w.mark, ExpiresAt: now().Add(time.Hour),
	}))
	check(t, tx.PutDeviceLogin(ctx, hub.DeviceLogin{
		Hash: sha256.Sum256([]byte(w.tenant + "device")), UserCode: sha256.Sum256([]byte(w.tenant + "code")), Address: w.mark, Client: w.mark, Pace: hub.DevicePace,
		CreatedAt: now(), ExpiresAt: now().Add(time.Hour),
	}))
	w.bulk = hub.NewID[hub.BulkID]()
	check(t, tx.CreateBulk(ctx, hub.Bulk{ID: w.bulk, Action: hub.BulkSync, Query: w.mark, By: hub.Caller{Username: w.mark}, CreatedAt: now()},
		[]hub.BulkItem{{Ordinal: 1, Namespace: w.mark, Name: w.mark}}))
	check(t, tx.AddPolicyVersion(ctx, hub.PolicyVersion{At: now(), By: w.mark, Changed: []string{w.mark}, Values: map[string]string{w.mark: w.mark}}))
	check(t, tx.SetPolicy(ctx, "p, "+w.mark+", *, *, *, allow"))
	check(t, tx.PutQuotas(ctx, hub.Quotas{hub.QuotaApplications: 1000, hub.QuotaUsers: 1000}, nil))
	w.project = must[hub.Project](t)(tx.CreateProject(ctx, hub.Project{Meta: hub.Meta{Name: w.mark}, Spec: []byte(`{"description":"` + w.mark + `"}`)}))
	check(t, tx.PutRoleToken(ctx, hub.RoleToken{
		ID: hub.NewID[hub.TokenID](), ProjectID: w.project.ID, Role: w.mark, Name: w.mark, Prefix: w.mark, CreatedBy: w.mark,
		Hash: sha256.Sum256([]byte(w.tenant + "role")), CreatedAt: now(), ExpiresAt: now().Add(time.Hour),
	}))
	check(t, tx.PutExchangedToken(ctx, hub.ExchangedToken{
		ID: hub.NewID[hub.TokenID](), Account: w.user.ID, Trust: w.mark, Subject: w.mark, Hash: sha256.Sum256([]byte(w.tenant + "exchanged")),
		Proof: sha256.Sum256([]byte(w.tenant + "proof")), ExpiresAt: now().Add(time.Hour), ProofUntil: now().Add(time.Hour),
	}))
	check(t, tx.PutSCIMToken(ctx, hub.SCIMToken{
		ID: hub.NewID[hub.TokenID](), Name: w.mark, Prefix: w.mark, CreatedBy: w.mark, Hash: sha256.Sum256([]byte(w.tenant + "scim")),
		CreatedAt: now(), ExpiresAt: now().Add(time.Hour),
	}))
	must[hub.SCIMUser](t)(tx.PutSCIMUser(ctx, hub.SCIMUser{ID: w.user.ID, UserName: w.mark, Active: true, Attributes: []byte(`{"mark":"` + w.mark + `"}`), UpdatedAt: now()}))
	must[hub.SCIMGroup](t)(tx.PutSCIMGroup(ctx, hub.SCIMGroup{
		ID: hub.NewID[string](), DisplayName: "group " + w.mark, UpdatedAt: now(), Members: []hub.SCIMRef{{ID: string(w.user.ID)}},
	}))
	check(t, tx.AppendAudit(ctx, hub.AuditRecord{At: now(), Actor: w.mark, Action: "create", Resource: "projects", Object: w.mark, Result: "allowed", Detail: []byte(`{"b":1, "a":2}`)}))
	_, _, _, err := tx.BeginIdempotent(ctx, "key", w.mark, [32]byte{1})
	check(t, err)
	check(t, tx.FinishIdempotent(ctx, hub.IdempotencyKey{Key: "key"}, w.mark, 201, []byte(w.mark)))
}

func (w *world) places(t testing.TB, ctx context.Context, tx *store.Tenant) {
	url := "https://git.test/" + w.mark + "/repo"
	w.repository = must[hub.Repository](t)(tx.PutRepository(ctx, hub.Repository{URL: url, Name: w.mark, Registered: true},
		&hub.Credential{Username: w.mark, Password: "secret of " + w.mark}))
	w.template = must[hub.RepositoryTemplate](t)(tx.PutRepositoryTemplate(ctx, hub.RepositoryTemplate{URL: "https://git.test/" + w.mark, Name: w.mark},
		&hub.Credential{Username: w.mark, Password: "template secret of " + w.mark}))
	must[bool](t)(tx.PutDeferredCredential(ctx, hub.DeferredCredential{
		Kind: hub.WriteRepository, Name: w.mark, URL: url, Project: w.mark, Username: w.mark, CreatedAt: now(),
		Values: map[string]string{"password": "deferred secret of " + w.mark},
	}))
	check(t, tx.PutHostKeys(ctx, []hub.HostKey{{Host: "git.test", Type: "ssh-rsa", Key: w.mark}}))
	check(t, tx.LockSettings(ctx))
	check(t, tx.ChangeSettings(ctx, []hub.Setting{
		{Map: hub.SettingsMap, Key: "url", Value: w.mark, UpdatedAt: now(), UpdatedBy: w.mark},
		{Map: hub.SecretMap, Key: "token", Value: "setting secret of " + w.mark, Secret: true, UpdatedAt: now(), UpdatedBy: w.mark},
		{Map: hub.NotificationsMap, Key: "service.slack", Value: w.mark, UpdatedAt: now(), UpdatedBy: w.mark}, // so that transitions are noted
	}, nil))
	must[bool](t)(tx.Fetched(ctx, w.repository.ID, []hub.Ref{{Name: "refs/heads/" + w.mark, Commit: "c0ffee"}}, now(), "", false))
	w.cluster = must[hub.Cluster](t)(tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: w.mark}, Server: "https://" + w.mark}))
	w.enrolment = must[hub.Enrolment](t)(tx.CreateEnrolment(ctx,
		hub.Enrolment{Cluster: w.cluster.ID, Prefix: w.mark, CreatedBy: w.mark, ExpiresAt: now().Add(time.Hour)}, sha256.Sum256([]byte(w.tenant+"join"))))
	app := newApp(w.mark, url, w.cluster.ID)
	app.Project, app.Labels = w.mark, map[string]string{"mark": w.mark}
	w.app = must[hub.Application](t)(tx.CreateApplication(ctx, app))
	project := must[hub.Project](t)(tx.Project(ctx, w.mark))
	w.set = must[hub.ApplicationSet](t)(tx.CreateApplicationSet(ctx, hub.ApplicationSet{
		Meta: hub.Meta{Namespace: "argocd", Name: w.mark, Labels: map[string]string{"mark": w.mark}}, Project: w.mark, Spec: []byte(`{"mark":"` + w.mark + `"}`),
	}, []string{hub.WatchRollout}))
	check(t, tx.PutSetMember(ctx, hub.SetMember{Application: w.app.ID, Set: w.set.ID}))
	check(t, tx.PutSetRepositories(ctx, w.set, []string{url}))
	check(t, tx.PutApplicationSetStatus(ctx, w.set.ID, hub.ApplicationSetStatus{HealthMessage: w.mark}))
	check(t, tx.PutRenderedBy(ctx, hub.RenderedBy{Object: string(project.ID), Kind: "AppProject", Parent: w.app.ID, Applied: json.RawMessage(`{"mark":"` + w.mark + `"}`)}))
}

func (w *world) state(t testing.TB, ctx context.Context, tx *store.Tenant) {
	w.object = hub.SealedObject{Digest: sha256.Sum256([]byte(w.tenant)), Sealed: []byte(w.mark), Size: 10}
	check(t, tx.PutObjects(ctx, []hub.SealedObject{w.object}))
	w.snapshot = newSnapshot(w.app, hub.ObjectRef{Digest: w.object.Digest, Version: "v1", Kind: "ConfigMap", Namespace: w.mark, Name: w.mark})
	w.snapshot.Warnings = []string{w.mark}
	check(t, tx.PutSnapshots(ctx, []hub.Snapshot{w.snapshot}))
	check(t, tx.SetTargets(ctx, []hub.TargetChange{{
		Application: w.app.ID, Target: w.snapshot.ID, Accepted: w.snapshot.ID, Revision: "c0ffee", SourceType: "Directory",
		Resources: 1, Generation: 2, Warnings: []string{w.mark}, Hold: w.mark,
	}}))
	check(t, tx.SetCondition(ctx, w.app.ID, hub.SyncError, w.mark))
	w.operation = newOperation(w.app, w.snapshot.ID)
	w.operation.Message, w.operation.Initiator = w.mark, hub.Initiator{Username: w.mark}
	check(t, tx.PutOperations(ctx, []hub.Operation{w.operation}))
	heads := must[map[hub.ClusterID]hub.LogHead](t)(tx.LockClusters(ctx, []hub.ClusterID{w.cluster.ID}))
	check(t, tx.AppendRows(ctx, w.cluster.ID, rows(heads[w.cluster.ID],
		hub.LogRow{Kind: hub.RowState, Application: w.app.ID, Body: []byte(w.mark)},
		hub.LogRow{Kind: hub.RowOperation, Application: w.app.ID, Operation: w.operation.ID, Body: []byte(w.mark)})))
	must[bool](t)(tx.NoteRewind(ctx, w.cluster.ID, hub.Rewind{Reason: w.mark, AgentIncarnation: w.mark, AgentSeq: 3, SeenAt: now()}))
	must[hub.Rewind](t)(tx.AcceptHub(ctx, w.cluster.ID, w.mark, now()))
	check(t, tx.Acknowledge(ctx, []hub.LogAck{{Cluster: w.cluster.ID, Seq: 1}}))
	check(t, tx.Acknowledge(ctx, []hub.LogAck{{Cluster: w.cluster.ID, Seq: 1, Receipt: &hub.Receipt{Seq: 1, Root: []byte(w.mark), At: now()}}}))
	check(t, tx.OpenTombstones(ctx, []hub.Tombstone{w.tombstone()}))
	check(t, tx.AppendHistory(ctx, []hub.HistoryEntry{{Application: w.app.ID, Operation: w.operation.ID, Snapshot: w.snapshot.ID, Revision: "c0ffee",
		Initiator: hub.Initiator{Username: w.mark}, Reason: w.mark, StartedAt: now(), DeployedAt: now()}}))
	must[hub.Observed](t)(tx.PutObservation(ctx, w.cluster.ID, hub.Observation{
		Epoch: w.mark, Seq: 1, Snapshot: 1,
		Resources: []hub.Resource{{Application: w.app.ID, Kind: "ConfigMap", Version: "v1", Namespace: w.mark, Name: w.mark, UID: w.mark, Managed: true}},
	}))
}

// messages are about an application, to one recipient.
func (w *world) messages(t testing.TB, ctx context.Context, tx *store.Tenant) {
	check(t, tx.PutNotified(ctx, w.app.ID, &hub.NotifiedState{Sent: map[string]int64{w.mark: 1}}, nil))
	check(t, tx.PutThread(ctx, hub.Thread{Service: w.mark, Recipient: w.mark, Key: w.mark, Place: w.mark, Message: w.mark}))
	w.delivery = hub.Delivery{
		ID: hub.NewID[hub.DeliveryID](), Dedup: []byte(w.tenant + "dedup"), Application: w.app.ID, Namespace: w.mark, Name: w.mark, Project: w.mark, Trigger: w.mark,
		Templates: []string{w.mark}, Service: w.mark, ServiceType: w.mark, Recipient: w.mark, State: hub.DeliveryPending, Reason: w.mark,
		Message: json.RawMessage(`{"mark":"` + w.mark + `"}`), Shown: json.RawMessage(`{"mark":"` + w.mark + `"}`), CreatedAt: now(),
	}
	must[bool](t)(tx.PutDelivery(ctx, w.delivery))
}

func (w *world) tombstone() hub.Tombstone {
	return hub.Tombstone{Application: w.app.ID, Cluster: w.cluster.ID, Version: "v1", Kind: "ConfigMap", Namespace: w.mark, Name: "old", Since: 1}
}

// outside is what the directory knows of the tenant.
func (w *world) outside(t testing.TB, db *store.DB) {
	ctx, s := t.Context(), db.System()
	check(t, s.PutSession(ctx, hub.Session{Hash: sha256.Sum256([]byte(w.tenant + "session")), Tenant: w.tenant, User: w.user.ID,
		CreatedAt: now(), SeenAt: now(), ExpiresAt: now().Add(time.Hour)}))
	check(t, s.PutSetupLink(ctx, hub.SetupLink{Hash: sha256.Sum256([]byte(w.tenant + "setup")), Tenant: w.tenant, Roles: []string{hub.RoleTenantAdmin}, ExpiresAt: now().Add(time.Hour)}))
	check(t, s.Connected(ctx, hub.Attachment{Tenant: w.tenant, Cluster: w.cluster.ID, AgentID: w.mark, Session: w.mark, Replica: w.mark,
		KubeVersion: "v1.35.4", APIVersions: []string{"v1"}, At: now()}))
}

// ids are all identifiers of the world but the tenant's own.
func (w *world) ids() []string {
	return []string{
		string(w.user.ID), string(w.token.ID), string(w.project.ID), string(w.repository.ID), string(w.template.ID), string(w.cluster.ID),
		string(w.enrolment.ID), string(w.app.ID), string(w.set.ID), string(w.snapshot.ID), string(w.operation.ID), string(w.delivery.ID),
	}
}
