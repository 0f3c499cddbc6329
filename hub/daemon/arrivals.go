package daemon

import (
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

// arriveFor is how long one request may hold its own tenant's refreshes up.
const arriveFor = 2 * time.Second

// arrivals lets the applications of one request arrive before the first of
// them is looked at: what is looked at in crumbs costs half as much again, and
// what follows from it holds up the rest of the request. Other tenants are not
// held up by it, and no request holds up anything for longer than arriveFor.
type arrivals struct {
	mu sync.Mutex
	of map[*arrival]struct{}
}

type arrival struct {
	tenant hub.TenantID
	began  time.Time
}

// begin notes a request; its end is to be called once.
func (a *arrivals) begin(tenant hub.TenantID) (end func()) {
	one := &arrival{tenant, time.Now()}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[*arrival]struct{}{}
	}
	a.of[one] = struct{}{}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.of, one)
	}
}

// tenants are those whose applications still arrive.
func (a *arrivals) tenants() []hub.TenantID {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []hub.TenantID
	for one := range a.of {
		if time.Since(one.began) < arriveFor {
			out = append(out, one.tenant)
		}
	}
	return out
}
