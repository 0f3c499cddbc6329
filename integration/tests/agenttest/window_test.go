package agenttest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// until returns a window that began with this minute and ends after d. Windows
// begin with minutes, but may end at any second.
func until(kind string, d time.Duration) (w *linkv1.SyncWindow, end time.Time) {
	now := time.Now().UTC()
	begin := now.Truncate(time.Minute)
	length := (now.Sub(begin) + d).Truncate(time.Second)
	return &linkv1.SyncWindow{
		Kind: kind, Schedule: fmt.Sprintf("%d %d * * *", begin.Minute(), begin.Hour()), Duration: length.String(), Description: "a test",
	}, begin.Add(length)
}

// inTime does what must be done before a window ends, and gives a slow machine
// another try with a window of twice the length, after everything was put back
// to where it was. try returns the end of its window.
func inTime(t *testing.T, length time.Duration, try func(length time.Duration) time.Time, back func()) {
	t.Helper()
	for ; ; length *= 2 {
		if end := try(length); time.Now().Before(end) {
			return
		}
		if length > waitLimit {
			t.Fatalf("no window of %s was long enough", length)
		}
		back()
	}
}

// closed returns an allow window that is not open now.
func closed() *linkv1.SyncWindow {
	w, _ := until("allow", time.Minute)
	later := time.Now().UTC().Add(12 * time.Hour)
	w.Schedule = fmt.Sprintf("%d %d * * *", later.Minute(), later.Hour())
	return w
}

// acked waits until the agent has stored all rows.
func (w *world) acked() {
	w.t.Helper()
	w.await("all rows are stored", func() bool { return w.ack == w.rows[len(w.rows)-1].GetSeq() })
}

// windows changes the policy alone.
func (a *application) windows(w ...*linkv1.SyncWindow) {
	a.policy.Windows = w
	a.w.append(a.stateRow())
}

func automated(o *linkv1.Operation) { o.Automated, o.Initiator = true, "" }

// waitForSentence waits until a running operation says something.
func (w *world) waitForSentence(id, text string) {
	w.t.Helper()
	w.await("operation says "+text, func() bool { return strings.Contains(w.operations[id].GetMessage(), text) })
}

func TestWindows(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	a.deploy(configMap("web", "red"))
	a.synced()
	t.Run("WIN-09 self-heal waits, shows the reason, and heals at the opening without the hub", func(t *testing.T) {
		var end time.Time
		inTime(t, 6*time.Second, func(length time.Duration) time.Time {
			var deny *linkv1.SyncWindow
			deny, end = until("deny", length)
			a.windows(deny)
			a.waitForState()
			w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"blue"}}`)
			w.eventually("a warning with the next opening, unless that is past", func() bool {
				w.mu.Lock()
				r := w.fakeHub.apps[a.id]
				w.mu.Unlock()
				text := strings.Join(r.GetWarnings(), "\n")
				return r.GetSync() == "OutOfSync" && r.GetGeneration() == a.generation && strings.Contains(text, "self-heal waits: closed by the deny window") &&
					strings.Contains(text, "(a test); next opening "+end.Format("2006-01-02 15:04 MST")) || !time.Now().Before(end)
			})
			w.halt()
			return end
		}, func() { w.start(); w.live(configMaps, "web", data("color", "red")) })
		w.live(configMaps, "web", data("color", "red"))
		if time.Now().Before(end) {
			t.Error("it was healed while the window was closed")
		}
		w.start()
		a.await("the warning is gone", func(r *linkv1.AppReport) bool { return r.GetSync() == "Synced" && len(r.GetWarnings()) == 0 })
	})
	t.Run("WIN-09 a window of another kind: selfHeal continues", func(t *testing.T) {
		deny, _ := until("deny", time.Hour)
		deny.SelfHeal = true
		a.windows(deny)
		a.waitForState()
		w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"blue"}}`)
		w.live(configMaps, "web", data("color", "red"))
	})
	t.Run("WIN-09 an automated operation that comes late does not begin before the opening", func(t *testing.T) {
		var end time.Time
		var id string
		inTime(t, 4*time.Second, func(length time.Duration) time.Time {
			var deny *linkv1.SyncWindow
			deny, end = until("deny", length)
			a.policy.Windows = []*linkv1.SyncWindow{deny}
			id = a.begin(configMap("web", "green"), automated)
			w.await("the operation waits, unless the opening is past", func() bool {
				return strings.Contains(w.operations[id].GetMessage(), "waiting: closed by the deny window") || w.finals[id] > 0
			})
			if o := w.get(configMaps, "web"); data("color", "red")(o) != nil && time.Now().Before(end) {
				t.Errorf("it was applied: %v", o.Object["data"])
			}
			return end
		}, func() {
			w.ended(id, "Succeeded")
			a.policy.Windows = nil
			a.deploy(configMap("web", "red"))
		})
		w.ended(id, "Succeeded")
		if time.Now().Before(end) {
			t.Error("it began while the window was closed")
		}
	})
	t.Run("WIN-06 manualSync lets a person's operation begin", func(t *testing.T) {
		deny, _ := until("deny", time.Hour)
		deny.ManualSync = true
		a.policy.Windows = []*linkv1.SyncWindow{deny}
		w.ended(a.begin(configMap("web", "blue"), nil), "Succeeded")
		w.live(configMaps, "web", data("color", "blue"))
	})
	t.Run("WIN-09 what waits can be terminated", func(t *testing.T) {
		deny, _ := until("deny", time.Hour)
		a.policy.Windows = []*linkv1.SyncWindow{deny}
		id := a.begin(configMap("web", "black"), automated)
		w.waitForSentence(id, "waiting")
		w.append(row(linkv1.RowKind_ROW_KIND_TERMINATE, a.id, &linkv1.Terminate{OperationId: id, Actor: "alice"}))
		w.ended(id, "Failed")
		w.live(configMaps, "web", data("color", "blue"))
	})
	t.Run("FT-C2 an invalid window is closed", func(t *testing.T) {
		a.policy.Windows = []*linkv1.SyncWindow{{Kind: "allow", Schedule: "whenever", Duration: "1h"}}
		id := a.begin(configMap("web", "black"), automated)
		w.waitForSentence(id, "cannot be read")
		a.windows()
		w.ended(id, "Failed") // the newer state has taken its place
	})
	t.Run("WIN-09 a deletion of the application is not delayed", func(t *testing.T) {
		deny, _ := until("deny", time.Hour)
		a.policy.Windows = []*linkv1.SyncWindow{deny}
		state := a.stateRow()
		id, op := a.operation(func(o *linkv1.Operation) { o.Kind = linkv1.OperationKind_OPERATION_KIND_DELETE })
		w.append(state, op)
		w.ended(id, "Succeeded")
		w.waitDeleted(configMaps, "web")
	})
}

func TestWindowsBetweenSteps(t *testing.T) {
	w := newWorld(t)
	hooked := func(color string) string {
		return hookJob("before", "PreSync", "BeforeHookCreation") + configMap("web", color)
	}
	absent := func(t *testing.T) {
		t.Helper()
		if o, err := w.at(configMaps).Get(t.Context(), "web", metav1.GetOptions{}); err == nil {
			t.Errorf("the next step was begun: %v", o.Object["data"])
		}
	}
	t.Run("WIN-09 a window that closes stops an operation at its next step until it opens", func(t *testing.T) {
		a := w.application()
		id := a.begin(hooked("red"), automated)
		w.live(jobs, "before", exists)
		a.windows(closed())
		w.acked()
		w.finish("before", "Complete")
		w.waitForSentence(id, "stopped between two steps: outside of the allow window")
		absent(t)
		w.stop()
		w.run() // its place survives a restart
		w.waitForSentence(id, "waiting: outside of the allow window")
		absent(t)
		a.windows()
		w.live(configMaps, "web", data("color", "red"))
		w.ended(id, "Succeeded")
	})
	t.Run("WIN-08 syncOverrun lets it end", func(t *testing.T) {
		a := w.application()
		id := a.begin(strings.NewReplacer("before", "second", "web", "other").Replace(hooked("blue")), automated)
		w.live(jobs, "second", exists)
		overrun := closed()
		overrun.SyncOverrun = true
		a.windows(overrun)
		w.acked()
		w.finish("second", "Complete")
		w.ended(id, "Succeeded")
	})
	t.Run("WIN-09 SYNC-13 what is approved while the windows are closed waits for the opening", func(t *testing.T) {
		a := w.application()
		a.deploy(configMap("third", "red") + annotated(configMap("asked", "red"), "Prune=confirm"))
		id := a.begin(configMap("third", "blue"), automated)
		w.waits(id)
		a.windows(closed())
		a.approve()
		w.waitForSentence(id, "stopped between two steps: outside of the allow window")
		w.get(configMaps, "asked")
		a.windows()
		w.ended(id, "Succeeded")
		w.waitDeleted(configMaps, "asked")
	})
}
