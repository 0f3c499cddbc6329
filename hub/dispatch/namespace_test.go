package dispatch_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStateHasNamespaceMetadata(t *testing.T) {
	t.Parallel()
	t.Run("SYNC-27 the agent compares the labels and annotations of the namespace", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, withPolicy(`"managedNamespaceMetadata":{"labels":{"team":"shop"},"annotations":{"note":"hello"}}`))
		w.Render("r1", "a")
		p := w.State().GetPolicy()
		if !cmp.Equal(p.GetNamespaceLabels(), map[string]string{"team": "shop"}) || !cmp.Equal(p.GetNamespaceAnnotations(), map[string]string{"note": "hello"}) {
			t.Errorf("labels %v, annotations %v", p.GetNamespaceLabels(), p.GetNamespaceAnnotations())
		}
	})
}
