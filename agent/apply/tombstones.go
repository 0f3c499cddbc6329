package apply

import (
	"context"

	"google.golang.org/protobuf/proto"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// tombstoneIndex contains the open tombstones of a state, inline or from lists.
type tombstoneIndex struct {
	all []*linkv1.Tombstone
	of  map[manifest.Key][]*linkv1.Tombstone // by key without namespace
}

func tombstoneKey(group, kind, name string) manifest.Key {
	return manifest.Key{Group: group, Kind: kind, Name: name}
}

func newTombstoneIndex(all []*linkv1.Tombstone) tombstoneIndex {
	g := tombstoneIndex{all, make(map[manifest.Key][]*linkv1.Tombstone, len(all))}
	for _, t := range all {
		at := tombstoneKey(t.GetGroup(), t.GetKind(), t.GetName())
		g.of[at] = append(g.of[at], t)
	}
	return g
}

// loadTombstones returns all tombstones of a state. If they are in lists, the
// state contains some of them inline, for agents that do not support lists.
func (e *Engine) loadTombstones(ctx context.Context, state *linkv1.AppState) (tombstoneIndex, error) {
	lists := state.GetTombstoneLists()
	if len(lists) == 0 {
		return newTombstoneIndex(state.GetTombstones()), nil
	}
	plain, err := e.blobs(ctx, lists)
	if err != nil {
		return tombstoneIndex{}, err
	}
	var all []*linkv1.Tombstone
	for _, text := range plain {
		var list linkv1.TombstoneList
		if err := proto.Unmarshal(text, &list); err != nil {
			return tombstoneIndex{}, fault.Wrap(fault.Invalid, err, "the hub sent a list of objects to delete that is not readable")
		}
		all = append(all, list.GetTombstones()...)
	}
	return newTombstoneIndex(all), nil
}
