package dispatch_test

import (
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/hub/dispatch"
)

// bursts is a change on its way out for as long as the test wants.
type bursts struct {
	mu    sync.Mutex
	quiet chan struct{}
	out   int
}

var _ dispatch.Bursts = (*bursts)(nil)

func (b *bursts) Quiet() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.quiet
}

func (b *bursts) Sent(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out += n
}

func (b *bursts) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.quiet = make(chan struct{})
}

func (b *bursts) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.quiet)
	b.quiet = nil
}

func (b *bursts) sent() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out
}

func TestFollowInABurst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	b := &bursts{}
	w.d.Bursts(b)
	conn := w.link(w.tenant, w.cluster.ID)
	a := newAgent(t).follow(conn)
	a.readToBarrier()
	t.Run("B24 while a change is on its way out, rows come without a barrier, and the acknowledgement is stored", func(t *testing.T) {
		b.begin()
		w.render("r1", "a", "b")
		down, err := a.stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		a.batch(down.GetBatch())
		if a.cursor.Seq != 2 || len(a.ops) != 1 || len(a.blobs) != 2 {
			t.Fatalf("at row %d with operations %v and %d blobs", a.cursor.Seq, a.ops, len(a.blobs))
		}
		if n := b.sent(); n != 1 {
			t.Errorf("%d clusters count as being sent rows, want 1", n)
		}
		a.ack(0, nil)
		w.eventually("acknowledgement", func() bool { w.receipt(); return w.cluster.AckedSeq == 2 })
		w.eventually("the end of the wait for this cluster", func() bool { return b.sent() == 0 })
		if r := w.receipt(); r != nil {
			t.Errorf("a receipt for row %d, and nobody was asked", r.Seq)
		}
	})
	t.Run("INV-5 the barrier comes when the change has gone out, and becomes a receipt", func(t *testing.T) {
		b.end()
		got := a.readToBarrier()
		if got.Seq != 2 {
			t.Fatalf("barrier %d", got.Seq)
		}
		a.ack(got.Seq, a.root())
		w.eventually("receipt", func() bool { return w.receipt() != nil && w.receipt().Seq == 2 })
		if n := b.sent(); n != 0 {
			t.Errorf("%d clusters count as being sent rows", n)
		}
	})
	t.Run("a hint without rows holds nothing up", func(t *testing.T) {
		b.begin()
		w.d.Wake(w.cluster.ID)
		w.render("r2", "a")
		down, err := a.stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		a.batch(down.GetBatch())
		a.ack(0, nil)
		w.eventually("the end of the wait", func() bool { w.receipt(); return w.cluster.AckedSeq == int64(a.cursor.Seq) && b.sent() == 0 })
	})
	t.Run("a cluster that goes away is not waited for", func(t *testing.T) {
		w.render("r3", "a", "c")
		if _, err := a.stream.Recv(); err != nil {
			t.Fatal(err)
		}
		if n := b.sent(); n != 1 {
			t.Errorf("%d clusters count as being sent rows, want 1", n)
		}
		a.stop()
		w.eventually("nobody is waited for", func() bool { return b.sent() == 0 })
		b.end()
	})
}
