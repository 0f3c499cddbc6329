package catalog

import (
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

func TestRolledOut(t *testing.T) {
	t.Parallel()
	t.Run("APRG-05 an imported application is not synced by a rollout before the import is confirmed", func(t *testing.T) {
		t.Parallel()
		r := &reconciling{now: time.Now()}
		for value, want := range map[string]string{hub.ImportObserve: observedUntilConfirmed, hub.ImportConfirmed: ""} {
			a := hub.Application{Meta: hub.Meta{Annotations: map[string]string{hub.ImportedAnnotation: value}}}
			if got := r.rolledOut(a, nil); got.Broken != want {
				t.Errorf("%s: %q", value, got.Broken)
			}
		}
	})
}
