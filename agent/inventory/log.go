package inventory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/buckethash"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

const keyCursor = "cursor"

// A Cursor is how far the copy of the desired log goes.
type Cursor struct {
	Incarnation string `json:"incarnation,omitempty"` // empty: no row was stored yet
	Seq         uint64 `json:"seq"`
	Chain       []byte `json:"chain,omitempty"`
	Proof       []byte `json:"proof,omitempty"` // the hub's signature on the position
}

func decodeCursor(raw []byte) (Cursor, error) {
	var c Cursor
	if err := json.Unmarshal(raw, &c); err != nil {
		return Cursor{}, fmt.Errorf("read the cursor: %w", err)
	}
	return c, nil
}

// An App is the latest state of one application in the desired log.
type App struct {
	ID    string
	Seq   uint64
	Leaf  [32]byte
	State *linkv1.AppState // never changed in place
}

// Changes are those of a batch, in the order of its rows.
type Changes struct {
	States     []string // applications with a new state
	Operations []string // new operations
	Terminated []string // operations to terminate
	Forgotten  []string // applications that are not managed any more
	Settings   bool     // the settings have changed
}

// Cursor is how far the log is stored durably.
func (s *Store) Cursor() Cursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.durable
}

// Stage applies a batch in memory and queues its rows for the disk. Changes
// that are safe to repeat after a crash may be acted on at once. The hub gets
// the acknowledgement only after the commit is durable.
func (s *Store) Stage(b *linkv1.Batch) (Changes, *Commit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admit(b); err != nil {
		return Changes{}, nil, err
	}
	if err := Unpack(b, s.body); err != nil {
		return Changes{}, nil, err
	}
	st := stage{s: s, cursor: s.cursor}
	if err := st.batch(b); err != nil {
		return Changes{}, nil, err
	}
	for _, f := range st.mirror {
		f()
	}
	s.cursor, s.littered = st.cursor, true
	raw, err := json.Marshal(st.cursor)
	if err != nil {
		return Changes{}, nil, fmt.Errorf("write the cursor: %w", err)
	}
	writes := st.disk
	return st.changes, s.put(func(tx *bbolt.Tx) error {
		for _, w := range writes {
			if err := w(tx); err != nil {
				return err
			}
		}
		return putIn(tx, bucketMeta, keyCursor, raw)
	}, b.GetBlobs()...), nil
}

// batch collects what a batch changes, in memory and on disk.
func (st *stage) batch(b *linkv1.Batch) error {
	before := st.cursor.Seq
	if b.GetReset_() {
		st.reset()
	}
	if b.GetPartial() {
		st.forgetBuckets(b.GetForgetBuckets())
	}
	if ahead := b.GetSettings(); ahead != nil {
		if err := st.settings(ahead); err != nil {
			return err
		}
	}
	st.cursor.Incarnation = b.GetIncarnation()
	for _, blob := range b.GetBlobs() {
		st.blob(blob)
	}
	for _, row := range b.GetRows() {
		if err := st.row(row); err != nil {
			return err
		}
	}
	if st.cursor.Seq != before || b.GetReset_() || b.GetPartial() {
		st.cursor.Proof = b.GetProof()
	}
	return nil
}

// admit refuses batches of a rewound hub.
func (s *Store) admit(b *linkv1.Batch) error {
	if b.GetIncarnation() == "" {
		return fault.New(fault.Invalid, "the hub sent a batch of the desired log that names no incarnation")
	}
	known := s.cursor.Incarnation
	if known == "" {
		known = s.guard.Incarnation // the copy was lost, its cursor was not
	}
	if known != "" && known != b.GetIncarnation() {
		s.rewound = fmt.Sprintf("the hub's desired log is of another incarnation (%s) than the one this cluster follows (%s)", b.GetIncarnation(), known)
	}
	if s.rewound != "" {
		return fault.With(fault.New(fault.Conflict, "no rows are accepted from the hub: %s", s.rewound), "desired log",
			"a platform admin must decide which side is right")
	}
	return nil
}

// Root is the hash over the states of all applications.
func (s *Store) Root() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return hashchain.Root(s.leaves())
}

// leaves are the hashes of the states of all applications and of the settings.
// The caller holds mu.
func (s *Store) leaves() map[string][32]byte {
	leaves := make(map[string][32]byte, len(s.apps)+1)
	for id, a := range s.apps {
		leaves[id] = a.Leaf
	}
	if s.settings != nil {
		leaves[s.settings.id] = s.settings.leaf
	}
	return leaves
}

// App returns the latest state of an application.
func (s *Store) App(id string) (App, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.apps[id]
	if !ok {
		return App{}, false
	}
	return *a, true
}

// Apps returns the latest states of all applications, in order of id.
func (s *Store) Apps() []App {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]App, 0, len(s.apps))
	for _, a := range s.apps {
		out = append(out, *a)
	}
	slices.SortFunc(out, func(a, b App) int { return bytes.Compare([]byte(a.ID), []byte(b.ID)) })
	return out
}

func (s *Store) loadApps(tx *bbolt.Tx) error {
	return tx.Bucket([]byte(bucketApps)).ForEach(func(k, v []byte) error {
		var row linkv1.Row
		if err := proto.Unmarshal(v, &row); err != nil {
			return fmt.Errorf("state of application %q: %w", k, err)
		}
		a, err := newApp(&row)
		if err != nil {
			return err
		}
		s.apps[a.ID] = a
		return nil
	})
}

func newApp(row *linkv1.Row) (*App, error) {
	var state linkv1.AppState
	if err := proto.Unmarshal(row.GetBody(), &state); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "row %d of the desired log has no valid application state", row.GetSeq())
	}
	return &App{ID: row.GetAppId(), Seq: row.GetSeq(), Leaf: hashchain.Leaf(row.GetAppId(), row.GetBody()), State: &state}, nil
}

// A stage collects what one batch changes, so that a batch with an invalid row
// changes nothing.
type stage struct {
	s       *Store
	cursor  Cursor
	changes Changes
	mirror  []func()
	disk    []func(tx *bbolt.Tx) error
}

func (st *stage) then(mirror func(), disk func(tx *bbolt.Tx) error) {
	st.mirror = append(st.mirror, mirror)
	st.disk = append(st.disk, disk)
}

// reset removes the states, but no records of ownership: objects of states that
// a replay lacks are no longer enforced, but never deleted.
func (st *stage) reset() {
	st.cursor = Cursor{}
	st.forgetSettings()
	st.then(func() { st.s.apps = map[string]*App{} }, func(tx *bbolt.Tx) error {
		if err := tx.DeleteBucket([]byte(bucketApps)); err != nil {
			return err
		}
		_, err := tx.CreateBucket([]byte(bucketApps))
		return err
	})
}

// forgetBuckets removes the states of some applications, as reset does for all.
func (st *stage) forgetBuckets(of []uint32) {
	st.cursor = Cursor{}
	drop := map[uint16]bool{}
	for _, b := range of {
		drop[uint16(b)] = true
	}
	if held := st.s.settings; held != nil && drop[buckethash.Of(held.id)] {
		st.forgetSettings()
	}
	for id := range st.s.apps {
		if !drop[buckethash.Of(id)] {
			continue
		}
		st.then(func() { delete(st.s.apps, id) }, func(tx *bbolt.Tx) error { return deleteIn(tx, bucketApps, id) })
	}
}

func (st *stage) blob(b *linkv1.Blob) {
	st.disk = append(st.disk, func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketBlobs)).Put(b.GetDigest(), b.GetSealed())
	})
}

func (st *stage) row(row *linkv1.Row) error {
	if row.GetSeq() <= st.cursor.Seq {
		return nil // part of an overlapping replay; it is stored already
	}
	marker := row.GetKind() == linkv1.RowKind_ROW_KIND_UNSPECIFIED // the rows up to here were omitted
	if row.GetSeq() == st.cursor.Seq+1 && st.cursor.Seq > 0 && !marker {
		want := hashchain.Next(st.cursor.Chain, row.GetSeq(), int32(row.GetKind()), row.GetAppId(), row.GetBody())
		if !bytes.Equal(want, row.GetChain()) {
			st.s.rewound = fmt.Sprintf("row %d of the hub's desired log does not follow from the rows before it", row.GetSeq())
			return fault.New(fault.Conflict, "%s", st.s.rewound)
		}
	}
	if err := st.apply(row); err != nil {
		return err
	}
	st.cursor.Seq, st.cursor.Chain = row.GetSeq(), row.GetChain()
	return nil
}

func (st *stage) apply(row *linkv1.Row) error {
	switch row.GetKind() {
	case linkv1.RowKind_ROW_KIND_STATE:
		return st.state(row)
	case linkv1.RowKind_ROW_KIND_OPERATION:
		return st.operation(row)
	case linkv1.RowKind_ROW_KIND_TERMINATE:
		return st.terminate(row)
	case linkv1.RowKind_ROW_KIND_FORGET:
		st.forget(row.GetAppId())
	case linkv1.RowKind_ROW_KIND_SETTINGS:
		return st.settings(row)
	case linkv1.RowKind_ROW_KIND_UNSPECIFIED:
	}
	return nil // a kind of a newer hub changes nothing for this agent
}

func (st *stage) state(row *linkv1.Row) error {
	a, err := newApp(row)
	if err != nil {
		return err
	}
	raw, err := proto.Marshal(&linkv1.Row{Seq: row.GetSeq(), AppId: row.GetAppId(), Body: row.GetBody()})
	if err != nil {
		return fmt.Errorf("write row %d: %w", row.GetSeq(), err)
	}
	st.then(func() { st.s.apps[a.ID] = a }, func(tx *bbolt.Tx) error { return putIn(tx, bucketApps, a.ID, raw) })
	st.changes.States = appendOnce(st.changes.States, a.ID)
	return nil
}

func (st *stage) forget(app string) {
	s := st.s
	st.then(func() {
		delete(s.apps, app)
		delete(s.owned, app)
	}, func(tx *bbolt.Tx) error {
		if err := deleteIn(tx, bucketApps, app); err != nil {
			return err
		}
		return deleteOwnedOf(tx, app)
	})
	st.changes.Forgotten = appendOnce(st.changes.Forgotten, app)
}

func appendOnce(list []string, v string) []string {
	if slices.Contains(list, v) {
		return list
	}
	return append(list, v)
}
