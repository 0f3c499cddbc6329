package inventory

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
)

// keepEndedFor is how long the id of an ended operation is stored after the hub
// has its result, so that a repeated row does not run again.
const keepEndedFor = 7 * 24 * time.Hour

// An Operation is an operation of the desired log with its progress.
type Operation struct {
	ID         string
	App        string
	Seq        uint64
	Order      *linkv1.Operation       // nil once the hub has the result
	Progress   []byte                  // ledger of the started steps; empty: none
	Terminated string                  // who asked to terminate it; empty: nobody
	Result     *linkv1.OperationReport // nil: open
	Acked      bool                    // the hub has the result
	EndedAt    time.Time
	Refused    []Refusal // objects that it could not write because of their ownership
}

// A Refusal says that an operation could not write an object because of its
// ownership.
type Refusal struct {
	Key  string `json:"k"`
	Mark string `json:"m,omitempty"` // owner by the live tracking mark; empty: an application of the cluster owned it
}

// Open reports whether the operation has no result yet.
func (o Operation) Open() bool { return o.Result == nil && !o.Acked }

// stored is an operation on disk.
type stored struct {
	App        string    `json:"app"`
	Seq        uint64    `json:"seq"`
	Order      []byte    `json:"order,omitempty"`
	Progress   []byte    `json:"progress,omitempty"`
	Terminated string    `json:"terminated,omitempty"`
	Result     []byte    `json:"result,omitempty"`
	Acked      bool      `json:"acked,omitempty"`
	EndedAt    time.Time `json:"endedAt,omitzero"`
	Refused    []Refusal `json:"refused,omitempty"`
}

func (o Operation) encode() ([]byte, error) {
	d := stored{App: o.App, Seq: o.Seq, Progress: o.Progress, Terminated: o.Terminated, Acked: o.Acked, EndedAt: o.EndedAt, Refused: o.Refused}
	var err error
	if o.Order != nil {
		if d.Order, err = proto.Marshal(o.Order); err != nil {
			return nil, fmt.Errorf("write operation %q: %w", o.ID, err)
		}
	}
	if o.Result != nil {
		if d.Result, err = proto.Marshal(o.Result); err != nil {
			return nil, fmt.Errorf("write the result of operation %q: %w", o.ID, err)
		}
	}
	return json.Marshal(d)
}

func decodeOperation(id string, raw []byte) (*Operation, error) {
	var d stored
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, fmt.Errorf("operation %q: %w", id, err)
	}
	o := &Operation{ID: id, App: d.App, Seq: d.Seq, Progress: d.Progress, Terminated: d.Terminated, Acked: d.Acked, EndedAt: d.EndedAt, Refused: d.Refused}
	if len(d.Order) > 0 {
		o.Order = &linkv1.Operation{}
		if err := proto.Unmarshal(d.Order, o.Order); err != nil {
			return nil, fmt.Errorf("operation %q: %w", id, err)
		}
	}
	if len(d.Result) > 0 {
		o.Result = &linkv1.OperationReport{}
		if err := proto.Unmarshal(d.Result, o.Result); err != nil {
			return nil, fmt.Errorf("result of operation %q: %w", id, err)
		}
	}
	return o, nil
}

func (s *Store) loadOps(tx *bbolt.Tx) error {
	return tx.Bucket([]byte(bucketOps)).ForEach(func(k, v []byte) error {
		o, err := decodeOperation(string(k), v)
		if err != nil {
			return err
		}
		s.ops[o.ID] = o
		return nil
	})
}

// operation handles an OPERATION row. One with a known id is not new: it is
// open, or was executed before.
func (st *stage) operation(row *linkv1.Row) error {
	var order linkv1.Operation
	if err := proto.Unmarshal(row.GetBody(), &order); err != nil || order.GetId() == "" {
		return fault.Wrap(fault.Invalid, err, "row %d of the desired log has no valid operation", row.GetSeq())
	}
	st.changes.Operations = appendOnce(st.changes.Operations, order.GetId())
	if _, known := st.s.ops[order.GetId()]; known {
		return nil
	}
	o := &Operation{ID: order.GetId(), App: row.GetAppId(), Seq: row.GetSeq(), Order: &order}
	raw, err := o.encode()
	if err != nil {
		return err
	}
	st.then(func() { st.s.ops[o.ID] = o }, func(tx *bbolt.Tx) error { return putIn(tx, bucketOps, o.ID, raw) })
	return nil
}

func (st *stage) terminate(row *linkv1.Row) error {
	var t linkv1.Terminate
	if err := proto.Unmarshal(row.GetBody(), &t); err != nil {
		return fault.Wrap(fault.Invalid, err, "row %d of the desired log has no valid termination", row.GetSeq())
	}
	actor := t.GetActor()
	if actor == "" {
		actor = "a user"
	}
	id := t.GetOperationId()
	// The operation may be in this same batch, so it is looked up when the
	// mirror changes, and again on disk.
	st.then(func() {
		if o := st.s.ops[id]; o != nil && o.Open() {
			c := *o
			c.Terminated = actor
			st.s.ops[id] = &c
		}
	}, func(tx *bbolt.Tx) error {
		raw := tx.Bucket([]byte(bucketOps)).Get([]byte(id))
		if raw == nil {
			return nil
		}
		o, err := decodeOperation(id, raw)
		if err != nil || !o.Open() {
			return err
		}
		o.Terminated = actor
		next, err := o.encode()
		if err != nil {
			return err
		}
		return putIn(tx, bucketOps, id, next)
	})
	st.changes.Terminated = appendOnce(st.changes.Terminated, id)
	return nil
}

// Operation returns an operation that is open or still stored.
func (s *Store) Operation(id string) (Operation, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.ops[id]
	if !ok {
		return Operation{}, false
	}
	return *o, true
}

// OpenOperations returns the operations without a result, oldest row first.
func (s *Store) OpenOperations() []Operation {
	return s.operations(func(o *Operation) bool { return o.Open() })
}

// Unacked returns the ended operations whose result the hub does not have yet.
func (s *Store) Unacked() []Operation {
	return s.operations(func(o *Operation) bool { return o.Result != nil && !o.Acked })
}

func (s *Store) operations(want func(*Operation) bool) []Operation {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Operation
	for _, o := range s.ops {
		if want(o) {
			out = append(out, *o)
		}
	}
	slices.SortFunc(out, func(a, b Operation) int {
		if a.Seq != b.Seq {
			return int(int64(a.Seq) - int64(b.Seq))
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out
}

// Advance stores the ledger of an operation's steps.
func (s *Store) Advance(id string, progress []byte) (*Commit, error) {
	return s.change(id, func(o *Operation) { o.Progress = progress })
}

// End stores the result of an operation until the hub has it. It stores which
// objects were refused until a later operation of the application has ended.
func (s *Store) End(id string, result *linkv1.OperationReport, at time.Time, refused []Refusal) (*Commit, error) {
	return s.change(id, func(o *Operation) {
		o.Result, o.Progress, o.EndedAt, o.Refused = result, nil, at, refused
	})
}

// Refused returns the newest operation of an application that has ended, and
// its refusals.
func (s *Store) Refused(app string) (operation string, refused []Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.lastEnded(app); o != nil {
		return o.ID, o.Refused
	}
	return "", nil
}

// lastEnded returns the newest operation of an application that has ended. The
// caller holds mu.
func (s *Store) lastEnded(app string) *Operation {
	var last *Operation
	for _, o := range s.ops {
		if o.App == app && !o.Open() && (last == nil || o.Seq > last.Seq) {
			last = o
		}
	}
	return last
}

// Delivered records that the hub has the result of an operation. Its id stays
// stored for a week.
func (s *Store) Delivered(id string) (*Commit, error) {
	return s.change(id, func(o *Operation) {
		if o.Result == nil {
			return
		}
		o.Acked, o.Order, o.Result = true, nil, nil
	})
}

func (s *Store) change(id string, f func(*Operation)) (*Commit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.ops[id]
	if !ok {
		return nil, fault.New(fault.Missing, "no operation %q is known here", id)
	}
	c := *o
	f(&c)
	raw, err := c.encode()
	if err != nil {
		return nil, err
	}
	s.ops[id] = &c
	return s.put(func(tx *bbolt.Tx) error { return putIn(tx, bucketOps, id, raw) }), nil
}

// Expire deletes operations that ended long ago. Without any, nothing is
// written.
func (s *Store) Expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var stale []string
	for id, o := range s.ops {
		if o.Acked && now.Sub(o.EndedAt) > keepEndedFor && !(len(o.Refused) > 0 && s.apps[o.App] != nil && s.lastEnded(o.App) == o) {
			stale = append(stale, id)
			delete(s.ops, id)
		}
	}
	if len(stale) == 0 {
		return
	}
	s.put(func(tx *bbolt.Tx) error {
		for _, id := range stale {
			if err := deleteIn(tx, bucketOps, id); err != nil {
				return err
			}
		}
		return nil
	})
}
