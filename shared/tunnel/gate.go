package tunnel

import (
	"encoding/binary"
	"net"

	"github.com/capstan-cd/capstan/shared/fault"
)

// The multiplexer's frames: version, type, flags (2), stream (4), length (4).
const (
	frameHead = 12
	typeData  = 0
	typePing  = 2
)

// gate reads the frames below the multiplexer and closes a connection whose
// peer sends pings. We never send any. For each ping the multiplexer starts a
// goroutine that waits until the peer reads, so many of them could use all
// memory.
type gate struct {
	net.Conn
	head [frameHead]byte
	have int    // bytes of head that were read
	body uint32 // bytes of the frame's data that follow
}

// Read returns what was received, after it was checked.
func (g *gate) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if bad := g.inspect(b[:n]); bad != nil {
		return 0, bad
	}
	return n, err
}

func (g *gate) inspect(b []byte) error {
	for len(b) > 0 {
		if g.body > 0 {
			skip := min(uint32(len(b)), g.body)
			g.body -= skip
			b = b[skip:]
			continue
		}
		n := copy(g.head[g.have:], b)
		g.have += n
		b = b[n:]
		if g.have < frameHead {
			return nil
		}
		g.have = 0
		switch g.head[1] {
		case typePing:
			return errPing()
		case typeData:
			g.body = binary.BigEndian.Uint32(g.head[8:])
		}
	}
	return nil
}

func errPing() error {
	return fault.New(fault.Invalid, "the other side of the link sends pings, which are not part of the protocol")
}
