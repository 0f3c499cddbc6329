package catalog

import (
	"context"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/shared/fault"
)

// DeleteLive checks whether one live object of an application may be deleted
// (DEL-07), records it, and returns the cluster whose agent does it. The right
// is fine-grained: delete/group/kind/namespace/name.
func (c *Catalog) DeleteLive(ctx context.Context, by hub.Caller, namespace, name string, o hub.ObjectRef, how hub.ObjectDeletion) (View, error) {
	var v View
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		action := strings.Join([]string{access.Delete, o.Group, o.Kind, o.Namespace, o.Name}, "/")
		a, err := w.forWrite(ctx, namespace, name, action)
		if err != nil {
			return err
		}
		views, err := w.views(ctx, []hub.Application{a})
		if err != nil {
			return err
		}
		if v = views[0]; v.On == nil {
			return fault.With(fault.New(fault.Conflict, "its destination stands for no cluster"), "application "+title(namespace, name), "its conditions say why")
		}
		if err := w.inTree(ctx, a, o); err != nil {
			return err
		}
		w.Note(action, access.Applications, objectOf(a), "", nil, how)
		return nil
	})
	return v, err
}
