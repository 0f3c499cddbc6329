package agenttest_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/encryption"
)

// tombstoneList seals a list of tombstones, which the hub does not have yet.
func tombstoneList(t *testing.T, tombstones ...*linkv1.Tombstone) (digest, sealed []byte) {
	t.Helper()
	text, err := proto.Marshal(&linkv1.TombstoneList{Tombstones: tombstones})
	if err != nil {
		t.Fatal(err)
	}
	name := encryption.Digest(digestKey(), text)
	if sealed, err = encryption.SealBlob(objectKey(), name, text); err != nil {
		t.Fatal(err)
	}
	return name[:], sealed
}

func TestTombstonesInLists(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	a.deploy(configMap("web", "red") + configMap("one", "red") + configMap("two", "red") + configMap("three", "red"))
	a.synced()
	tombstone := func(name string) *linkv1.Tombstone {
		return &linkv1.Tombstone{Version: "v1", Kind: "ConfigMap", Namespace: w.namespace, Name: name}
	}
	lists := map[string][]byte{}
	var digests [][]byte
	for _, list := range [][]*linkv1.Tombstone{{tombstone("one"), tombstone("two")}, {tombstone("three")}} {
		digest, sealed := tombstoneList(t, list...)
		digests, lists[string(digest)] = append(digests, digest), sealed
	}
	// row is a state with lists and, for older agents, the first tombstone alone.
	row := func() *linkv1.Row {
		r := a.stateRow()
		var state linkv1.AppState
		if err := proto.Unmarshal(r.GetBody(), &state); err != nil {
			t.Fatal(err)
		}
		state.Tombstones, state.TombstoneLists = []*linkv1.Tombstone{tombstone("one")}, digests
		body, err := proto.Marshal(&state)
		if err != nil {
			t.Fatal(err)
		}
		r.Body = body
		return r
	}
	a.target = a.snapshot(configMap("web", "blue"))
	a.accepted = a.target
	state := row()
	id, op := a.operation(nil)
	t.Run("INV-3 the agent takes no action on a state whose lists are not there yet", func(t *testing.T) {
		w.append(state, op)
		w.await("the application says that they are not there", func() bool { return w.apps[a.id].GetError() != "" })
		for _, name := range []string{"one", "two", "three"} {
			w.get(configMaps, name)
		}
		if err := data("color", "red")(w.get(configMaps, "web")); err != nil {
			t.Error(err)
		}
	})
	t.Run("INV-3 after a restart neither", func(t *testing.T) {
		w.stop()
		w.run()
		w.get(configMaps, "one")
	})
	t.Run("SYNC-11 once they are, all of them are pruned and closed", func(t *testing.T) {
		w.change(func() {
			for digest, sealed := range lists {
				w.blobs[digest] = sealed
			}
		})
		report := w.ended(id, "Succeeded")
		for _, name := range []string{"one", "two", "three"} {
			w.waitDeleted(configMaps, name)
			if got := statusOf(report, name); got != "Pruned" {
				t.Errorf("%s is %s", name, got)
			}
			w.await("its tombstone is closed", func() bool { return contains(w.closed, nameOf("ConfigMap", w.namespace, name)) })
		}
		if err := data("color", "blue")(w.get(configMaps, "web")); err != nil {
			t.Error(err)
		}
	})
}
