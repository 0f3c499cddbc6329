package catalog

import (
	"context"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Projects lists the projects that the caller may see, in order of name.
func (c *Catalog) Projects(ctx context.Context, by hub.Caller) ([]hub.Project, string, error) {
	var out []hub.Project
	var cursor string
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		out = nil
		if err := r.May(access.Projects, access.Get); err != nil {
			return err
		}
		var err error
		if cursor, err = r.cursor(ctx); err != nil {
			return err
		}
		all, err := r.Tx.Projects(ctx)
		for _, p := range all {
			if r.Rights.Check(access.Projects, access.Get, p.Name) {
				out = append(out, p)
			}
		}
		return err
	})
	return out, cursor, err
}

// Project returns one project.
func (c *Catalog) Project(ctx context.Context, by hub.Caller, name string) (hub.Project, error) {
	var p hub.Project
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		if !r.Rights.Check(access.Projects, access.Get, name) {
			return transact.Missing(access.Projects, name)
		}
		var err error
		p, err = r.Tx.Project(ctx, name)
		return transact.Hide(err, access.Projects, name)
	})
	return p, err
}

// PutProject makes or changes a project. It comes back as stored, with
// warnings for people.
func (c *Catalog) PutProject(ctx context.Context, by hub.Caller, p hub.Project, o PutOptions) (hub.Project, transact.Outcome, []string, error) {
	_, warnings, err := validation.CheckProject(&p, func(name string, spec hub.ProjectSpec) error {
		_, _, err := access.ParseProject(name, spec, false)
		return err
	})
	if err != nil {
		return p, "", nil, fault.With(err, "project "+validation.Shorten(p.Name), "")
	}
	o.RefuseInvalid = true
	var stored hub.Project
	var out transact.Outcome
	err = c.writeOr(ctx, by, o.DryRun, func(ctx context.Context, w *writer) error {
		var err error
		stored, out, err = w.putProject(ctx, p, o)
		w.Due = append(w.Due, hub.WorkRefresh)
		return err
	})
	return stored, out, warnings, err
}

func (w *writer) putProject(ctx context.Context, p hub.Project, o PutOptions) (hub.Project, transact.Outcome, error) {
	if err := w.checkExpressions(p); err != nil {
		return p, "", err
	}
	old, err := w.Tx.Project(ctx, p.Name)
	there := err == nil
	if err != nil && fault.KindOf(err) != fault.Missing {
		return p, "", err
	}
	seen := w.Rights.Check(access.Projects, access.Get, p.Name)
	switch {
	case !there && !o.Create, there && !seen && !o.Create:
		if there {
			return p, "", w.Refuse(access.Projects, access.Update, p.Name, transact.Missing(access.Projects, p.Name))
		}
		return p, "", transact.Missing(access.Projects, p.Name)
	case !there:
		if err := w.Need(access.Projects, access.Create, p.Name); err != nil {
			return p, "", err
		}
		p.CreatedAt = w.Now
		stored, err := w.CreateProject(ctx, p)
		if err == nil {
			w.Note(access.Create, access.Projects, p.Name, "", nil, validation.Written(p.Meta, p.Spec))
			err = w.refreshHeirs(ctx, p.Name)
		}
		return stored, transact.Created, err
	case !seen:
		return p, "", w.Refuse(access.Projects, access.Create, p.Name, transact.Denied(access.Rule{Resource: access.Projects, Action: access.Create, Object: p.Name}))
	case !o.Update:
		if err := w.Need(access.Projects, access.Create, p.Name); err != nil {
			return p, "", err
		}
		return p, "", transact.ErrTaken("project " + p.Name)
	}
	if err := w.Need(access.Projects, access.Update, p.Name); err != nil {
		return p, "", err
	}
	if o.Expect != 0 && o.Expect != old.Version {
		return p, "", transact.ErrStale("project " + p.Name)
	}
	if validation.SameMeta(old.Meta, p.Meta) && validation.SameJSON(old.Spec, p.Spec) {
		return old, transact.Unchanged, nil
	}
	if o.RefuseInvalid {
		if err := w.keepsApplications(ctx, old, p); err != nil {
			return p, "", err
		}
	}
	p.ID = old.ID
	w.Credentials = true // a role that is gone ends its tokens
	stored, err := w.UpdateProject(ctx, p, old.Version)
	if err == nil {
		w.Note(access.Update, access.Projects, p.Name, "", validation.Written(old.Meta, old.Spec), validation.Written(p.Meta, p.Spec))
		err = w.refreshHeirs(ctx, p.Name)
	}
	return stored, transact.Configured, err
}

func causeOf(err error) string {
	if e, ok := fault.As(err); ok {
		return e.Cause
	}
	return err.Error()
}

// DeleteProject deletes a project that no application uses. The project
// default stays (PROJ-19).
func (c *Catalog) DeleteProject(ctx context.Context, by hub.Caller, name string) error {
	return c.write(ctx, by, func(ctx context.Context, w *writer) error {
		p, err := w.Tx.Project(ctx, name)
		if err != nil {
			return transact.Hide(err, access.Projects, name)
		}
		if !w.Rights.Check(access.Projects, access.Get, name) {
			return w.Refuse(access.Projects, access.Delete, name, transact.Missing(access.Projects, name))
		}
		return w.deleteProject(ctx, p)
	})
}

// deleteProject deletes a project that may be deleted.
func (w *writer) deleteProject(ctx context.Context, p hub.Project) error {
	if err := w.Need(access.Projects, access.Delete, p.Name); err != nil {
		return err
	}
	if err := w.expects("project "+p.Name, p.Version); err != nil {
		return err
	}
	if p.Name == "default" {
		return fault.With(fault.New(fault.Conflict, "it cannot be deleted"), "project default", "restrict it instead")
	}
	heirs, err := w.heirs(ctx, p.Name)
	if err != nil {
		return err
	}
	if len(heirs) > 0 {
		return fault.With(fault.New(fault.Conflict, "projects inherit from it by %s of argocd-cm: %s", hub.GlobalProjectsKey, strings.Join(heirs, ", ")), "project "+p.Name,
			"take it out of "+hub.GlobalProjectsKey+" first")
	}
	w.Credentials = true
	w.Note(access.Delete, access.Projects, p.Name, "", validation.Written(p.Meta, p.Spec), nil)
	return w.Tx.DeleteProject(ctx, p.Name)
}
