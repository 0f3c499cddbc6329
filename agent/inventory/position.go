package inventory

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/buckethash"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Guard sets a cursor that was known before the directory was lost. A hub of
// another incarnation, or whose log ends before the cursor, is rewound.
func (s *Store) Guard(c Cursor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guard = c
}

// Position is the cursor to show to the hub. Lost says that only the cursor is
// known, and the copy of the log up to it is lost.
func (s *Store) Position() (c Cursor, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.durable.Incarnation == "" && s.guard.Incarnation != "" {
		return s.guard, true
	}
	return s.durable, false
}

// Rewind makes the store refuse all rows, for the given reason. An empty reason
// says that hub and agent agree again; each batch is still checked.
func (s *Store) Rewind(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rewound = reason
}

// Rewound is the reason why no rows are accepted from the hub; empty: none.
// While it is set nothing may be pruned.
func (s *Store) Rewound() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rewound
}

// HoldDeletions stops every deletion for a reason of the hub; empty: deletions
// are allowed again.
func (s *Store) HoldDeletions(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = reason
}

// Frozen says why nothing may be deleted in the cluster now; empty: deletions
// are allowed.
func (s *Store) Frozen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rewound != "" {
		return s.rewound
	}
	return s.held
}

// Confirm replaces the position in a log that an admin has abandoned. States,
// operations and ownership stay until the replay that follows. It applies to
// exactly the current position and to no other.
func (s *Store) Confirm(m *linkv1.Confirmed) (*Commit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.durable
	if held.Incarnation == "" {
		held = s.guard
	}
	from := m.GetFrom()
	if m.GetIncarnation() == "" || from.GetIncarnation() != held.Incarnation || from.GetSeq() != held.Seq || !bytes.Equal(from.GetChain(), held.Chain) {
		return nil, fault.With(fault.New(fault.Conflict, "the hub's decision is about row %d of log %q, this cluster is at row %d of log %q",
			from.GetSeq(), from.GetIncarnation(), held.Seq, held.Incarnation), "desired log", "")
	}
	next := Cursor{Incarnation: m.GetIncarnation()}
	raw, err := json.Marshal(next)
	if err != nil {
		return nil, fmt.Errorf("write the cursor: %w", err)
	}
	s.cursor, s.guard, s.rewound = next, Cursor{}, ""
	return s.put(func(tx *bbolt.Tx) error { return putIn(tx, bucketMeta, keyCursor, raw) }), nil
}

// Settled checks, after a replay, that the hub's log reaches at least the
// newest cursor that is known.
func (s *Store) Settled() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guard.Incarnation == s.cursor.Incarnation && s.guard.Seq > s.cursor.Seq && s.rewound == "" {
		s.rewound = fmt.Sprintf("the hub's desired log ends at row %d, but this cluster has already followed it to row %d", s.cursor.Seq, s.guard.Seq)
	}
}

// Sums are hashes over the states of all applications and the settings: the
// second level of the given buckets, or without any the first level.
func (s *Store) Sums(first []uint32) *linkv1.Sums {
	s.mu.Lock()
	defer s.mu.Unlock()
	sums := buckethash.Sums{}
	for id, leaf := range s.leaves() {
		sums.Add(buckethash.Of(id), buckethash.Leaf(id, leaf[:]))
	}
	if len(first) == 0 {
		return &linkv1.Sums{First: sums.First()}
	}
	out := &linkv1.Sums{}
	for _, b := range first {
		index, values := sums.Second(uint8(b))
		out.Second = append(out.Second, &linkv1.BucketSums{Bucket: b, Index: index, Sums: values})
	}
	return out
}
