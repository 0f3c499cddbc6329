package wire

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/encryption"
)

const (
	// A state row lists this many tombstones itself, and no more bytes of them.
	// If there are more, all of them travel as blobs.
	maxInlineTombstones     = 500
	maxInlineTombstoneBytes = 128 << 10
	// tombstoneListBytes is how large a list may be: it must come through in one
	// message, however badly it compresses.
	tombstoneListBytes = 512 << 10
)

// A TombstoneList is a part of the tombstones of a state that has too many for its
// row.
type TombstoneList struct {
	Digest hub.Digest
	plain  []byte
}

// splitTombstones returns the tombstones that a state row lists itself: all of them, or
// those that are to go first and, with them, the lists of all.
func splitTombstones(tombstones []hub.Tombstone, keys func() (hub.TenantKeys, error)) (inline []*linkv1.Tombstone, lists []TombstoneList, err error) {
	slices.SortFunc(tombstones, compareTombstones)
	all := linkTombstones(tombstones)
	if fitting(all) == len(all) {
		return all, nil, nil
	}
	k, err := keys()
	if err != nil {
		return nil, nil, err
	}
	for rest := all; len(rest) > 0; {
		n, size := 0, 0
		for n < len(rest) && size < tombstoneListBytes {
			size += sizeOf(rest[n])
			n++
		}
		plain, err := Marshal(&linkv1.TombstoneList{Tombstones: rest[:n]})
		if err != nil {
			return nil, nil, err
		}
		lists = append(lists, TombstoneList{hub.Digest(encryption.Digest(k.Digest, plain)), plain})
		rest = rest[n:]
	}
	first := slices.Clone(all)
	slices.SortStableFunc(first, compareTurns)
	return first[:fitting(first)], lists, nil
}

// fitting is how many tombstones from the first one on a row may list itself.
func fitting(tombstones []*linkv1.Tombstone) int {
	size := 0
	for n, t := range tombstones {
		if size += sizeOf(t); n == maxInlineTombstones || size > maxInlineTombstoneBytes {
			return n
		}
	}
	return len(tombstones)
}

func sizeOf(t *linkv1.Tombstone) int { return proto.Size(t) + 4 }

// Crowded reports whether tombstones are too many for a row.
func Crowded(tombstones []hub.Tombstone) bool {
	return fitting(linkTombstones(tombstones)) < len(tombstones)
}

// SealLists returns lists as the store keeps them.
func SealLists(k hub.TenantKeys, lists []TombstoneList) ([]hub.SealedObject, error) {
	out := make([]hub.SealedObject, len(lists))
	for i, l := range lists {
		body, err := encryption.SealBlob(k.Object, l.Digest, l.plain)
		if err != nil {
			return nil, fmt.Errorf("seal a list of tombstones: %w", err)
		}
		out[i] = hub.SealedObject{Digest: l.Digest, Sealed: body, Size: len(l.plain)}
	}
	return out, nil
}

func linkTombstones(tombstones []hub.Tombstone) []*linkv1.Tombstone {
	out := make([]*linkv1.Tombstone, len(tombstones))
	for i, t := range tombstones {
		out[i] = &linkv1.Tombstone{
			Group: t.Group, Version: t.Version, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name,
			Since: uint64(t.Since), Wave: t.Wave,
		}
	}
	return out
}

func compareTombstones(a, b hub.Tombstone) int {
	return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Kind, b.Kind),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// compareTurns puts objects into the order in which they are deleted: higher
// waves first, and what others live in last.
func compareTurns(a, b *linkv1.Tombstone) int {
	return cmp.Or(cmp.Compare(b.GetWave(), a.GetWave()), cmp.Compare(tombstoneSize(a), tombstoneSize(b)))
}

func tombstoneSize(t *linkv1.Tombstone) int {
	switch t.GetKind() {
	case "Namespace", "CustomResourceDefinition":
		return 1
	}
	return 0
}
