package daemon

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// A change of many applications makes several times the size of the heap in a
// second, and a collection in the middle of it takes processor time that the
// change needs. So the heap may grow far, below a bound of the whole process,
// and a hub that is idle collects and returns what it has made. While agents
// connect the heap grows little: what stays of them would be spread over all of
// it, and keep it from being returned (0064).
const (
	groupMemory   = 0.7             // of what the control group may use; renderers are processes of their own
	machineMemory = 0.25            // of the machine's memory, without such a group
	roomyGrowth   = 800             // percent of the live heap between two collections
	denseGrowth   = 25              // the same while agents connect
	leastGarbage  = 4 << 20         // bytes that are worth a collection
	agentsEvery   = 2 * time.Second // between checks whether agents connect
	idleEvery     = 5               // of these checks: one whether the hub is idle
)

// connecting chooses how far the heap may grow.
type connecting struct {
	agents int  // connected, at the newest check
	were   bool // agents connected before it
}

// check hears how many agents are connected. They are connecting if there are
// over a hundredth more than at the check before, or were at that check; some of
// many always come and go. A hub that has just started expects them.
func (c *connecting) check(agents int) (growth int) {
	now := agents > c.agents+c.agents/100
	dense := now || c.were
	c.agents, c.were = agents, now
	if dense {
		return denseGrowth
	}
	return roomyGrowth
}

// idleMemory collects garbage and returns free memory to the system while
// little is allocated. The first check finds nothing idle.
type idleMemory struct {
	release func() // collects and returns memory

	checked bool
	made    uint64 // bytes ever allocated, at the newest check
	given   uint64 // the same when memory was returned last
	idle    int    // checks in a row that found the hub idle
}

// check hears how many bytes were ever allocated and how many of them the newest
// collection left. The hub is idle if it has allocated less than half of the
// live heap since the last check; the second such check returns memory, and a
// later one if an eighth of the heap has become garbage since.
func (m *idleMemory) check(made, live uint64) {
	since := made - m.made
	first := !m.checked
	m.checked, m.made = true, made
	if first || since > max(leastGarbage, live/2) {
		m.idle = 0
		return
	}
	m.idle++
	if m.idle == 2 || m.idle > 2 && made-m.given >= max(leastGarbage, live/8) {
		m.given = made
		m.release()
	}
}

// addMemory bounds the memory of the process and sets the collector, unless the
// environment configures it.
func (p *parts) addMemory(context.Context) error {
	lifecycle.BoundMemory(groupMemory, machineMemory, p.log)
	if os.Getenv("GOGC") != "" {
		return nil
	}
	p.add("memory", func(ctx context.Context) error {
		before := debug.SetGCPercent(denseGrowth)
		defer debug.SetGCPercent(before)
		growth, coming, idle, checks := denseGrowth, connecting{were: true}, idleMemory{release: debug.FreeOSMemory}, 0
		sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
		return lifecycle.Every(ctx, p.clock, agentsEvery, 0, nil, func(context.Context) error {
			if next := coming.check(p.fleet.Len()); next != growth {
				growth = next
				debug.SetGCPercent(growth)
			}
			if checks++; checks%idleEvery == 0 {
				metrics.Read(sample)
				idle.check(sample[0].Value.Uint64(), sample[1].Value.Uint64())
			}
			return nil
		})
	})
	return nil
}
