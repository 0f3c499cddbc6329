package dispatch

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
	"github.com/capstan-cd/capstan/shared/selector"
)

// selected refuses a selective sync (SYNC-03) that names what the application
// does not have: it would do less than its caller believes, or leave out less,
// and still succeed. own is what the operation applies.
func (c *change) selected(ctx context.Context, app hub.Application, spec hub.ApplicationSpec, op *hub.Operation, own hub.Snapshot) error {
	if len(op.Options.Resources) == 0 {
		return nil
	}
	about := "application " + app.Name
	selectors, err := selector.Parse(op.Options.Resources)
	if err != nil {
		return fault.With(err, about, "")
	}
	if err := c.need(ctx, []hub.SnapshotID{app.Status.Target, app.Status.Accepted}); err != nil {
		return err
	}
	objects := c.selectable(app, own)
	for _, s := range selectors {
		if !slices.ContainsFunc(objects, func(k manifest.Key) bool { return matches(s, k, spec.Destination.Namespace) }) {
			return fault.With(nothingLike(s, own, objects, spec.Destination.Namespace), about, "correct the resource, or leave it out")
		}
	}
	selects := func(k manifest.Key) bool {
		k.Namespace = in(k, spec.Destination.Namespace)
		return selector.Selects(selectors, k)
	}
	if !slices.ContainsFunc(objects, selects) {
		return fault.With(fault.New(fault.Invalid, "the resources leave out everything that they name"), about, "take one of those with ! away")
	}
	return nil
}

// selectable are the objects that an operation could apply or prune. Hooks do
// not run in a sync of single objects (HOOK-15).
func (c *change) selectable(app hub.Application, own hub.Snapshot) []manifest.Key {
	tombstones, _ := c.diffTombstones(app, own)
	seen := map[manifest.Key]bool{}
	var out []manifest.Key
	add := func(k manifest.Key) {
		if !seen[k] {
			seen[k] = true
			out = append(out, k)
		}
	}
	for _, o := range own.Objects {
		if o.Hook == "" {
			add(o.Key())
		}
	}
	for _, t := range tombstones {
		add(keyOfTombstone(t))
	}
	return out
}

// matches asks for an object as it is written and as it is in its namespace:
// the hub does not know which kinds have one.
func matches(s selector.Selector, k manifest.Key, namespace string) bool {
	if s.Matches(k) {
		return true
	}
	k.Namespace = in(k, namespace)
	return s.Matches(k)
}

func keyOfTombstone(t hub.Tombstone) manifest.Key {
	return manifest.Key{Group: t.Group, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name}
}

func in(k manifest.Key, namespace string) string {
	if k.Namespace == "" {
		return namespace
	}
	return k.Namespace
}

// nothingLike says that a selector matches nothing, and what it may have meant.
func nothingLike(s selector.Selector, own hub.Snapshot, objects []manifest.Key, namespace string) error {
	for _, o := range own.Objects {
		if o.Hook != "" && matches(s, o.Key(), namespace) {
			return fault.New(fault.Invalid, "%q is a hook, and a sync of single resources runs none", s.Text)
		}
	}
	if len(objects) == 0 {
		return fault.New(fault.Invalid, "it has no resource %q: it has none at all", s.Text)
	}
	var near []string
	for _, k := range s.Nearest(objects) {
		name := k.Name
		if k.Namespace != "" {
			name = k.Namespace + "/" + name
		}
		near = append(near, fmt.Sprintf("%s:%s:%s", k.Group, k.Kind, name))
	}
	return fault.New(fault.Invalid, "it has no resource %q; the nearest of %d is %s", s.Text, len(objects), strings.Join(near, ", then "))
}
