package apply

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/agent/inventory"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/hashchain"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func state(t *testing.T, store *inventory.Store, rows ...*linkv1.AppState) {
	t.Helper()
	b := &linkv1.Batch{Incarnation: "one"}
	last := hashchain.First("one")
	for i, s := range rows {
		body, err := proto.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		row := &linkv1.Row{Seq: uint64(i + 1), Kind: linkv1.RowKind_ROW_KIND_STATE, AppId: s.GetName(), Body: body}
		row.Chain = hashchain.Next(last, row.GetSeq(), int32(row.GetKind()), row.GetAppId(), body)
		last = row.GetChain()
		b.Rows = append(b.Rows, row)
	}
	if _, _, err := store.Stage(b); err != nil {
		t.Fatal(err)
	}
}

// Records that an earlier agent has stored mean what they meant. Two for one
// object cannot both count.
func TestStoredOwners(t *testing.T) {
	t.Parallel()
	e, store := engineWithInventory(t)
	key := manifest.Key{Kind: "ConfigMap", Namespace: "shop", Name: "x"}
	state(t, store, &linkv1.AppState{Generation: 1, Name: "a", AppNamespace: "argocd"}, &linkv1.AppState{Generation: 1, Name: "b", AppNamespace: "argocd"})
	for _, app := range []string{"a", "b"} {
		if _, err := store.Own(inventory.Record{App: app, Key: key, Version: "v1", Owned: diff.Owned{Manager: "capstan", UID: "u"}}); err != nil {
			t.Fatal(err)
		}
	}
	a, b := e.app("a"), e.app("b")
	t.Run("INV-3 TRK-07 of two stored records of one object only one is used", func(t *testing.T) {
		if e.owner(key) != "a" || len(store.Owned("b")) != 0 || b.objects[key] != nil {
			t.Errorf("owner %q, b has %v", e.owner(key), store.Owned("b"))
		}
	})
	t.Run("TRK-07 another application does not acquire it", func(t *testing.T) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.state = &linkv1.AppState{}
		if err := b.acquire(key, true); fault.KindOf(err) != fault.Conflict {
			t.Errorf("error %v", err)
		}
	})
	t.Run("SEC-D2 an object that the project denies is not acquired, and stays free for others", func(t *testing.T) {
		free := manifest.Key{Kind: "ConfigMap", Namespace: "shop", Name: "free"}
		b.mu.Lock()
		b.state = &linkv1.AppState{Policy: &linkv1.Policy{Limits: &linkv1.Limits{Namespaces: []string{"other"}}}}
		if err := b.acquire(free, true); fault.KindOf(err) != fault.Denied {
			t.Errorf("error %v", err)
		}
		b.mu.Unlock()
		a.mu.Lock()
		defer a.mu.Unlock()
		a.state = &linkv1.AppState{}
		if err := a.acquire(free, true); err != nil || e.owner(free) != "a" {
			t.Errorf("owner %q: %v", e.owner(free), err)
		}
	})
	t.Run("INV-9 the state of an unused object is removed", func(t *testing.T) {
		other := manifest.Key{Kind: "ConfigMap", Namespace: "shop", Name: "other"}
		x, _ := e.view(b, other, kindOf(other, "v1"), true)
		e.unview(x)
		if e.isTracked(other) {
			t.Error("it is still there")
		}
	})
}
