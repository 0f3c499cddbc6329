package catalog

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Sync starts an operation that applies the target of an application, or what
// the request gives instead. Other sources and manifests of one's own need the
// right to override.
func (c *Catalog) Sync(ctx context.Context, by hub.Caller, namespace, name string, r hub.SyncRequest) (hub.Operation, error) {
	if err := validation.CheckSync(r); err != nil {
		return hub.Operation{}, fault.With(err, "application "+title(namespace, name), "")
	}
	r.Initiator = initiator(by)
	asked := struct {
		hub.OperationOptions
		Override *hub.Override `json:"override,omitempty"`
		Local    int           `json:"localManifests,omitempty"`
	}{OperationOptions: r.Options, Override: r.Override}
	var keys hub.TenantKeys
	if r.Local != nil {
		asked.Local = len(r.Local.Objects)
		var err error
		if keys, err = c.parts.Service.Store.Keys(ctx, by.Tenant); err != nil {
			return hub.Operation{}, err
		}
	}
	act := operationChange{action: access.Sync, reason: r.Reason, asked: asked, dryRun: r.Options.DryRun}
	return c.operate(ctx, by, namespace, name, act, func(ctx context.Context, w *writer, a hub.Application) (hub.Operation, error) {
		if r.Local != nil || r.Override != nil && (r.Override.Source != nil || len(r.Override.Sources) > 0) {
			if err := w.Need(access.Applications, access.Override, objectOf(a)); err != nil {
				return hub.Operation{}, err
			}
		}
		if err := w.mayChoose(ctx, a, r.Override); err != nil {
			return hub.Operation{}, err
		}
		if err := w.mayReplace(ctx, a, r); err != nil {
			return hub.Operation{}, err
		}
		w.Due = append(w.Due, hub.WorkRefresh)
		if r.Local != nil {
			return w.Deploy.Local(ctx, keys, a.ID, r)
		}
		return w.Deploy.Sync(ctx, a.ID, r)
	})
}

// Approve records that a person approves what the operation in progress
// deletes. It counts for operations that began before it.
func (c *Catalog) Approve(ctx context.Context, by hub.Caller, namespace, name, reason string) (hub.Operation, error) {
	return c.operate(ctx, by, namespace, name, operationChange{action: access.Update, reason: reason, asked: "approve"}, func(ctx context.Context, w *writer, a hub.Application) (hub.Operation, error) {
		a.Annotations = a.Annotate(hub.ApprovedAnnotation, w.Now.UTC().Format(time.RFC3339Nano))
		if _, err := w.UpdateApplication(ctx, a, 0); err != nil {
			return hub.Operation{}, err
		}
		return w.Deploy.Approve(ctx, a.ID)
	})
}

// Abandon gives up an application whose cluster is gone. What it leaves behind
// is returned, and recorded.
func (c *Catalog) Abandon(ctx context.Context, by hub.Caller, namespace, name, reason string) ([]hub.ObjectRef, error) {
	var left []hub.ObjectRef
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		a, err := w.forWrite(ctx, namespace, name, access.Delete)
		if err != nil {
			return err
		}
		var wakes []hub.ClusterID
		if left, wakes, err = w.Deploy.Abandon(ctx, a.ID); err != nil {
			return err
		}
		w.Wakes = append(w.Wakes, wakes...)
		w.Note(access.Delete, access.Applications, objectOf(a), orElse(reason, "abandoned: its cluster is gone"), validation.Written(a.Meta, a.Spec),
			map[string]any{"leftBehind": named(left)})
		return nil
	})
	return left, err
}

// named returns objects as people write them, not endlessly many.
func named(objects []hub.ObjectRef) []string {
	const most = 1000
	var out []string
	for i, o := range objects {
		if i == most {
			return append(out, fmt.Sprintf("and %d more", len(objects)-most))
		}
		out = append(out, strings.TrimPrefix(o.Group+"/"+o.Kind+"/"+o.Namespace+"/"+o.Name, "/"))
	}
	return out
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// Rollback starts an operation that applies what an earlier entry of the
// history applied, and pauses the application there. Hooks run where the
// request, or the application, asks for them.
func (c *Catalog) Rollback(ctx context.Context, by hub.Caller, namespace, name string, r transact.RollbackRequest) (hub.Operation, error) {
	r.Initiator = initiator(by)
	asked := map[string]any{"entry": r.Entry, "prune": r.Prune}
	if r.DryRun {
		asked["dryRun"] = true
	}
	return c.operate(ctx, by, namespace, name, operationChange{action: access.Rollback, reason: r.Reason, asked: asked, dryRun: r.DryRun},
		func(ctx context.Context, w *writer, a hub.Application) (hub.Operation, error) {
			if err := w.remembered(ctx, a, r.Entry); err != nil {
				return hub.Operation{}, err
			}
			hooks := a.RunsRollbackHooks()
			if r.Hooks != nil {
				hooks = *r.Hooks
			}
			asked["hooks"] = hooks
			return w.Deploy.Rollback(ctx, a.ID, r, hub.OperationOptions{Prune: r.Prune, DryRun: r.DryRun, SkipHooks: !hooks})
		})
}

// Resume ends the pause that a rollback began. An application that is not
// paused stays as it is.
func (c *Catalog) Resume(ctx context.Context, by hub.Caller, namespace, name, reason string) (View, error) {
	var v View
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		a, err := w.forWrite(ctx, namespace, name, access.Sync)
		if err != nil {
			return err
		}
		if pin := a.Pin; pin != nil {
			if err := w.Deploy.Resume(ctx, a.ID); err != nil {
				return fault.With(err, "application "+title(namespace, name), "")
			}
			w.Wakes, w.Due = append(w.Wakes, a.Cluster), append(w.Due, hub.WorkRefresh)
			w.Note("resume", access.Applications, objectOf(a), reason, map[string]any{
				"paused": pin.Sentence(a.Status.Revision), "revision": a.Status.Revision, "skipped": pin.Skipped,
			}, nil)
			if a, err = w.ApplicationByID(ctx, a.ID); err != nil {
				return err
			}
		}
		views, err := w.views(ctx, []hub.Application{a})
		if err == nil {
			v = views[0]
		}
		return err
	})
	return v, err
}

// Terminate ends the operation that runs.
func (c *Catalog) Terminate(ctx context.Context, by hub.Caller, namespace, name string) (hub.Operation, error) {
	return c.operate(ctx, by, namespace, name, operationChange{action: access.Sync, reason: "terminate"},
		func(ctx context.Context, w *writer, a hub.Application) (hub.Operation, error) {
			op, err := w.Deploy.Terminate(ctx, a.ID, initiator(by))
			if err != nil || op.ID != "" {
				return op, err
			}
			return w.newest(ctx, a)
		})
}

// dryRunSuffix marks the audit records of acts that change nothing.
const dryRunSuffix = "/dry-run"

// An operationChange is what is done to an application's operations.
type operationChange struct {
	action string // the right that it takes
	reason string
	asked  any
	dryRun bool
}

// operate runs one act on an application that makes or ends an operation.
func (c *Catalog) operate(ctx context.Context, by hub.Caller, namespace, name string, what operationChange,
	do func(ctx context.Context, w *writer, a hub.Application) (hub.Operation, error),
) (hub.Operation, error) {
	var op hub.Operation
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		a, err := w.forWrite(ctx, namespace, name, what.action)
		if err != nil {
			return err
		}
		if op, err = do(ctx, w, a); err != nil {
			return transact.WithObject(err, "application "+title(namespace, name))
		}
		w.Wakes = append(w.Wakes, op.Cluster)
		action := what.action
		if what.dryRun {
			action += dryRunSuffix
		}
		w.Note(action, access.Applications, objectOf(a), what.reason, nil, map[string]any{"operation": op.ID, "revision": op.Revision, "asked": what.asked})
		return nil
	})
	return op, err
}

// newest is the application's newest operation.
func (r *reader) newest(ctx context.Context, a hub.Application) (hub.Operation, error) {
	ops, err := r.Operations(ctx, a.ID, 1)
	if err != nil {
		return hub.Operation{}, err
	}
	if len(ops) == 0 {
		return hub.Operation{}, fault.With(fault.New(fault.Conflict, "no operation is in progress"), "application "+title(a.Namespace, a.Name), "")
	}
	return ops[0], nil
}

// Refresh has the sources of an application looked at anew; hard renders even
// if nothing changed, and accepts other contents of known versions of charts
// from those who may sync. Otherwise it changes nothing that anyone decided, so who may see
// the application may ask for it.
func (c *Catalog) Refresh(ctx context.Context, by hub.Caller, namespace, name string, hard bool) (View, error) {
	var v View
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		a, err := w.forWrite(ctx, namespace, name, access.Get)
		if err != nil {
			return err
		}
		if err := w.refresh(ctx, a, hard); err != nil {
			return err
		}
		w.Note("refresh", access.Applications, objectOf(a), fmt.Sprintf("hard %v", hard), nil, nil)
		views, err := w.views(ctx, []hub.Application{a})
		if err == nil {
			v = views[0]
		}
		return err
	})
	return v, err
}

// refreshAnyway is when an application is refreshed whose repositories have
// not answered by then.
const refreshAnyway = 10 * time.Second

// refresh has the repositories of the application looked at, and the
// application once that is over: a refresh that is done has seen what was
// pushed before it was asked for.
func (w *writer) refresh(ctx context.Context, a hub.Application, hard bool) error {
	spec, err := hub.DecodeSpec(a.Spec)
	if err != nil {
		return err
	}
	accepts := hard && w.Rights.Check(access.Applications, access.Sync, objectOf(a))
	due := w.Now
	for _, url := range spec.RepoURLs() {
		repo, err := w.RepositoryFor(ctx, url, a.Project)
		if fault.KindOf(err) == fault.Missing {
			continue
		}
		if err != nil {
			return err
		}
		if accepts && repo.Type.Charts() {
			if err := w.AcceptContents(ctx, repo.ID, spec.RefsOf(url)); err != nil {
				return err
			}
		}
		if err := w.FetchFor(ctx, repo.ID); err != nil {
			return err
		}
		due = w.Now.Add(refreshAnyway)
	}
	w.Due = append(w.Due, hub.WorkFetch, hub.WorkRefresh)
	return w.Enqueue(ctx, hub.WorkRefresh, string(a.ID), due, hard)
}

// Operations lists the operations of an application, newest first.
func (c *Catalog) Operations(ctx context.Context, by hub.Caller, namespace, name string, limit int) ([]hub.Operation, error) {
	var out []hub.Operation
	err := c.ofApplication(ctx, by, namespace, name, func(ctx context.Context, r *reader, a hub.Application) (err error) {
		out, err = r.Tx.Operations(ctx, a.ID, limit)
		return err
	})
	return out, err
}

// OperationByID returns an operation with its application if the caller may see
// that.
func (c *Catalog) OperationByID(ctx context.Context, by hub.Caller, id hub.OperationID) (hub.Operation, hub.Application, error) {
	var op hub.Operation
	var app hub.Application
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		var err error
		if op, err = r.Tx.Operation(ctx, id); err != nil {
			return err
		}
		if app, err = r.ApplicationByID(ctx, op.Application); err != nil {
			return err
		}
		if !r.Rights.Check(access.Applications, access.Get, objectOf(app)) {
			return fault.New(fault.Missing, "there is no such operation")
		}
		return nil
	})
	return op, app, err
}

// History lists what was applied, newest first: entries with numbers below
// before, or from the newest on if it is zero.
func (c *Catalog) History(ctx context.Context, by hub.Caller, namespace, name string, before int64, limit int) ([]hub.HistoryEntry, error) {
	var out []hub.HistoryEntry
	err := c.ofApplication(ctx, by, namespace, name, func(ctx context.Context, r *reader, a hub.Application) (err error) {
		out, err = r.historyPage(ctx, a, before, limit)
		return err
	})
	return out, err
}

// A Tree is what an application consists of in its cluster.
type Tree struct {
	Application hub.Application
	Resources   []hub.Resource
	On          *hub.Cluster
	Cursor      string
}

// Tree returns the managed objects of an application and their children.
func (c *Catalog) Tree(ctx context.Context, by hub.Caller, namespace, name string) (Tree, error) {
	var t Tree
	err := c.ofApplication(ctx, by, namespace, name, func(ctx context.Context, r *reader, a hub.Application) (err error) {
		t.Application = a
		if t.Cursor, err = r.cursor(ctx); err != nil {
			return err
		}
		views, err := r.views(ctx, []hub.Application{a})
		if err != nil {
			return err
		}
		t.On = views[0].On
		t.Resources, err = r.Resources(ctx, a.ID)
		return err
	})
	return t, err
}

// ofApplication reads something of one application that the caller may see.
func (c *Catalog) ofApplication(ctx context.Context, by hub.Caller, namespace, name string,
	do func(ctx context.Context, r *reader, a hub.Application) error,
) error {
	return c.read(ctx, by, func(ctx context.Context, r *reader) error {
		a, err := r.visible(ctx, namespace, name)
		if err != nil {
			return err
		}
		return do(ctx, r, a)
	})
}
