package apply

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// settleWrites is how long a write that is under way may be waited for.
const settleWrites = 200 * time.Millisecond

// Reconsider takes every application's state again, because the settings have
// changed: other kinds may be excluded, and every object is judged anew. An
// operation that is under way ends as it began.
func (e *Engine) Reconsider(ctx context.Context) {
	for _, a := range e.all() {
		a.mu.Lock()
		a.exclusionsChanged, a.settingsChanged = true, true
		a.mu.Unlock()
		a.stateChanged(ctx)
	}
}

// leaveAlone stops managing objects of kinds that are excluded. What was
// applied stays in the cluster, and is remembered for the case that its kind
// is excluded no more. The caller holds mu.
func (a *app) leaveAlone() {
	again := false
	for _, key := range a.keys() {
		x := a.objects[key]
		switch {
		case !a.e.Excluded(key.Group, key.Kind):
		case x.inflight > 0:
			again = true // its write is answered first
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

// forgetExcluded forgets an object that is wanted no more while its kind is
// excluded: nobody deletes it, and nobody waits for its deletion. The caller
// holds mu.
func (a *app) forgetExcluded(key manifest.Key) {
	if a.e.Excluded(key.Group, key.Kind) {
		a.e.Inventory.Disown(a.id, key)
	}
}

// excludedKinds says what of the application is left alone, one sentence for
// each kind. The caller holds mu.
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
