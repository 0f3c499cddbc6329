package stream_test

import (
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/hub/dispatch/dispatchtest"
	"github.com/capstan-cd/capstan/hub/dispatch/stream"
)

// bursts is a change on its way out for as long as the test wants.
type bursts struct {
	mu    sync.Mutex
	quiet chan struct{}
	out   int
}

var _ stream.Bursts = (*bursts)(nil)

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
	w := dispatchtest.New(t, dispatchtest.Automated)
	b := &bursts{}
	w.Streams.Bursts(b)
	conn := w.Link(w.Tenant, w.Cluster.ID)
	a := dispatchtest.NewAgent(t).Follow(conn)
	a.ReadToBarrier()
	t.Run("B24 while a change is being sent, rows have no barrier, and the acknowledgement is stored", func(t *testing.T) {
		b.begin()
		w.Render("r1", "a", "b")
		down, err := a.Stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		a.Apply(down.GetBatch())
		if a.Cursor.Seq != 2 || len(a.Operations) != 1 || len(a.Blobs) != 2 {
			t.Fatalf("at row %d with operations %v and %d blobs", a.Cursor.Seq, a.Operations, len(a.Blobs))
		}
		if n := b.sent(); n != 1 {
			t.Errorf("%d clusters count as being sent rows, want 1", n)
		}
		a.Ack(0, nil)
		w.Eventually("acknowledgement", func() bool { w.Receipt(); return w.Cluster.AckedSeq == 2 })
		w.Eventually("the end of the wait for this cluster", func() bool { return b.sent() == 0 })
		if r := w.Receipt(); r != nil {
			t.Errorf("a receipt for row %d, and nobody was asked", r.Seq)
		}
	})
	t.Run("INV-5 the barrier is sent after the change, and becomes a receipt", func(t *testing.T) {
		b.end()
		got := a.ReadToBarrier()
		if got.Seq != 2 {
			t.Fatalf("barrier %d", got.Seq)
		}
		a.Ack(got.Seq, a.Root())
		w.Eventually("receipt", func() bool { return w.Receipt() != nil && w.Receipt().Seq == 2 })
		if n := b.sent(); n != 0 {
			t.Errorf("%d clusters count as being sent rows", n)
		}
	})
	t.Run("a notification without rows delays nothing", func(t *testing.T) {
		b.begin()
		w.Streams.Wake(w.Cluster.ID)
		w.Render("r2", "a")
		down, err := a.Stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		a.Apply(down.GetBatch())
		a.Ack(0, nil)
		w.Eventually("the end of the wait", func() bool { w.Receipt(); return w.Cluster.AckedSeq == int64(a.Cursor.Seq) && b.sent() == 0 })
	})
	t.Run("a disconnected cluster is not waited for", func(t *testing.T) {
		w.Render("r3", "a", "c")
		if _, err := a.Stream.Recv(); err != nil {
			t.Fatal(err)
		}
		if n := b.sent(); n != 1 {
			t.Errorf("%d clusters count as being sent rows, want 1", n)
		}
		a.Stop()
		w.Eventually("nobody is waited for", func() bool { return b.sent() == 0 })
		b.end()
	})
}
