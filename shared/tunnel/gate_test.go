package tunnel

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// readerConn reads from bytes.
type readerConn struct {
	net.Conn
	read func([]byte) (int, error)
}

func (c readerConn) Read(b []byte) (int, error) { return c.read(b) }

// TestGate cuts a run of frames into reads of any size: what is no ping
// passes as it is, and the first ping ends it wherever it lies.
func TestGate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []byte
		end := -1
		for range rapid.IntRange(0, 12).Draw(t, "frames") {
			kind := rapid.SampledFrom([]byte{0, 0, 0, 1, 1, 2, 3}).Draw(t, "kind")
			head := make([]byte, frameHead)
			head[1] = kind
			body := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "body")
			if kind != typeData {
				body = nil
			}
			length := uint32(len(body))
			if kind == 1 {
				length = 256 << 10 // a window, and no body
			}
			binary.BigEndian.PutUint32(head[8:], length)
			all = append(append(all, head...), body...)
			if kind == typePing && end < 0 {
				end = len(all)
			}
		}
		from := iotest.OneByteReader(bytes.NewReader(all))
		if rapid.Bool().Draw(t, "large reads") {
			from = bytes.NewReader(all)
		}
		g := &gate{Conn: readerConn{read: from.Read}}
		var got []byte
		buf := make([]byte, rapid.IntRange(1, 64).Draw(t, "read size"))
		for {
			n, err := g.Read(buf)
			got = append(got, buf[:n]...)
			if err != nil {
				break
			}
		}
		if !bytes.HasPrefix(all, got) {
			t.Fatal("the bytes are not those that came")
		}
		if end < 0 && len(got) != len(all) || end >= 0 && len(got) >= end {
			t.Fatalf("FT-L13 %d of %d bytes passed, the first ping ends at %d", len(got), len(all), end)
		}
	})
}
