package dispatch

import "github.com/capstan-cd/capstan/hub"

type stoneKey struct{ group, kind, namespace, name string }

// bury gives all tombstones that are open under a new target, and those among
// them that are new: objects of the former target or of what is enforced that
// the complete new snapshot does not have.
func (c *change) bury(app hub.Application, target hub.Snapshot) (all, opened []hub.Tombstone) {
	wanted := map[stoneKey]bool{}
	for _, o := range target.Objects {
		if o.Hook == "" {
			wanted[stoneKey{o.Group, o.Kind, o.Namespace, o.Name}] = true
		}
	}
	known := map[stoneKey]bool{}
	for _, t := range c.stones[app.ID] {
		key := stoneKey{t.Group, t.Kind, t.Namespace, t.Name}
		if wanted[key] || t.Cluster != app.Cluster {
			continue
		}
		known[key] = true
		all = append(all, t)
	}
	for _, id := range []hub.SnapshotID{app.Status.Target, app.Status.Accepted} {
		for _, o := range c.snaps[id].Objects {
			key := stoneKey{o.Group, o.Kind, o.Namespace, o.Name}
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
