package source

import (
	"fmt"
	"slices"
	"testing"

	"github.com/capstan-cd/capstan/hub"
)

func items(tenant hub.TenantID, n int) (out []hub.WorkItem) {
	for i := range n {
		out = append(out, hub.WorkItem{Tenant: tenant, Key: fmt.Sprint(i)})
	}
	return out
}

func TestQueueRoom(t *testing.T) {
	t.Parallel()
	q := newQueue(LoopConfig{Parallel: 8, PerTenant: 4})
	want := func(limit int, busy ...hub.TenantID) {
		t.Helper()
		gotLimit, gotBusy := q.room()
		slices.Sort(gotBusy)
		if gotLimit != limit || !slices.Equal(gotBusy, busy) {
			t.Errorf("room for %d except %v, want %d except %v", gotLimit, gotBusy, limit, busy)
		}
	}
	next := func() *run {
		t.Helper()
		r, err := q.next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	want(4) // whoever is due, nobody gets more than a share
	q.add(items("a", 4))
	want(4, "a")
	a := next()
	want(4, "a") // what runs counts like what waits
	q.add(items("b", 3))
	want(1, "a") // of all that may run, one is left
	q.done(a)
	<-q.freed
	want(1)
	q.add(items("b", 1)[:1]) // claimed again after its lease ran out
	want(1)
	q.add(items("c", 1))
	want(1)
	for range 5 {
		q.done(next())
	}
	want(3) // one of each is left
}

func TestQueueRoomIsNoticed(t *testing.T) {
	t.Parallel()
	q := newQueue(LoopConfig{Parallel: 8, PerTenant: 4})
	q.add(items("a", 3))
	r, err := q.next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	q.done(r)
	select {
	case <-q.freed:
		t.Error("there was room before, and yet its growth is a reason to claim")
	default:
	}
	if q.pending {
		t.Error("a claim is planned without a need")
	}
}

// An item may be due again before its worker knows that the outcome is recorded.
func TestQueueKeepsWhatIsDueAgain(t *testing.T) {
	t.Parallel()
	q := newQueue(LoopConfig{Parallel: 8, PerTenant: 4})
	claim := func(token int64) { q.add([]hub.WorkItem{{Tenant: "a", Key: "0", Token: token}}) }
	next := func(token int64) *run {
		t.Helper()
		r, err := q.next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r.item.Token != token {
			t.Errorf("it runs under lease %d, want %d", r.item.Token, token)
		}
		return r
	}
	claim(1)
	first := next(1)
	claim(2) // its lease ran out
	if item := q.end(first); item.Token != 2 {
		t.Errorf("it ends under lease %d, want the newest", item.Token)
	}
	claim(3) // it was recorded, and asked for once more meanwhile
	second := next(3)
	q.done(first)
	claim(4)
	if item := q.end(second); item.Token != 4 {
		t.Errorf("the second ends under lease %d, want the newest", item.Token)
	}
	q.done(second)
	if len(q.running)+len(q.waiting) != 0 {
		t.Errorf("%d run and %d wait, want none", len(q.running), len(q.waiting))
	}
}
