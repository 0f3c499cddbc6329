package changes_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate/changes"
)

// Whatever is there and whatever a generator returns, nothing is deleted that is
// not the set's, that it still wants, or that needs consent.
func TestNothingIsDeletedWithoutProof(t *testing.T) {
	t.Parallel()
	t.Run("INV-3 FT-G3 no result of a generator deletes more than the limit, nor all", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			r := request()
			all := rapid.IntRange(0, 60).Draw(t, "applications")
			mineOnes := 0
			for i := range all {
				owner := rapid.SampledFrom([]*hub.ApplicationKey{mine, mine, mine, theirs, nil}).Draw(t, "owner")
				r.There = append(r.There, there(fmt.Sprintf("app-%d", i), `{}`, owner))
				if owner == mine {
					mineOnes++
				}
				switch rapid.IntRange(0, 9).Draw(t, "fate") {
				case 0, 1, 2, 3, 4:
					r.Generated = append(r.Generated, want(fmt.Sprintf("app-%d", i), `{}`))
				case 5:
					r.Invalid = append(r.Invalid, fmt.Sprintf("app-%d", i))
				}
			}
			if rapid.Bool().Draw(t, "nothing") {
				r.Generated = nil
			}
			r.Policy = rapid.SampledFrom([]changes.Policy{{Update: true, Delete: true}, {Update: true}, {Delete: true}, {}}).Draw(t, "policy")
			r.Most = rapid.SampledFrom([]int{0, 5, 1000}).Draw(t, "most")
			if rapid.Bool().Draw(t, "held before") {
				r.Set.Status.Held = &hub.HeldDeletion{Applications: []string{"argocd/app-0"}}
			}
			d, err := changes.Decide(r)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case len(d.Delete) == 0:
				return
			case !r.Policy.Delete, d.Truncated > 0, d.Held != nil:
				t.Fatalf("%d are deleted", len(d.Delete))
			case len(d.Delete) > max(5, mineOnes*20/100), len(d.Delete) == mineOnes:
				t.Fatalf("%d of %d are deleted without consent", len(d.Delete), mineOnes)
			}
			for _, a := range d.Delete {
				wanted := slices.ContainsFunc(r.Generated, func(g changes.Application) bool { return g.Name == a.Name })
				if a.Set != mine || wanted || slices.Contains(r.Invalid, a.Name) {
					t.Fatalf("%s is deleted", a.Name)
				}
			}
		})
	})
}
