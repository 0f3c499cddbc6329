package api_test

import (
	"context"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/apitest"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// A set of a thousand applications costs transactions of fifty, and when nothing
// is new it costs reads alone. Whoever needs more says so in this test.
func TestCostOfASet(t *testing.T) {
	t.Parallel()
	urls, meter := storetest.Metered(t, storetest.Database(t))
	h := apitest.NewOn(t, urls)
	s := &setHub{Hub: h, tenant: h.Tenant("acme")}
	s.admin = hub.Caller{Tenant: s.tenant, Username: "ann", Roles: []string{hub.RoleTenantAdmin}}
	s.in(func(ctx context.Context, tx *store.Tenant) error {
		_, err := tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: "prod"}, Server: "https://prod.test"})
		return err
	})
	const n = 1000
	s.apply(list("fleet", "default", names(n), ""))
	reconcile := func() (cost storetest.Cost, begun, written int) {
		t.Helper()
		meter.Take()
		s.reconcile("fleet")
		cost = meter.Take()
		for _, text := range cost.Statements {
			switch verb, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(text)), " "); verb {
			case "begin":
				begun++
			case "insert", "update", "delete":
				written++
			}
		}
		return cost, begun, written
	}
	t.Run("ASET-24 1,000 applications are written in transactions of 50", func(t *testing.T) {
		cost, begun, written := reconcile()
		t.Logf("%d statements in %d round trips, %d transactions, %d statements that write", len(cost.Statements), cost.Trips, begun, written)
		// Twenty for the applications, one for the status; four that read.
		if begun > 28 {
			t.Errorf("%d transactions", begun)
		}
		if set := s.set("fleet"); set.Status.ResourcesCount != n || set.Status.Health != hub.Healthy {
			t.Errorf("%+v", set.Status)
		}
	})
	t.Run("ASET-24 a reconcile that finds nothing new writes nothing", func(t *testing.T) {
		cost, begun, written := reconcile()
		t.Logf("%d statements in %d round trips, %d transactions, %d statements that write", len(cost.Statements), cost.Trips, begun, written)
		if written > 0 || len(cost.Statements) > 60 {
			t.Errorf("%d of %d statements write", written, len(cost.Statements))
		}
	})
}
