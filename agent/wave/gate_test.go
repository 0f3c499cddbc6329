package wave_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/agent/wave"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestGate(t *testing.T) {
	t.Parallel()
	objects := []wave.Object{obj("0 ConfigMap a"), obj("1 ConfigMap b"), obj("2 ConfigMap c")}
	// closed keeps the second and later steps back for an hour from its first question.
	closed := func(asked *int) func(context.Context, func(string)) error {
		return func(ctx context.Context, say func(string)) error {
			if *asked++; *asked > 1 {
				return nil
			}
			say("stopped: closed")
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Hour):
				return nil
			}
		}
	}
	t.Run("WIN-09 an operation stops at the next step and continues there", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w, asked := newWorld(), 0
			var gotText []string
			start := time.Now()
			res := w.run(t.Context(), mustBuild(objects, nil), wave.Config{
				Gate: closed(&asked), Deadline: start.Add(time.Minute),
				Report: func(u wave.Update) {
					if u.Item == nil {
						gotText = append(gotText, u.Message)
					}
				},
			})
			if res.Phase != wave.Succeeded || asked != 2 || time.Since(start) < time.Hour || strings.Join(gotText, "") != "stopped: closed" {
				t.Errorf("result %+v after %s, asked %d times, said %q", res, time.Since(start), asked, gotText)
			}
		})
	})
	t.Run("WIN-09 the time before and after the wait counts", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w, asked := newWorld(), 0
			w.behaviours["PostSync|/Job/shop/h"] = behaviour{takes: -1}
			start := time.Now()
			res := w.run(t.Context(), mustBuild([]wave.Object{obj("0 ConfigMap a"), obj("0 Job h", hook("PostSync"))}, nil), wave.Config{
				Gate: closed(&asked), Deadline: start.Add(time.Minute),
			})
			if took := time.Since(start); res.Phase != wave.Failed || !res.Terminated || took < time.Hour+time.Minute || took > time.Hour+2*time.Minute {
				t.Errorf("result %+v after %s", res, took)
			}
		})
	})
	t.Run("WIN-09 an operation that waits can be terminated", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w, asked := newWorld(), 0
			res := w.run(t.Context(), mustBuild(objects, nil), wave.Config{Gate: closed(&asked)}, func(m *wave.Machine) {
				time.AfterFunc(time.Minute, func() { m.Terminate("terminated by alice") })
			})
			if res.Phase != wave.Failed || !strings.HasPrefix(res.Message, "terminated by alice") || len(w.log) != 1 {
				t.Errorf("result %+v, changes %v", res, w.done())
			}
		})
	})
	t.Run("WIN-09 SYNC-13 an approved operation waits for the gate, and neither wait counts", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			prunes := []wave.Object{obj("0 ConfigMap ask", options("Prune=confirm"))}
			w, asked := newWorld(), 0
			w.is(prunes[0], nil)
			w.behaviours["PostSync|/Job/shop/h"] = behaviour{takes: -1}
			start := time.Now()
			res := w.runApproved(t.Context(), mustBuild([]wave.Object{obj("0 Job h", hook("PostSync"))}, prunes), wave.Config{
				Gate: closed(&asked), Deadline: start.Add(time.Minute),
			}, start.Add(time.Hour))
			if took := time.Since(start); res.Phase != wave.Failed || !res.Terminated || took < 2*time.Hour+time.Minute || took > 2*time.Hour+2*time.Minute {
				t.Errorf("result %+v after %s", res, took)
			}
			if len(w.log) == 0 || w.log[0].at.Before(start.Add(2*time.Hour)) {
				t.Errorf("deleted before the opening: %v", w.done())
			}
		})
	})
	t.Run("WIN-09 an error of the gate ends the operation without SyncFail hooks", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			plan := mustBuild(append([]wave.Object{obj("0 Job f", hook("SyncFail"))}, objects...), nil)
			res := w.run(t.Context(), plan, wave.Config{Gate: func(context.Context, func(string)) error { return fault.New(fault.Conflict, "superseded") }})
			if diff := cmp.Diff([]string{"apply ConfigMap/a"}, w.done()); diff != "" || res.Phase != wave.Failed || res.Message != "superseded" {
				t.Errorf("result %+v, changes %s", res, diff)
			}
		})
	})
}
