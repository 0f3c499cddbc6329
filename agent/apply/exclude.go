package apply

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// settleWrites is the longest wait for a write in flight.
const settleWrites = 200 * time.Millisecond

// Reconsider processes every application's state again, because the settings
// have changed: other kinds may be excluded, and every object is compared
// again. A running operation is not affected.
func (e *Engine) Reconsider(ctx context.Context) {
	for _, a := range e.all() {
		a.mu.Lock()
		a.exclusionsChanged, a.settingsChanged = true, true
		a.mu.Unlock()
		a.stateChanged(ctx)
	}
}

// leaveAlone stops managing objects of excluded kinds. What was applied stays
// in the cluster, and stays in memory in case the exclusion ends. The caller
// holds mu.
func (a *app) leaveAlone() {
	again := false
	for _, key := range a.keys() {
		x := a.objects[key]
		switch {
		case !a.e.Excluded(key.Group, key.Kind):
		case x.inflight > 0:
			again = true // its write in flight ends first
		default:
			a.drop(x)
		}
	}
	if again {
		a.exclusionsChanged = true
		a.e.runAfter(settleWrites, func(ctx context.Context) { a.stateChanged(ctx) })
	}
}

// takeBack manages objects again whose kinds were excluded. The caller holds
// mu.
func (a *app) takeBack() {
	for _, r := range a.e.Inventory.Owned(a.id) {
		if a.objects[r.Key] == nil {
			a.adopt(r)
		}
	}
}

// forgetExcluded drops an object that is not desired any more while its kind is
// excluded: it is not deleted, and no deletion is awaited. The caller holds mu.
func (a *app) forgetExcluded(key manifest.Key) {
	if a.e.Excluded(key.Group, key.Kind) {
		a.e.Inventory.Disown(a.id, key)
	}
}

// excludedKinds lists the application's excluded kinds, one sentence each. The
// caller holds mu.
func (a *app) excludedKinds() []string {
	type kind struct{ group, name string }
	count, first := map[kind]int{}, map[kind]manifest.Key{}
	if a.target != nil {
		for _, key := range a.target.excluded {
			k := kind{key.Group, key.Kind}
			if count[k]++; count[k] == 1 || key.Compare(first[k]) < 0 {
				first[k] = key
			}
		}
	}
	var out []string
	for k, n := range count {
		what := first[k].Describe() + " is"
		if n > 1 {
			what = fmt.Sprintf("%d objects of its kind, such as %s, are", n, first[k].Describe())
		}
		out = append(out, what+" neither applied nor compared: the tenant's settings exclude the kind")
	}
	slices.Sort(out)
	return out
}
