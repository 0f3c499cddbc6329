package dispatch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/seal"
)

const (
	// A state row lists this many tombstones itself, and no more bytes of them.
	// If there are more, all of them travel as blobs.
	maxInlineStones     = 500
	maxInlineStoneBytes = 128 << 10
	// stoneListBytes is how large a list may be: it must come through in one
	// message, however badly it compresses.
	stoneListBytes = 512 << 10
)

// A stoneList is a part of the tombstones of a state that has too many for its
// row.
type stoneList struct {
	digest hub.Digest
	plain  []byte
}

// engrave gives the tombstones that a state row lists itself: all of them, or
// those that are to go first and, with them, the lists of all.
func engrave(stones []hub.Tombstone, keys func() (hub.TenantKeys, error)) (inline []*linkv1.Tombstone, lists []stoneList, err error) {
	slices.SortFunc(stones, compareStones)
	all := tombstonesOf(stones)
	if fitting(all) == len(all) {
		return all, nil, nil
	}
	k, err := keys()
	if err != nil {
		return nil, nil, err
	}
	for rest := all; len(rest) > 0; {
		n, size := 0, 0
		for n < len(rest) && size < stoneListBytes {
			size += sizeOf(rest[n])
			n++
		}
		plain, err := marshal(&linkv1.TombstoneList{Tombstones: rest[:n]})
		if err != nil {
			return nil, nil, err
		}
		lists = append(lists, stoneList{hub.Digest(seal.Digest(k.Digest, plain)), plain})
		rest = rest[n:]
	}
	first := slices.Clone(all)
	slices.SortStableFunc(first, compareTurns)
	return first[:fitting(first)], lists, nil
}

// fitting is how many tombstones from the first one on a row may list itself.
func fitting(stones []*linkv1.Tombstone) int {
	size := 0
	for n, t := range stones {
		if size += sizeOf(t); n == maxInlineStones || size > maxInlineStoneBytes {
			return n
		}
	}
	return len(stones)
}

func sizeOf(t *linkv1.Tombstone) int { return proto.Size(t) + 4 }

// crowded says whether tombstones are too many for a row.
func crowded(stones []hub.Tombstone) bool {
	return fitting(tombstonesOf(stones)) < len(stones)
}

// sealed gives lists as the store keeps them.
func sealLists(k hub.TenantKeys, lists []stoneList) ([]hub.SealedObject, error) {
	out := make([]hub.SealedObject, len(lists))
	for i, l := range lists {
		body, err := seal.SealBlob(k.Object, l.digest, l.plain)
		if err != nil {
			return nil, fmt.Errorf("seal a list of tombstones: %w", err)
		}
		out[i] = hub.SealedObject{Digest: l.digest, Sealed: body, Size: len(l.plain)}
	}
	return out, nil
}

func tombstonesOf(stones []hub.Tombstone) []*linkv1.Tombstone {
	out := make([]*linkv1.Tombstone, len(stones))
	for i, t := range stones {
		out[i] = &linkv1.Tombstone{
			Group: t.Group, Version: t.Version, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name,
			Since: uint64(t.Since), Wave: t.Wave,
		}
	}
	return out
}

func compareStones(a, b hub.Tombstone) int {
	return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Kind, b.Kind),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// compareTurns puts objects into the order in which they are deleted: higher
// waves first, and what others live in last.
func compareTurns(a, b *linkv1.Tombstone) int {
	return cmp.Or(cmp.Compare(b.GetWave(), a.GetWave()), cmp.Compare(holds(a), holds(b)))
}

func holds(t *linkv1.Tombstone) int {
	switch t.GetKind() {
	case "Namespace", "CustomResourceDefinition":
		return 1
	}
	return 0
}
