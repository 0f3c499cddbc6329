package catalog

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Linked is what links are evaluated for, and the setting that declares them.
type Linked struct {
	View
	Project  *hub.Project // nil: there is none of that name
	Declared string
}

// ApplicationLinks returns an application that the caller may see with what
// declares its links, or with an object those of the object.
func (c *Catalog) ApplicationLinks(ctx context.Context, by hub.Caller, namespace, name string, of *hub.ObjectRef) (Linked, error) {
	var out Linked
	key := settings.ApplicationLinksKey
	if of != nil {
		key = settings.ResourceLinksKey
	}
	err := c.ofApplication(ctx, by, namespace, name, func(ctx context.Context, r *reader, a hub.Application) error {
		views, err := r.views(ctx, []hub.Application{a})
		if err != nil {
			return err
		}
		out = Linked{View: views[0]}
		if of != nil {
			if err := r.inTree(ctx, a, *of); err != nil {
				return err
			}
		}
		project, err := r.Tx.Project(ctx, a.Project)
		if err != nil && fault.KindOf(err) != fault.Missing {
			return err
		}
		if err == nil {
			out.Project = &project
		}
		out.Declared, err = r.declaredLinks(ctx, key)
		return err
	})
	return out, err
}

// ProjectLinks returns a project that the caller may see, with what declares its
// links.
func (c *Catalog) ProjectLinks(ctx context.Context, by hub.Caller, name string) (Linked, error) {
	var out Linked
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		if !r.Rights.Check(access.Projects, access.Get, name) {
			return transact.Missing(access.Projects, name)
		}
		project, err := r.Tx.Project(ctx, name)
		if err != nil {
			return transact.Hide(err, access.Projects, name)
		}
		out = Linked{Project: &project}
		out.Declared, err = r.declaredLinks(ctx, settings.ProjectLinksKey)
		return err
	})
	return out, err
}

func (r *reader) declaredLinks(ctx context.Context, key string) (string, error) {
	values, err := r.SettingValues(ctx, hub.SettingsMap, []string{key})
	return values[key], err
}
