package access

import (
	"slices"
	"testing"

	"github.com/capstan-cd/capstan/hub"
)

func TestActs(t *testing.T) {
	t.Parallel()
	ix := index(t, Policy{Projects: []hub.Project{{Meta: hub.Meta{Name: "shop"}}, {Meta: hub.Meta{Name: "other"}}}, Values: csv("p, role:dev, applications, sync, shop/*, allow\n" +
		"p, role:dev, applications, delete/*/Pod/shop/*, shop/*, allow\ng, ann, role:dev\n")}, Subject{User: "ann"})
	t.Run("ROLL-04 who may sync may roll back", func(t *testing.T) {
		t.Parallel()
		if !ix.Check(Applications, Sync, "shop/web") || !ix.Check(Applications, Rollback, "shop/web") || ix.Check(Applications, Rollback, "other/web") {
			t.Error("a right is wrong")
		}
		if all, projects := ix.AllowedProjects(Applications, Rollback); all || !slices.Equal(projects, []string{"shop"}) {
			t.Errorf("it reaches into %v, all of them: %v", projects, all)
		}
	})
	t.Run("ROLL-04 who is denied syncs is denied rollbacks, and who is denied rollbacks may sync", func(t *testing.T) {
		t.Parallel()
		ix := index(t, Policy{Values: csv("p, role:dev, applications, sync, shop/*, allow\np, role:dev, applications, sync, shop/prod, deny\n" +
			"p, role:dev, applications, rollback, shop/db, deny\ng, ann, role:dev\n")}, Subject{User: "ann"})
		if ix.Check(Applications, Rollback, "shop/prod") || ix.Check(Applications, Rollback, "shop/db") || !ix.Check(Applications, Sync, "shop/db") || !ix.Check(Applications, Rollback, "shop/web") {
			t.Error("a right is wrong")
		}
	})
	t.Run("ROLL-04 if the tenant requires the right rollback, the right to sync is not sufficient", func(t *testing.T) {
		t.Parallel()
		ix := index(t, Policy{RollbackApart: true, Values: csv("p, role:dev, applications, sync, shop/*, allow\np, role:lead, applications, rollback, shop/*, allow\n" +
			"g, ann, role:dev\ng, ben, role:lead\n")}, Subject{User: "ann"})
		if !ix.Check(Applications, Sync, "shop/web") || ix.Check(Applications, Rollback, "shop/web") {
			t.Error("a right is wrong")
		}
	})
	t.Run("RBAC-10 SYNC-05 SYNC-06 so has applying something else than the application names", func(t *testing.T) {
		t.Parallel()
		if ix.Check(Applications, Override, "shop/web") {
			t.Error("the right to sync overrides")
		}
	})
	t.Run("RBAC-06 DEL-07 the right to delete single objects names their kinds and places", func(t *testing.T) {
		t.Parallel()
		for action, want := range map[string]bool{
			"delete//Pod/shop/web-1": true, "delete//Pod/other/web-1": false, "delete//Secret/shop/x": false, Delete: false,
		} {
			if got := ix.Check(Applications, action, "shop/web"); got != want {
				t.Errorf("Check(%q) = %v, want %v", action, got, want)
			}
		}
	})
}
