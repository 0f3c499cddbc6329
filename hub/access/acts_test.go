package access

import "testing"

func TestActs(t *testing.T) {
	t.Parallel()
	ix := index(t, Policy{Text: "p, role:dev, applications, sync, shop/*, allow\n" +
		"p, role:dev, applications, delete/*/Pod/shop/*, shop/*, allow\ng, ann, role:dev\n"}, Subject{User: "ann"})
	t.Run("ROLL-04 rolling back has a right of its own, and syncing does not give it", func(t *testing.T) {
		t.Parallel()
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
	t.Run("RBAC-06(part) DEL-07 the right to delete single objects names their kinds and places", func(t *testing.T) {
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
