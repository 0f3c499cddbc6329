package catalog

import (
	"context"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Lifetimes and number of tokens of one role.
const (
	roleTokenLifetime    = 90 * 24 * time.Hour
	maxRoleTokenLifetime = 366 * 24 * time.Hour
	maxRoleTokens        = 50
)

// RoleTokens lists the tokens of the roles of a project; an empty role means all.
func (c *Catalog) RoleTokens(ctx context.Context, by hub.Caller, project, role string) ([]hub.RoleToken, error) {
	var out []hub.RoleToken
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		if !r.Rights.Check(access.Projects, access.Get, project) {
			return transact.Missing(access.Projects, project)
		}
		if _, _, err := r.roleOf(ctx, project, role); err != nil {
			return err
		}
		all, err := r.Tx.RoleTokens(ctx, project)
		out = slices.DeleteFunc(all, func(t hub.RoleToken) bool { return role != "" && t.Role != role })
		return err
	})
	return out, err
}

// roleOf returns a project that the caller may see, and a role of it.
func (r *reader) roleOf(ctx context.Context, project, role string) (hub.Project, hub.ProjectRole, error) {
	p, err := r.Tx.Project(ctx, project)
	if err != nil {
		return p, hub.ProjectRole{}, transact.Hide(err, access.Projects, project)
	}
	if role == "" {
		return p, hub.ProjectRole{}, nil
	}
	spec, err := hub.DecodeProject(p.Spec)
	if err != nil {
		return p, hub.ProjectRole{}, err
	}
	i := slices.IndexFunc(spec.Roles, func(x hub.ProjectRole) bool { return x.Name == role })
	if i < 0 {
		return p, hub.ProjectRole{}, fault.New(fault.Missing, "project %q has no role %q", project, validation.Shorten(role))
	}
	return p, spec.Roles[i], nil
}

// CreateRoleToken stores a token of a role of a project. It takes the right to
// change the project, or membership of the role, and no token can do it.
func (c *Catalog) CreateRoleToken(ctx context.Context, by hub.Caller, t hub.RoleToken, lifetime string) (hub.RoleToken, error) {
	if err := validation.CheckLabel("token name", t.Name); err != nil {
		return t, err
	}
	lasts, err := validation.BoundedDuration(lifetime, roleTokenLifetime, maxRoleTokenLifetime)
	if err != nil {
		return t, err
	}
	err = c.write(ctx, by, func(ctx context.Context, w *writer) error {
		p, err := w.roleForToken(ctx, t.Project, t.Role, "create-token")
		if err != nil {
			return err
		}
		held, err := w.Tx.RoleTokens(ctx, t.Project)
		if err != nil {
			return err
		}
		held = slices.DeleteFunc(held, func(k hub.RoleToken) bool { return k.Role != t.Role })
		if len(held) >= maxRoleTokens {
			return fault.With(fault.New(fault.Exceeded, "the role has %d tokens, which is the limit", len(held)), "role "+t.Role+" of project "+t.Project, "revoke those that are not used")
		}
		t.ProjectID, t.CreatedBy, t.CreatedAt, t.ExpiresAt = p.ID, by.Username, w.Now, w.Now.Add(lasts)
		w.Note("create-token", access.Projects, t.Project, "role "+t.Role, nil, map[string]any{"id": t.ID, "name": t.Name, "prefix": t.Prefix, "expiresAt": t.ExpiresAt})
		return w.PutRoleToken(ctx, t)
	})
	return t, err
}

// DeleteRoleToken revokes a token of a role of a project, by its id or its name.
func (c *Catalog) DeleteRoleToken(ctx context.Context, by hub.Caller, project, role, id string) error {
	return c.write(ctx, by, func(ctx context.Context, w *writer) error {
		if _, err := w.roleForToken(ctx, project, role, "delete-token"); err != nil {
			return err
		}
		held, err := w.Tx.RoleTokens(ctx, project)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(held, func(k hub.RoleToken) bool { return k.Role == role && (string(k.ID) == id || k.Name == id) })
		if i < 0 {
			return fault.New(fault.Missing, "role %q of project %q has no token %q", role, project, validation.Shorten(id))
		}
		w.Note("delete-token", access.Projects, project, "role "+role, map[string]any{"id": held[i].ID, "name": held[i].Name}, nil)
		w.Credentials = true
		return w.Tx.DeleteRoleToken(ctx, held[i].ID)
	})
}

// roleForToken returns the project of a role whose tokens the caller may change.
func (w *writer) roleForToken(ctx context.Context, project, role, action string) (hub.Project, error) {
	if !w.Rights.Check(access.Projects, access.Get, project) {
		return hub.Project{}, w.Refuse(access.Projects, action, project, transact.Missing(access.Projects, project))
	}
	if w.By.Via == "token" && action == "create-token" {
		return hub.Project{}, w.Refuse(access.Projects, action, project,
			fault.With(fault.New(fault.Denied, "a token cannot make another token"), "project "+project, "sign in and make it there"))
	}
	p, found, err := w.roleOf(ctx, project, role)
	member := err == nil && slices.ContainsFunc(append([]string{w.By.Username}, w.By.Groups...), func(name string) bool { return slices.Contains(found.Groups, name) })
	if !member {
		if err := w.Need(access.Projects, access.Update, project); err != nil {
			return p, err
		}
	}
	return p, err
}

// RoleOfToken returns the token of a role by its id, if the project still has the
// role. Identity asks. The error is fault.Missing otherwise.
func (c *Catalog) RoleOfToken(ctx context.Context, tenant hub.TenantID, id hub.TokenID) (hub.RoleToken, error) {
	var t hub.RoleToken
	err := c.parts.Service.Store.ReadTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) error {
		var err error
		if t, err = tx.RoleToken(ctx, id); err != nil {
			return err
		}
		r := &reader{&transact.Reader{Tx: tx}}
		_, _, err = r.roleOf(ctx, t.Project, t.Role)
		return err
	})
	return t, err
}
