package dispatch_test

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestSelected(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) *world {
		w := newWorld(t, manual)
		w.Render("r1", "web", "old")
		if _, err := w.sync(hub.SyncRequest{}); err != nil {
			t.Fatal(err)
		}
		w.End(hub.Succeeded, "")
		w.Render("r2", "web", "api") // "old" is to be pruned
		return w
	}
	t.Run("SYNC-03 a selection without a match is refused, with similar names", func(t *testing.T) {
		t.Parallel()
		w := begin(t)
		before := len(w.Rows())
		for _, c := range []struct {
			resources []string
			says      []string
		}{
			{[]string{":ConfigMap:nope"}, []string{`no resource ":ConfigMap:nope"`, ":ConfigMap:", "nearest of 3"}},
			{[]string{":ConfigMap:wep"}, []string{`":ConfigMap:wep"`, "is :ConfigMap:web"}},
			{[]string{"apps:ConfigMap:web"}, []string{"is :ConfigMap:web"}},
			{[]string{":configmap:web"}, []string{"is :ConfigMap:web"}},
			{[]string{":ConfigMap:elsewhere/web"}, []string{"is :ConfigMap:web"}},
			{[]string{":ConfigMap:web", ":ConfigMap:nope"}, []string{`":ConfigMap:nope"`}},
			{[]string{"!:ConfigMap:nope"}, []string{`"!:ConfigMap:nope"`}},
			{[]string{"*:Secret:*"}, []string{`"*:Secret:*"`}},
			{[]string{":ConfigMap:web", "!:ConfigMap:*"}, []string{"leave out everything"}},
			{[]string{"web"}, []string{`"web" names no resource`}},
		} {
			for _, dry := range []bool{false, true} {
				_, err := w.sync(hub.SyncRequest{Options: hub.OperationOptions{Resources: c.resources, DryRun: dry}})
				if fault.KindOf(err) != fault.Invalid {
					t.Errorf("%v: error %v; want Invalid", c.resources, err)
					continue
				}
				for _, s := range append(c.says, "application ") {
					if !strings.Contains(fault.Sentence(err), s) {
						t.Errorf("%v: %q does not say %q", c.resources, fault.Sentence(err), s)
					}
				}
			}
		}
		if after := len(w.Rows()); after != before {
			t.Errorf("%d rows went out", after-before)
		}
	})
	for _, good := range [][]string{
		{":ConfigMap:web"}, {"*:*:web"}, {"!:ConfigMap:web"}, {":ConfigMap:old"}, {":ConfigMap:*", "!:ConfigMap:old"}, {":ConfigMap:shop/web"},
	} {
		t.Run("SYNC-03 what matches is synced: "+strings.Join(good, " "), func(t *testing.T) {
			t.Parallel()
			w := begin(t)
			if _, err := w.sync(hub.SyncRequest{Options: hub.OperationOptions{Resources: good}}); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("SYNC-03 at another revision the operation fails with the sentence", func(t *testing.T) {
		t.Parallel()
		w := begin(t)
		op, err := w.sync(hub.SyncRequest{Override: &hub.Override{Revision: "other"}, Options: hub.OperationOptions{Resources: []string{":ConfigMap:later"}}})
		if err != nil {
			t.Fatal(err)
		}
		w.rendered(op.ID, "other", hub.ObjectRef{Version: "v1", Kind: "ConfigMap", Name: "late"})
		got := w.Reload().Status.Operation
		if got == nil || got.Phase != hub.Failed || !strings.Contains(got.Message, ":ConfigMap:late") {
			t.Errorf("operation %+v", got)
		}
	})
	t.Run("SYNC-03 HOOK-15 a hook is distinguished from a missing object", func(t *testing.T) {
		t.Parallel()
		w := begin(t)
		w.rendered("", "r3", hub.ObjectRef{Version: "v1", Kind: "ConfigMap", Name: "web"}, hub.ObjectRef{Group: "batch", Version: "v1", Kind: "Job", Name: "migrate", Hook: "PreSync"})
		_, err := w.sync(hub.SyncRequest{Options: hub.OperationOptions{Resources: []string{"batch:Job:migrate"}}})
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "is a hook") {
			t.Errorf("error %v", err)
		}
	})
}
