package daemon

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

func TestArrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a arrivals
		is := func(why string, want ...hub.TenantID) {
			t.Helper()
			got := a.tenants()
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", why, got, want)
			}
		}
		is("nobody applies anything")
		first := a.begin("acme")
		second := a.begin("acme")
		globex := a.begin("globex")
		first()
		is("of two requests of a tenant one is left", "acme", "globex")
		globex()
		is("a request that ended holds nothing up", "acme")
		time.Sleep(arriveFor)
		is("a request that lasts holds nothing up any more")
		second()
		is("its end is no mistake then")
	})
}
