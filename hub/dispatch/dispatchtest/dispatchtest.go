// Package dispatchtest is a tenant with a cluster and an application, for the
// tests of dispatch and of its streams: a real store, a dispatcher, and an agent
// that follows the log as agents do.
package dispatchtest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/daemon/storeports"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/dispatch/stream"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// Timeout is how long a test waits for what has to happen. No test that
// passes comes near it.
const Timeout = 5 * time.Minute

// dispatchStore is the store as dispatch sees it.
type dispatchStore struct{ *store.DB }

func (d dispatchStore) InTenant(ctx context.Context, id hub.TenantID, do func(context.Context, dispatch.Tx) error) error {
	return d.DB.InTenant(ctx, id, func(ctx context.Context, t *store.Tenant) error { return do(ctx, storeports.Dispatch(t)) })
}

func (d dispatchStore) Keys(ctx context.Context, id hub.TenantID) (dispatch.Keys, error) {
	k, err := d.DB.Keys(ctx, id)
	return dispatch.Keys{Digest: k.Digest, Object: k.Object}, err
}

// StreamStore is the store as dispatch/stream sees it.
type StreamStore struct{ *store.DB }

// InTenant runs a transaction.
func (d StreamStore) InTenant(ctx context.Context, id hub.TenantID, do func(context.Context, stream.Tx) error) error {
	return d.DB.InTenant(ctx, id, func(ctx context.Context, t *store.Tenant) error { return do(ctx, storeports.Stream(t)) })
}

// ReadTenant runs a transaction that reads.
func (d StreamStore) ReadTenant(ctx context.Context, id hub.TenantID, do func(context.Context, stream.Tx) error) error {
	return d.DB.ReadTenant(ctx, id, func(ctx context.Context, t *store.Tenant) error { return do(ctx, storeports.Stream(t)) })
}

// DigestKey returns the key that objects are named under.
func (d StreamStore) DigestKey(ctx context.Context, id hub.TenantID) ([32]byte, error) {
	k, err := d.Keys(ctx, id)
	return k.Digest, err
}

// Log passes on to a test what is logged.
func Log(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(testWriter{t}, nil)) }

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) { w.t.Log(string(b)); return len(b), nil }

type work struct{ *store.System }

func (w work) Claim(ctx context.Context, kind string, limit int) ([]hub.WorkItem, error) {
	for ctx.Err() == nil {
		items, err := w.System.Claim(ctx, kind, "test", limit, time.Minute)
		if err != nil || len(items) > 0 {
			return items, err
		}
	}
	return nil, ctx.Err()
}

// A World is a tenant with a cluster and one application.
type World struct {
	T          *testing.T
	URLs       storetest.URLs
	Keys       store.Keys
	DB         *store.DB
	Dispatcher *dispatch.Dispatcher
	Streams    *stream.Server
	Tenant     hub.TenantID
	Cluster    hub.Cluster
	App        hub.Application
}

// The specs of an application that is synced by itself, and by a person.
const (
	Automated = `{"project":"default","source":{"repoURL":"https://git.example.com/shop.git","path":"."},"destination":{"name":"prod","namespace":"shop"},"syncPolicy":{"automated":{"prune":true,"selfHeal":true}}}`
	Manual    = `{"project":"default","source":{"repoURL":"https://git.example.com/shop.git","path":"."},"destination":{"name":"prod","namespace":"shop"}}`
)

// New makes a world of its own for a test.
func New(t *testing.T, spec string) *World {
	t.Helper()
	urls := storetest.Database(t)
	w := &World{T: t, URLs: urls, Keys: storetest.Keys(t)}
	w.DB = storetest.OpenKeys(t, urls.Config(), w.Keys)
	w.Tenant = storetest.Tenant(t, w.DB, "acme")
	w.Streams = stream.New(StreamStore{w.DB}, func(hub.TenantID) {}, Log(t))
	w.Dispatcher = dispatch.New(dispatchStore{w.DB}, work{w.DB.System()}, w.Streams, func(hub.TenantID) {}, Log(t))
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		var err error
		if w.Cluster, err = tx.CreateCluster(ctx, hub.Cluster{ID: hub.NewID[hub.ClusterID](), Meta: hub.Meta{Name: "prod"}}); err != nil {
			return err
		}
		w.App, err = tx.CreateApplication(ctx, hub.Application{
			ID: hub.NewID[hub.ApplicationID](), Meta: hub.Meta{Namespace: "argocd", Name: "shop"}, Project: "default",
			Spec: json.RawMessage(spec), Cluster: w.Cluster.ID,
		})
		return err
	})
	return w
}

// In runs a transaction of the tenant.
func (w *World) In(do func(ctx context.Context, tx *store.Tenant) error) {
	w.T.Helper()
	if err := w.DB.InTenant(w.T.Context(), w.Tenant, do); err != nil {
		w.T.Fatal(err)
	}
}

// Reload reads the application.
func (w *World) Reload() hub.Application {
	w.T.Helper()
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		var err error
		w.App, err = tx.Application(ctx, "argocd", "shop")
		return err
	})
	return w.App
}

// Render hands in a complete render of ConfigMaps.
func (w *World) Render(revision string, names ...string) {
	w.T.Helper()
	objects := make([]Revised, len(names))
	for i, n := range names {
		objects[i] = Revised{n, revision}
	}
	w.RenderEach(revision, objects)
}

// A Revised is a ConfigMap as it is since some revision.
type Revised struct{ Name, Revision string }

// RenderEach is Render of ConfigMaps that changed at different revisions.
func (w *World) RenderEach(revision string, objects []Revised) {
	w.T.Helper()
	r := hub.Rendered{Application: w.App.ID, Generation: w.Reload().Generation, Revision: revision, Revisions: []string{revision}}
	r.Snapshot = hub.Snapshot{Application: w.App.ID, Revision: revision, Revisions: r.Revisions, SourceType: "Directory", CreatedAt: time.Now(), Inputs: []hub.Input{}}
	for _, o := range objects {
		r.Snapshot.Objects = append(r.Snapshot.Objects, hub.ObjectRef{Version: "v1", Kind: "ConfigMap", Name: o.Name})
		r.Bodies = append(r.Bodies, fmt.Appendf(nil, `{"apiVersion":"v1","data":{"r":%q},"kind":"ConfigMap","metadata":{"name":%q}}`, o.Revision, o.Name))
	}
	if err := w.Dispatcher.Rendered(w.T.Context(), w.Tenant, []hub.Rendered{r}); err != nil {
		w.T.Fatal(err)
	}
	w.Reload()
}

// Rows reads the cluster's whole log and proves its chain.
func (w *World) Rows() []hub.LogRow {
	w.T.Helper()
	var out []hub.LogRow
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		var err error
		out, _, err = tx.RowsAfter(ctx, w.Cluster.ID, 0, 1000)
		return err
	})
	return out
}

// State is the newest state in the log.
func (w *World) State() *linkv1.AppState {
	w.T.Helper()
	var m linkv1.AppState
	for _, r := range w.Rows() {
		if r.Kind == hub.RowState {
			m.Reset()
			if err := proto.Unmarshal(r.Body, &m); err != nil {
				w.T.Fatal(err)
			}
		}
	}
	return &m
}

// End reports that the open operation is over and settles it.
func (w *World) End(phase hub.Phase, message string) hub.Operation {
	w.T.Helper()
	var op hub.Operation
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		open, err := tx.OpenOperations(ctx, []hub.ApplicationID{w.App.ID})
		if err != nil {
			return err
		}
		var there bool
		if op, there = open[w.App.ID]; !there {
			return fmt.Errorf("no operation is open")
		}
		now := time.Now()
		_, err = tx.PutObservation(ctx, w.Cluster.ID, hub.Observation{Epoch: "e" + string(op.ID), Seq: 1, Operations: []hub.OperationObservation{{
			Operation: op.ID, Application: w.App.ID, Phase: phase, Message: message, StartedAt: &now, FinishedAt: &now,
		}}})
		return err
	})
	w.Settle()
	return op
}

// Settle runs the dispatcher until no outcome waits or is being settled.
func (w *World) Settle() { w.T.Helper(); w.Drain(hub.WorkOutcome) }

// Drain runs the dispatcher until no work of a kind waits that is due.
func (w *World) Drain(kind string) {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(w.T.Context(), Timeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- w.Dispatcher.Run(ctx) }()
	for over := false; !over; {
		queues, err := w.DB.System().Queues(ctx)
		if err != nil {
			w.T.Fatal(err)
		}
		over = !slices.ContainsFunc(queues, func(q hub.QueueFigures) bool {
			return q.Kind == kind && (kind == hub.WorkOutcome || q.Due+q.Leased > 0)
		})
	}
	cancel()
	if err := <-done; err != nil {
		w.T.Fatal(err)
	}
}

// Rendered is a complete render of ConfigMaps of an application as it was read.
func Rendered(app hub.Application, revision string, names ...string) hub.Rendered {
	r := hub.Rendered{Application: app.ID, Generation: app.Generation, Revision: revision, Revisions: []string{revision}}
	r.Snapshot = hub.Snapshot{Application: app.ID, Revision: revision, Revisions: r.Revisions, SourceType: "Directory", CreatedAt: time.Now(), Inputs: []hub.Input{}}
	for _, n := range names {
		r.Snapshot.Objects = append(r.Snapshot.Objects, hub.ObjectRef{Version: "v1", Kind: "ConfigMap", Name: n})
		r.Bodies = append(r.Bodies, fmt.Appendf(nil, `{"apiVersion":"v1","data":{"r":%q},"kind":"ConfigMap","metadata":{"name":%q}}`, revision, n))
	}
	return r
}

// AddApplication makes another application of the cluster.
func (w *World) AddApplication(name, spec string, cluster hub.ClusterID) hub.Application {
	w.T.Helper()
	var out hub.Application
	w.In(func(ctx context.Context, tx *store.Tenant) (err error) {
		out, err = tx.CreateApplication(ctx, hub.Application{
			ID: hub.NewID[hub.ApplicationID](), Meta: hub.Meta{Namespace: "argocd", Name: name}, Project: "default", Spec: json.RawMessage(spec), Cluster: cluster,
		})
		return err
	})
	return out
}

// RenderedOf is a complete render of ConfigMaps of an application.
func (w *World) RenderedOf(app hub.ApplicationID, revision string, names ...string) hub.Rendered {
	w.T.Helper()
	var a hub.Application
	w.In(func(ctx context.Context, tx *store.Tenant) (err error) {
		a, err = tx.ApplicationByID(ctx, app)
		return err
	})
	r := hub.Rendered{Application: app, Generation: a.Generation, Revision: revision, Revisions: []string{revision}}
	r.Snapshot = hub.Snapshot{Application: app, Revision: revision, Revisions: r.Revisions, SourceType: "Directory", CreatedAt: time.Now(), Inputs: []hub.Input{}}
	for _, n := range names {
		r.Snapshot.Objects = append(r.Snapshot.Objects, hub.ObjectRef{Version: "v1", Kind: "ConfigMap", Name: n})
		r.Bodies = append(r.Bodies, fmt.Appendf(nil, `{"apiVersion":"v1","data":{"r":%q},"kind":"ConfigMap","metadata":{"name":%q}}`, revision, n))
	}
	return r
}

// Submit passes on what was rendered.
func (w *World) Submit(all ...hub.Rendered) {
	w.T.Helper()
	if err := w.Dispatcher.Rendered(w.T.Context(), w.Tenant, all); err != nil {
		w.T.Fatal(err)
	}
	w.Reload()
}
