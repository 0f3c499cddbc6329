package daemon

import (
	"slices"
	"testing"
)

func TestIdleMemory(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	for name, c := range map[string]struct {
		live uint64
		made []uint64 // bytes allocated between two checks
		want []int    // checks that return memory
	}{
		"a hub that has just started":            {100 * mb, []uint64{0}, nil},
		"the second idle check":                  {100 * mb, []uint64{0, mb, mb}, []int{2}},
		"garbage of an eighth of the heap":       {100 * mb, []uint64{0, 0, 0, 5 * mb, 5 * mb, 5 * mb, 0}, []int{2, 5}},
		"little garbage in a small heap":         {mb, []uint64{0, 0, 0, 2 * mb, 2 * mb, 0}, []int{2, 4}},
		"nothing is allocated any more":          {100 * mb, []uint64{0, 0, 0, 0, 0, 0}, []int{2}},
		"a hub that works":                       {100 * mb, []uint64{0, 60 * mb, 60 * mb, 60 * mb, 60 * mb}, nil},
		"one idle check of a hub that works":     {100 * mb, []uint64{0, 60 * mb, 0, 60 * mb, 0}, nil},
		"work after idleness, and idle again":    {100 * mb, []uint64{0, 0, 0, 200 * mb, 0, 0, 0}, []int{2, 5}},
		"constant garbage of half of the heap":   {100 * mb, []uint64{0, 50 * mb, 50 * mb, 50 * mb}, []int{2, 3}},
		"constant garbage beyond half of a heap": {100 * mb, []uint64{0, 51 * mb, 51 * mb, 51 * mb}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []int
			at, made := 0, uint64(1<<40)
			m := idleMemory{release: func() { got = append(got, at) }}
			for i, bytes := range c.made {
				at, made = i, made+bytes
				m.check(made, c.live)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("memory was returned at checks %v, want %v", got, c.want)
			}
		})
	}
}

func TestHeapGrowthWhileAgentsConnect(t *testing.T) {
	t.Parallel()
	const dense, roomy = denseGrowth, roomyGrowth
	for name, c := range map[string]struct {
		agents, want []int
	}{
		"B14 agents connect after a start":         {[]int{0, 300, 600, 1000, 1000, 1000}, []int{dense, dense, dense, dense, dense, roomy}},
		"a start without agents":                   {[]int{0, 0}, []int{dense, roomy}},
		"a few of many reconnect":                  {[]int{0, 1000, 995, 1000, 990, 999}, []int{dense, dense, dense, roomy, roomy, roomy}},
		"all reconnect":                            {[]int{1000, 1000, 1000, 0, 500, 1000, 1000, 1000}, []int{dense, dense, roomy, roomy, dense, dense, dense, roomy}},
		"the second agent of a small installation": {[]int{1, 1, 1, 2, 2, 2}, []int{dense, dense, roomy, dense, dense, roomy}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := connecting{were: true}
			var got []int
			for _, n := range c.agents {
				got = append(got, m.check(n))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("the heap may grow by %v %%, want %v", got, c.want)
			}
		})
	}
}
