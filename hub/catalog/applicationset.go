package catalog

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
)

// setObject is what policies call an application set (ASET-22).
func setObject(s hub.ApplicationSet) string {
	return object(s.Project, hub.ApplicationKey{Namespace: s.Namespace, Name: s.Name})
}

// A SetFilter picks application sets. Empty fields pick all.
type SetFilter struct {
	Projects  []string
	Namespace string
}

func (f SetFilter) picks(s hub.ApplicationSet) bool {
	return (len(f.Projects) == 0 || slices.Contains(f.Projects, s.Project)) && (f.Namespace == "" || f.Namespace == s.Namespace)
}

// ApplicationSets lists the application sets that the caller may see, in order
// of name, with the place in the feed to follow from.
func (c *Catalog) ApplicationSets(ctx context.Context, by hub.Caller, f SetFilter) ([]hub.ApplicationSet, string, error) {
	var out []hub.ApplicationSet
	var cursor string
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		out = nil
		if err := r.May(access.ApplicationSets, access.Get); err != nil {
			return err
		}
		var err error
		if cursor, err = r.cursor(ctx); err != nil {
			return err
		}
		all, err := r.Tx.ApplicationSets(ctx)
		for _, s := range all {
			if f.picks(s) && r.Rights.Check(access.ApplicationSets, access.Get, setObject(s)) {
				out = append(out, s)
			}
		}
		return err
	})
	return out, cursor, err
}

// ApplicationSetsByID returns those of the sets that the caller may see; the
// feed asks. What is gone is left out.
func (c *Catalog) ApplicationSetsByID(ctx context.Context, by hub.Caller, ids []hub.ApplicationSetID) (map[hub.ApplicationSetID]hub.ApplicationSet, error) {
	out := map[hub.ApplicationSetID]hub.ApplicationSet{}
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		clear(out)
		for _, id := range unique(ids) {
			s, err := r.ApplicationSetByID(ctx, id)
			if fault.KindOf(err) == fault.Missing {
				continue
			}
			if err != nil {
				return err
			}
			if r.Rights.Check(access.ApplicationSets, access.Get, setObject(s)) {
				out[id] = s
			}
		}
		return nil
	})
	return out, err
}

// visibleSet returns a set if the caller may see it.
func (r *reader) visibleSet(ctx context.Context, namespace, name string) (hub.ApplicationSet, error) {
	s, err := r.Tx.ApplicationSet(ctx, namespace, name)
	if err != nil {
		return s, transact.Hide(err, access.ApplicationSets, title(namespace, name))
	}
	if !r.Rights.Check(access.ApplicationSets, access.Get, setObject(s)) {
		return hub.ApplicationSet{}, transact.Missing(access.ApplicationSets, title(namespace, name))
	}
	return s, nil
}

// ApplicationSet returns one application set.
func (c *Catalog) ApplicationSet(ctx context.Context, by hub.Caller, namespace, name string) (hub.ApplicationSet, error) {
	var out hub.ApplicationSet
	err := c.read(ctx, by, func(ctx context.Context, r *reader) (err error) {
		out, err = r.visibleSet(ctx, namespace, name)
		return err
	})
	return out, err
}

// ApplicationSetResources returns those applications of a set that the caller
// may see, in order of name, at most as many as limit says.
func (c *Catalog) ApplicationSetResources(ctx context.Context, by hub.Caller, namespace, name string, limit int) ([]hub.SetResource, error) {
	var out []hub.SetResource
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		out = nil
		s, err := r.visibleSet(ctx, namespace, name)
		if err != nil {
			return err
		}
		set, err := r.SettingValues(ctx, hub.ParamsMap, []string{hub.SetResourcesKey})
		if err != nil {
			return err
		}
		if most, err := strconv.Atoi(set[hub.SetResourcesKey]); err == nil && most >= 0 {
			limit = min(limit, most)
		}
		all, err := r.SetResources(ctx, s.ID, limit)
		for _, a := range all {
			if r.Rights.Check(access.Applications, access.Get, object(a.Project, a.ApplicationKey)) {
				out = append(out, a)
			}
		}
		return err
	})
	return out, err
}

// PutApplicationSet makes or changes an application set. Its namespace and
// project are filled in. It comes back as stored, with warnings for people.
func (c *Catalog) PutApplicationSet(ctx context.Context, by hub.Caller, s hub.ApplicationSet, o PutOptions) (hub.ApplicationSet, transact.Outcome, []string, error) {
	shape, err := validation.CheckApplicationSet(&s)
	if err != nil {
		return s, "", nil, fault.With(err, "application set "+title(s.Namespace, validation.Shorten(s.Name)), "")
	}
	warnings, err := c.parts.Sets.Check(s)
	if err != nil {
		return s, "", nil, fault.With(err, "application set "+title(s.Namespace, s.Name), "")
	}
	var stored hub.ApplicationSet
	var out transact.Outcome
	var more []string
	err = c.writeOr(ctx, by, o.DryRun, func(ctx context.Context, w *writer) error {
		var err error
		if stored, out, err = w.putSet(ctx, s, shape, o); err != nil {
			return err
		}
		w.Due = append(w.Due, hub.WorkApplicationSet)
		if stored.Annotations[hub.RefreshSetAnnotation] != "" { // what it reads is fetched, too (ASET-18)
			w.Due = append(w.Due, hub.WorkFetch)
			if err := w.RefreshSet(ctx, stored.ID); err != nil {
				return err
			}
		}
		more, err = w.warnOfSet(ctx, s)
		return err
	})
	return stored, out, append(warnings, more...), err
}

// needSet is the right to write a set: on the set itself, and to make
// applications in its project, because the set does that with no further check
// of its writer.
func (w *writer) needSet(action string, s hub.ApplicationSet) error {
	if err := w.Need(access.ApplicationSets, action, setObject(s)); err != nil {
		return err
	}
	return w.Need(access.Applications, access.Create, s.Project+"/*")
}

func (w *writer) putSet(ctx context.Context, s hub.ApplicationSet, shape validation.SetShape, o PutOptions) (hub.ApplicationSet, transact.Outcome, error) {
	name := title(s.Namespace, s.Name)
	old, err := w.Tx.ApplicationSet(ctx, s.Namespace, s.Name)
	there := err == nil
	if err != nil && fault.KindOf(err) != fault.Missing {
		return s, "", err
	}
	if !there {
		if !o.Create {
			return s, "", transact.Missing(access.ApplicationSets, name)
		}
		if err := w.needSet(access.Create, s); err != nil {
			return s, "", err
		}
		if err := w.admitsSet(ctx, s); err != nil {
			return s, "", err
		}
		s.CreatedAt = w.Now
		stored, err := w.CreateApplicationSet(ctx, s, shape.Watches)
		if err == nil {
			w.Note(access.Create, access.ApplicationSets, setObject(s), "", nil, validation.Written(s.Meta, s.Spec))
		}
		return stored, transact.Created, err
	}
	seen := w.Rights.Check(access.ApplicationSets, access.Get, setObject(old))
	switch {
	case !seen && o.Create:
		return s, "", w.Refuse(access.ApplicationSets, access.Create, setObject(s),
			transact.Denied(access.Rule{Resource: access.ApplicationSets, Action: access.Create, Object: setObject(s)}))
	case !seen:
		return s, "", w.Refuse(access.ApplicationSets, access.Update, setObject(old), transact.Missing(access.ApplicationSets, name))
	case !o.Update:
		if err := w.needSet(access.Create, s); err != nil {
			return s, "", err
		}
		return s, "", transact.ErrTaken("application set " + name)
	}
	return w.changeSet(ctx, old, s, shape, o)
}

// changeSet updates a set that the caller may see. A move to another project
// needs the rights in both.
func (w *writer) changeSet(ctx context.Context, old, s hub.ApplicationSet, shape validation.SetShape, o PutOptions) (hub.ApplicationSet, transact.Outcome, error) {
	name := "application set " + title(s.Namespace, s.Name)
	if err := w.needSet(access.Update, old); err != nil {
		return s, "", err
	}
	if s.Project != old.Project {
		if err := w.needSet(access.Create, s); err != nil {
			return s, "", err
		}
	}
	if o.Expect != 0 && o.Expect != old.Version {
		return s, "", transact.ErrStale(name)
	}
	if old.DeletingAt != nil {
		return s, "", fault.With(fault.New(fault.Conflict, "it is being deleted"), name, "wait until it is gone")
	}
	if validation.SameMeta(old.Meta, s.Meta) && validation.SameJSON(old.Spec, s.Spec) {
		return old, transact.Unchanged, nil
	}
	if err := w.admitsSet(ctx, s); err != nil {
		return s, "", err
	}
	s.ID = old.ID
	stored, err := w.UpdateApplicationSet(ctx, s, shape.Watches, old.Version)
	if err == nil {
		w.Note(access.Update, access.ApplicationSets, setObject(s), "", validation.Written(old.Meta, old.Spec), validation.Written(s.Meta, s.Spec))
	}
	return stored, transact.Configured, err
}

// warnOfSet says what keeps a set from making applications until somebody
// changes something else.
func (w *writer) warnOfSet(ctx context.Context, s hub.ApplicationSet) ([]string, error) {
	if s.Project == hub.AnyProject {
		return nil, nil
	}
	_, err := w.EffectiveProject(ctx, s.Project)
	if fault.KindOf(err) == fault.Missing {
		return []string{fmt.Sprintf("project %q does not exist (create it with `capstan project create %s` or apply its AppProject)", s.Project, s.Project)}, nil
	}
	return nil, err
}

// admitsSet refuses a set in a namespace that may have none. A set whose project
// is not there makes nothing, as such an application deploys nothing.
func (w *writer) admitsSet(ctx context.Context, s hub.ApplicationSet) error {
	object := "application set " + title(s.Namespace, s.Name)
	set, err := w.SettingValues(ctx, hub.ParamsMap, []string{hub.SetNamespacesKey})
	if err != nil {
		return err
	}
	if !hub.AppNamespaceEnabled(set[hub.SetNamespacesKey], s.Namespace) {
		return fault.With(fault.New(fault.Denied, "namespace %s may have no application sets", s.Namespace), object,
			"add it to "+hub.SetNamespacesKey+" of "+hub.ParamsMap)
	}
	if s.Project == hub.AnyProject || s.Namespace == hub.ArgoNamespace {
		return nil
	}
	p, err := w.EffectiveProject(ctx, s.Project)
	if fault.KindOf(err) == fault.Missing {
		return fault.With(fault.New(fault.Invalid, "there is no project %q that lists namespace %s", s.Project, s.Namespace), object, "create it first")
	}
	if err != nil {
		return err
	}
	spec, err := p.Effective()
	if err != nil {
		return err
	}
	return fault.With(spec.AdmitsNamespace(s.Project, s.Namespace), object, "")
}

// setForWrite is forWrite for an application set.
func (w *writer) setForWrite(ctx context.Context, namespace, name, action string) (hub.ApplicationSet, error) {
	s, err := w.Tx.ApplicationSet(ctx, namespace, name)
	if err == nil {
		s, err = w.LockApplicationSet(ctx, s.ID)
	}
	if err != nil {
		return s, transact.Hide(err, access.ApplicationSets, title(namespace, name))
	}
	if !w.Rights.Check(access.ApplicationSets, access.Get, setObject(s)) {
		return s, w.Refuse(access.ApplicationSets, action, setObject(s), transact.Missing(access.ApplicationSets, title(namespace, name)))
	}
	if err := w.Need(access.ApplicationSets, action, setObject(s)); err != nil {
		return s, err
	}
	return s, w.expects("application set "+title(namespace, name), s.Version)
}

// DeleteApplicationSet deletes a set, with its applications or without. It comes
// back nil if it is gone at once; else the hub deletes the applications first.
func (c *Catalog) DeleteApplicationSet(ctx context.Context, by hub.Caller, namespace, name string, how hub.SetDeletion) (*hub.ApplicationSet, error) {
	if how != hub.DeleteSetAlone {
		how = hub.DeleteWithApplications
	}
	var left *hub.ApplicationSet
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		left = nil
		s, err := w.setForWrite(ctx, namespace, name, access.Delete)
		if err != nil {
			return err
		}
		left, err = w.deleteSet(ctx, s, how)
		w.Due = append(w.Due, hub.WorkApplicationSet)
		return err
	})
	return left, err
}

// deleteSet begins the deletion of a set that may be deleted; nil: it is gone.
func (w *writer) deleteSet(ctx context.Context, s hub.ApplicationSet, how hub.SetDeletion) (*hub.ApplicationSet, error) {
	w.Note(access.Delete, access.ApplicationSets, setObject(s), string(how), validation.Written(s.Meta, s.Spec), nil)
	members, err := w.SetMembers(ctx, s.ID)
	if err != nil {
		return nil, err
	}
	if len(members) == 0 || how == hub.DeleteSetAlone {
		return nil, w.RemoveApplicationSet(ctx, s.ID)
	}
	if err := w.MarkSetDeleting(ctx, s.ID, how); err != nil {
		return nil, err
	}
	now, err := w.ApplicationSetByID(ctx, s.ID)
	return &now, err
}

// RefreshApplicationSet has a set generated now, and the repositories fetched
// that its generators read.
func (c *Catalog) RefreshApplicationSet(ctx context.Context, by hub.Caller, namespace, name string) (hub.ApplicationSet, error) {
	var out hub.ApplicationSet
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		s, err := w.setForWrite(ctx, namespace, name, access.Get)
		if err != nil {
			return err
		}
		out = s
		w.Due = append(w.Due, hub.WorkFetch, hub.WorkApplicationSet)
		return w.RefreshSet(ctx, s.ID)
	})
	return out, err
}

// ConsentApplicationSet agrees to the deletion that a set holds. The digest
// names the list of applications that the caller has read.
func (c *Catalog) ConsentApplicationSet(ctx context.Context, by hub.Caller, namespace, name, digest string) (hub.ApplicationSet, error) {
	var out hub.ApplicationSet
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		s, err := w.setForWrite(ctx, namespace, name, access.Update)
		if err != nil {
			return err
		}
		if err := w.Need(access.Applications, access.Delete, s.Project+"/*"); err != nil {
			return err
		}
		object := "application set " + title(namespace, name)
		held := s.Status.Held
		if held == nil || digest == "" || held.Digest != digest {
			return fault.With(fault.New(fault.Conflict, "it holds no deletion of these applications"), object, "read the application set again")
		}
		agreed := *held
		agreed.ConsentedBy, agreed.ConsentedAt = w.By.Username, &w.Now
		s.Status.Held = &agreed
		w.Note(access.Delete, access.ApplicationSets, setObject(s), "consent to the deletion of applications", nil, agreed)
		if err := w.PutApplicationSetStatus(ctx, s.ID, s.Status); err != nil {
			return err
		}
		w.Due = append(w.Due, hub.WorkApplicationSet)
		out = s
		return w.Enqueue(ctx, hub.WorkApplicationSet, string(s.ID), w.Now, true)
	})
	return out, err
}
