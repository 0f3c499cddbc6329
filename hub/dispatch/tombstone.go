package dispatch

import (
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// diffTombstones returns all tombstones that are open under a new target, and those among
// them that are new: objects of the former target or of what is enforced that
// the complete new snapshot does not have.
func (c *change) diffTombstones(app hub.Application, target hub.Snapshot) (all, opened []hub.Tombstone) {
	former := c.formerSnapshots(app, target)
	if len(former) == 0 && len(c.tombstones[app.ID]) == 0 { // as after most commits
		return nil, nil
	}
	wanted := keysOf(target)
	known := map[manifest.Key]bool{}
	for _, t := range c.tombstones[app.ID] {
		key := keyOfTombstone(t)
		if wanted[key] || t.Cluster != app.Cluster {
			continue
		}
		known[key] = true
		all = append(all, t)
	}
	for _, id := range former {
		for _, o := range c.snaps[id].Objects {
			key := o.Key()
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

// formerSnapshots are those of the former target and of what is enforced that
// list other objects, or in another order.
func (c *change) formerSnapshots(app hub.Application, target hub.Snapshot) []hub.SnapshotID {
	var out []hub.SnapshotID
	for _, id := range []hub.SnapshotID{app.Status.Target, app.Status.Accepted} {
		if !slices.Contains(out, id) && !slices.EqualFunc(c.snaps[id].Objects, target.Objects, sameTombstone) {
			out = append(out, id)
		}
	}
	return out
}

// keysOf are the objects of a snapshot that are no hooks.
func keysOf(s hub.Snapshot) map[manifest.Key]bool {
	out := map[manifest.Key]bool{}
	for _, o := range s.Objects {
		if o.Hook == "" {
			out[o.Key()] = true
		}
	}
	return out
}

// sameTombstone reports whether two objects of snapshots would be buried as one.
func sameTombstone(a, b hub.ObjectRef) bool {
	return a.Name == b.Name && a.Namespace == b.Namespace && a.Kind == b.Kind && a.Group == b.Group && (a.Hook == "") == (b.Hook == "")
}
