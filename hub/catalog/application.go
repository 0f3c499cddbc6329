package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/listing"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A View is an application with the cluster that it is on, as it was at one
// moment.
type View struct {
	hub.Application
	On *hub.Cluster // nil: its destination stands for no cluster
}

// A Page is one page of applications, with numbers about the whole list.
type Page struct {
	listing.Page

	Items  []View // empty where rows are enough
	Cursor string // of the feed, from before the list was read
}

// object is what policies call an application (RBAC-05).
func object(project string, key hub.ApplicationKey) string {
	if key.Namespace == validation.DefaultNamespace {
		return project + "/" + key.Name
	}
	return project + "/" + key.Namespace + "/" + key.Name
}

func objectOf(a hub.Application) string {
	return object(a.Project, hub.ApplicationKey{Namespace: a.Namespace, Name: a.Name})
}

// title is how errors name an application.
func title(namespace, name string) string {
	if namespace == validation.DefaultNamespace || namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// visible returns the application if the caller may see it.
func (r *reader) visible(ctx context.Context, namespace, name string) (hub.Application, error) {
	a, err := r.Application(ctx, namespace, name)
	if err != nil {
		return a, transact.Hide(err, access.Applications, title(namespace, name))
	}
	if !r.Rights.Check(access.Applications, access.Get, objectOf(a)) {
		return hub.Application{}, transact.Missing(access.Applications, title(namespace, name))
	}
	return a, nil
}

// forWrite is visible for a write: what may not be seen is refused in the
// same words, and recorded; then the right to the action is asked for.
func (w *writer) forWrite(ctx context.Context, namespace, name, action string) (hub.Application, error) {
	a, err := w.locked(ctx, namespace, name)
	if err != nil {
		return a, transact.Hide(err, access.Applications, title(namespace, name))
	}
	if !w.Rights.Check(access.Applications, access.Get, objectOf(a)) {
		return a, w.Refuse(access.Applications, action, objectOf(a), transact.Missing(access.Applications, title(namespace, name)))
	}
	if err := w.Need(access.Applications, action, objectOf(a)); err != nil {
		return a, err
	}
	return a, w.expects("application "+title(namespace, name), a.Version)
}

// expects refuses a write of an object that its caller has read in another
// version.
func (w *writer) expects(object string, version int64) error {
	if w.By.Expect != 0 && w.By.Expect != version {
		return transact.ErrStale(object)
	}
	return nil
}

// locked returns an application that nobody else changes until the transaction
// ends, so that what was checked is what is used.
func (w *writer) locked(ctx context.Context, namespace, name string) (hub.Application, error) {
	a, err := w.Application(ctx, namespace, name)
	if err != nil {
		return a, err
	}
	held, err := w.LockApplications(ctx, []hub.ApplicationID{a.ID})
	if err != nil {
		return a, err
	}
	a, there := held[a.ID]
	if !there || a.Namespace != namespace || a.Name != name {
		return a, transact.Missing(access.Applications, title(namespace, name))
	}
	return a, nil
}

// Applications lists what the caller may see. With full, the applications
// themselves are read and not only the rows.
func (c *Catalog) Applications(ctx context.Context, by hub.Caller, q listing.Request, full bool) (Page, error) {
	var out Page
	q.Me = []string{by.Username}
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		out = Page{}
		if err := r.May(access.Applications, access.Get); err != nil {
			return err
		}
		var at string
		var err error
		if out.Page, at, err = c.lists.Page(ctx, by.Tenant, r.ListReader, r.Rights, q, c.parts.Service.Now()); err != nil {
			return err
		}
		out.Cursor = JoinCursor(at, r.Rights.Visibility())
		if full {
			out.Items, err = r.listed(ctx, out.Rows)
		}
		return err
	})
	return out, err
}

// ApplicationRows returns the rows of those of some applications that the caller
// may see and the request has; the feed asks.
func (c *Catalog) ApplicationRows(ctx context.Context, by hub.Caller, ids []hub.ApplicationID, q listing.Request) (listing.Page, error) {
	var out listing.Page
	q.Me = []string{by.Username}
	err := c.read(ctx, by, func(ctx context.Context, r *reader) (err error) {
		out, err = c.lists.Rows(ctx, by.Tenant, r.ListReader, r.Rights, ids, q, c.parts.Service.Now())
		return err
	})
	return out, err
}

// listed reads the applications of rows, in their order. One that has gone
// since is left out.
func (r *reader) listed(ctx context.Context, rows []*listing.Row) ([]View, error) {
	ids := make([]hub.ApplicationID, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	if len(ids) == 0 {
		return nil, nil
	}
	found, err := r.Tx.ApplicationsByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	var apps []hub.Application
	for _, id := range ids {
		if a, ok := found[id]; ok && r.Rights.Check(access.Applications, access.Get, objectOf(a)) {
			apps = append(apps, a)
		}
	}
	return r.views(ctx, apps)
}

// views adds the clusters to applications.
func (r *reader) views(ctx context.Context, apps []hub.Application) ([]View, error) {
	var ids []hub.ClusterID
	for _, a := range apps {
		if a.Cluster != "" {
			ids = append(ids, a.Cluster)
		}
	}
	on := map[hub.ClusterID]hub.Cluster{}
	if len(ids) > 0 {
		var err error
		if on, err = r.ClustersByID(ctx, unique(ids)); err != nil {
			return nil, err
		}
	}
	out := make([]View, len(apps))
	for i, a := range apps {
		out[i].Application = a
		if cl, ok := on[a.Cluster]; ok {
			out[i].On = &cl
		}
	}
	return out, nil
}

// Application returns one application.
func (c *Catalog) Application(ctx context.Context, by hub.Caller, namespace, name string) (View, error) {
	var v View
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		a, err := r.visible(ctx, namespace, name)
		if err != nil {
			return err
		}
		views, err := r.views(ctx, []hub.Application{a})
		if err == nil {
			v = views[0]
		}
		return err
	})
	return v, err
}

// ApplicationsByID returns those of the applications that the caller may see;
// the feed asks. What is gone is left out.
func (c *Catalog) ApplicationsByID(ctx context.Context, by hub.Caller, ids []hub.ApplicationID) (map[hub.ApplicationID]View, error) {
	out := map[hub.ApplicationID]View{}
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		found, err := r.Tx.ApplicationsByID(ctx, unique(ids))
		if err != nil {
			return err
		}
		var apps []hub.Application
		for _, a := range found {
			if r.Rights.Check(access.Applications, access.Get, objectOf(a)) {
				apps = append(apps, a)
			}
		}
		views, err := r.views(ctx, apps)
		for _, v := range views {
			out[v.ID] = v
		}
		return err
	})
	return out, err
}

// A PutOptions says which writes a put may become.
type PutOptions struct {
	Create bool  // make it if it is not there
	Update bool  // change it if it is there
	Expect int64 // version that the caller read; 0: any
	DryRun bool
	// RefuseInvalid refuses a change of a project that would invalidate
	// applications, and an application that cannot be delivered.
	RefuseInvalid bool
	// Operation is the field operation of the object: what it asks for begins
	// with the write.
	Operation json.RawMessage
}

// PutApplication makes or changes an application. Its namespace and project
// are filled in. It comes back as stored, with warnings for people.
func (c *Catalog) PutApplication(ctx context.Context, by hub.Caller, a hub.Application, o PutOptions) (View, transact.Outcome, []string, error) {
	spec, warnings, err := validation.CheckApplication(&a)
	if err != nil {
		return View{}, "", nil, fault.With(err, "application "+title(a.Namespace, validation.Shorten(a.Name)), "")
	}
	asked, err := validation.ReadRequested(o.Operation)
	if err != nil {
		return View{}, "", nil, fault.With(err, "application "+title(a.Namespace, a.Name), "")
	}
	var v View
	var out transact.Outcome
	var problems []string
	var follows func()
	through := c.parts.Pace.Alone(by.Tenant)
	defer func() { through(follows) }()
	err = c.writeOr(ctx, by, o.DryRun, func(ctx context.Context, w *writer) error {
		there, err := w.ForPut(ctx, hub.ApplicationKey{Namespace: a.Namespace, Name: a.Name}, a.Project, validation.DestinationName(spec.Destination))
		if err != nil {
			return err
		}
		stored, on, outcome, err := w.putApplication(ctx, there, a, spec, o)
		if err != nil {
			return err
		}
		if err := w.refreshSources(ctx, stored); err != nil {
			return err
		}
		if asked != nil {
			if err := c.start(ctx, w, by, stored, *asked); err != nil {
				return err
			}
			if stored, err = w.ApplicationByID(ctx, stored.ID); err != nil {
				return err
			}
		}
		v, out = View{stored, on}, outcome
		undeliverable := c.parts.Permits(hub.Refresh{Application: stored, Cluster: on, Project: there.Project}, spec)
		if undeliverable != nil && o.RefuseInvalid {
			return fault.With(fault.New(fault.Invalid, "the application cannot be delivered: %s", fault.Sentence(undeliverable)),
				"application "+title(a.Namespace, a.Name), "permit it in its project, or store it without validate=true")
		}
		if undeliverable != nil {
			problems = []string{fault.Sentence(undeliverable)}
		}
		w.Due = append(w.Due, hub.WorkFetch, hub.WorkRefresh)
		if asked == nil {
			w.Later = func(f func()) { follows = f }
		}
		return nil
	})
	return v, out, append(warnings, problems...), err
}

// enforced refuses to make or change an application whose project restricts it
// with what this release does not enforce.
func enforced(p *hub.Project, a hub.Application) error {
	if p == nil {
		return nil
	}
	spec, err := p.Effective()
	if err != nil {
		return err
	}
	if err := spec.Refusal(p.Name); err != nil {
		return fault.With(err, "application "+title(a.Namespace, a.Name), "")
	}
	return nil
}

func (w *writer) putApplication(ctx context.Context, there hub.WriteContext, a hub.Application, spec hub.ApplicationSpec, o PutOptions) (hub.Application, *hub.Cluster, transact.Outcome, error) {
	if old := there.Application; old != nil {
		on := validation.KeepCluster(spec.Destination, there.Clusters, validation.SameDestination(*old, spec))
		stored, outcome, err := w.changeApplication(ctx, *old, placed(a, on), o)
		if err == nil && outcome != transact.Unchanged {
			err = enforced(there.Project, a)
		}
		return stored, on, outcome, err
	}
	if !o.Create {
		return a, nil, "", transact.Missing(access.Applications, title(a.Namespace, a.Name))
	}
	if err := w.Need(access.Applications, access.Create, objectOf(a)); err != nil {
		return a, nil, "", err
	}
	if !hub.AppNamespaceEnabled(there.AppNamespaces, a.Namespace) {
		return a, nil, "", fault.With(hub.ProjectSpec{}.AdmitsNamespace(a.Project, a.Namespace), "application "+title(a.Namespace, a.Name), "")
	}
	if err := enforced(there.Project, a); err != nil {
		return a, nil, "", err
	}
	on := validation.PickCluster(spec.Destination, there.Clusters)
	stored, err := w.CreateApplication(ctx, placed(a, on))
	if err == nil {
		w.Note(access.Create, access.Applications, objectOf(a), "", nil, validation.Written(a.Meta, a.Spec))
	}
	return stored, on, transact.Created, err
}

// refreshSources has the sources of an application fetched if its annotation asks for
// it, and everything rendered anew if it says hard.
func (w *writer) refreshSources(ctx context.Context, a hub.Application) error {
	asked, hard := a.AsksRefresh()
	if !asked {
		return nil
	}
	return w.refresh(ctx, a, hard)
}

// changeApplication updates what is there. Rights are asked on the
// application as it is stored; a move to another project needs the right to
// create it there as well.
func (w *writer) changeApplication(ctx context.Context, old, a hub.Application, o PutOptions) (hub.Application, transact.Outcome, error) {
	name := title(a.Namespace, a.Name)
	seen := w.Rights.Check(access.Applications, access.Get, objectOf(old))
	switch {
	case !seen && o.Create:
		// It must look as if only the right to create were lacking.
		return a, "", w.Refuse(access.Applications, access.Create, objectOf(a),
			transact.Denied(access.Rule{Resource: access.Applications, Action: access.Create, Object: objectOf(a)}))
	case !seen:
		return a, "", w.Refuse(access.Applications, access.Update, objectOf(old), transact.Missing(access.Applications, name))
	case !o.Update:
		if err := w.Need(access.Applications, access.Create, objectOf(a)); err != nil {
			return a, "", err
		}
		return a, "", transact.ErrTaken("application " + name)
	}
	if err := w.Need(access.Applications, access.Update, objectOf(old)); err != nil {
		return a, "", err
	}
	if a.Project != old.Project {
		if err := w.Need(access.Applications, access.Create, objectOf(a)); err != nil {
			return a, "", err
		}
	}
	if o.Expect != 0 && o.Expect != old.Version {
		return a, "", transact.ErrStale("application " + name)
	}
	if old.DeletingAt != nil {
		return a, "", fault.With(fault.New(fault.Conflict, "it is being deleted"), "application "+name, "wait until it is gone")
	}
	if old.Cluster == a.Cluster && validation.SameMeta(old.Meta, a.Meta) && validation.SameJSON(old.Spec, a.Spec) {
		return old, transact.Unchanged, nil
	}
	a.ID, a.CreatedAt = old.ID, old.CreatedAt
	stored, err := w.UpdateApplication(ctx, a, old.Version)
	if err == nil {
		w.Note(access.Update, access.Applications, objectOf(a), "", validation.Written(old.Meta, old.Spec), validation.Written(a.Meta, a.Spec))
		w.Wakes = append(w.Wakes, old.Cluster, a.Cluster)
		if old.Set != nil && w.By.Via != viaSet { // the set may change it back
			w.Due = append(w.Due, hub.WorkApplicationSet)
			err = w.WakeSetsOf(ctx, []hub.ApplicationID{old.ID})
		}
	}
	return stored, transact.Configured, err
}

// DeleteApplication deletes an application. Cascade nil asks its finalizers
// (APP-29), as an empty propagation does. The view is nil if it is gone at once.
func (c *Catalog) DeleteApplication(ctx context.Context, by hub.Caller, namespace, name string, cascade *bool, propagation string) (*View, error) {
	var left *View
	var follows func()
	through := c.parts.Pace.Alone(by.Tenant)
	defer func() { through(follows) }()
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		left, w.Later = nil, func(f func()) { follows = f }
		a, err := w.forWrite(ctx, namespace, name, access.Delete)
		if err != nil {
			return err
		}
		whole := hasFinalizer(a.Meta)
		if cascade != nil {
			whole = *cascade
		}
		if err := w.deleteApplication(ctx, a, hub.Deletion{Cascade: whole, Propagation: propagation}); err != nil {
			return err
		}
		now, err := w.ApplicationByID(ctx, a.ID)
		if fault.KindOf(err) == fault.Missing {
			return nil
		}
		if err != nil {
			return err
		}
		views, err := w.views(ctx, []hub.Application{now})
		if err == nil {
			left = &views[0]
		}
		return err
	})
	return left, err
}

// deleteApplication begins the deletion of an application that may be deleted.
func (w *writer) deleteApplication(ctx context.Context, a hub.Application, d hub.Deletion) error {
	asked := d.Propagation
	for _, propagation := range []string{"foreground", "background"} { // of both, the one that ends sooner
		if d.Cascade && slices.Contains(a.Finalizers, argoFinalizer+"/"+propagation) && asked == "" {
			d.Propagation = propagation
		}
	}
	wakes, err := w.Deploy.Delete(ctx, a.ID, d, initiator(w.By))
	if err != nil {
		return err
	}
	w.Wakes = append(w.Wakes, wakes...)
	w.Note(access.Delete, access.Applications, objectOf(a), fmt.Sprintf("cascade %v", d.Cascade), validation.Written(a.Meta, a.Spec), nil)
	return nil
}

// argoFinalizer asks for a cascade, perhaps with a propagation policy behind it.
const argoFinalizer = "resources-finalizer.argocd.argoproj.io"

func hasFinalizer(m hub.Meta) bool {
	return slices.ContainsFunc(m.Finalizers, func(f string) bool {
		return f == argoFinalizer || strings.HasPrefix(f, argoFinalizer+"/")
	})
}
