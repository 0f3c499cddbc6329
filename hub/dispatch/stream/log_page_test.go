package stream

import (
	"context"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch/wire"
)

// onlyHeads are the ends of logs, and nothing else of a store.
type onlyHeads struct {
	LogEnds
	of map[hub.ClusterID]hub.LogHead
}

func (e onlyHeads) Heads(_ context.Context, clusters []hub.ClusterID) (map[hub.ClusterID]hub.LogHead, error) {
	out := map[hub.ClusterID]hub.LogHead{}
	for _, c := range clusters {
		if h, there := e.of[c]; there {
			out[c] = h
		}
	}
	return out, nil
}

func TestPushedRows(t *testing.T) {
	t.Parallel()
	head := func(incarnation string, seq int64, chain string) hub.LogHead {
		return hub.LogHead{Incarnation: incarnation, Seq: seq, Chain: []byte(chain)}
	}
	held := head("a", 5, "five")
	held.Held = true
	additions := &wire.PushedRows{From: head("a", 3, "three"), To: head("a", 5, "five")}
	for name, test := range map[string]struct {
		known, end hub.LogHead
		pushed     *wire.PushedRows
		want       bool
	}{
		"B24 rows that end the log and continue what the stream has are not read": {head("a", 3, "three"), head("a", 5, "five"), additions, true},
		"that the hub waits for an admin is known as of this moment":              {head("a", 3, "three"), held, additions, true},
		"rows after them have to be read":                                         {head("a", 3, "three"), head("a", 6, "six"), additions, false},
		"a stream that lacks rows before them has to read those":                  {head("a", 2, "two"), head("a", 5, "five"), additions, false},
		"INV-5 a stream with another row before them is not served":               {head("a", 3, "other"), head("a", 5, "five"), additions, false},
		"a log that was begun anew has to be read":                                {head("a", 3, "three"), head("b", 5, "five"), additions, false},
		"a log that went back to an earlier state has to be read":                 {head("a", 3, "three"), head("a", 3, "three"), additions, false},
		"a log whose rows are others has to be read":                              {head("a", 3, "three"), head("a", 5, "other"), additions, false},
		"without news the log has to be read":                                     {head("a", 3, "three"), head("a", 5, "five"), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			place := cursor{LogPlace: hub.LogPlace{Cluster: "c", Known: test.known}, pushed: test.pushed}
			got, err := added(t.Context(), onlyHeads{of: map[hub.ClusterID]hub.LogHead{"c": test.end}}, []cursor{place})
			if err != nil {
				t.Fatal(err)
			}
			if found, ok := got[0]; ok != test.want || ok && headVersionOf(found) != headVersionOf(test.end) {
				t.Errorf("found %v, want it: %v", got, test.want)
			}
		})
	}
	t.Run("simultaneous notifications omit no row", func(t *testing.T) {
		t.Parallel()
		for name, batches := range map[string][]*wire.PushedRows{"two additions": {additions, additions}, "an unknown one first": {nil, additions}, "an unknown one last": {additions, nil}} {
			w := newWakes()
			l, stop := w.Subscribe("c")
			defer stop()
			for _, n := range batches {
				w.wake("c", n)
			}
			if got := w.pushed(l); got != nil {
				t.Errorf("%s: the log is not read", name)
			}
			w.wake("c", additions)
			if got := w.pushed(l); got != additions {
				t.Errorf("%s: what came after them is not known", name)
			}
		}
	})
}
