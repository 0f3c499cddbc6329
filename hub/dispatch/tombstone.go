package dispatch

import (
	"slices"

	"github.com/capstan-cd/capstan/hub"
)

type tombstoneKey struct{ group, kind, namespace, name string }

// diffTombstones returns all tombstones that are open under a new target, and those among
// them that are new: objects of the former target or of what is enforced that
// the complete new snapshot does not have.
func (c *change) diffTombstones(app hub.Application, target hub.Snapshot) (all, opened []hub.Tombstone) {
	var former []hub.SnapshotID // that list other objects, or in another order
	for _, id := range []hub.SnapshotID{app.Status.Target, app.Status.Accepted} {
		if !slices.Contains(former, id) && !slices.EqualFunc(c.snaps[id].Objects, target.Objects, sameTombstone) {
			former = append(former, id)
		}
	}
	if len(former) == 0 && len(c.tombstones[app.ID]) == 0 { // as after most commits
		return nil, nil
	}
	wanted := map[tombstoneKey]bool{}
	for _, o := range target.Objects {
		if o.Hook == "" {
			wanted[tombstoneKey{o.Group, o.Kind, o.Namespace, o.Name}] = true
		}
	}
	known := map[tombstoneKey]bool{}
	for _, t := range c.tombstones[app.ID] {
		key := tombstoneKey{t.Group, t.Kind, t.Namespace, t.Name}
		if wanted[key] || t.Cluster != app.Cluster {
			continue
		}
		known[key] = true
		all = append(all, t)
	}
	for _, id := range former {
		for _, o := range c.snaps[id].Objects {
			key := tombstoneKey{o.Group, o.Kind, o.Namespace, o.Name}
			if o.Hook != "" || wanted[key] || known[key] {
				continue
			}
			known[key] = true
			opened = append(opened, hub.Tombstone{
				Application: app.ID, Cluster: app.Cluster, Group: o.Group, Version: o.Version, Kind: o.Kind,
				Namespace: o.Namespace, Name: o.Name, Wave: o.Wave,
			})
		}
	}
	return append(all, opened...), opened
}

// sameTombstone reports whether two objects of snapshots would be buried as one.
func sameTombstone(a, b hub.ObjectRef) bool {
	return a.Name == b.Name && a.Namespace == b.Namespace && a.Kind == b.Kind && a.Group == b.Group && (a.Hook == "") == (b.Hook == "")
}
