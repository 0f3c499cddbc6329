package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/encryption"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// An application may render applications, application sets and projects (APP-31). They are
// written here, by the same way as those of people: the application is the
// caller, and its project says what it may.

// maxDepth bounds how many applications may stand above one another.
const maxDepth = 10

// A parent is an application that renders objects of the hub.
type parent struct {
	hub.Application
	spec    hub.ApplicationSpec
	project hub.ProjectSpec
}

// parentOf returns an application of the cluster whose agent is asking.
func parentOf(ctx context.Context, apps transact.ApplicationReader, projects transact.ProjectReader, cluster hub.ClusterID, id hub.ApplicationID) (*parent, error) {
	a, err := apps.ApplicationByID(ctx, id)
	if err == nil && a.Cluster != cluster {
		err = fault.New(fault.Missing, "there is no such application on this cluster")
	}
	if err != nil {
		return nil, err
	}
	p := &parent{Application: a}
	if p.spec, err = hub.DecodeSpec(a.Spec); err != nil {
		return nil, err
	}
	project, err := projects.EffectiveProject(ctx, a.Project)
	if err != nil {
		return nil, err
	}
	p.project, err = project.Effective()
	return p, err
}

// caller is how the audit log names the application.
func (p *parent) caller(tenant hub.TenantID) hub.Caller {
	return hub.Caller{Tenant: tenant, Username: "application " + title(p.Namespace, p.Name), Via: "application"}
}

func (p *parent) is(ref hub.RenderedRef) bool {
	return ref.Kind == validation.KindApplication && ref.Namespace == p.Namespace && ref.Name == p.Name
}

// rules reports whether it may write projects and applications of any project.
func (p *parent) rules(namespace string) bool { return p.project.Rules(p.Project, namespace) }

// may reports whether the project lets the application write an object, which
// belongs to some projects: the one that it is in and the one that it goes to.
func (p *parent) may(ref hub.RenderedRef, projects ...string) error {
	if err := p.project.CheckHubObject(p.Project, ref.Key()); err != nil {
		return err
	}
	if p.rules(ref.Namespace) {
		return nil
	}
	fix := "an owner of the project can name the kind argoproj.io/AppProject in its namespaceResourceWhitelist: what may write projects may write everything"
	if ref.Kind == validation.KindProject {
		return fault.With(fault.New(fault.Denied, "an application of project %s may not write projects", p.Project), ref.Key().Describe(), fix)
	}
	for _, other := range projects {
		if other != p.Project {
			return fault.With(fault.New(fault.Denied, "an application of project %s may not write applications of project %s", p.Project, other),
				ref.Key().Describe(), "put it into project "+p.Project+"; or "+fix)
		}
	}
	return nil
}

// writeRendered is write for an application of a cluster.
func (c *Catalog) writeRendered(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, ref hub.RenderedRef, dryRun bool,
	do func(ctx context.Context, w *writer, p *parent) error,
) error {
	var p *parent
	return c.parts.Service.WriteAs(ctx, tenant, dryRun, func(ctx context.Context, tx transact.Tx) (hub.Caller, *access.Index, error) {
		var err error
		if p, err = parentOf(ctx, tx.ApplicationReader, tx.ProjectReader, cluster, ref.Parent); err != nil {
			return hub.Caller{Tenant: tenant}, nil, err
		}
		return p.caller(tenant), access.OfApplication(p.Project, p.rules(ref.Namespace)), nil
	}, c.writing(func(ctx context.Context, w *writer) error { return do(ctx, w, p) }))
}

// PutRendered brings an object of the hub to the manifest that an application
// of the cluster has rendered and that was accepted. It comes back as it is
// then; to repeat it changes nothing.
func (c *Catalog) PutRendered(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, want hub.RenderedWrite) (hub.RenderedObject, error) {
	var out hub.RenderedObject
	keys, err := c.parts.Service.Store.Keys(ctx, tenant)
	if err != nil {
		return out, err
	}
	err = c.writeRendered(ctx, tenant, cluster, want.RenderedRef, want.DryRun, func(ctx context.Context, w *writer, p *parent) error {
		o, err := w.accepted(ctx, keys, p, want)
		if err != nil {
			return err
		}
		switch {
		case o.GetAPIVersion() != validation.ArgoVersion:
			return validation.NotServed(o)
		case want.Kind == validation.KindApplicationSet:
			out, err = w.putRenderedSet(ctx, p, want.RenderedRef, o)
		case want.Kind == validation.KindProject:
			out, err = w.putRenderedProject(ctx, p, want.RenderedRef, o)
		default:
			out, err = w.putRenderedApplication(ctx, p, want.RenderedRef, o)
		}
		return transact.WithObject(err, want.Key().Describe())
	})
	return out, err
}

// accepted reads the manifest that is asked for. Only what this hub has
// rendered for the application and accepted, or is carrying out now, is ever
// written; what is only wanted may be tried out.
func (w *writer) accepted(ctx context.Context, keys hub.TenantKeys, p *parent, want hub.RenderedWrite) (*manifest.Object, error) {
	if p.DeletingAt != nil && !want.DryRun {
		return nil, fault.New(fault.Conflict, "application %s is being deleted", title(p.Namespace, p.Name))
	}
	snapshots := []hub.SnapshotID{p.Status.Accepted}
	if op := p.Status.Operation; op != nil && !op.Phase.Over() {
		snapshots = append(snapshots, op.Snapshot)
	}
	if want.DryRun {
		snapshots = append(snapshots, p.Status.Target)
	}
	found, err := w.Snapshots(ctx, snapshots)
	if err != nil {
		return nil, err
	}
	named := func(o hub.ObjectRef) bool { return o.Digest == want.Digest && p.names(o, want.RenderedRef) }
	if !slices.ContainsFunc(all(found), named) {
		return nil, fault.With(fault.New(fault.Conflict, "it is not what application %s was accepted to be", title(p.Namespace, p.Name)), want.Key().Describe(), "")
	}
	sealed, err := w.Objects(ctx, []hub.Digest{want.Digest})
	if err != nil {
		return nil, err
	}
	if len(sealed) != 1 {
		return nil, fault.New(fault.Missing, "the manifest of %s is not there any more", want.Key().Describe())
	}
	plain, err := encryption.OpenBlob(keys.Object, want.Digest, sealed[0].Sealed)
	if err != nil {
		return nil, fmt.Errorf("open the manifest of %s: %w", want.Key(), err)
	}
	o, err := manifest.FromCanonical(plain)
	if err != nil {
		return nil, err
	}
	o.SetNamespace(want.Namespace)
	return o, nil
}

func all(snapshots map[hub.SnapshotID]hub.Snapshot) []hub.ObjectRef {
	var out []hub.ObjectRef
	for _, s := range snapshots {
		out = append(out, s.Objects...)
	}
	return out
}

// names reports whether an object of the application's snapshots is the one meant.
func (p *parent) names(o hub.ObjectRef, ref hub.RenderedRef) bool {
	if o.Group != manifest.HubGroup || o.Kind != ref.Kind || o.Name != ref.Name || o.Hook != "" {
		return false
	}
	switch {
	case o.Namespace != "":
		return o.Namespace == ref.Namespace
	case p.spec.Destination.Namespace != "":
		return p.spec.Destination.Namespace == ref.Namespace
	}
	return ref.Namespace == validation.DefaultNamespace
}

// claimed says which application renders an object, and wants it still.
func (w *writer) claimed(ctx context.Context, p *parent, ref hub.RenderedRef, id string) (hub.RenderedBy, error) {
	held, err := w.RenderedBy(ctx, []string{id})
	r := held[id]
	if err != nil || r.Parent == "" || r.Parent == p.ID {
		return r, err
	}
	holder, err := w.ApplicationByID(ctx, r.Parent)
	if err != nil {
		return r, err
	}
	spec, err := hub.DecodeSpec(holder.Spec)
	if err != nil {
		return r, err
	}
	snapshots, err := w.Snapshots(ctx, []hub.SnapshotID{holder.Status.Accepted, holder.Status.Target})
	if err != nil {
		return r, err
	}
	other := &parent{Application: holder, spec: spec}
	if holder.DeletingAt == nil && slices.ContainsFunc(all(snapshots), func(o hub.ObjectRef) bool { return other.names(o, ref) }) {
		return r, fault.With(fault.New(fault.Conflict, "it is managed by application %s", title(holder.Namespace, holder.Name)), ref.Key().Describe(),
			"remove it from one of the two applications")
	}
	return r, nil
}

// acyclic refuses an application that stands above its own parent, or too deep.
func (w *writer) acyclic(ctx context.Context, p *parent, id hub.ApplicationID) error {
	path := []string{title(p.Namespace, p.Name)}
	for at := p.Application; at.Parent != nil; {
		up, err := w.Application(ctx, at.Parent.Namespace, at.Parent.Name)
		if fault.KindOf(err) == fault.Missing || up.ID == at.ID {
			return nil
		}
		if err != nil {
			return err
		}
		path = append(path, title(up.Namespace, up.Name))
		if up.ID == id {
			return fault.With(fault.New(fault.Invalid, "it would stand above itself: %s", strings.Join(path, " is rendered by ")), "", "remove it from one of these applications")
		}
		if len(path) >= maxDepth {
			return fault.With(fault.New(fault.Exceeded, "more than %d applications stand above one another: %s", maxDepth, strings.Join(path, " is rendered by ")), "", "")
		}
		at = up
	}
	return nil
}

func (w *writer) putRenderedApplication(ctx context.Context, p *parent, ref hub.RenderedRef, o *manifest.Object) (hub.RenderedObject, error) {
	none := hub.RenderedObject{}
	meta, spec, _, err := validation.ReadObject(o)
	if err != nil {
		return none, err
	}
	a := hub.Application{Meta: meta, Spec: spec}
	old, err := w.Application(ctx, ref.Namespace, ref.Name)
	there := err == nil
	if err != nil && fault.KindOf(err) != fault.Missing {
		return none, err
	}
	applied, err := validation.LastWritten(a.Meta, a.Spec)
	if err != nil {
		return none, err
	}
	projects := []string{}
	if there {
		// Whose it is comes first: who may not write it learns nothing of it.
		if err := p.may(ref, old.Project); err != nil {
			return none, w.Refuse(access.Applications, access.Update, objectOf(old), err)
		}
		if old.Set != nil {
			return none, fault.With(fault.New(fault.Conflict, "it belongs to application set %s", title(old.Set.Namespace, old.Set.Name)), ref.Key().Describe(),
				"remove it from the application, or from the application set")
		}
		held, err := w.claimed(ctx, p, ref, string(old.ID))
		if err != nil {
			return none, err
		}
		if err := validation.MergeApplied(held.Applied, &a.Meta, &a.Spec, old.Meta, old.Spec); err != nil {
			return none, err
		}
	}
	if !p.is(ref) {
		if err := w.acyclic(ctx, p, old.ID); err != nil {
			return none, err
		}
	}
	decoded, _, err := validation.CheckApplication(&a)
	if err != nil {
		return none, err
	}
	projects = append(projects, a.Project)
	if err := p.may(ref, projects...); err != nil {
		return none, w.Refuse(access.Applications, access.Create, objectOf(a), err)
	}
	around, err := w.ForPut(ctx, hub.ApplicationKey{Namespace: a.Namespace, Name: a.Name}, a.Project, validation.DestinationName(decoded.Destination))
	if err != nil {
		return none, err
	}
	stored, _, outcome, err := w.putApplication(ctx, around, a, decoded, PutOptions{Create: true, Update: true})
	if err != nil {
		return none, err
	}
	if outcome != transact.Unchanged {
		w.Due = append(w.Due, hub.WorkFetch, hub.WorkRefresh)
	}
	if !p.is(ref) {
		if err := w.PutRenderedBy(ctx, hub.RenderedBy{Object: string(stored.ID), Kind: ref.Kind, Parent: p.ID, Applied: applied}); err != nil {
			return none, err
		}
	}
	return presentApplication(p, ref, stored, true)
}

func (w *writer) putRenderedProject(ctx context.Context, p *parent, ref hub.RenderedRef, o *manifest.Object) (hub.RenderedObject, error) {
	none := hub.RenderedObject{}
	if err := p.may(ref); err != nil {
		return none, w.Refuse(access.Projects, access.Update, ref.Name, err)
	}
	meta, spec, _, err := validation.ReadObject(o)
	if err != nil {
		return none, err
	}
	project := hub.Project{Meta: meta, Spec: spec}
	applied, err := validation.LastWritten(project.Meta, project.Spec)
	if err != nil {
		return none, err
	}
	old, err := w.Tx.Project(ctx, ref.Name)
	switch {
	case err == nil:
		held, err := w.claimed(ctx, p, ref, string(old.ID))
		if err != nil {
			return none, err
		}
		if err := validation.MergeApplied(held.Applied, &project.Meta, &project.Spec, old.Meta, old.Spec); err != nil {
			return none, err
		}
	case fault.KindOf(err) != fault.Missing:
		return none, err
	}
	_, _, err = validation.CheckProject(&project, func(name string, spec hub.ProjectSpec) error {
		_, _, err := access.ParseProject(name, spec, false)
		return err
	})
	if err != nil {
		return none, err
	}
	stored, outcome, err := w.putProject(ctx, project, PutOptions{Create: true, Update: true})
	if err != nil {
		return none, err
	}
	if outcome != transact.Unchanged {
		w.Due = append(w.Due, hub.WorkRefresh)
	}
	if err := w.PutRenderedBy(ctx, hub.RenderedBy{Object: string(stored.ID), Kind: ref.Kind, Parent: p.ID, Applied: applied}); err != nil {
		return none, err
	}
	return presentProject(p, ref, stored, true)
}

// DeleteRendered deletes an object of the hub that an application of the
// cluster has rendered, if a tombstone or the application's own deletion asks
// for it. What becomes of a child's own objects, its finalizer says (APP-29).
func (c *Catalog) DeleteRendered(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, ref hub.RenderedRef, uid string) (hub.RenderedDeletion, error) {
	var out hub.RenderedDeletion
	err := c.writeRendered(ctx, tenant, cluster, ref, false, func(ctx context.Context, w *writer, p *parent) error {
		out = hub.RenderedDeletion{}
		if p.is(ref) {
			return fault.With(fault.New(fault.Denied, "an application does not delete itself"), ref.Key().Describe(), "")
		}
		asked, err := w.doomed(ctx, p, ref)
		if err != nil {
			return err
		}
		if !asked {
			return fault.With(fault.New(fault.Conflict, "nothing asks for its deletion"), ref.Key().Describe(), "")
		}
		switch ref.Kind {
		case validation.KindProject:
			out, err = w.deleteRenderedProject(ctx, p, ref, uid)
		case validation.KindApplicationSet:
			out, err = w.deleteRenderedSet(ctx, p, ref, uid)
		default:
			out, err = w.deleteRenderedApplication(ctx, p, ref, uid)
		}
		return transact.WithObject(err, ref.Key().Describe())
	})
	return out, err
}

// doomed reports whether the hub itself has asked for the deletion of an object.
func (w *writer) doomed(ctx context.Context, p *parent, ref hub.RenderedRef) (bool, error) {
	if p.DeletingAt != nil {
		return p.Cascade, nil
	}
	tombstones, err := w.Tombstones(ctx, []hub.ApplicationID{p.ID})
	return slices.ContainsFunc(tombstones[p.ID], func(t hub.Tombstone) bool {
		return p.names(hub.ObjectRef{Group: t.Group, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name}, ref)
	}), err
}

// theirs reports whether an object is what the application meant by its name.
func (w *writer) theirs(ctx context.Context, p *parent, id, uid string) (bool, error) {
	held, err := w.RenderedBy(ctx, []string{id})
	return id == uid && held[id].Parent == p.ID, err
}

func (w *writer) deleteRenderedApplication(ctx context.Context, p *parent, ref hub.RenderedRef, uid string) (hub.RenderedDeletion, error) {
	a, err := w.locked(ctx, ref.Namespace, ref.Name)
	if fault.KindOf(err) == fault.Missing {
		return hub.RenderedDeletion{Gone: true}, nil
	}
	if err != nil {
		return hub.RenderedDeletion{}, err
	}
	if ours, err := w.theirs(ctx, p, string(a.ID), uid); err != nil || !ours {
		return hub.RenderedDeletion{Other: true}, err
	}
	if err := p.may(ref, a.Project); err != nil {
		return hub.RenderedDeletion{}, w.Refuse(access.Applications, access.Delete, objectOf(a), err)
	}
	if err := w.Need(access.Applications, access.Delete, objectOf(a)); err != nil {
		return hub.RenderedDeletion{}, err
	}
	if a.DeletingAt != nil {
		return hub.RenderedDeletion{}, nil // under way
	}
	err = w.deleteApplication(ctx, a, hub.Deletion{Cascade: hasFinalizer(a.Meta)})
	return hub.RenderedDeletion{Gone: !hasFinalizer(a.Meta)}, err
}

func (w *writer) deleteRenderedProject(ctx context.Context, p *parent, ref hub.RenderedRef, uid string) (hub.RenderedDeletion, error) {
	project, err := w.Tx.Project(ctx, ref.Name)
	if fault.KindOf(err) == fault.Missing {
		return hub.RenderedDeletion{Gone: true}, nil
	}
	if err != nil {
		return hub.RenderedDeletion{}, err
	}
	if ours, err := w.theirs(ctx, p, string(project.ID), uid); err != nil || !ours {
		return hub.RenderedDeletion{Other: true}, err
	}
	if err := p.may(ref); err != nil {
		return hub.RenderedDeletion{}, w.Refuse(access.Projects, access.Delete, ref.Name, err)
	}
	users, err := w.Tx.Applications(ctx, hub.ApplicationFilter{All: true, Projects: []string{ref.Name}, Limit: 500})
	if err != nil {
		return hub.RenderedDeletion{}, err
	}
	staying := slices.IndexFunc(users, func(a hub.Application) bool { return a.DeletingAt == nil })
	if len(users) > 0 && staying < 0 {
		return hub.RenderedDeletion{Waits: fmt.Sprintf("%d applications of it are being deleted", len(users))}, nil
	}
	return hub.RenderedDeletion{Gone: true}, w.deleteProject(ctx, project)
}
