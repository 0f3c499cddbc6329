package inventory_test

import (
	"bytes"
	"testing"

	"github.com/capstan-cd/capstan/agent/inventory"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

// The last row of a log at rest is mostly an operation that is over. A replay
// leaves it out and closes with a marker in its place.
func TestReplayOfALogAtRest(t *testing.T) {
	t.Parallel()
	s, _ := open(t, t.TempDir())
	s.Guard(inventory.Cursor{Incarnation: "one", Seq: 2}) // known before the directory was lost
	l := &hubLog{t: t}
	state := l.state("a", 1)
	over := l.add(linkv1.RowKind_ROW_KIND_OPERATION, "a", &linkv1.Operation{Id: "op"})
	replay := batch(state)
	replay.Reset_ = true
	stageAndWait(t, s, replay)
	changes := stageAndWait(t, s, batch(&linkv1.Row{Seq: over.GetSeq(), Chain: over.GetChain()}))
	s.Settled()
	t.Run("INV-2 an agent that lost its directory reaches the end of the log, and runs no operation again", func(t *testing.T) {
		if c := s.Cursor(); s.Rewound() != "" || c.Seq != 2 || !bytes.Equal(c.Chain, over.GetChain()) || len(changes.Operations) != 0 {
			t.Errorf("rewound %q, cursor %+v, changes %+v", s.Rewound(), c, changes)
		}
		if !bytes.Equal(s.Root(), hashchain.Root(map[string][32]byte{"a": hashchain.Leaf("a", state.GetBody())})) {
			t.Error("the root is another")
		}
	})
	t.Run("INV-8 the next row is verified with the marker's chain hash", func(t *testing.T) {
		stageAndWait(t, s, batch(l.state("a", 2)))
		if s.Cursor().Seq != 3 || s.Rewound() != "" {
			t.Errorf("cursor %+v, rewound %q", s.Cursor(), s.Rewound())
		}
	})
}
