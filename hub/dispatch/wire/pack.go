package wire

import (
	"sync/atomic"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/compress"
)

// packMemory is what all streams together keep of the states that they have
// sent, in bytes.
const packMemory = 64 << 20

// Bases are the states that one stream has sent and the agent therefore
// holds: later rows of the same application are packed against them. They are
// a saving only; a state that is not kept costs a whole row.
type Bases struct {
	used   *atomic.Int64 // by all streams
	size   int64
	bodies map[hub.ApplicationID][]byte
}

// NewBases makes those of one stream. Used counts the bytes of all streams.
func NewBases(used *atomic.Int64) *Bases { return &Bases{used: used} }

// Pack makes a row small if that is worth it.
func (b *Bases) Pack(row hub.LogRow, out *linkv1.Row) error {
	packed, name, ok, err := compress.Pack(row.Body, b.bodies[row.Application])
	if err != nil {
		return err
	}
	if ok {
		out.Body, out.Packed, out.Base = nil, packed, name
	}
	switch row.Kind {
	case hub.RowState:
		b.add(row)
	case hub.RowForget:
		b.drop(row.Application)
	}
	return nil
}

func (b *Bases) add(row hub.LogRow) {
	b.drop(row.Application)
	n := int64(len(row.Body))
	if n < compress.Least {
		return
	}
	if b.used.Add(n) > packMemory {
		b.used.Add(-n)
		return
	}
	if b.bodies == nil {
		b.bodies = map[hub.ApplicationID][]byte{}
	}
	b.size += n
	b.bodies[row.Application] = row.Body
}

func (b *Bases) drop(app hub.ApplicationID) {
	n := int64(len(b.bodies[app]))
	delete(b.bodies, app)
	b.size -= n
	b.used.Add(-n)
}

// Forget is called when the agent forgets its states, and when the stream
// ends.
func (b *Bases) Forget() {
	b.used.Add(-b.size)
	b.size, b.bodies = 0, nil
}
