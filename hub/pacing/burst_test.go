package pacing

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestBurst(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		do   func(t *testing.T, w *burst)
		want time.Duration
	}{
		"nothing waits while nothing is done": {func(*testing.T, *burst) {}, 0},
		"nothing waits for a few applications": {func(_ *testing.T, w *burst) {
			w.add(burstSize - 1)
		}, 0},
		"B24 reports wait until a change has gone to all, and until its last rows are sent": {func(_ *testing.T, w *burst) {
			w.add(burstSize)
			time.AfterFunc(200*time.Millisecond, func() { w.add(-burstSize) })
		}, 200*time.Millisecond + burstTail},
		"B24 what can wait waits until all clusters have what they were sent": {func(_ *testing.T, w *burst) {
			w.add(burstSize)
			w.sent(2)
			w.add(-burstSize)
			time.AfterFunc(3*burstTail, func() { w.sent(-1) })
			time.AfterFunc(5*burstTail, func() { w.sent(-1) })
		}, 5 * burstTail},
		"B24 clusters that acknowledge at once do not cut the time short in which others are sent rows": {func(_ *testing.T, w *burst) {
			w.add(burstSize)
			w.sent(1)
			w.add(-burstSize)
			w.sent(-1)
		}, burstTail},
		"a cluster that does not answer holds up nothing after the first moments": {func(_ *testing.T, w *burst) {
			w.add(burstSize)
			w.sent(1)
			w.add(-burstSize)
		}, burstHolds},
		"rows of another burst count as well": {func(_ *testing.T, w *burst) {
			w.add(1000)
			w.add(-1000)
			time.Sleep(burstTail / 2)
			w.add(1000)
			time.AfterFunc(4*burstTail, func() { w.add(-1000) })
		}, 5 * burstTail},
		"a burst that lasts holds up nothing after its first moments": {func(_ *testing.T, w *burst) {
			w.add(1000)
			time.Sleep(burstHolds)
		}, 0},
		"nothing waits longer than the first moments": {func(_ *testing.T, w *burst) {
			w.add(1000)
			time.Sleep(burstHolds / 4)
		}, burstHolds * 3 / 4},
		"bursts that follow each other at once are one": {func(_ *testing.T, w *burst) {
			w.add(1000)
			time.Sleep(burstHolds - 10*time.Millisecond)
			w.add(-1000)
			time.Sleep(5 * time.Millisecond)
			w.add(1000)
		}, 5 * time.Millisecond},
		"a burst after some rest is another one": {func(_ *testing.T, w *burst) {
			w.add(1000)
			time.Sleep(2 * burstHolds)
			w.add(-1000)
			time.Sleep(2 * burstApart)
			w.add(1000)
		}, burstHolds},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &burst{}
				test.do(t, w)
				began := time.Now()
				await(t.Context(), w.done())
				if got := time.Since(began); got != test.want {
					t.Errorf("waited %s, want %s", got, test.want)
				}
			})
		})
	}
}
