package fleet

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

func clusterNo(n int) hub.ClusterID { return hub.ClusterID(fmt.Sprintf("cluster-%d", n)) }

// advice is the time that a refused agent is told.
func advice(t *testing.T, err error) time.Duration {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Exceeded || f.RetryAfter < time.Second || f.RetryAfter > time.Minute {
		t.Fatalf("FT-L11 take() = %+v", err)
	}
	return f.RetryAfter
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	t.Run("FT-L11 the fleet of one tenant has the whole rate, with a time for each agent", func(t *testing.T) {
		t.Parallel()
		now := time.Now()
		a := newAdmission(50, 600)
		waits := map[time.Duration]int{}
		var in int
		for n := range 5000 {
			if err := a.take("t", clusterNo(n), now); err != nil {
				waits[advice(t, err).Truncate(time.Second)]++
			} else {
				in++
			}
		}
		if in != 600 {
			t.Errorf("%d of 5000 agents are let in at once, want 600", in)
		}
		for at := 2 * time.Second; at < time.Minute; at += time.Second {
			if n := waits[at]; n < 49 || n > 51 {
				t.Errorf("%d agents are told to come after %s, want 50", n, at)
			}
		}
	})
	t.Run("FT-L11 a fleet that retries at its assigned times reconnects at the rate", func(t *testing.T) {
		t.Parallel()
		if last := comeBack(t, newAdmission(100, 600), map[hub.TenantID]int{"t": 1000})["t"]; last > 6*time.Second {
			t.Errorf("1,000 agents of one tenant are back after %s", last)
		}
		// 9,400 at 100 a second; agents add an eighth to what they are told.
		if last := comeBack(t, newAdmission(100, 600), map[hub.TenantID]int{"t": 10_000})["t"]; last > 2*time.Minute {
			t.Errorf("10,000 agents of one tenant are back after %s", last)
		}
	})
	t.Run("FT-L11 many tenants of one cluster each are back at the rate", func(t *testing.T) {
		t.Parallel()
		fleets := map[hub.TenantID]int{"large": 1000}
		for n := range 1000 {
			fleets[hub.TenantID(fmt.Sprint("small-", n))] = 1
		}
		for tenant, last := range comeBack(t, newAdmission(100, 600), fleets) {
			if last > 30*time.Second {
				t.Errorf("tenant %s is back after %s; 1,400 agents at 100 a second are 14 s", tenant, last)
			}
		}
	})
	t.Run("INV-7 the reserved times of a large tenant do not delay small ones", func(t *testing.T) {
		t.Parallel()
		back := comeBack(t, newAdmission(100, 600), map[hub.TenantID]int{"large": 5000, "other": 5000, "small": 100})
		if back["small"] > 10*time.Second || max(back["large"], back["other"]) > 2*time.Minute {
			t.Errorf("they are back after %v", back)
		}
	})
	t.Run("FT-L13 INV-7 an agent that floods does not affect others", func(t *testing.T) {
		t.Parallel()
		now := time.Now()
		a := newAdmission(100, 600)
		var in int
		for range 100_000 {
			if a.take("hostile", "hostile", now) == nil {
				in++
			}
		}
		if in != clusterBurst {
			t.Errorf("%d Hellos of one cluster were taken, want %d", in, clusterBurst)
		}
		if err := a.take("hostile", "its neighbour", now); err != nil {
			t.Errorf("another cluster of that tenant: %v", err)
		}
		for n := range 400 {
			if err := a.take("innocent", clusterNo(n), now); err != nil {
				t.Fatalf("agent %d of another tenant: %v", n, err)
			}
		}
		if got := advice(t, a.take("hostile", "hostile", now)); got != time.Second {
			t.Errorf("a flood reserves times: it is told %s", got)
		}
	})
	t.Run("INV-7 LD-2 a tenant that floods from all its clusters does not reduce the share of others", func(t *testing.T) {
		t.Parallel()
		now := time.Now()
		a := newAdmission(100, 600)
		var in, refused int
		for second := range 60 {
			for n := range 5000 {
				_ = a.take("hostile", clusterNo(n), now)
			}
			for n := range 40 {
				if a.take("innocent", hub.ClusterID(fmt.Sprint("innocent-", second, "-", n)), now) == nil {
					in++
				} else {
					refused++
				}
			}
			now = now.Add(time.Second)
		}
		if refused > 0 {
			t.Errorf("%d agents were let in and %d refused; their tenant stays below its share", in, refused)
		}
	})
	t.Run("FT-L11 one that retries early keeps its assigned time", func(t *testing.T) {
		t.Parallel()
		now := time.Now()
		a := newAdmission(0.2, 1)
		for n := range 10 {
			_ = a.take("t", clusterNo(n), now)
		}
		first := advice(t, a.take("t", "late", now))
		for range 3 {
			now = now.Add(time.Second)
			if got := advice(t, a.take("t", "late", now)); got > first-time.Second {
				t.Errorf("it was told %s, and a second later %s", first, got)
			}
			first -= time.Second
		}
	})
}

// comeBack plays agents that all come at once and then when they are told,
// and says when the last of each tenant is let in.
func comeBack(t *testing.T, a *admission, fleets map[hub.TenantID]int) map[hub.TenantID]time.Duration {
	t.Helper()
	type agent struct {
		tenant  hub.TenantID
		cluster hub.ClusterID
	}
	begin := time.Now()
	const step = 50 * time.Millisecond
	due := map[int][]agent{}
	left := 0
	for tenant, n := range fleets {
		for i := range n {
			due[0] = append(due[0], agent{tenant, hub.ClusterID(fmt.Sprint(tenant, "/", i))})
			left++
		}
	}
	last := map[hub.TenantID]time.Duration{}
	for at := 0; left > 0; at++ {
		if at > int(10*time.Minute/step) {
			t.Fatalf("%d agents are not back after ten minutes", left)
		}
		now := begin.Add(time.Duration(at) * step)
		for _, g := range due[at] {
			err := a.take(g.tenant, g.cluster, now)
			if err == nil {
				left--
				last[g.tenant] = now.Sub(begin)
				continue
			}
			wait := advice(t, err)
			next := at + int((wait+wait/8)/step)
			due[next] = append(due[next], g)
		}
		delete(due, at)
	}
	return last
}

// TestFairLimit plays parties at random: never more is taken than the bucket
// holds, and one that takes all it can does not keep out another.
func TestFairLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const perSecond, burst = 50, 100
		const most = burst + burst/4
		l := newFairLimit(perSecond, burst)
		now := time.Now()
		begin := now
		greedy := rapid.IntRange(1, 8).Draw(t, "greedy parties")
		var taken, modest, refused int
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 500).Draw(t, "ms")) * time.Millisecond)
			for n := range rapid.IntRange(0, 300).Draw(t, "asked") {
				if _, ok := l.take(fmt.Sprint("greedy-", n%greedy), true, now); ok {
					taken++
				}
			}
			if most := perSecond * now.Sub(begin).Seconds(); float64(modest) < most/float64(2*(greedy+1)) {
				modest++
				if _, ok := l.take("modest", true, now); ok {
					taken++
				} else {
					refused++
				}
			}
		}
		if most := most + perSecond*now.Sub(begin).Seconds() + 1; float64(taken) > most {
			t.Fatalf("%d tokens were taken of %.0f", taken, most)
		}
		if refused > 0 && greedy == 1 {
			t.Fatalf("INV-7 a party that asked for half its share was refused %d of %d times", refused, modest)
		}
	})
}
