package wire

import (
	"testing"

	"pgregory.net/rapid"
)

func TestSentBlobs(t *testing.T) {
	t.Parallel()
	t.Run("a late acknowledgement does not count as sent", func(t *testing.T) {
		t.Parallel()
		c := SentBlobs{upTo: 10}
		for _, n := range []uint64{14, 13, 20} {
			c.Add(n)
		}
		for n, want := range map[uint64]bool{1: true, 10: true, 11: false, 12: false, 13: true, 14: true, 15: false, 20: true, 21: false} {
			if c.Has(n) != want {
				t.Errorf("number %d: carried %v, want %v", n, c.Has(n), want)
			}
		}
	})
	t.Run("numbers without gaps use no memory", func(t *testing.T) {
		t.Parallel()
		var c SentBlobs
		for n := uint64(10_000); n > 0; n-- {
			c.Add(10_001 - n)
		}
		if c.upTo != 10_000 || len(c.more) != 0 {
			t.Errorf("up to %d and %d more, want up to 10000 and none", c.upTo, len(c.more))
		}
	})
	t.Run("what was added counts as sent, and the memory is bounded", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(r *rapid.T) {
			c := SentBlobs{upTo: rapid.Uint64Range(0, 20).Draw(r, "base")}
			for _, n := range rapid.SliceOfN(rapid.Uint64Range(0, 5_000), 0, 2_000).Draw(r, "numbers") {
				c.Add(n)
				if !c.Has(n) {
					r.Fatalf("number %d was added and is not carried", n)
				}
			}
			if len(c.more) > maxSentBlobs {
				r.Fatalf("%d numbers are kept, at most %d should be", len(c.more), maxSentBlobs)
			}
		})
	})
}
