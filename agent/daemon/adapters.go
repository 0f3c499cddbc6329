package daemon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/agent/apply"
	"github.com/capstan-cd/capstan/agent/inventory"
	"github.com/capstan-cd/capstan/agent/link"
	"github.com/capstan-cd/capstan/agent/relay"
	"github.com/capstan-cd/capstan/agent/upgrade"
	"github.com/capstan-cd/capstan/agent/watch"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/action"
	"github.com/capstan-cd/capstan/shared/compress"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// desired adapts the agent's copy of the desired log to the link.
type desired struct{ a *agent }

// Cursor is how far the log is stored.
func (d desired) Cursor() *linkv1.Cursor {
	c, lost := d.a.store.Position()
	at := &linkv1.Cursor{Incarnation: c.Incarnation, Seq: c.Seq, Chain: c.Chain, Proof: c.Proof}
	if lost {
		at = &linkv1.Cursor{Guard: at}
	}
	at.Generation, at.Compares, at.Settings, at.Packs = d.a.secret.Highest(), true, true, !d.a.conn.plain.Load()
	return at
}

// StoreBatch stores a batch. The engine starts at once, during the disk write;
// work that must not be repeated waits for the disk.
func (d desired) StoreBatch(ctx context.Context, b *linkv1.Batch) error {
	changes, commit, err := d.a.store.Stage(b)
	if err != nil {
		d.a.engine.Announce() // the batch may have shown that the hub is rewound
		if errors.Is(err, compress.ErrBase) {
			d.a.conn.plain.Store(true) // the next stream brings whole rows
		}
		return err
	}
	if changes.Settings && d.a.settings.current.Set(d.a.store.Settings()) { // before the states that come with it are compared
		d.a.reconsider(ctx)
	}
	d.a.engine.Changed(ctx, changes)
	if err := commit.Wait(ctx); err != nil {
		return err
	}
	d.a.secret.SetCursor(d.a.store.Cursor())
	return nil
}

// Root processes a barrier: the replay is complete.
func (d desired) Root() []byte {
	d.a.store.Settled()
	d.a.engine.Retain()
	d.a.conn.caughtUp.Store(true)
	return d.a.store.Root()
}

// Rewound keeps everything unchanged until an admin decides.
func (d desired) Rewound(reason string) {
	if before := d.a.store.Rewound(); before == reason {
		return
	}
	d.a.store.Rewind(reason)
	d.a.engine.Announce()
}

// Respond handles the hub's decisions and queries about the log's past.
func (d desired) Respond(ctx context.Context, down *linkv1.FollowDown) (*linkv1.FollowUp, error) {
	switch m := down.GetMessage().(type) {
	case *linkv1.FollowDown_Confirmed:
		return nil, d.confirmed(ctx, m.Confirmed)
	case *linkv1.FollowDown_Hold:
		d.a.store.HoldDeletions(m.Hold.GetReason())
		d.a.engine.Announce()
	case *linkv1.FollowDown_Compare:
		return &linkv1.FollowUp{Message: &linkv1.FollowUp_Sums{Sums: d.a.store.Sums(m.Compare.GetFirst())}}, nil
	}
	return nil, nil
}

// confirmed switches to the log that an admin has accepted.
func (d desired) confirmed(ctx context.Context, m *linkv1.Confirmed) error {
	commit, err := d.a.store.Confirm(m)
	if err != nil {
		return err
	}
	if err := commit.Wait(ctx); err != nil {
		return err
	}
	d.a.secret.SetCursor(d.a.store.Cursor())
	d.a.Log.WarnContext(ctx, "an admin has accepted the hub's state", logkey.By, m.GetBy(), logkey.Incarnation, m.GetIncarnation(), logkey.FormerSeq, m.GetFrom().GetSeq())
	d.a.engine.Announce()
	return nil
}

// comparesReports is the hub's feature of comparing hashes of reports.
const comparesReports = "report-buckets"

// sessions stores the data of a session.
type sessions struct{ a *agent }

// Opened stores the keys of the tenant and the cluster.
func (s sessions) Opened(_ context.Context, hello *linkv1.HelloResponse) error {
	keys := s.a.secret.Keys()
	if key := hello.GetObjectKey(); len(key) > 0 {
		keys.Object = key
	}
	if key := hello.GetMaskKey(); len(key) > 0 {
		keys.Mask = key
	}
	s.a.secret.SetKeys(keys)
	s.Revoked(hello.GetRevoked())
	if s.a.Upgrade != "" {
		s.a.lease.Annotate(upgrade.Annotation, s.a.Upgrade) // the updater waits for this
	}
	s.a.outbox.Compares(slices.Contains(hello.GetFeatures(), comparesReports))
	return nil
}

// Revoked stores the hub's revocations, in case the hub loses them.
func (s sessions) Revoked(of []*linkv1.Revoked) {
	revoked := make([]inventory.Revoked, len(of))
	for i, r := range of {
		revoked[i] = inventory.Revoked{AgentID: r.GetAgentId(), Until: r.GetUntilUnix(), Proof: r.GetProof()}
	}
	s.a.secret.SetRevoked(revoked, time.Now())
}

// Closed does nothing: the last accepted state stays enforced.
func (s sessions) Closed(error) {}

// blobs fetches objects from the hub.
type blobs struct{ a *agent }

// fetchFor limits one call; the engine calls again.
const fetchFor = 30 * time.Second

// Fetch returns what the hub has.
func (b blobs) Fetch(ctx context.Context, digests [][]byte) ([]*linkv1.Blob, error) {
	client := b.a.conn.link.Load()
	if client == nil || !client.State().Connected {
		return nil, fault.New(fault.Offline, "the agent is not connected to the hub")
	}
	ctx, cancel := context.WithTimeout(ctx, fetchFor)
	defer cancel()
	var out []*linkv1.Blob
	_, err := client.Fetch(ctx, digests, func(blob *linkv1.Blob) error {
		out = append(out, blob)
		return nil
	})
	return out, err
}

// children reports the children of managed objects.
type children struct{ a *agent }

// Child reports a child that is new or has changed.
func (c children) Child(app string, r watch.Record) {
	c.a.outbox.Resource(c.a.engine.Outgoing(childOf(app, r)))
	if r.Kind == "Pod" && r.Group == "" && r.Health == "Degraded" {
		c.a.live.Failed(app, manifest.Key{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name})
	}
}

// ChildGone removes it again.
func (c children) ChildGone(app string, r watch.Record) {
	c.a.outbox.Removed(c.a.engine.Outgoing(childOf(app, r)))
}

func childOf(app string, r watch.Record) *linkv1.Resource {
	return &linkv1.Resource{
		AppId: app, Uid: r.UID, Parent: r.Parent, Group: r.Group, Version: r.Version, Kind: r.Kind,
		Namespace: r.Namespace, Name: r.Name, Health: r.Health, Message: r.Message, CreatedUnix: r.Created,
		Info: columnsOf(r.Info), Links: r.Links,
	}
}

// columns returns the displayed facts of a managed object.
func (a *agent) columns(o *manifest.Object) []*linkv1.Column {
	return columnsOf(watch.Columns(o, a.settings.current.Get().CustomLabels()))
}

func columnsOf(in []watch.Column) []*linkv1.Column {
	if len(in) == 0 {
		return nil
	}
	out := make([]*linkv1.Column, len(in))
	for i, c := range in {
		out[i] = &linkv1.Column{Name: c.Name, Value: c.Value}
	}
	return out
}

// cluster serves users' requests about live objects.
type cluster struct{ a *agent }

// Belongs reports whether an application manages an object, or an owner of it.
func (c cluster) Belongs(app string, key manifest.Key) bool {
	return c.a.engine.Manages(app, key) || c.a.tree.Has(app, key.Group, key.Kind, key.Namespace, key.Name)
}

// Read returns a live object.
func (c cluster) Read(ctx context.Context, app string, key manifest.Key, version string) (*manifest.Object, error) {
	gvk := schema.GroupVersionKind{Group: key.Group, Version: version, Kind: key.Kind}
	o, err := c.a.engine.Read(ctx, app, gvk, key.Namespace, key.Name)
	return c.conceal(app, o), err
}

// Inspect returns desired and live.
func (c cluster) Inspect(ctx context.Context, app string, all, predict bool, pick func(manifest.Key) bool) ([]relay.Object, error) {
	views, err := c.a.engine.Inspect(ctx, app, all, pick)
	if err == nil && predict {
		err = c.a.engine.Predict(ctx, app, views)
	}
	if err != nil {
		return nil, err
	}
	return c.present(app, views), nil
}

// Preview compares objects that are not desired with the live ones.
func (c cluster) Preview(ctx context.Context, app string, objects []*manifest.Object) ([]relay.Object, error) {
	views, err := c.a.engine.Preview(ctx, app, objects)
	return c.present(app, views), err
}

// Removed returns the objects of an application that are not among keys.
func (c cluster) Removed(_ context.Context, app string, keys []manifest.Key) ([]relay.Object, error) {
	views, err := c.a.engine.PreviewRemoved(app, keys)
	return c.present(app, views), err
}

// present converts views to what leaves the cluster.
func (c cluster) present(app string, views []apply.LiveView) []relay.Object {
	out := make([]relay.Object, len(views))
	for i, raw := range views {
		s := c.a.engine.ConcealView(app, raw, c.a.secret.Keys().Mask)
		out[i] = relay.Object{
			Key: s.Key, Version: s.Version, Sync: s.Sync, Summary: s.Detail, Fields: s.Fields,
			Desired: s.Desired, Live: s.Live, Applied: s.Applied,
			Normalized: s.Normalized, Predicted: s.Predicted, Problem: s.Problem,
		}
	}
	return out
}

// conceal hides resolved references in an object that leaves the cluster.
func (c cluster) conceal(app string, o *manifest.Object) *manifest.Object {
	return c.a.engine.Conceal(app, o, c.a.secret.Keys().Mask)
}

// Act reads an object and makes the changes that do returns.
func (c cluster) Act(ctx context.Context, r *linkv1.RunActionRequest, key manifest.Key,
	do func(ctx context.Context, live *manifest.Object) ([]action.Change, error),
) ([]*manifest.Object, error) {
	app := r.GetObject().GetAppId()
	written, err := c.a.engine.Act(ctx, apply.ActionRequest{
		Application: app, ID: r.GetId(), Object: key, Version: r.GetObject().GetVersion(), Project: r.GetProject(), Limits: r.GetLimits(),
	}, do)
	return written, c.a.engine.ConcealError(app, err)
}

// Refresh compares again, and asks again for kinds that were left out.
func (c cluster) Refresh(ctx context.Context, app string) bool {
	c.a.watcher.AskAgain()
	return c.a.engine.Refresh(ctx, app)
}

// CheckAccess returns what the application's service account lacks.
func (c cluster) CheckAccess(ctx context.Context, app string) (*linkv1.CheckAccessResponse, error) {
	r, err := c.a.engine.CheckAccess(ctx, app)
	if err != nil {
		return nil, err
	}
	out := &linkv1.CheckAccessResponse{
		ServiceAccount: r.User, Enabled: r.Enabled, Enforced: r.Enforced, Objects: uint32(min(r.Objects, math.MaxUint32)), Incomplete: r.Incomplete,
	}
	for _, m := range r.Missing {
		out.Missing = append(out.Missing, &linkv1.MissingRight{
			Verb: m.Verb, Group: m.Group, Resource: m.Resource, Namespace: m.Namespace, Name: m.Name, Fix: m.Fix(r.User),
		})
	}
	return out, nil
}

// Confirm reports the current state of an application and waits until the hub
// has stored it.
func (c cluster) Confirm(ctx context.Context, app string) error {
	if err := c.a.engine.Report(app); err != nil {
		return err
	}
	return c.a.outbox.Delivered(ctx)
}

// Delete deletes a live object.
func (c cluster) Delete(ctx context.Context, app string, key manifest.Key, version string, force bool, propagation string) error {
	gvk := schema.GroupVersionKind{Group: key.Group, Version: version, Kind: key.Kind}
	return c.a.engine.Delete(ctx, app, gvk, key, force, propagation)
}

// clusterFacts reports facts about the cluster to the hub.
type clusterFacts struct {
	kube   kubernetes
	mapper *watch.RESTMapper

	mu          sync.Mutex
	fingerprint string
}

// factsTimeout limits how long a Hello waits for the API server.
const factsTimeout = 5 * time.Second

// Facts reads unknown facts and probes the API server.
func (f *clusterFacts) Facts(ctx context.Context) (link.Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, factsTimeout)
	defer cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	out := link.Facts{Readyz: "ok"}
	if err := f.discover(ctx); err != nil {
		if f.fingerprint == "" {
			return link.Facts{}, err
		}
		out.Readyz = fault.Sentence(err)
	}
	out.Fingerprint, out.KubeVersion, out.APIVersions = f.fingerprint, f.mapper.Version(), f.mapper.APIVersions()
	if out.Readyz == "ok" {
		if raw, err := f.kube.api.Text(ctx, "/readyz"); err != nil {
			out.Readyz = readyz(raw, err)
		}
	}
	return out, nil
}

// discover identifies the cluster.
func (f *clusterFacts) discover(ctx context.Context) error {
	if f.fingerprint == "" {
		gvr := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
		ns, err := f.kube.dynamic.Resource(gvr).Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			return fault.Wrap(fault.Offline, err, "the agent cannot read namespace %s, whose uid names the cluster", metav1.NamespaceSystem)
		}
		f.fingerprint = string(ns.GetUID())
	}
	if f.mapper.Version() == "" {
		return f.mapper.Refresh(ctx)
	}
	return nil
}

func readyz(raw []byte, err error) string {
	if len(raw) > 0 && len(raw) < 1024 {
		return string(raw)
	}
	return fmt.Sprintf("not ready: %v", err)
}

// temporary reports whether waiting may help.
func temporary(err error) bool {
	kind := fault.KindOf(err)
	return kind == fault.Offline || kind == fault.Internal
}
