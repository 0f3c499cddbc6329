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

// approver is a session whose person says yes at a time.
type approver struct {
	*session
	from time.Time
}

func (a approver) Approved() bool { return !time.Now().Before(a.from) }

// runApproved is run with a person who approves at a time.
func (w *world) runApproved(ctx context.Context, plan wave.Plan, config wave.Config, from time.Time) wave.Result {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &session{world: w, kill: cancel}
	config.Poll = time.Second
	return wave.New(plan, approver{s, from}, ledger{s}, config).Run(ctx)
}

func TestApprove(t *testing.T) {
	t.Parallel()
	prunes := []wave.Object{obj("0 ConfigMap ask", options("Prune=confirm")), obj("0 ConfigMap old")}
	ready := func(prunes []wave.Object) *world {
		w := newWorld()
		for _, o := range prunes {
			w.is(o, nil)
		}
		return w
	}
	t.Run("SYNC-11 SYNC-13 with Prune=confirm the operation waits for an approval, without its deadline", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := ready(prunes)
			var gotText []string
			start := time.Now()
			config := wave.Config{Deadline: start.Add(time.Minute), Report: func(u wave.Update) {
				if u.Message != "" {
					gotText = append(gotText, u.Message)
				}
			}}
			res := w.runApproved(t.Context(), mustBuild(nil, prunes), config, start.Add(time.Hour))
			if res.Phase != wave.Succeeded || time.Since(start) < time.Hour {
				t.Errorf("after %s: %+v", time.Since(start), res)
			}
			if diff := cmp.Diff([]string{"waiting for approval to delete: ConfigMap shop/ask asks for it with Prune=confirm"}, gotText); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
			if len(w.log) != 2 || w.log[0].at.Before(start.Add(time.Hour)) {
				t.Errorf("deleted %v", w.done())
			}
		})
	})
	t.Run("SYNC-13 after a restart the operation still waits, longer than the deadline", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := ready(prunes)
			config := wave.Config{Deadline: time.Now().Add(time.Minute)}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if res := w.runApproved(ctx, mustBuild(nil, prunes), config, time.Now().Add(time.Hour*24)); res.Phase != wave.Running || len(w.log) > 0 {
				t.Fatalf("result %+v, changes %v", res, w.done())
			}
			if !w.saved.Waits() {
				t.Fatalf("the ledger does not say that it waits: %+v", w.saved)
			}
			if res := w.runApproved(t.Context(), mustBuild(nil, prunes), config, time.Now().Add(time.Hour)); res.Phase != wave.Succeeded || len(w.log) != 2 {
				t.Errorf("result %+v, changes %v", res, w.done())
			}
			if until := w.saved.Extended(config.Deadline); until.Before(config.Deadline.Add(2 * time.Hour)) {
				t.Errorf("the deadline is moved to %s only", until)
			}
		})
	})
	t.Run("INV-10 after the approval the rest of the deadline counts", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := ready(prunes)
			hook := obj("0 Job h", hook("PostSync"))
			w.behaviours["PostSync|"+hook.Key.String()] = behaviour{takes: -1}
			start := time.Now()
			res := w.runApproved(t.Context(), mustBuild([]wave.Object{hook}, prunes), wave.Config{Deadline: start.Add(time.Minute)}, start.Add(time.Hour))
			if took := time.Since(start); res.Phase != wave.Failed || !res.Terminated || took < time.Hour+55*time.Second || took > time.Hour+70*time.Second {
				t.Errorf("after %s: %+v", took, res)
			}
		})
	})
	t.Run("SYNC-09 an operation that waits for approval can be terminated, and nothing is deleted", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := ready(prunes)
			res := w.run(t.Context(), mustBuild(nil, prunes), wave.Config{}, func(m *wave.Machine) {
				time.AfterFunc(time.Minute, func() { m.Terminate("terminated by alice") })
			})
			if res.Phase != wave.Failed || len(w.log) > 0 || !strings.Contains(res.Message, "waiting for approval to delete") {
				t.Errorf("result %+v, changes %v", res, w.done())
			}
		})
	})
	t.Run("DEL-04 one Delete=confirm delays the whole deletion", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			objects := []wave.Object{obj("5 ConfigMap a"), obj("0 ConfigMap b", options("Delete=confirm"))}
			w := ready(objects)
			start := time.Now()
			res := w.runApproved(t.Context(), wave.BuildDelete(nil, objects, wave.Options{Operation: "op"}), wave.Config{}, start.Add(time.Hour))
			if res.Phase != wave.Succeeded || len(w.log) != 2 || w.log[0].at.Before(start.Add(time.Hour)) {
				t.Errorf("result %+v, changes %v", res, w.done())
			}
		})
	})
}

func TestPruneLimit(t *testing.T) {
	t.Parallel()
	var prunes []wave.Object
	for _, n := range []string{"a", "b", "c", "d"} {
		prunes = append(prunes, obj("0 ConfigMap "+n))
	}
	for name, c := range map[string]struct {
		most, percent, owned int
		prunes               []wave.Object
		want                 string
	}{
		"no limit":                       {owned: 4, prunes: prunes},
		"as many as the limit":           {most: 4, owned: 10, prunes: prunes},
		"more than the limit":            {most: 3, owned: 10, prunes: prunes, want: "it would delete 4 of 10 objects, and more than 3 need approval"},
		"as much as the percentage":      {percent: 40, owned: 10, prunes: prunes},
		"more than the percentage":       {percent: 39, owned: 10, prunes: prunes, want: "it would delete 4 of 10 objects, and more than 39 % need approval"},
		"nothing to prune":               {most: 1, percent: 1, owned: 0},
		"more than is known to be there": {percent: 99, owned: 0, prunes: prunes, want: "it would delete 4 of 0 objects, and more than 99 % need approval"},
	} {
		t.Run("INV-3 limit on prunes: "+name, func(t *testing.T) {
			t.Parallel()
			p, err := wave.Build([]wave.Object{obj("0 ConfigMap new")}, c.prunes, wave.Options{Operation: "op", Prune: true, Most: c.most, MostPercent: c.percent, Owned: c.owned})
			if err != nil || p.Approve != c.want || p.Durable() != (c.want != "") {
				t.Errorf("Approve = %q, Durable() = %v, error %v; want %q", p.Approve, p.Durable(), err, c.want)
			}
		})
	}
	t.Run("INV-3 nothing at all is changed before a large prune is approved", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			for _, o := range prunes {
				w.is(o, nil)
			}
			p, err := wave.Build([]wave.Object{obj("-1 ConfigMap new")}, prunes, wave.Options{Operation: "op", Prune: true, Most: 1, Owned: 4})
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			res := w.runApproved(t.Context(), p, wave.Config{}, start.Add(time.Hour))
			if res.Phase != wave.Succeeded || len(w.log) != 5 || w.log[0].at.Before(start.Add(time.Hour)) {
				t.Errorf("result %+v, changes %v", res, w.done())
			}
		})
	})
}

func TestStepLimit(t *testing.T) {
	t.Parallel()
	t.Run("SYNC-10 INV-10 a step that takes too long fails, its hooks are deleted, and SyncFail hooks run", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.behaviours["PreSync|/Job/shop/h"] = behaviour{takes: -1}
			start := time.Now()
			res := w.run(t.Context(), mustBuild([]wave.Object{obj("0 Job h", hook("PreSync")), obj("0 ConfigMap a"), obj("0 Job sorry", hook("SyncFail"))}, nil),
				wave.Config{StepLimit: 5 * time.Minute, Deadline: start.Add(time.Hour)})
			if res.Phase != wave.Failed || !strings.HasPrefix(res.Message, "step 1 of 2 (PreSync, wave 0) took longer than its limit of 5m0s; it was waiting for hook Job shop/h") {
				t.Errorf("result %+v", res)
			}
			if diff := cmp.Diff([]string{"create Job/h", "delete Job/h", "create Job/sorry"}, w.done()); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			if took := time.Since(start); took > 6*time.Minute {
				t.Errorf("it took %s", took)
			}
		})
	})
	t.Run("SYNC-10 each step has its own limit", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			objects := []wave.Object{obj("0 Deployment a"), obj("1 Deployment b"), obj("2 Deployment c")}
			for _, o := range objects {
				w.behaviours["Sync|"+o.Key.String()] = behaviour{takes: 4 * time.Minute}
			}
			if res := w.run(t.Context(), mustBuild(objects, nil), wave.Config{StepLimit: 5 * time.Minute}); res.Phase != wave.Succeeded {
				t.Errorf("result %+v", res)
			}
		})
	})
	t.Run("SYNC-10 a refusal is reported as such", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			a := obj("0 ConfigMap a")
			w.behaviours["Sync|"+a.Key.String()] = behaviour{refuse: fault.New(fault.Invalid, "refused")}
			if res := w.run(t.Context(), mustBuild([]wave.Object{a}, nil), wave.Config{StepLimit: time.Minute}); res.Phase != wave.Failed || !strings.Contains(res.Message, "refused") {
				t.Errorf("result %+v", res)
			}
		})
	})
}
