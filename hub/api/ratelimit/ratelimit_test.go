package ratelimit

import (
	"strconv"
	"testing"
)

func TestBuckets(t *testing.T) {
	t.Parallel()
	b := New(Rates{Caller: Rate{PerSecond: 1e-9, Burst: 2}}).Caller
	for i, want := range []bool{true, true, false} {
		if got := b.Allow("busy"); got != want {
			t.Errorf("request %d is allowed: %v", i+1, got)
		}
	}
	if !b.Allow("other") {
		t.Error("a name pays for another one")
	}
	for i := range maxBuckets {
		b.Allow("flood " + strconv.Itoa(i))
	}
	if b.Allow("busy") {
		t.Error("a flood of names makes a busy one start anew")
	}
	if held := len(b.now) + len(b.old); held > 2*maxBuckets {
		t.Errorf("%d names are held", held)
	}
}
