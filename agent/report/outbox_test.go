package report_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capstan-cd/capstan/agent/report"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

func newOutbox(delivered func(string)) *report.Outbox {
	if delivered == nil {
		delivered = func(string) {}
	}
	return report.New("epoch", lifecycle.System{}, delivered, slog.New(slog.DiscardHandler))
}

func next(t *testing.T, o *report.Outbox) *linkv1.ReportUp {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := o.Next(ctx)
	if err != nil {
		t.Fatalf("nothing to say: %v", err)
	}
	return r
}

// nothing fails if there is anything to say within a minute.
func nothing(t *testing.T, o *report.Outbox) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if r, err := o.Next(ctx); err == nil {
		t.Fatalf("unexpected report: %v", r)
	}
}

func resource(name, sync string) *linkv1.Resource {
	return &linkv1.Resource{AppId: "app", Kind: "ConfigMap", Namespace: "n", Name: name, Managed: true, Sync: sync}
}

func TestOutbox(t *testing.T) {
	t.Parallel()
	t.Run("12.4 the newest value of an object is sent, once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			o := newOutbox(nil)
			for i := range 100 {
				o.Resource(resource("a", fmt.Sprint(i)))
			}
			r := next(t, o)
			if len(r.GetResources()) != 1 || r.GetResources()[0].GetSync() != "99" || r.GetSeq() != 1 || r.GetEpoch() != "epoch" {
				t.Errorf("report %v", r)
			}
			o.Resource(resource("a", "99"))
			nothing(t, o)
		})
	})
	t.Run("CLU-11 the first change is sent at once, later ones are batched", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			o := newOutbox(nil)
			time.Sleep(time.Second)
			begin := time.Now()
			o.Resource(resource("a", "1"))
			next(t, o)
			if d := time.Since(begin); d > 5*time.Millisecond {
				t.Errorf("the first report took %s", d)
			}
			o.Resource(resource("a", "2"))
			o.Resource(resource("b", "2"))
			if r := next(t, o); len(r.GetResources()) != 2 || time.Since(begin) > 100*time.Millisecond {
				t.Errorf("after %s: %v", time.Since(begin), r)
			}
			begin = time.Now()
			o.App(&linkv1.AppReport{AppId: "app", Sync: "Synced"})
			next(t, o)
			if d := time.Since(begin); d > 5*time.Millisecond {
				t.Errorf("a transition took %s", d)
			}
		})
	})
	t.Run("the removal of an unreported object is not reported", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			o := newOutbox(nil)
			o.Removed(resource("never", ""))
			nothing(t, o)
			o.Resource(resource("a", "1"))
			next(t, o)
			o.Removed(resource("a", ""))
			r := next(t, o)
			if len(r.GetGone()) != 1 || r.GetGone()[0].GetName() != "a" || r.GetGone()[0].GetUid() != "" {
				t.Errorf("report %v", r)
			}
			child := &linkv1.Resource{AppId: "app", Kind: "Pod", Uid: "u1", Name: "p"}
			o.Resource(child)
			next(t, o)
			o.Forget("app")
			if r := next(t, o); len(r.GetGone()) != 1 || r.GetGone()[0].GetUid() != "u1" {
				t.Errorf("report %v", r)
			}
		})
	})
	t.Run("FT-L7 a snapshot contains everything, ends with a sweep, and does not delay changes", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			o := newOutbox(nil)
			for i := range 600 {
				o.Resource(resource(fmt.Sprint(i), "Synced"))
			}
			for range 3 {
				if r := next(t, o); r.GetSnapshot() != 0 {
					t.Errorf("a snapshot began before the picture was complete")
				}
			}
			o.Ready()
			seen := map[string]bool{}
			var last *linkv1.ReportUp
			for sweep := false; !sweep; sweep = last.GetSweep() != nil {
				last = next(t, o)
				for _, r := range last.GetResources() {
					if last.GetSnapshot() != 0 {
						seen[r.GetName()] = true
					}
				}
				if len(seen) < 300 {
					o.Resource(resource("late", "Synced"))
				}
			}
			if len(seen) < 600 || last.GetSweep().GetSnapshot() != last.GetSnapshot() {
				t.Errorf("%d resources, sweep %v of %d", len(seen), last.GetSweep(), last.GetSnapshot())
			}
			nothing(t, o)
			o.Resnapshot()
			if r := next(t, o); r.GetSnapshot() != 2 {
				t.Errorf("snapshot %d", r.GetSnapshot())
			}
		})
	})
	t.Run("without credit no report is sent, and values are still coalesced", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			o := newOutbox(nil)
			o.Acked("epoch", 0, 10)
			o.Resource(resource("a", "1"))
			first := next(t, o)
			o.Resource(resource("a", "2"))
			nothing(t, o)
			o.Resource(resource("a", "3"))
			o.Acked("other epoch", first.GetSeq(), 10)
			nothing(t, o)
			o.Acked("epoch", first.GetSeq(), 10)
			if r := next(t, o); r.GetResources()[0].GetSync() != "3" {
				t.Errorf("report %v", r)
			}
		})
	})
	t.Run("FT-L6 a result counts as delivered only after the hub has acknowledged it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var got []string
			o := newOutbox(func(op string) { got = append(got, op) })
			o.Operation(&linkv1.OperationReport{OperationId: "op", Phase: "Running"})
			o.Acked("epoch", next(t, o).GetSeq(), 0)
			o.Operation(&linkv1.OperationReport{OperationId: "op", Phase: "Succeeded", FinishedUnixNano: 1})
			r := next(t, o)
			if len(got) != 0 {
				t.Errorf("delivered %v", got)
			}
			o.Acked("epoch", r.GetSeq(), 0)
			if len(got) != 1 || got[0] != "op" {
				t.Errorf("delivered %v", got)
			}
		})
	})
	t.Run("closed tombstones are sent once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			o := newOutbox(nil)
			o.Closed(&linkv1.TombstoneClosed{AppId: "app", Kind: "ConfigMap", Name: "x"})
			if r := next(t, o); len(r.GetClosed()) != 1 || o.Backlog() != 0 {
				t.Errorf("report %v", r)
			}
			nothing(t, o)
		})
	})
}
