package inventory_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/agent/inventory"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/hashchain"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func TestMain(m *testing.M) { runtest.Main(m) }

// open runs a store until close is called.
func open(t *testing.T, dir string) (s *inventory.Store, closing func()) {
	t.Helper()
	s, err := inventory.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	closed := false
	closing = func() {
		if closed {
			return
		}
		closed = true
		cancel()
		if err := errors.Join(<-done, s.Close()); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(closing)
	return s, closing
}

// hubLog makes rows as a hub does.
type hubLog struct {
	t    *testing.T
	rows []*linkv1.Row
}

func (l *hubLog) add(kind linkv1.RowKind, app string, body proto.Message) *linkv1.Row {
	l.t.Helper()
	var raw []byte
	if body != nil {
		var err error
		if raw, err = proto.Marshal(body); err != nil {
			l.t.Fatal(err)
		}
	}
	prev := hashchain.First("one")
	if n := len(l.rows); n > 0 {
		prev = l.rows[n-1].GetChain()
	}
	r := &linkv1.Row{Seq: uint64(len(l.rows) + 1), Kind: kind, AppId: app, Body: raw}
	r.Chain = hashchain.Next(prev, r.GetSeq(), int32(kind), app, raw)
	l.rows = append(l.rows, r)
	return r
}

func (l *hubLog) state(app string, generation uint64) *linkv1.Row {
	return l.add(linkv1.RowKind_ROW_KIND_STATE, app, &linkv1.AppState{Name: app, Generation: generation, Target: ref("blob of " + app)})
}

func ref(digests ...string) *linkv1.SnapshotRef {
	out := &linkv1.SnapshotRef{Id: "snapshot"}
	for _, d := range digests {
		out.Objects = append(out.Objects, &linkv1.ObjectRef{Digest: []byte(d)})
	}
	return out
}

func batch(rows ...*linkv1.Row) *linkv1.Batch {
	return &linkv1.Batch{Incarnation: "one", Rows: rows}
}

// stageAndWait stages a batch and waits for the disk.
func stageAndWait(t *testing.T, s *inventory.Store, b *linkv1.Batch) inventory.Changes {
	t.Helper()
	changes, commit, err := s.Stage(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := commit.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return changes
}

func TestLog(t *testing.T) {
	t.Parallel()
	parent, dir := t, t.TempDir()
	s, closing := open(t, dir)
	l := &hubLog{t: t}
	got := stageAndWait(t, s, &linkv1.Batch{Incarnation: "one", Reset_: true, Rows: []*linkv1.Row{
		l.state("a", 1), l.state("b", 1), l.add(linkv1.RowKind_ROW_KIND_OPERATION, "a", &linkv1.Operation{Id: "op"}),
		l.add(linkv1.RowKind_ROW_KIND_TERMINATE, "a", &linkv1.Terminate{OperationId: "op", Actor: "alice"}), l.state("a", 2),
	}})
	want := inventory.Changes{States: []string{"a", "b"}, Operations: []string{"op"}, Terminated: []string{"op"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
	t.Run("INV-1 acknowledged rows are stored after a restart", func(t *testing.T) {
		closing()
		s, closing = open(parent, dir)
		c := s.Cursor()
		if c.Seq != 5 || c.Incarnation != "one" || !bytes.Equal(c.Chain, l.rows[4].GetChain()) {
			t.Errorf("cursor is %+v", c)
		}
		if a, ok := s.App("a"); !ok || a.State.GetGeneration() != 2 {
			t.Errorf("application is %+v", a)
		}
		if o, ok := s.Operation("op"); !ok || !o.Open() || o.Terminated != "alice" {
			t.Errorf("operation is %+v", o)
		}
		root := hashchain.Root(map[string][32]byte{"a": hashchain.Leaf("a", l.rows[4].GetBody()), "b": hashchain.Leaf("b", l.rows[1].GetBody())})
		if !bytes.Equal(s.Root(), root) {
			t.Error("the root hash differs from the hub's")
		}
	})
	t.Run("FT-L6 repeated rows change nothing", func(t *testing.T) {
		if got := stageAndWait(t, s, batch(l.rows...)); len(got.States)+len(got.Operations) != 0 {
			t.Errorf("changes %+v", got)
		}
	})
	t.Run("INV-3 a reset removes states and no records of ownership", func(t *testing.T) {
		key := manifest.Key{Kind: "ConfigMap", Namespace: "n", Name: "x"}
		if _, err := s.Own(inventory.Record{App: "b", Key: key, Version: "v1"}); err != nil {
			t.Fatal(err)
		}
		stageAndWait(t, s, &linkv1.Batch{Incarnation: "one", Reset_: true, Rows: []*linkv1.Row{l.rows[4]}})
		if _, ok := s.App("b"); ok {
			t.Error("the state is still there")
		}
		if got := s.Owned("b"); len(got) != 1 || got[0].Key != key {
			t.Errorf("owned: %v", got)
		}
	})
	t.Run("INV-3 a forgotten application owns nothing", func(t *testing.T) {
		stageAndWait(t, s, batch(l.add(linkv1.RowKind_ROW_KIND_FORGET, "b", nil)))
		closing()
		s, closing = open(parent, dir)
		if got := s.Owned("b"); len(got) != 0 {
			t.Errorf("owned: %v", got)
		}
	})
	closing()
}

func TestRewindGuard(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		why   string
		guard inventory.Cursor
		spoil func(*linkv1.Batch)
		kind  fault.Kind
	}{
		"NoIncarnation":    {why: "a hub that says nothing of its past cannot be trusted with deletions", spoil: func(b *linkv1.Batch) { b.Incarnation = "" }, kind: fault.Invalid},
		"OtherIncarnation": {why: "a restored database is another past", guard: inventory.Cursor{Incarnation: "zero", Seq: 9}, kind: fault.Conflict},
		"BrokenChain":      {why: "a row that does not follow is of another past", spoil: func(b *linkv1.Batch) { b.Rows[1].Chain = bytes.Repeat([]byte{1}, 32) }, kind: fault.Conflict},
		"BadState":         {why: "a row that cannot be read must change nothing", spoil: func(b *linkv1.Batch) { b.Rows[0].Body = []byte{0xff} }, kind: fault.Invalid},
		"BadOperation":     {why: "an operation without an id cannot be remembered", spoil: func(b *linkv1.Batch) { b.Rows[1].Kind = linkv1.RowKind_ROW_KIND_OPERATION; b.Rows = b.Rows[1:] }, kind: fault.Invalid},
		"Fine":             {why: "the same incarnation goes on", guard: inventory.Cursor{Incarnation: "one"}},
	}
	for name, c := range cases {
		t.Run("FT-D "+name, func(t *testing.T) {
			t.Parallel()
			s, _ := open(t, t.TempDir())
			s.Guard(c.guard)
			l := &hubLog{t: t}
			b := batch(l.state("a", 1), l.state("b", 1))
			b.Rows[1].Body, b.Rows[1].Chain = nil, hashchain.Next(b.Rows[0].GetChain(), 2, int32(b.Rows[1].GetKind()), "b", nil)
			if c.spoil != nil {
				c.spoil(b)
			}
			_, _, err := s.Stage(b)
			if kind := fault.KindOf(err); kind != c.kind {
				t.Fatalf("error %v, want kind %q: %s", err, c.kind, c.why)
			}
			if _, ok := s.App("a"); ok != (c.kind == "") {
				t.Errorf("application known: %v", ok)
			}
			if c.kind == fault.Conflict && s.Rewound() == "" {
				t.Error("nothing says that the hub is rewound")
			}
		})
	}
	t.Run("FT-D a log that ends before the known cursor is rewound, and no more rows are accepted", func(t *testing.T) {
		t.Parallel()
		s, _ := open(t, t.TempDir())
		s.Guard(inventory.Cursor{Incarnation: "one", Seq: 9})
		l := &hubLog{t: t}
		stageAndWait(t, s, batch(l.state("a", 1)))
		if s.Rewound() != "" {
			t.Error("a replay that is under way is taken for a rewind")
		}
		s.Settled()
		if s.Rewound() == "" {
			t.Error("the rewind was not seen")
		}
		if _, _, err := s.Stage(batch(l.state("a", 2))); fault.KindOf(err) != fault.Conflict {
			t.Errorf("error %v", err)
		}
	})
}

func TestOperations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, closing := open(t, dir)
	l := &hubLog{t: t}
	order := l.add(linkv1.RowKind_ROW_KIND_OPERATION, "a", &linkv1.Operation{Id: "op", Fence: 1})
	stageAndWait(t, s, batch(order))
	wait := func(c *inventory.Commit, err error) {
		t.Helper()
		if err == nil {
			err = c.Wait(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	again := func() { closing(); s, closing = open(t, dir) }
	t.Run("FT-A1 the ledger survives a restart", func(t *testing.T) {
		wait(s.Advance("op", []byte(`{"phase":"Sync"}`)))
		again()
		if o := s.OpenOperations(); len(o) != 1 || string(o[0].Progress) != `{"phase":"Sync"}` || o[0].Order.GetFence() != 1 {
			t.Errorf("open: %+v", o)
		}
	})
	t.Run("FT-L6 a result is stored until the hub has it, and its id after that", func(t *testing.T) {
		wait(s.End("op", &linkv1.OperationReport{OperationId: "op", Phase: "Succeeded"}, time.Now(), nil))
		again()
		if u := s.Unacked(); len(u) != 1 || u[0].Result.GetPhase() != "Succeeded" || len(s.OpenOperations()) != 0 {
			t.Errorf("unacknowledged: %+v", u)
		}
		wait(s.Delivered("op"))
		again()
		if o, ok := s.Operation("op"); !ok || !o.Acked || len(s.Unacked()) != 0 {
			t.Errorf("operation: %+v", o)
		}
		next := l.add(linkv1.RowKind_ROW_KIND_OPERATION, "a", &linkv1.Operation{Id: "op", Fence: 1})
		stageAndWait(t, s, batch(next))
		if o := s.OpenOperations(); len(o) != 0 {
			t.Errorf("an executed operation is open again: %+v", o)
		}
	})
	t.Run("INV-9 the id is deleted after a week", func(t *testing.T) {
		s.Expire(time.Now().Add(6 * 24 * time.Hour))
		if _, ok := s.Operation("op"); !ok {
			t.Error("forgotten too early")
		}
		s.Expire(time.Now().Add(8 * 24 * time.Hour))
		if _, ok := s.Operation("op"); ok {
			t.Error("never forgotten")
		}
	})
	t.Run("an unknown operation is Missing", func(t *testing.T) {
		if _, err := s.Delivered("other"); fault.KindOf(err) != fault.Missing {
			t.Errorf("error %v", err)
		}
	})
	closing()
}

func TestBlobs(t *testing.T) {
	t.Parallel()
	s, _ := open(t, t.TempDir())
	l := &hubLog{t: t}
	b := batch(l.state("a", 1))
	for _, d := range []string{"blob of a", "listed", "applied", "litter"} {
		b.Blobs = append(b.Blobs, &linkv1.Blob{Digest: []byte(d), Sealed: []byte("sealed " + d)})
	}
	stageAndWait(t, s, b)
	var digest [32]byte
	copy(digest[:], "applied")
	if err := s.PutBlobs([]*linkv1.Blob{{Digest: digest[:], Sealed: []byte("x")}}).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Own(inventory.Record{App: "a", Key: manifest.Key{Kind: "K", Name: "n"}, Owned: diff.Owned{Digest: digest}}); err != nil {
		t.Fatal(err)
	}
	has := func(d []byte) bool {
		_, found, err := s.Blob(d)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	list := l.add(linkv1.RowKind_ROW_KIND_STATE, "c", &linkv1.AppState{Target: &linkv1.SnapshotRef{Id: "s", Lists: [][]byte{[]byte("li"), []byte("st")}}})
	stageAndWait(t, s, batch(list))
	stageAndWait(t, s, batch(l.add(linkv1.RowKind_ROW_KIND_STATE, "d", &linkv1.AppState{TombstoneLists: [][]byte{[]byte("stones")}})))
	if err := s.PutBlobs([]*linkv1.Blob{{Digest: []byte("stones"), Sealed: []byte("x")}}).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Collect(nil).Wait(t.Context()); err != nil || !has([]byte("litter")) {
		t.Errorf("INV-3 blobs were collected although a list could not be read (error %v)", err)
	}
	if err := s.Collect(map[string][][]byte{"list": {[]byte("listed")}}).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	for d, want := range map[string]bool{"blob of a": true, "listed": true, "stones": true, string(digest[:]): true, "litter": false} {
		if got := has([]byte(d)); got != want {
			t.Errorf("blob %q is there: %v, want %v", d, got, want)
		}
	}
}

func TestBlobsBeforeTheDisk(t *testing.T) {
	t.Parallel()
	s, err := inventory.Open(t.TempDir()) // nothing is committed: Run is not running yet
	if err != nil {
		t.Fatal(err)
	}
	b := batch((&hubLog{t: t}).state("a", 1))
	b.Blobs = []*linkv1.Blob{{Digest: []byte("one"), Sealed: []byte("sealed one")}}
	if _, _, err := s.Stage(b); err != nil {
		t.Fatal(err)
	}
	fetched := s.PutBlobs([]*linkv1.Blob{{Digest: []byte("two"), Sealed: []byte("sealed two")}})
	read := func(when string) {
		for _, d := range []string{"one", "two"} {
			if sealed, found, err := s.Blob([]byte(d)); err != nil || !found || string(sealed) != "sealed "+d {
				t.Errorf("%s: blob %q is %q, %v, %v", when, d, sealed, found, err)
			}
		}
	}
	read("in line for the disk")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	if err := fetched.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	read("on the disk")
	cancel()
	if err := errors.Join(<-done, s.Close()); err != nil {
		t.Error(err)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	t.Run("FT-L8 only one process can open a directory", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		first, _ := open(t, dir)
		if _, err := inventory.Open(dir); fault.KindOf(err) != fault.Conflict {
			t.Errorf("error %v", err)
		}
		if first.Instance() == "" {
			t.Error("no instance id")
		}
	})
	t.Run("a directory that cannot be created is named", func(t *testing.T) {
		t.Parallel()
		if _, err := inventory.Open("/dev/null/x"); fault.KindOf(err) != fault.Invalid {
			t.Errorf("error %v", err)
		}
	})
	t.Run("the instance is the same after a restart", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		s, closing := open(t, dir)
		id := s.Instance()
		closing()
		again, _ := open(t, dir)
		if again.Instance() != id {
			t.Error("another instance")
		}
	})
}
