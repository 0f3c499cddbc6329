package inventory

import (
	"bytes"
	"fmt"

	"go.etcd.io/bbolt"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// Blob returns an encrypted object as received from the hub.
func (s *Store) Blob(digest []byte) (sealed []byte, found bool, err error) {
	s.mu.Lock()
	sealed, found = s.fresh[string(digest)]
	s.mu.Unlock()
	if found {
		return sealed, true, nil
	}
	err = s.db.View(func(tx *bbolt.Tx) error {
		v := tx.Bucket([]byte(bucketBlobs)).Get(digest)
		if v != nil {
			sealed, found = bytes.Clone(v), true
		}
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("read blob %x: %w", digest, err)
	}
	return sealed, found, nil
}

// PutBlobs stores encrypted objects.
func (s *Store) PutBlobs(blobs []*linkv1.Blob) *Commit {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.littered = true
	return s.put(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucketBlobs))
		for _, blob := range blobs {
			if err := b.Put(blob.GetDigest(), blob.GetSealed()); err != nil {
				return err
			}
		}
		return nil
	}, blobs...)
}

// Lists returns the digests of the blobs that contain the objects of a
// reference, in order; none if the objects are inline.
func Lists(ref *linkv1.SnapshotRef) [][]byte {
	if lists := ref.GetLists(); len(lists) > 0 {
		return lists
	}
	if list := ref.GetList(); len(list) > 0 {
		return [][]byte{list}
	}
	return nil
}

// Listed is the name of the lists of a reference for Collect; empty if it has
// none.
func Listed(ref *linkv1.SnapshotRef) string { return string(bytes.Join(Lists(ref), nil)) }

// Collect deletes the blobs that nothing refers to: no state, no open
// operation, and no record that a merge would need. lists returns the digests
// in the lists of a reference, by the name that Listed returns, because the
// store cannot read lists itself. If some are missing nothing is deleted. If
// nothing has changed since the last call, it does nothing.
func (s *Store) Collect(lists map[string][][]byte) *Commit {
	s.mu.Lock()
	defer s.mu.Unlock()
	refs := s.referenced(lists)
	if !refs.complete || !s.littered {
		c := &Commit{done: make(chan struct{})}
		close(c.done)
		return c
	}
	s.littered = false
	return s.put(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucketBlobs))
		var stale [][]byte
		err := b.ForEach(func(k, _ []byte) error {
			if _, ok := refs.digests[string(k)]; !ok {
				stale = append(stale, bytes.Clone(k))
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, k := range stale {
			if err := b.Delete(k); err != nil {
				return err
			}
		}
		return nil
	})
}

// references are the digests of the blobs that must stay.
type references struct {
	lists    map[string][][]byte // as in Collect
	digests  map[string]struct{}
	complete bool // the content of every list is known
}

func (r *references) add(digests ...[]byte) {
	for _, d := range digests {
		r.digests[string(d)] = struct{}{}
	}
}

func (r *references) addSnapshot(ref *linkv1.SnapshotRef) {
	if listed := Listed(ref); listed != "" {
		digests, known := r.lists[listed]
		r.complete = r.complete && known
		r.add(Lists(ref)...)
		r.add(digests...)
	}
	for _, o := range ref.GetObjects() {
		r.add(o.GetDigest())
	}
}

// referenced returns what states, open operations and records refer to. The
// caller holds mu.
func (s *Store) referenced(lists map[string][][]byte) *references {
	r := &references{lists: lists, digests: map[string]struct{}{}, complete: true}
	for _, a := range s.apps {
		r.add(a.State.GetTombstoneLists()...)
		r.addSnapshot(a.State.GetTarget())
		r.addSnapshot(a.State.GetAccepted())
	}
	for _, o := range s.ops {
		if o.Open() {
			r.addSnapshot(o.Order.GetSnapshot())
		}
	}
	for _, of := range s.owned {
		for _, record := range of {
			r.add(record.Owned.Digest[:])
		}
	}
	return r
}
