package simagent

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/agent/inventory"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/compress"
	"github.com/capstan-cd/capstan/shared/hashchain"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// A desired is what an agent holds of its log. Its agent's mutex guards it,
// apart from the counters.
type desired struct {
	cursor  *linkv1.Cursor
	leaves  map[string][32]byte // of the applications, by id
	bodies  map[string][]byte   // of the newest states that are large enough to be packed against
	digests map[string]bool     // of the newest state, to ask for
	held    map[string]bool     // digests of bodies that came

	rows  atomic.Uint64 // rows taken, ever
	rowAt atomic.Int64  // when the first of the newest rows was taken
}

func (d *desired) init() {
	d.cursor, d.leaves, d.bodies = &linkv1.Cursor{}, map[string][32]byte{}, map[string][]byte{}
	d.digests, d.held = map[string]bool{}, map[string]bool{}
}

// missing returns the digests of the newest state whose bodies have not come.
func (d *desired) missing() (out [][]byte) {
	for digest := range d.digests {
		if !d.held[digest] {
			out = append(out, []byte(digest))
		}
	}
	return out
}

// Rows is how many rows of its log the agent has taken.
func (a *Agent) Rows() uint64 { return a.desired.rows.Load() }

// RowAt is when the agent took the first of its newest rows.
func (a *Agent) RowAt() time.Time { return time.Unix(0, a.desired.rowAt.Load()) }

// Applications are the ids of the applications of the agent's cluster, in order.
func (a *Agent) Applications() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.outbox.apps))
}

// Cursor, StoreBatch, Root, Rewound and Respond are the Desired.
func (a *Agent) Cursor() *linkv1.Cursor {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := proto.CloneOf(a.desired.cursor)
	at.Packs = true
	return at
}

func (a *Agent) StoreBatch(_ context.Context, b *linkv1.Batch) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if b.GetReset_() {
		clear(a.desired.leaves)
		a.desired.cursor = &linkv1.Cursor{Incarnation: b.GetIncarnation()}
	}
	if err := inventory.Unpack(b, func(app string) []byte { return a.desired.bodies[app] }); err != nil {
		a.wrong = err
		return err
	}
	for _, blob := range b.GetBlobs() {
		a.desired.held[string(blob.GetDigest())] = true
	}
	up := &linkv1.ReportUp{}
	a.desired.rowAt.Store(time.Now().UnixNano())
	for _, r := range b.GetRows() {
		if r.GetSeq() <= a.desired.cursor.GetSeq() {
			continue
		}
		if err := a.follows(b.GetIncarnation(), r); err != nil {
			a.wrong = err
			return err
		}
		a.desired.cursor = &linkv1.Cursor{Incarnation: b.GetIncarnation(), Seq: r.GetSeq(), Chain: r.GetChain(), Proof: b.GetProof()}
		a.desired.rows.Add(1)
		if err := a.apply(r, up); err != nil {
			a.wrong = err
			return err
		}
	}
	if len(up.Apps)+len(up.Operations) == 0 {
		return nil
	}
	if missing := a.desired.missing(); len(up.Apps) > 0 && len(missing) > 0 {
		go a.fetch(missing, up) // the log goes on meanwhile, as it does in the agent
		return nil
	}
	a.put(up)
	return nil
}

// fetch gets bodies and reports afterwards. It ends with the client.
func (a *Agent) fetch(digests [][]byte, up *linkv1.ReportUp) {
	_, err := a.Client().Fetch(a.fleet.life, digests, func(*linkv1.Blob) error { return nil })
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		if a.fleet.life.Err() == nil {
			a.wrong = err
		}
		return
	}
	for _, d := range digests {
		a.desired.held[string(d)] = true
	}
	a.put(up)
}

// follows checks the chain where no rows were left out.
func (a *Agent) follows(incarnation string, r *linkv1.Row) error {
	if r.GetSeq() != a.desired.cursor.GetSeq()+1 || r.GetKind() == linkv1.RowKind_ROW_KIND_UNSPECIFIED {
		return nil
	}
	prev := a.desired.cursor.GetChain()
	if len(prev) == 0 {
		prev = hashchain.First(incarnation)
	}
	if !bytes.Equal(r.GetChain(), hashchain.Next(prev, r.GetSeq(), int32(r.GetKind()), r.GetAppId(), r.GetBody())) {
		return fmt.Errorf("%s: row %d does not follow row %d", a.Name, r.GetSeq(), a.desired.cursor.GetSeq())
	}
	return nil
}

// apply acts as if everything was in the cluster at once.
func (a *Agent) apply(r *linkv1.Row, up *linkv1.ReportUp) error {
	now := time.Now().UnixNano()
	switch r.GetKind() {
	case linkv1.RowKind_ROW_KIND_STATE:
		var st linkv1.AppState
		if err := proto.Unmarshal(r.GetBody(), &st); err != nil {
			return err
		}
		a.desired.leaves[r.GetAppId()] = hashchain.Leaf(r.GetAppId(), r.GetBody())
		delete(a.desired.bodies, r.GetAppId())
		if len(r.GetBody()) >= compress.Least {
			a.desired.bodies[r.GetAppId()] = r.GetBody()
		}
		app := &linkv1.AppReport{
			AppId: r.GetAppId(), Target: st.GetTarget().GetId(), Generation: st.GetGeneration(), Sync: "Synced", Health: "Healthy", ComparedUnixNano: now,
		}
		a.outbox.apps[r.GetAppId()] = app
		up.Apps = append(up.Apps, app)
		clear(a.desired.digests)
		for i, o := range st.GetTarget().GetObjects() {
			a.desired.digests[string(o.GetDigest())] = true
			up.Resources = append(up.Resources, resource(a.Name, r.GetAppId(), i, o))
		}
		a.prune(r.GetAppId(), &st, up)
	case linkv1.RowKind_ROW_KIND_OPERATION:
		var op linkv1.Operation
		if err := proto.Unmarshal(r.GetBody(), &op); err != nil {
			return err
		}
		up.Operations = append(up.Operations, &linkv1.OperationReport{
			OperationId: op.GetId(), AppId: r.GetAppId(), Phase: "Succeeded", Message: "successfully synced",
			StartedUnixNano: now, FinishedUnixNano: now, HealthyUnixNano: now,
		})
	case linkv1.RowKind_ROW_KIND_FORGET:
		delete(a.desired.leaves, r.GetAppId())
		delete(a.outbox.apps, r.GetAppId())
		delete(a.outbox.objects, r.GetAppId())
	case linkv1.RowKind_ROW_KIND_UNSPECIFIED, linkv1.RowKind_ROW_KIND_TERMINATE:
	}
	return nil
}

// prune deletes the objects of the tombstones of a state: each is closed, and
// what was reported is reported as gone, as the agent does once it has deleted
// an object. Tombstones in lists stay open: no simulated application has that
// many. a.mu is held.
func (a *Agent) prune(app string, st *linkv1.AppState, up *linkv1.ReportUp) {
	reported := a.outbox.objects[app]
	if reported == nil {
		reported = map[manifest.Key]bool{}
		a.outbox.objects[app] = reported
	}
	for _, o := range st.GetTarget().GetObjects() {
		reported[manifest.Key{Group: o.GetGroup(), Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}] = true
	}
	for _, t := range st.GetTombstones() {
		key := manifest.Key{Group: t.GetGroup(), Kind: t.GetKind(), Namespace: t.GetNamespace(), Name: t.GetName()}
		if reported[key] {
			delete(reported, key)
			up.Gone = append(up.Gone, &linkv1.ResourceGone{AppId: app, Group: key.Group, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name})
		}
		up.Closed = append(up.Closed, &linkv1.TombstoneClosed{AppId: app, Group: key.Group, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name})
	}
}

func resource(cluster, app string, i int, o *linkv1.ObjectRef) *linkv1.Resource {
	return &linkv1.Resource{
		AppId: app, Uid: fmt.Sprintf("%s-%s-%d", cluster, app, i), Group: o.GetGroup(), Version: o.GetVersion(), Kind: o.GetKind(),
		Namespace: o.GetNamespace(), Name: o.GetName(), Managed: true, Sync: "Synced", Health: "Healthy",
	}
}

func (a *Agent) Root() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	root := hashchain.Root(maps.Clone(a.desired.leaves))
	a.session.at.Store(time.Now().UnixNano())
	a.session.confirmed.Store(a.desired.cursor.GetSeq())
	return root
}

func (a *Agent) Rewound(reason string) {
	if reason == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wrong = fmt.Errorf("%s: the hub was rewound: %s", a.Name, reason)
}

// Respond returns no answer: what was rewound is wrong already, and the others
// ask for nothing.
func (a *Agent) Respond(context.Context, *linkv1.FollowDown) (*linkv1.FollowUp, error) {
	return nil, nil
}
