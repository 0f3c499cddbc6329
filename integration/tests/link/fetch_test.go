package link_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/agent/link"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
)

// store puts n blobs of a size into the hub and gives their digests.
func (s *services) store(n, size int) [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out [][]byte
	for range n {
		body := bytes.Repeat([]byte{byte(len(s.blobs))}, size)
		d := sha256.Sum256([]byte(fmt.Sprint(len(s.blobs), size)))
		s.blobs[string(d[:])] = body
		out = append(out, d[:])
	}
	return out
}

func (s *services) usedLanes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lanes)
}

// fetch gets blobs and counts what came.
func fetch(t *testing.T, a *agent, digests [][]byte) (map[string]int, [][]byte) {
	t.Helper()
	got := map[string]int{}
	missing, err := a.Fetch(t.Context(), digests, func(b *linkv1.Blob) error {
		got[string(b.GetDigest())]++
		return nil
	})
	if err != nil {
		t.Fatalf("Fetch() = %v", err)
	}
	return got, missing
}

func TestFetch(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	a := w.join(r, r.addr, tenant(), nil)

	t.Run("a few blobs are sent over the control lane", func(t *testing.T) {
		digests := w.svc.store(10, 100)
		nobody := bytes.Repeat([]byte{0xee}, 32)
		got, missing := fetch(t, a, append(append([][]byte{nobody}, digests...), digests[0]))
		if len(got) != 10 || len(missing) != 1 || !bytes.Equal(missing[0], nobody) {
			t.Errorf("got %d blobs and %d missing, want 10 and 1", len(got), len(missing))
		}
		for _, n := range got {
			if n != 1 {
				t.Error("a blob was handed over twice")
			}
		}
		if lanes := w.svc.usedLanes(); !slices.Equal(lanes, []string{"control"}) {
			t.Errorf("lanes %q", lanes)
		}
	})
	t.Run("many are sent over the bulk lane, in bounded requests", func(t *testing.T) {
		w.svc.lanes = nil
		got, missing := fetch(t, a, w.svc.store(1200, 100))
		if len(got) != 1200 || len(missing) != 0 {
			t.Errorf("got %d blobs and %d missing", len(got), len(missing))
		}
		if lanes := w.svc.usedLanes(); !slices.Equal(lanes, []string{"bulk", "bulk", "bulk"}) {
			t.Errorf("lanes %q", lanes)
		}
	})
	t.Run("one that is too large for the control lane is sent over the bulk lane", func(t *testing.T) {
		w.svc.lanes = nil
		got, _ := fetch(t, a, w.svc.store(1, 2<<20))
		if len(got) != 1 {
			t.Error("it did not come")
		}
		if lanes := w.svc.usedLanes(); !slices.Equal(lanes, []string{"control", "bulk"}) {
			t.Errorf("lanes %q", lanes)
		}
	})
	t.Run("one that is too large for any lane is an error and not a loop", func(t *testing.T) {
		_, err := a.Fetch(t.Context(), w.svc.store(1, 5<<20), func(*linkv1.Blob) error { return nil })
		if fault.KindOf(err) != fault.Exceeded {
			t.Errorf("Fetch() = %v, want exceeded", err)
		}
	})
	t.Run("the caller's error ends it", func(t *testing.T) {
		_, err := a.Fetch(t.Context(), w.svc.store(3, 10), func(*linkv1.Blob) error { return errTestOver })
		if !errors.Is(err, errTestOver) {
			t.Errorf("Fetch() = %v, want the caller's error", err)
		}
	})
	t.Run("an invalid digest is refused before any request", func(t *testing.T) {
		if _, err := a.Fetch(t.Context(), [][]byte{[]byte("short")}, nil); fault.KindOf(err) != fault.Invalid {
			t.Errorf("Fetch() = %v, want invalid", err)
		}
	})
	t.Run("an empty request does nothing", func(t *testing.T) {
		if missing, err := a.Fetch(t.Context(), nil, nil); err != nil || len(missing) > 0 {
			t.Errorf("Fetch() = %v, %v", missing, err)
		}
	})
}

func TestFetchThroughCuts(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	p := newProxy(t, r.addr)
	a := w.join(r, p.addr(), tenant(), nil)
	a.sessions.awaitOpened(1)
	digests := w.svc.store(300, 2000)
	got := map[string]int{}
	missing, err := a.Fetch(t.Context(), digests, func(b *linkv1.Blob) error {
		got[string(b.GetDigest())]++
		if n := len(got); n == 20 || n == 150 {
			p.cut()
		}
		return nil
	})
	if err != nil || len(missing) > 0 || len(got) != 300 {
		t.Errorf("Fetch() = %d blobs, %d missing, %v", len(got), len(missing), err)
	}
}

func TestFetchWithoutSession(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	p := newProxy(t, r.addr)
	a := w.join(r, p.addr(), tenant(), nil)
	a.sessions.awaitOpened(1)
	r.stop()
	a.sessions.awaitClosed(1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := a.Fetch(ctx, w.svc.store(1, 1), func(*linkv1.Blob) error { return nil })
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Fetch() = %v, want the end of its context", err)
	}
	a.stop()
}

func TestNoBulkLane(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	var dials atomic.Int32
	a := w.join(r, r.addr, tenant(), func(c *link.Config) {
		c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials.Add(1) > 1 {
				return nil, errors.New("one connection is all that this network allows")
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
	})
	for range 2 {
		if got, _ := fetch(t, a, w.svc.store(200, 10)); len(got) != 200 {
			t.Errorf("got %d of 200 blobs", len(got))
		}
	}
	if lanes := w.svc.usedLanes(); slices.Contains(lanes, "bulk") {
		t.Errorf("lanes %q", lanes)
	}
	if n := dials.Load(); n != 2 {
		t.Errorf("%d dials, want one for control and one attempt at bulk", n)
	}
}

func TestBulkLaneEnds(t *testing.T) {
	w := newWorld(t)
	clock := runtest.NewClock(time.Now())
	r := w.start()
	p := newProxy(t, r.addr)
	a := w.join(r, p.addr(), tenant(), func(c *link.Config) { c.Clock, c.Silence = clock, time.Hour })
	a.sessions.awaitOpened(1)
	if got, _ := fetch(t, a, w.svc.store(200, 10)); len(got) != 200 {
		t.Fatalf("got %d of 200 blobs", len(got))
	}
	p.awaitOpen(2) // control and bulk; that of the enrolment has gone
	for n := 1; n < 100 && p.open() > 1; n++ {
		clock.Wait(5)
		clock.Advance(4 * time.Second)
	}
	p.awaitOpen(1)
	if !a.connected(t) || a.sessions.ended() > 0 {
		t.Error("the control lane went with it")
	}
	if got, _ := fetch(t, a, w.svc.store(200, 10)); len(got) != 200 {
		t.Errorf("got %d of 200 blobs over a new bulk lane", len(got))
	}
}
