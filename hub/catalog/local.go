package catalog

import (
	"context"
	"slices"
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

// PatchLive checks whether one live object of an application may be changed
// (RBAC-06), and says where it is.
func (c *Catalog) PatchLive(ctx context.Context, by hub.Caller, namespace, name string, o hub.ObjectRef, p hub.ObjectPatch) (View, error) {
	var v View
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		action := strings.Join([]string{access.Update, o.Group, o.Kind, o.Namespace, o.Name}, "/")
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
		w.Note(action, access.Applications, objectOf(a), "", nil, map[string]any{"object": kindAndName(o), "type": p.Type, "dryRun": p.DryRun}) // the patch may have secrets
		return nil
	})
	return v, err
}

// EventTarget says where the events of an application are, or those of one of
// its objects: its cluster, and the namespaces of its objects.
func (c *Catalog) EventTarget(ctx context.Context, by hub.Caller, namespace, name string, of hub.ObjectRef) (v View, namespaces []string, err error) {
	var want *hub.ObjectRef
	if of.Kind != "" {
		want = &of
	}
	if v, err = c.LiveTarget(ctx, by, namespace, name, want); err != nil || want != nil {
		return v, nil, err
	}
	err = c.read(ctx, by, func(ctx context.Context, r *reader) error {
		all, err := r.Resources(ctx, v.ID)
		for _, o := range all {
			if !o.Orphan && !slices.Contains(namespaces, o.Namespace) {
				namespaces = append(namespaces, o.Namespace)
			}
		}
		return err
	})
	return v, namespaces, err
}
