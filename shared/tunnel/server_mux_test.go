package tunnel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/nettest"
	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/shared/fault"
)

// speaker makes one side of a session of a connection.
type speaker func(conn net.Conn, lane Lane) Mux

func muxSide(dialled bool) speaker {
	return func(conn net.Conn, lane Lane) Mux { return newServerMux(conn, lane, dialled, func(error) {}) }
}

func library(conn net.Conn, lane Lane) Mux {
	m, err := newYamux(conn, lane, slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err)
	}
	return m
}

// between returns two sides over a connection that keeps nothing: each byte
// waits until it is read, so two sides that wait for each other stay so.
func between(dialler, taker speaker, lane Lane) (Mux, Mux, func()) {
	one, two := net.Pipe()
	a, b := dialler(one, lane), taker(two, lane)
	return a, b, func() {
		_, _ = a.Close(), b.Close()
		<-a.Done()
		<-b.Done()
	}
}

func TestServerStreamIsAConnection(t *testing.T) {
	for name, opens := range map[string]bool{"opened": true, "accepted": false} {
		t.Run(name, func(t *testing.T) {
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				a, b, stop := between(muxSide(true), muxSide(false), Control())
				one, err := a.Open()
				if err != nil {
					return nil, nil, nil, err
				}
				two, err := b.Accept()
				if !opens {
					one, two = two, one
				}
				return one, two, stop, err
			})
		})
	}
}

// TestServerMuxImplementsYamux sends any amounts on any number of streams, of both
// sides at once, and gets them back whole and in order.
func TestServerMuxImplementsYamux(t *testing.T) {
	for name, dialler := range map[string]speaker{"with the library": library, "with itself": muxSide(true)} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				lane := rapid.SampledFrom([]Lane{Control(), Bulk()}).Draw(t, "lane")
				a, b, stop := between(dialler, muxSide(false), lane)
				defer stop()
				var wg sync.WaitGroup
				for _, m := range []Mux{a, b} {
					go echo(m)
				}
				for i := range rapid.IntRange(1, 6).Draw(t, "streams") {
					from := []Mux{a, b}[i%2]
					size := rapid.SampledFrom([]int{0, 1, 11, 4096, chunk, chunk + 1, 256<<10 - 1, 300 << 10, 1 << 20}).Draw(t, "size")
					piece := rapid.IntRange(100, 40<<10).Draw(t, "piece")
					wg.Go(func() {
						if err := roundTrip(from, size, piece); err != nil {
							t.Errorf("%d bytes in pieces of %d: %v", size, piece, err)
						}
					})
				}
				wg.Wait()
			})
		})
	}
}

// echo sends back what comes on each stream, until the session ends.
func echo(m Mux) {
	for {
		c, err := m.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}()
	}
}

func roundTrip(m Mux, size, piece int) error {
	c, err := m.Open()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	want := make([]byte, size)
	for i := range want {
		want[i] = byte(i * 7 / 3)
	}
	sent := make(chan error, 1)
	go func() {
		for rest := want; ; {
			n := min(piece, len(rest))
			if _, err := c.Write(rest[:n]); err != nil || len(rest) == n {
				sent <- err
				return
			}
			rest = rest[n:]
		}
	}()
	got := make([]byte, size)
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return errors.New("other bytes came back")
	}
	return <-sent
}

func frameOf(kind byte, flags uint16, id, length uint32, body ...byte) []byte {
	b := append([]byte{0, kind}, 0, 0)
	binary.BigEndian.PutUint16(b[2:], flags)
	b = binary.BigEndian.AppendUint32(b, id)
	b = binary.BigEndian.AppendUint32(b, length)
	return append(b, body...)
}

func TestServerMuxRefuses(t *testing.T) {
	many := bytes.Buffer{}
	for id := uint32(1); id < 2*mostKnown+3; id += 2 {
		many.Write(frameOf(typeWindow, flagSYN, id, 0))
	}
	open := frameOf(typeWindow, flagSYN, 1, 0)
	for name, c := range map[string]struct {
		bytes []byte
		kind  fault.Kind
	}{
		"another version":                       {[]byte("GET / HTTP/1.1\r\n"), fault.Invalid},
		"a type that there is none of":          {frameOf(4, 0, 1, 0), fault.Invalid},
		"a ping":                                {frameOf(typePing, flagSYN, 0, 1), fault.Invalid},
		"a go-away frame with an error":         {frameOf(typeAway, 0, 0, 1), fault.Invalid},
		"a stream that is open":                 {append(open, open...), fault.Invalid},
		"a stream of this side":                 {frameOf(typeWindow, flagSYN, 2, 0), fault.Invalid},
		"stream 0":                              {frameOf(typeWindow, flagSYN, 0, 0), fault.Invalid},
		"more data than the window":             {append(open, frameOf(typeData, 0, 1, minWindow+1)...), fault.Invalid},
		"data beyond the window piece by piece": {append(append(open, frameOf(typeData, 0, 1, minWindow, make([]byte, minWindow)...)...), frameOf(typeData, 0, 1, 1, 0)...), fault.Invalid},
		"a window without end":                  {append(append(open, frameOf(typeWindow, 0, 1, 1<<30)...), frameOf(typeWindow, 0, 1, 1<<30)...), fault.Invalid},
		"streams without end":                   {many.Bytes(), fault.Exceeded},
	} {
		t.Run("FT-L13 "+name+" ends the session", func(t *testing.T) {
			one, two := net.Pipe()
			defer func() { _ = one.Close() }()
			why := make(chan error, 1)
			m := newServerMux(two, Control(), false, func(err error) { why <- err })
			_, _ = one.Write(c.bytes)
			<-m.Done()
			if err := <-why; fault.KindOf(err) != c.kind {
				t.Errorf("the reason is %v, want %s", err, c.kind)
			}
			if _, err := m.Open(); err == nil {
				t.Error("a stream was opened on an ended session")
			}
		})
	}
}

func TestServerMuxEnds(t *testing.T) {
	t.Run("data before the end is read before the end", func(t *testing.T) {
		a, b, stop := between(muxSide(true), muxSide(false), Control())
		defer stop()
		c, err := a.Open()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte("last words"))
		_ = c.Close()
		other, err := b.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(other); err != nil || string(got) != "last words" {
			t.Errorf("read %q, %v", got, err)
		}
		_ = other.Close()
		if _, err := other.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write() after Close() = %v", err)
		}
		if a.Streams() > 1 || b.Streams() != 0 {
			t.Errorf("%d and %d streams are left of one that both sides have closed", a.Streams(), b.Streams())
		}
	})
	t.Run("FT-L3 the session's end wakes readers, writers and Accept", func(t *testing.T) {
		a, b, stop := between(muxSide(true), muxSide(false), Control())
		defer stop()
		c, err := a.Open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Accept(); err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 3)
		go func() { _, err := c.Read(make([]byte, 1)); errs <- err }()
		go func() { _, err := c.Write(make([]byte, 2*minWindow)); errs <- err }()
		go func() { _, err := a.Accept(); errs <- err }()
		_ = b.Close()
		for range 3 {
			if err := <-errs; err == nil {
				t.Error("something went well on an ended session")
			}
		}
	})
	t.Run("FT-L3 a dropped stream wakes both of its ends", func(t *testing.T) {
		one, two := net.Pipe()
		defer func() { _ = one.Close() }()
		m := newServerMux(two, Control(), false, func(error) {})
		defer func() { _ = m.Close() }()
		go func() { _, _ = io.Copy(io.Discard, one) }()
		_, _ = one.Write(frameOf(typeWindow, flagSYN, 1, 0))
		c, err := m.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = one.Write(frameOf(typeWindow, flagRST, 1, 0))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, errReset) {
			t.Errorf("Read() = %v", err)
		}
		if _, err := c.Write([]byte("x")); !errors.Is(err, errReset) {
			t.Errorf("Write() = %v", err)
		}
		if m.Streams() != 0 {
			t.Errorf("%d streams are left", m.Streams())
		}
	})
	t.Run("FT-L3 a connection without reads ends the session in time", func(t *testing.T) {
		lane := Control()
		lane.Stall = 20 * time.Millisecond
		one, two := net.Pipe() // nobody reads
		defer func() { _ = one.Close() }()
		why := make(chan error, 1)
		m := newServerMux(two, lane, false, func(err error) { why <- err })
		if _, err := m.Open(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Open() = %v", err)
		}
		if err := <-why; fault.KindOf(err) != fault.Offline {
			t.Errorf("the reason is %v", err)
		}
		<-m.Done()
	})
	t.Run("after a go-away frame open streams continue, and no new ones open", func(t *testing.T) {
		one, two := net.Pipe()
		defer func() { _ = one.Close() }()
		m := newServerMux(two, Control(), false, func(error) {})
		defer func() { _ = m.Close() }()
		go func() { _, _ = io.Copy(io.Discard, one) }()
		_, _ = one.Write(frameOf(typeWindow, flagSYN, 1, 0))
		_, _ = one.Write(frameOf(typeAway, 0, 0, 0))
		_, _ = one.Write(frameOf(typeData, 0, 1, 2, 'h', 'i'))
		c, err := m.Accept()
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 2)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "hi" {
			t.Errorf("read %q, %v", b, err)
		}
		if _, err := m.Open(); !errors.Is(err, errAway) {
			t.Errorf("Open() = %v", err)
		}
	})
}

func TestServerMuxDelivers(t *testing.T) {
	a, b, stop := between(muxSide(true), muxSide(false), Control())
	defer stop()
	mux := b.(*serverMux)
	got, ended := make(chan net.Conn, 2), make(chan error, 1)
	if _, err := a.Open(); err != nil { // before somebody takes them
		t.Fatal(err)
	}
	mux.Deliver(func(c net.Conn) { got <- c }, func(err error) { ended <- err })
	if _, err := a.Open(); err != nil {
		t.Fatal(err)
	}
	<-got
	<-got
	_ = a.Close()
	if err := <-ended; err == nil {
		t.Error("it ended without a reason")
	}
	late := make(chan error, 1)
	mux.Deliver(func(net.Conn) {}, func(err error) { late <- err })
	if err := <-late; err == nil {
		t.Error("whoever comes late hears no reason")
	}
}

// FuzzServerMux reads any bytes as frames. It must end, and hold no more than the
// windows of the streams that it lets in.
func FuzzServerMux(f *testing.F) {
	f.Add(frameOf(typeWindow, flagSYN, 1, 0))
	f.Add(append(frameOf(typeWindow, flagSYN, 1, 0), frameOf(typeData, flagFIN, 1, 3, 'a', 'b', 'c')...))
	f.Add(append(frameOf(typeData, flagSYN, 3, 1, 'x'), frameOf(typeWindow, flagRST, 3, 0)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		one, two := net.Pipe()
		m := newServerMux(two, Control(), false, func(error) {})
		m.Deliver(func(c net.Conn) {
			go func() {
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}()
		}, func(error) {})
		go func() { _, _ = io.Copy(io.Discard, one) }()
		_, _ = one.Write(data)
		_ = one.Close()
		<-m.Done()
	})
}
