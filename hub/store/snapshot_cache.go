package store

import (
	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/lru"
)

// keptBytes is the size of the cache of recently used snapshots, once for their
// inputs and once for their objects. Each refresh at a new commit needs some of
// every application that it may affect.
const keptBytes = 16 << 20

// Snapshots in memory never differ from those in the database, for these never
// change, apart from inputs that were forgotten there and hold nevertheless:
// which of them exist is read from the database each time. A
// transaction that is rolled back may leave one here that does not exist;
// nothing refers to it.
type snapshots = lru.Cache[snapshotKey, hub.Snapshot]

type snapshotKey struct {
	tenant hub.TenantID
	id     hub.SnapshotID
}

func newSnapshots() *snapshots { return lru.New[snapshotKey, hub.Snapshot](keptBytes) }

// cachedSnapshots returns those of the snapshots that are in memory, and the ids of the
// others.
func cachedSnapshots(t *Tenant, in *snapshots, want []hub.SnapshotID) (found map[hub.SnapshotID]hub.Snapshot, missing []hub.SnapshotID) {
	found = make(map[hub.SnapshotID]hub.Snapshot, len(want))
	for _, id := range want {
		if s, ok := in.Get(snapshotKey{t.id, id}); ok {
			found[id] = s
			continue
		}
		missing = append(missing, id)
	}
	return found, missing
}

// keepInputs caches a snapshot without its objects.
func (t *Tenant) keepInputs(s hub.Snapshot) {
	s.Objects = nil
	size := bare(s)
	for _, in := range s.Inputs {
		size += 64 + len(in.Path) + len(in.Hash)
	}
	t.db.inputs.Put(snapshotKey{t.id, s.ID}, s, int64(size))
}

// keepObjects caches a snapshot without its inputs.
func (t *Tenant) keepObjects(s hub.Snapshot) {
	s.Inputs = nil
	size := bare(s)
	for _, o := range s.Objects {
		size += 256 + len(o.Name) + len(o.Namespace)
	}
	t.db.objects.Put(snapshotKey{t.id, s.ID}, s, int64(size))
}

// bare is about the size of a snapshot without inputs and objects.
func bare(s hub.Snapshot) int {
	size := 600 + 32*len(s.Lists)
	for _, w := range s.Warnings {
		size += len(w)
	}
	return size
}
