package daemon

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// A hub with many idle agents has a large heap and makes little garbage. How
// far the heap may grow between two collections depends on the load: far while
// the hub works, and only so far while it is idle that collections stay rare.
// Memory that an idle hub has freed is returned to the system at each check: it
// would otherwise retain as much garbage as the heap may grow. A change of many
// applications has that room from its first moment, and its garbage is
// collected afterwards: a collection in the middle costs as much time as half
// of the change.
const (
	memoryEvery  = 10 * time.Second // between checks
	restEvery    = 15 * time.Second // between collections while the hub rests
	hasty        = 4 * time.Second  // two collections within this: the hub works
	workPercent  = 100              // while the hub works, at least
	mostPercent  = 300              // and at most
	workStep     = 50
	workRoom     = 512 << 20 // bytes between two collections that are worth having then
	densePercent = 25        // while agents come: what stays of them lies close together
	leastPercent = 10
	ownMemory    = 0.7             // of what the control group may use; renderers are processes of their own
	leastGrowth  = 4 << 20         // bytes between two collections, whatever is made
	burstPercent = 800             // while a change goes to many applications, at most
	burstGone    = 3 * time.Second // from the beginning of a burst until what came back of it is stored
	burstMade    = 32 << 20        // bytes that it must have made to be worth a collection
)

// restPercent is how far the heap may grow, in percent of what a collection has
// to scan, so that garbage at a constant rate is collected each restEvery.
func restPercent(rate float64, held uint64) int {
	if held == 0 {
		return workPercent
	}
	growth := max(leastGrowth, rate*restEvery.Seconds())
	return int(min(workPercent, max(leastPercent, 100*growth/float64(held))))
}

// roomPercent is how far the heap may grow while the hub works. A change of a
// thousand applications makes several times the size of the heap, and each
// collection scans all of it.
func roomPercent(held, most uint64) int {
	if held == 0 {
		return workPercent
	}
	percent := min(most, 100*workRoom/held)
	return max(workPercent, int(percent)/workStep*workStep)
}

// A gcTuner sets the collector of the process.
type gcTuner struct {
	set          func(percent int)
	returnMemory func() // returns free memory to the system
	collect      func()
	agents       func() int // that are connected

	mu          sync.Mutex
	held        uint64      // what collections scan, at the newest check
	bursts      bool        // a change goes to many applications
	burstEnd    *time.Timer // until the newest such change is through; nil: there was none
	percent     int
	quietChecks int       // checks in a row that found the hub idle
	last        time.Time // newest collection
	made        uint64    // bytes allocated up to the last check
	given       uint64    // the same when memory was returned last
	checkedAt   time.Time
	before      uint64    // bytes made up to the newest collection
	had         int       // agents that were there at counted
	counted     time.Time // a moment ago
	agentsSince time.Time // newest collection that found more of them
	finished    bool
}

// collected is called at each collection. Two close to each other mean that the
// hub works: room is made at once. While agents connect there is less of it:
// their data would be spread over all the room, and retain it as long as they
// stay connected. The heap's size does not show that they connect: it varies by
// more than what stays.
func (t *gcTuner) collected(now time.Time, made, live uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(now, t.agents())
	t.before = made
	coming, hurried := now.Sub(t.agentsSince) < hasty, now.Sub(t.last) < hasty
	switch {
	case t.bursts: // there is room until it is through
	case coming && (hurried || t.percent > densePercent):
		t.quietChecks = 0
		t.setHeadroom(densePercent)
	case hurried:
		t.useWorkingHeadroom(live)
	}
	t.last = now
}

// count notes whether agents come: more than a few of those that are there
// come and go.
func (t *gcTuner) count(now time.Time, agents int) {
	more := agents > t.had+t.had/100
	if more {
		t.agentsSince = now
	}
	if more || agents < t.had || now.Sub(t.counted) >= hasty {
		t.had, t.counted = agents, now
	}
}

// useWorkingHeadroom sets the room for a working hub.
func (t *gcTuner) useWorkingHeadroom(held uint64) {
	t.quietChecks = 0
	most := uint64(mostPercent)
	if t.bursts {
		most = burstPercent
	}
	t.setHeadroom(roomPercent(held, most))
}

func (t *gcTuner) setHeadroom(percent int) {
	if t.percent != percent {
		t.percent = percent
		t.set(percent)
	}
}

// burst is called when a change of many applications begins.
func (t *gcTuner) burst() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.finished {
		return
	}
	t.bursts = true
	t.useWorkingHeadroom(t.held)
	if t.burstEnd == nil {
		t.burstEnd = time.AfterFunc(burstGone, t.through)
		return
	}
	t.burstEnd.Reset(burstGone)
}

// through collects what a burst has made, while nothing waits for it.
func (t *gcTuner) through() {
	made, _ := heap()
	t.mu.Lock()
	worth := !t.finished && made > t.before+burstMade
	t.bursts = false
	if !t.finished {
		t.useWorkingHeadroom(t.held)
	}
	t.mu.Unlock()
	if worth {
		t.collect()
	}
}

// heap returns the bytes that were ever made and those that the newest
// collection left.
func heap() (made, live uint64) {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64(), sample[1].Value.Uint64()
}

// adjust adapts the room to the allocations since the last check. Only two
// quiet checks in a row make it small.
func (t *gcTuner) adjust(now time.Time, made, held uint64) {
	t.mu.Lock()
	since, bytes := now.Sub(t.checkedAt).Seconds(), made-t.made
	first := t.checkedAt.IsZero()
	t.checkedAt, t.made, t.held = now, made, held
	if first || since <= 0 {
		t.mu.Unlock()
		return
	}
	percent := restPercent(float64(bytes)/since, held)
	if percent >= workPercent {
		t.quietChecks = 0
		if now.Sub(t.agentsSince) >= hasty {
			t.useWorkingHeadroom(held)
		}
		t.mu.Unlock()
		return
	}
	t.quietChecks++
	rests := t.quietChecks == 2
	if t.quietChecks >= 2 && (rests || percent < t.percent*3/4 || percent > t.percent*5/4) {
		t.percent = percent
		t.set(percent)
	}
	returns := rests || t.quietChecks > 2 && made-t.given >= leastGrowth
	if returns {
		t.given = made
		t.last = time.Time{} // the next collection is asked for
	}
	t.mu.Unlock()
	if returns {
		t.returnMemory()
	}
}

// watch calls collected after each collection.
func (t *gcTuner) watch() {
	type mark struct{ _ *mark }
	runtime.AddCleanup(new(mark), func(t *gcTuner) {
		made, live := heap()
		t.collected(time.Now(), made, live)
		t.mu.Lock()
		finished := t.finished
		t.mu.Unlock()
		if !finished {
			t.watch()
		}
	}, t)
}

func (t *gcTuner) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.finished, t.bursts = true, false
	if t.burstEnd != nil {
		t.burstEnd.Stop()
	}
	t.useWorkingHeadroom(0)
}

// addGCTuner limits memory while the hub is idle, unless the environment
// configures the collector.
func (p *parts) addGCTuner(context.Context) error {
	lifecycle.BoundMemory(ownMemory, p.log)
	if os.Getenv("GOGC") != "" {
		return nil
	}
	t := &gcTuner{
		percent: workPercent, set: func(percent int) { debug.SetGCPercent(percent) }, returnMemory: debug.FreeOSMemory, collect: runtime.GC,
		agents: p.fleet.Len,
	}
	p.queue.first.burst = func() { go t.burst() } // a collection that is under way is waited for
	p.add("memory", func(ctx context.Context) error {
		t.watch()
		defer t.finish()
		sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
		return lifecycle.Every(ctx, p.clock, memoryEvery, 0, nil, func(context.Context) error {
			metrics.Read(sample)
			t.adjust(p.clock.Now(), sample[0].Value.Uint64(), sample[1].Value.Uint64()+sample[2].Value.Uint64()+sample[3].Value.Uint64())
			return nil
		})
	})
	return nil
}
