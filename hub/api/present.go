package api

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// etag is the version of an object as HTTP writes it.
func etag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// resourceVersion is the version of an object as its metadata has it.
func resourceVersion(version int64) string { return strconv.FormatInt(version, 10) }

// expected reads an If-Match header; 0 expects any version.
func expected(header string) (int64, error) {
	if header == "" || header == "*" {
		return 0, nil
	}
	n, err := strconv.ParseInt(strings.Trim(strings.TrimPrefix(header, "W/"), `"`), 10, 64)
	if err != nil || n < 1 {
		return 0, fault.With(fault.New(fault.Invalid, "the header If-Match has no version"), "", "send the ETag of the object as it was read")
	}
	return n, nil
}

func at(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

func metadata(id string, m hub.Meta, generation int64, deleting *time.Time) apimodel.Metadata {
	out := apimodel.Metadata{
		Uid: id, Name: m.Name, Namespace: m.Namespace, Labels: m.Labels, Annotations: m.Annotations, Finalizers: m.Finalizers,
		Generation: generation, ResourceVersion: resourceVersion(m.Version), CreationTimestamp: m.CreatedAt.UTC().Format(time.RFC3339),
	}
	if len(out.Labels) == 0 {
		out.Labels = nil
	}
	if len(out.Annotations) == 0 {
		out.Annotations = nil
	}
	if len(out.Finalizers) == 0 {
		out.Finalizers = nil
	}
	if deleting != nil {
		out.DeletionTimestamp = deleting.UTC().Format(time.RFC3339)
	}
	return out
}

// presentApplication returns an application in the shape of Argo CD's, with what
// Capstan knows beyond it. In lists results per object are left out.
func presentApplication(v catalog.View, list bool) apimodel.Application {
	return apimodel.Application{
		ApiVersion: validation.ArgoVersion, Kind: validation.KindApplication,
		Metadata: applicationMetadata(v), Spec: repourl.RedactJSON(v.Spec), Status: presentStatus(v, list), Operation: presentRequested(v),
	}
}

func presentStatus(v catalog.View, list bool) apimodel.ApplicationStatus {
	st, now := v.Status, time.Now()
	shown := st.Show(v.On, now)
	out := apimodel.ApplicationStatus{ControllerNamespace: validation.DefaultNamespace, ReconciledAt: at(st.ComparedAt), Capstan: presentHub(v, now)}
	out.SourceType, out.SourceTypes = presentSourceTypes(v)
	out.Sync.Status, out.Sync.Revision, out.Sync.Revisions = apimodel.SyncStatusCode(shown.Sync), st.Revision, st.Revisions
	out.Health.Status, out.Health.Message, out.Health.LastTransitionTime = apimodel.HealthStatusCode(shown.Health), st.HealthCause, at(st.HealthSince)
	if shown.Health != st.Health && shown.Stale != nil {
		out.Health.Message = shown.Stale.Message
	}
	if v.Pin != nil { // the status is against Git, not against what is deployed
		_, out.Sync.Revision, out.Sync.Revisions = v.Pin.Git()
	}
	if !list {
		out.Sync.ComparedTo = presentCompared(v)
	}
	out.Capstan.Stale = presentStale(st, shown)
	for _, c := range st.Conditions {
		out.Conditions = append(out.Conditions, apimodel.Condition{Type: c.Type, Message: repourl.RedactText(c.Message), LastTransitionTime: c.Since.UTC()})
	}
	if unreachable := awaitingCluster(v); unreachable != "" {
		out.Conditions = append(out.Conditions, apimodel.Condition{Type: hub.DeletionError, Message: unreachable, LastTransitionTime: v.DeletingAt.UTC()})
	}
	if st.Operation != nil {
		out.OperationState = presentOperation(*st.Operation, list)
	}
	return out
}

// presentSourceTypes says what made the manifests: of the one source, or of
// each of several.
func presentSourceTypes(v catalog.View) (one string, each []string) {
	var spec struct{ Sources []json.RawMessage }
	if err := json.Unmarshal(v.Spec, &spec); err != nil || len(spec.Sources) == 0 {
		return v.Status.SourceType, nil
	}
	if v.Status.SourceType == "" {
		return "", nil
	}
	return "", strings.Split(v.Status.SourceType, ",")
}

// awaitingCluster is the message that a deletion waits for a disconnected
// cluster; empty: it does not.
func awaitingCluster(v catalog.View) string {
	if v.DeletingAt == nil || v.On == nil || v.On.Connected {
		return ""
	}
	since := "has never been connected"
	if v.On.LastSeen != nil {
		since = "was last connected at " + v.On.LastSeen.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("the deletion waits for cluster %s, which %s; if the cluster no longer exists, `capstan app abandon %s` removes the application and leaves its objects",
		v.On.Name, since, v.Name)
}

// presentStale says why and since when a status is not current, with the
// states that were known last.
func presentStale(st hub.ApplicationStatus, shown hub.Shown) apimodel.Stale {
	if shown.Stale == nil {
		return apimodel.Stale{}
	}
	out := apimodel.Stale{Reason: apimodel.StaleReason(shown.Stale.Reason), Message: shown.Stale.Message, Since: at(shown.Stale.Since)}
	if out.Since.IsZero() {
		return out
	}
	out.Sync, out.Health = apimodel.SyncStatusCode(st.Sync), apimodel.HealthStatusCode(st.Health)
	return out
}

func presentHub(v catalog.View, now time.Time) apimodel.HubStatus {
	st := v.Status
	out := apimodel.HubStatus{
		Id: string(v.ID), Generation: v.Generation, Resources: st.Resources, Hold: st.Hold, Automation: apimodel.HubStatusAutomationManual,
		Target: string(st.Target), Accepted: string(st.Accepted), RefreshedAt: at(st.RefreshedAt), Deleting: v.DeletingAt != nil,
		Connection: apimodel.HubStatusConnectionNoCluster,
	}
	if spec, err := hub.DecodeSpec(v.Spec); err == nil {
		out.FollowsRevision, out.KeepsLive = v.Follows(spec), v.KeepsLive(spec)
	}
	if out.FollowsRevision {
		out.Automation = apimodel.HubStatusAutomationAuto
		if st.Hold != "" {
			out.Automation = apimodel.HubStatusAutomationWaiting
		}
	}
	if op := st.Operation; op != nil {
		out.AwaitsApproval = op.AwaitsApproval()
	}
	if v.On != nil {
		out.Cluster, out.AsOf = v.On.Name, at(v.On.AsOf())
		out.Connection = apimodel.HubStatusConnection(connection(*v.On))
	}
	h := v.Headline(v.On, now)
	out.Headline = apimodel.Headline{State: apimodel.HeadlineState(h.State), Message: h.Message, Since: at(h.Since)}
	if v.Parent != nil {
		out.Parent = apimodel.ParentApplication{Namespace: v.Parent.Namespace, Name: v.Parent.Name}
	}
	if v.Set != nil {
		out.ApplicationSet = apimodel.ParentSet{Namespace: v.Set.Namespace, Name: v.Set.Name}
	}
	if v.Pin != nil {
		out.Automation, out.Hold, out.Paused = apimodel.HubStatusAutomationPaused, "", presentPaused(v.Application)
	}
	return out
}

func connection(c hub.Cluster) apimodel.ClusterConnection {
	switch {
	case c.Connected:
		return apimodel.ClusterConnectionConnected
	case c.LastSeen == nil:
		return apimodel.ClusterConnectionNeverConnected
	}
	return apimodel.ClusterConnectionDisconnected
}

func presentOperation(op hub.Operation, list bool) apimodel.OperationState {
	out := apimodel.OperationState{
		Id: string(op.ID), Kind: apimodel.OperationStateKind(op.Kind), Phase: apimodel.OperationPhase(op.Phase), Message: op.Message, Reason: op.Reason,
		StartedAt: op.CreatedAt.UTC(), FinishedAt: at(op.FinishedAt), HealthyAt: at(op.HealthyAt), RetryAt: at(op.RetryAt),
		RetryCount: op.Attempt, Deadline: op.Deadline.UTC(),
	}
	if op.StartedAt != nil {
		out.StartedAt = op.StartedAt.UTC()
	}
	out.Operation.InitiatedBy = apimodel.InitiatedBy{Username: op.Initiator.Username, Automated: op.Initiator.Automated}
	out.Operation.Sync = apimodel.OperationSync{
		Revision: op.Revision, Prune: op.Options.Prune, DryRun: op.Options.DryRun, SyncOptions: op.Options.SyncOptions,
	}
	for _, r := range op.Options.Resources {
		out.Operation.Sync.Resources = append(out.Operation.Sync.Resources, parseSelector(r))
	}
	for _, i := range op.Options.Infos {
		out.Operation.Info = append(out.Operation.Info, apimodel.Info(i))
	}
	if o := op.Options.Override; o != nil {
		out.Operation.Sync.Revisions, out.Operation.Sync.Local = o.Revisions, o.Local
	}
	out.SyncResult.Revision = op.Revision
	if list {
		return out
	}
	presentFrom(op.Options, &out)
	for _, r := range op.Results {
		out.SyncResult.Resources = append(out.SyncResult.Resources, presentResult(r))
	}
	return out
}

func presentResult(r hub.ObjectResult) apimodel.ObjectResult {
	return apimodel.ObjectResult{
		Group: r.Group, Version: r.Version, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, Status: r.Status, Message: r.Message,
		HookType: r.HookType, HookPhase: r.HookPhase, SyncPhase: r.SyncPhase, Wave: r.Wave,
	}
}

// selector writes a resource as operations do: group:kind:namespace/name.
func selector(r apimodel.ResourceSelector) string {
	name := r.Name
	if r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	if r.Exclude {
		return "!" + r.Group + ":" + r.Kind + ":" + name
	}
	return r.Group + ":" + r.Kind + ":" + name
}

func parseSelector(s string) apimodel.ResourceSelector {
	s, exclude := strings.CutPrefix(s, "!")
	group, rest, _ := strings.Cut(s, ":")
	kind, name, _ := strings.Cut(rest, ":")
	out := apimodel.ResourceSelector{Group: group, Kind: kind, Name: name, Exclude: exclude}
	if namespace, bare, found := strings.Cut(name, "/"); found {
		out.Namespace, out.Name = namespace, bare
	}
	return out
}

func presentHistory(h hub.HistoryEntry) apimodel.HistoryEntry {
	source := repourl.RedactJSON(h.Source)
	var sources []json.RawMessage
	if json.Unmarshal(source, &sources) == nil && len(sources) > 0 {
		source = nil
	}
	return apimodel.HistoryEntry{
		Id: h.ID, Revision: h.Revision, Revisions: h.Revisions, Source: source, Sources: sources, Reason: h.Reason,
		Operation: string(h.Operation), Snapshot: string(h.Snapshot),
		InitiatedBy:     apimodel.InitiatedBy{Username: h.Initiator.Username, Automated: h.Initiator.Automated},
		DeployStartedAt: h.StartedAt.UTC(), DeployedAt: h.DeployedAt.UTC(),
		Commit: apimodel.Commit{Author: h.Commit.Author, Message: h.Commit.Message, At: h.Commit.At},
	}
}

func presentProject(p hub.Project) apimodel.AppProject {
	return apimodel.AppProject{
		ApiVersion: validation.ArgoVersion, Kind: validation.KindProject,
		Metadata: metadata(string(p.ID), p.Meta, 0, nil), Spec: repourl.RedactJSON(p.Spec),
	}
}

func presentRepository(r hub.Repository) apimodel.Repository {
	out := apimodel.Repository{
		Id: string(r.ID), Url: r.URL, Type: string(r.Type), Name: r.Name, Project: r.Project, Username: r.Username,
		HasCredential: r.HasCredential, Insecure: r.Insecure, EnableOCI: r.Registry(), InsecureOCIForceHttp: r.PlainHTTP,
		Proxy: r.Proxy, NoProxy: r.NoProxy, EnableLfs: r.LFS, Depth: r.Depth, Registered: r.Registered, CreatedAt: r.CreatedAt.UTC(),
	}
	out.Connection = apimodel.Connection{Status: apimodel.ConnectionStatusUnknown, FetchedAt: at(r.FetchedAt), AttemptedAt: at(r.FetchedAt)}
	switch {
	case r.Error != "":
		out.Connection.Status, out.Connection.Message, out.Connection.AttemptedAt = apimodel.ConnectionStatusFailed, r.Error, at(r.ErrorAt)
	case r.FetchedAt != nil:
		out.Connection.Status = apimodel.ConnectionStatusSuccessful
	}
	return out
}

func presentCluster(c hub.Cluster, invitations []hub.Enrolment) apimodel.Cluster {
	out := apimodel.Cluster{
		Id: string(c.ID), Name: c.Name, Server: c.Server, Labels: c.ShownLabels(), Annotations: c.Annotations, Connection: connection(c),
		LastSeen: at(c.LastSeen), KubeVersion: c.KubeVersion, AgentVersion: c.AgentVersion, Seq: c.Seq, AckedSeq: c.AckedSeq,
		CreatedAt: c.CreatedAt.UTC(), ResourceVersion: strconv.FormatInt(c.Version, 10),
		Fingerprint: c.Fingerprint, Backlog: int64(c.Backlog), LagSeconds: float32(c.Lag.Seconds()), Held: c.Held, Upgradable: c.Upgradable,
	}
	if !c.Same(hub.ClusterScope{}) {
		out.Scope = &apimodel.ClusterScope{Project: c.Project, Namespaces: c.Namespaces, ClusterResources: c.ClusterResources, Shard: c.Shard}
	}
	if r := c.Rewind; r != nil {
		out.Rewind = apimodel.Rewind{Since: r.Since.UTC(), SeenAt: r.SeenAt.UTC(), Reason: r.Reason, Proven: r.Proven, AgentSeq: r.AgentSeq, HubSeq: r.HubSeq}
	}
	if q := c.Quarantine; q != nil {
		out.Quarantine = apimodel.Quarantine{Since: q.Since.UTC(), Known: q.Known, Other: q.Other, Address: q.Address}
	}
	if r := c.Refused; r != nil {
		out.Refused = apimodel.RefusedAgent{Address: r.Address, At: r.At.UTC()}
	}
	if u := c.Upgrade; u != nil {
		out.Upgrade = apimodel.AgentUpgrade{
			Id: u.ID, Image: u.Image, From: u.From, Phase: apimodel.AgentUpgradePhase(u.Phase), Message: u.Message, By: u.By,
			OrderedAt: u.OrderedAt.UTC(), EndedAt: at(u.EndedAt), DeadlineSeconds: int64(u.Deadline.Seconds()),
		}
	}
	if r := c.Receipt; r != nil {
		out.Receipt.Seq, out.Receipt.Root, out.Receipt.At = r.Seq, hex.EncodeToString(r.Root), r.At.UTC()
	}
	if r := c.Refusal; r != nil {
		out.Refusal.At, out.Refusal.Address, out.Refusal.Stage = r.At.UTC(), r.Address, r.Stage
		out.Refusal.Message, out.Refusal.AgentVersion = r.Message, r.AgentVersion
	}
	for _, e := range invitations {
		info := apimodel.EnrolmentInfo{Id: string(e.ID), Prefix: e.Prefix, ExpiresAt: e.ExpiresAt.UTC(), UsedAt: at(e.UsedAt), CreatedBy: e.CreatedBy}
		for _, a := range e.Attempts {
			info.Attempts = append(info.Attempts, struct {
				Address string    `json:"address"`
				At      time.Time `json:"at"`
				Stage   string    `json:"stage"`
			}{a.Address, a.At.UTC(), a.Stage})
		}
		out.Enrolments = append(out.Enrolments, info)
	}
	return out
}

// givenScope is what a request says of a cluster's scope; nil: nothing.
func givenScope(s *apimodel.ClusterScope) *hub.ClusterScope {
	if s == nil {
		return nil
	}
	return &hub.ClusterScope{Project: s.Project, Namespaces: s.Namespaces, ClusterResources: s.ClusterResources, Shard: s.Shard}
}

func presentNode(r hub.Resource) apimodel.Node {
	out := apimodel.Node{
		Uid: r.UID, Parent: r.Parent, Group: r.Group, Version: r.Version, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name,
		Managed: r.Managed, Status: apimodel.SyncStatusCode(r.Sync), Health: apimodel.HealthStatusCode(r.Health), Message: r.Message,
		RequiresPruning: r.RequiresPrune, Hook: r.Hook, SyncWave: r.Wave, Diff: r.DiffSummary, Orphaned: r.Orphan, CreatedAt: at(r.CreatedAt), UpdatedAt: r.UpdatedAt.UTC(),
	}
	out.RequiresDeletionConfirmation, out.Links = r.Confirm, presentLinks(r.Links)
	for _, i := range r.Info {
		out.Info = append(out.Info, apimodel.Info(i))
	}
	return out
}

func presentUser(u hub.User) apimodel.User {
	roles := u.Roles
	if roles == nil {
		roles = []string{}
	}
	return apimodel.User{
		Name: u.Name, Roles: roles, Disabled: u.Disabled, CreatedAt: u.CreatedAt.UTC(), Capabilities: u.Capabilities, Origin: string(u.Origin),
		Provider: u.Provider,
	}
}

func presentToken(t hub.APIToken) apimodel.Token {
	return apimodel.Token{Id: string(t.ID), Name: t.Name, Prefix: t.Prefix, CreatedAt: t.CreatedAt.UTC(), ExpiresAt: at(t.ExpiresAt), UsedAt: at(t.UsedAt)}
}

// collect presents a list; no items are an empty list, never null.
func collect[In, Out any](in []In, present func(In) Out) []Out {
	out := make([]Out, 0, len(in))
	for _, v := range in {
		out = append(out, present(v))
	}
	return out
}

// given converts the metadata of a write, without what the hub sets.
func given(m apimodel.Metadata) hub.Meta {
	return hub.Meta{Namespace: m.Namespace, Name: m.Name, Labels: m.Labels, Annotations: m.Annotations, Finalizers: m.Finalizers}
}

// checkType refuses an object that says it is something else.
func checkType(apiVersion, kind, want string) error {
	if apiVersion == validation.ArgoVersion && kind == want {
		return nil
	}
	return fault.New(fault.Invalid, "the object is a %q of %q; here goes a %s of %s", cut(kind), cut(apiVersion), want, validation.ArgoVersion)
}

// checkName refuses an object whose name is not the one of the address
// (SEC-D3).
func checkName(what, inBody, inPath string) error {
	if inBody == inPath {
		return nil
	}
	return fault.New(fault.Invalid, "the %s in the object is %q, and in the address %q", what, cut(inBody), cut(inPath))
}

func cut(s string) string {
	if r := []rune(s); len(r) > 80 {
		return fmt.Sprintf("%s…", string(r[:80]))
	}
	return s
}

// deref is the value of an optional field, or the zero value.
func deref[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}
