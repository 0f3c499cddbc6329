package changes_test

import (
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate/changes"
)

func TestImportedSets(t *testing.T) {
	t.Parallel()
	r := request()
	r.Set.Annotations = map[string]string{hub.ImportedAnnotation: hub.ImportObserve}
	confirmed, observed := there("a", `{}`, nil), there("b", `{}`, nil)
	confirmed.Annotations = map[string]string{hub.ImportedAnnotation: hub.ImportConfirmed}
	observed.Annotations = map[string]string{hub.ImportedAnnotation: hub.ImportObserve}
	r.There, r.Generated = []hub.Application{confirmed, observed}, []changes.Application{want("a", `{}`), want("b", `{}`), want("c", `{}`)}
	d, err := changes.Decide(r)
	if err != nil || len(d.Create) != 1 || len(d.Update) != 2 {
		t.Fatalf("%v %v", summary(d), err)
	}
	t.Run("CLI-13 a set takes imported applications over as they were imported", func(t *testing.T) {
		for _, u := range d.Update {
			if u.Want.Annotations[hub.ImportedAnnotation] != u.Old.Annotations[hub.ImportedAnnotation] {
				t.Errorf("%s: %v, was %v", u.Want.Name, u.Want.Annotations, u.Old.Annotations)
			}
		}
	})
	t.Run("CLI-13 what an imported set makes is observed until it is confirmed", func(t *testing.T) {
		if !d.Create[0].Observed() {
			t.Errorf("%v", d.Create[0].Annotations)
		}
		r.Set.Annotations[hub.ImportedAnnotation] = hub.ImportConfirmed
		d, err := changes.Decide(r)
		if err != nil || d.Create[0].Observed() {
			t.Errorf("%v %v", d.Create, err)
		}
	})
}
