package apply

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/agent/tracking"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/hashchain"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// After a restart watches may show objects before the state of their
// application is resolved, which takes as long as its bodies have to be
// fetched. What was taken for somebody else's would never be pruned.
func TestOwnObjectsBeforeTheStateIsResolved(t *testing.T) {
	t.Parallel()
	e, store := engineWithInventory(t)
	body, err := proto.Marshal(&linkv1.AppState{Generation: 1, Name: "shop", AppNamespace: "argocd"})
	if err != nil {
		t.Fatal(err)
	}
	row := &linkv1.Row{Seq: 1, Kind: linkv1.RowKind_ROW_KIND_STATE, AppId: "a", Body: body, Chain: hashchain.Next(hashchain.First("one"), 1, int32(linkv1.RowKind_ROW_KIND_STATE), "a", body)}
	if _, _, err := store.Stage(&linkv1.Batch{Incarnation: "one", Rows: []*linkv1.Row{row}}); err != nil {
		t.Fatal(err)
	}
	a := e.app("a") // as after a restart
	for title, c := range map[string]struct {
		app     string
		foreign bool
	}{
		"SYNC-11 its own object is no other's": {"argocd_shop", false},
		"TRK-07 an object of another one is":   {"argocd_other", true},
	} {
		t.Run(title, func(t *testing.T) {
			o := &manifest.Object{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{
				"name": "x", "namespace": "shop",
				"annotations": map[string]any{tracking.Annotation: tracking.ID{App: c.app, Key: manifest.Key{Kind: "ConfigMap", Namespace: "shop", Name: "x"}}.String()},
			}}}
			a.mu.Lock()
			defer a.mu.Unlock()
			if m := a.foreign(o); (m != nil) != c.foreign {
				t.Errorf("its mark is %+v", m)
			}
		})
	}
}
