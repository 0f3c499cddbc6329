package wave

import (
	"slices"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// BuildDelete plans the deletion of a whole application (DEL-02): PreDelete
// hooks, then its objects in reverse waves, each wave waited for until it is
// gone, then PostDelete hooks. A pre-flight checks the hooks before anything
// changes. hooks are the manifests that have hooks; objects is everything that
// the application owns in the cluster.
// CustomResourceDefinitions, and what Delete=false or Helm's resource policy
// protects, are never deleted, only reported (DEL-03).
func BuildDelete(hooks, objects []Object, o Options) Plan {
	b := &builder{options: o, plan: Plan{Operation: o.Operation, DryRun: o.DryRun, deletion: true}}
	names := make(map[manifest.Key]int)
	for _, h := range hooks {
		for _, phase := range [...]Phase{PreDelete, PostDelete} {
			if !o.SkipHooks && slices.Contains(h.Hooks, string(phase)) {
				b.items = append(b.items, b.hook(h, phase, names))
			}
		}
	}
	for _, obj := range objects {
		it := b.deletion(obj)
		if it.Keep != "" {
			b.plan.Skipped = append(b.plan.Skipped, it)
			continue
		}
		if it.Confirm && b.plan.Approve == "" {
			b.plan.Approve = it.Key.Describe() + " asks for it with Delete=confirm"
		}
		b.items = append(b.items, it)
	}
	b.plan.Steps, _ = b.steps()
	b.plan.Check = b.plan.hooks() // a PostDelete hook that is refused must not end half a deletion
	return b.plan
}

// deletion makes the item that deletes an object, or that reports why it is kept.
func (b *builder) deletion(o Object) Item {
	it := b.item(o, Delete)
	it.Prune, it.Wave = true, mirrored(o.Wave)
	it.Keep, it.Confirm = b.reasonToKeep(it, "Delete")
	if it.Key.Kind == "CustomResourceDefinition" && it.Keep == "" {
		it.Keep = "kept: CustomResourceDefinitions are never deleted with an application"
	}
	return it
}

// mirrored inverts a wave; the lowest number has no opposite and becomes the
// highest.
func mirrored(w int32) int32 {
	const lowest = -1 << 31
	if w == lowest {
		return -(lowest + 1)
	}
	return -w
}
