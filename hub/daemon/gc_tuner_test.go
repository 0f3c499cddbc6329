package daemon

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// ballast is garbage that a compiler cannot leave out.
var ballast []byte

func TestGCTuner(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	fresh := func() (*gcTuner, *[]int, *int) {
		var set []int
		returned := 0
		return &gcTuner{
			percent: workPercent, set: func(p int) { set = append(set, p) }, returnMemory: func() { returned++ }, agents: func() int { return 0 },
		}, &set, &returned
	}
	t.Run("the heap of an idle hub may grow to its usual size", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			rate float64
			held uint64
			want int
		}{
			{0, 0, workPercent},             // nothing is known
			{0, 1 << 40, leastPercent},      // never less
			{mb, 300 * mb, 10},              // 30 MiB in a while
			{4 * mb, 200 * mb, 30},          // 60 MiB
			{0, 20 * mb, 20},                // the least that it may grow
			{1000 * mb, 300 * mb, 100},      // it works
			{0, mb, workPercent},            // small as it is
			{1 << 60, 1 << 62, workPercent}, // no overflow
		} {
			if got := restPercent(c.rate, c.held); got != c.want {
				t.Errorf("restPercent(%v, %d) = %d, want %d", c.rate, c.held, got, c.want)
			}
		}
	})
	t.Run("a busy hub has a heap limit that fits a change of many applications", func(t *testing.T) {
		t.Parallel()
		for held, want := range map[uint64]int{0: 100, 1: 300, 150 * mb: 300, 200 * mb: 250, 240 * mb: 200, 500 * mb: 100, 5000 * mb: 100} {
			if got := roomPercent(held, mostPercent); got != want {
				t.Errorf("roomPercent(%d MiB) = %d, want %d", held/mb, got, want)
			}
		}
		h, set, _ := fresh()
		at := begin
		for i := range uint64(4) {
			at = at.Add(time.Second)
			h.collected(at, i*50*mb, 20*mb)
		}
		if !slices.Equal(*set, []int{mostPercent}) {
			t.Errorf("set to %v", *set)
		}
		h.finish()
		if !slices.Equal(*set, []int{mostPercent, workPercent}) {
			t.Errorf("set to %v in the end", *set)
		}
	})
	t.Run("the heap limit falls after two idle checks, and memory is released while garbage is made", func(t *testing.T) {
		t.Parallel()
		h, set, returned := fresh()
		for i := range 5 {
			h.adjust(begin.Add(time.Duration(i)*memoryEvery), uint64(i)*20*mb, 200*mb)
		}
		if !slices.Equal(*set, []int{15}) || *returned != 3 {
			t.Errorf("set to %v, memory returned %d times", *set, *returned)
		}
	})
	t.Run("memory is released once while nothing is allocated", func(t *testing.T) {
		t.Parallel()
		h, set, returned := fresh()
		for i := range 9 {
			h.adjust(begin.Add(time.Duration(i)*memoryEvery), uint64(i)*leastGrowth/8, 200*mb)
		}
		if !slices.Equal(*set, []int{leastPercent}) || *returned != 1 {
			t.Errorf("set to %v, memory returned %d times", *set, *returned)
		}
	})
	t.Run("two collections within a short time raise the heap limit at once", func(t *testing.T) {
		t.Parallel()
		h, set, _ := fresh()
		for i := range 4 {
			h.adjust(begin.Add(time.Duration(i)*memoryEvery), 0, 200*mb)
		}
		at := begin.Add(time.Minute)
		h.collected(at, 0, 0)
		if len(*set) != 1 {
			t.Fatalf("set to %v after one collection", *set)
		}
		h.collected(at.Add(time.Second), 0, 0)
		if want := []int{leastPercent, workPercent}; !slices.Equal(*set, want) {
			t.Errorf("set to %v, want %v", *set, want)
		}
		h.adjust(at.Add(2*time.Second), 0, 200*mb)
		if len(*set) != 2 {
			t.Error("one quiet check made the room small")
		}
	})
	t.Run("B14 while agents connect the heap limit is lower, and returns to its value afterwards", func(t *testing.T) {
		t.Parallel()
		h, set, _ := fresh()
		at, agents, live := begin, 0, uint64(50*mb)
		h.agents = func() int { return agents }
		collected := func(came int) {
			at, agents = at.Add(time.Second), agents+came
			h.collected(at, 0, live)
		}
		for i := range uint64(60) {
			live = (50 + i%3*20) * mb // up and down
			collected(50)
			collected(0) // the next ones are slow
		}
		if want := []int{densePercent}; !slices.Equal(*set, want) {
			t.Fatalf("set to %v while agents come", *set)
		}
		for range hasty / time.Second {
			collected(0)
		}
		if want := []int{densePercent, roomPercent(live, mostPercent)}; !slices.Equal(*set, want) {
			t.Errorf("set to %v, want %v", *set, want)
		}
		collected(agents / 200) // some are restarted
		collected(-agents / 200)
		collected(agents / 200)
		if len(*set) != 2 {
			t.Errorf("set to %v when some of many come and go", *set)
		}
	})
	t.Run("agents that connect to a hub with a high heap limit lower it", func(t *testing.T) {
		t.Parallel()
		h, set, _ := fresh()
		agents := 0
		h.agents = func() int { return agents }
		h.percent = mostPercent
		for i := range 3 { // far from each other
			agents += 10
			h.collected(begin.Add(time.Duration(i)*2*hasty), 0, 20*mb)
		}
		if want := []int{densePercent}; !slices.Equal(*set, want) {
			t.Errorf("set to %v, want %v", *set, want)
		}
	})
	t.Run("a busy hub keeps its heap limit", func(t *testing.T) {
		t.Parallel()
		h, set, returned := fresh()
		for i := range 6 {
			h.adjust(begin.Add(time.Duration(i)*memoryEvery), uint64(i)*1000*mb, 600*mb)
		}
		if len(*set) != 0 || *returned != 0 {
			t.Errorf("set to %v, memory returned %d times", *set, *returned)
		}
	})
	t.Run("B24 a change of many applications has a higher heap limit, and its garbage is collected afterwards", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h, set, _ := fresh()
			collections := 0
			h.collect = func() { collections++ }
			for i := range 4 {
				h.adjust(begin.Add(time.Duration(i)*memoryEvery), 0, 60*mb)
			}
			h.burst()
			at := begin.Add(time.Minute)
			for i := range uint64(3) { // what it holds for a moment is no agent that came
				at = at.Add(100 * time.Millisecond)
				h.collected(at, i*50*mb, i*20*mb)
			}
			h.adjust(at, 1000*mb, 60*mb)
			if want := []int{leastPercent, burstPercent}; !slices.Equal(*set, want) {
				t.Errorf("set to %v, want %v", *set, want)
			}
			time.Sleep(burstGone - time.Millisecond)
			h.burst() // another one begins
			time.Sleep(burstGone - time.Millisecond)
			synctest.Wait()
			if collections != 0 {
				t.Error("collected in the middle of a burst")
			}
			h.mu.Lock()
			h.before = 0
			h.mu.Unlock()
			ballast = make([]byte, 2*burstMade)
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if want := []int{leastPercent, burstPercent, mostPercent}; collections != 1 || !slices.Equal(*set, want) {
				t.Errorf("collected %d times and set to %v, want once and %v", collections, *set, want)
			}
			h.burst()
			h.finish()
			time.Sleep(2 * burstGone)
			synctest.Wait()
			if collections != 1 {
				t.Error("collected after the end")
			}
		})
	})
	t.Run("the end restores what was there before", func(t *testing.T) {
		t.Parallel()
		h, set, _ := fresh()
		for i := range 4 {
			h.adjust(begin.Add(time.Duration(i)*memoryEvery), 0, 200*mb)
		}
		h.finish()
		if want := []int{leastPercent, workPercent}; !slices.Equal(*set, want) {
			t.Errorf("set to %v, want %v", *set, want)
		}
	})
}
