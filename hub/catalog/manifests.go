package catalog

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/encryption"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// maskPurpose derives the key under which Secret values of one cluster are
// hashed; the agent has the same one, so that hub and agent show equal values
// equally.
const maskPurpose = "capstan mask key v1"

// A Manifests is what an application is to consist of.
type Manifests struct {
	Application hub.Application
	Revision    string
	Objects     []json.RawMessage // Secret values masked
}

// Manifests returns the desired objects of an application, Secret values
// masked: those of its target, or of an entry of its history.
func (c *Catalog) Manifests(ctx context.Context, by hub.Caller, namespace, name string, entry int64) (Manifests, error) {
	var out Manifests
	var snapshot hub.Snapshot
	var sealed []hub.SealedObject
	var cluster hub.ClusterID
	err := c.ofApplication(ctx, by, namespace, name, func(ctx context.Context, r *reader, a hub.Application) error {
		id := a.Status.Target
		out.Application, out.Revision, cluster = a, a.Status.Revision, a.Cluster
		if entry != 0 {
			if err := r.remembered(ctx, a, entry); err != nil {
				return err
			}
			h, err := r.Tx.HistoryEntry(ctx, a.ID, entry)
			if err != nil {
				return err
			}
			id, out.Revision = h.Snapshot, h.Revision
		}
		if id == "" {
			return fault.With(fault.New(fault.Missing, "nothing has been rendered for it yet"), "application "+title(namespace, name), "its conditions say why")
		}
		var err error
		if snapshot, err = r.Snapshot(ctx, id); err != nil {
			return err
		}
		digests := make([]hub.Digest, len(snapshot.Objects))
		for i, o := range snapshot.Objects {
			digests[i] = o.Digest
		}
		sealed, err = r.Objects(ctx, unique(digests))
		return err
	})
	if err != nil {
		return Manifests{}, err
	}
	out.Objects, err = c.open(ctx, by.Tenant, cluster, snapshot, sealed)
	return out, err
}

// Uploaded returns the objects of an upload that render makes of it, masked.
func (c *Catalog) Uploaded(ctx context.Context, by hub.Caller, namespace, name string, render func(ctx context.Context, app hub.ApplicationID) (hub.Preview, error)) (out Manifests, err error) {
	if err := c.mayUpload(ctx, by, namespace, name); err != nil {
		return out, err
	}
	if err := c.ofApplication(ctx, by, namespace, name, func(_ context.Context, _ *reader, a hub.Application) error {
		out.Application = a
		return nil
	}); err != nil {
		return out, err
	}
	made, err := render(ctx, out.Application.ID)
	if err != nil {
		return out, fault.With(err, "application "+title(namespace, name), "")
	}
	_, mask, err := c.masking(ctx, by.Tenant, out.Application.Cluster)
	if err != nil {
		return out, err
	}
	for i, body := range made.Bodies {
		text, err := mask.text(body)
		if err != nil {
			return out, fmt.Errorf("mask %s %q of an upload: %w", made.Objects[i].Kind, made.Objects[i].Name, err)
		}
		out.Objects = append(out.Objects, text)
	}
	if len(made.Revisions) > 0 {
		out.Revision = made.Revisions[0]
	}
	return out, nil
}

// A masking hides what is secret in desired objects, as the agent of their
// cluster hides it in live ones.
type masking struct {
	key         [32]byte
	annotations []string // of Secrets, that the tenant's settings name
}

// masking returns that of a cluster, and the keys of the tenant.
func (c *Catalog) masking(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID) (keys hub.TenantKeys, m masking, err error) {
	if keys, err = c.parts.Service.Store.Keys(ctx, tenant); err != nil {
		return keys, m, err
	}
	m.key = encryption.Derive(keys.Digest, maskPurpose+string(cluster))
	return keys, m, c.parts.Service.Store.ReadTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) error {
		values, err := tx.SettingValues(ctx, hub.SettingsMap, []string{settings.MaskedAnnotationsKey})
		m.annotations = settings.MaskedAnnotations(values)
		return err
	})
}

// text is a canonical object without its secrets.
func (m *masking) text(plain []byte) (json.RawMessage, error) {
	object, err := manifest.FromCanonical(plain)
	if err != nil {
		return nil, err
	}
	return manifest.Canonical(manifest.Mask(object, m.key[:], m.annotations...))
}

// open returns the objects of a snapshot in its order, masked.
func (c *Catalog) open(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, s hub.Snapshot, sealed []hub.SealedObject) ([]json.RawMessage, error) {
	keys, mask, err := c.masking(ctx, tenant, cluster)
	if err != nil {
		return nil, err
	}
	bodies := make(map[hub.Digest][]byte, len(sealed))
	for _, o := range sealed {
		bodies[o.Digest] = o.Sealed
	}
	out := make([]json.RawMessage, 0, len(s.Objects))
	for _, ref := range s.Objects {
		body, ok := bodies[ref.Digest]
		if !ok {
			return nil, fmt.Errorf("object %s %q of snapshot %s is not stored", ref.Kind, ref.Name, s.ID)
		}
		plain, err := encryption.OpenBlob(keys.Object, ref.Digest, body)
		if err != nil {
			return nil, fmt.Errorf("open %s %q of snapshot %s: %w", ref.Kind, ref.Name, s.ID, err)
		}
		text, err := mask.text(plain)
		if err != nil {
			return nil, fmt.Errorf("mask %s %q of snapshot %s: %w", ref.Kind, ref.Name, s.ID, err)
		}
		out = append(out, text)
	}
	return out, nil
}

// LiveTarget says where the live objects of an application are, after the
// checks: the agent to ask, and whether the object asked for is one of the
// application's tree. A caller reads nothing of a cluster but what belongs to
// an application that they may see.
func (c *Catalog) LiveTarget(ctx context.Context, by hub.Caller, namespace, name string, want *hub.ObjectRef) (View, error) {
	var v View
	err := c.ofApplication(ctx, by, namespace, name, func(ctx context.Context, r *reader, a hub.Application) error {
		views, err := r.views(ctx, []hub.Application{a})
		if err != nil {
			return err
		}
		v = views[0]
		if v.On == nil {
			return fault.With(fault.New(fault.Conflict, "its destination stands for no cluster"), "application "+title(namespace, name), "its conditions say why")
		}
		if want == nil {
			return nil
		}
		return r.inTree(ctx, a, *want)
	})
	return v, err
}

func (r *reader) inTree(ctx context.Context, a hub.Application, want hub.ObjectRef) error {
	nodes, err := r.Resources(ctx, a.ID)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if n.Group == want.Group && n.Kind == want.Kind && n.Namespace == want.Namespace && n.Name == want.Name {
			return nil
		}
	}
	return fault.New(fault.Missing, "application %q has no %s %q", title(a.Namespace, a.Name), want.Kind, want.Name)
}
