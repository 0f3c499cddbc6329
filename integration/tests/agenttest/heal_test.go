package agenttest_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

func TestHeal(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	a.deploy(configMap("web", "red") + configMap("api", "red"))
	a.synced()
	t.Run("AUTO-06 a person's edits are healed each time", func(t *testing.T) {
		for range 6 {
			w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"blue"}}`)
			w.live(configMaps, "web", data("color", "red"))
		}
		a.synced()
	})
	t.Run("AUTO-07 a deleted object is created again, and the others are not written", func(t *testing.T) {
		other := w.get(configMaps, "api").GetResourceVersion()
		old := w.get(configMaps, "web").GetUID()
		if err := w.at(configMaps).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.live(configMaps, "web", func(o *unstructured.Unstructured) error {
			if o.GetUID() == old {
				return errSame
			}
			return nil
		})
		if got := w.get(configMaps, "api").GetResourceVersion(); got != other {
			t.Errorf("the other object was written: %s, before %s", got, other)
		}
		a.synced()
	})
	t.Run("ENG fields of others are no difference", func(t *testing.T) {
		edited := w.edit(configMaps, "web", "someone", `{"data":{"extra":"1"}}`)
		w.edit(configMaps, "api", "kubectl-edit", `{"data":{"color":"blue"}}`)
		w.live(configMaps, "api", data("color", "red"))
		if got := w.get(configMaps, "web").GetResourceVersion(); got != edited.GetResourceVersion() {
			t.Error("an object whose own fields are as they should be was written")
		}
	})
	t.Run("FT-L6 12.8 healing continues while the hub is unreachable, and after a restart", func(t *testing.T) {
		w.halt()
		w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"blue"}}`)
		w.live(configMaps, "web", data("color", "red"))
		w.stop()
		w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"green"}}`)
		w.run()
		w.live(configMaps, "web", data("color", "red"))
		w.start()
		a.synced()
	})
	t.Run("FT-K2 a program that reverts our writes is named, and the writes are not repeated without end", func(t *testing.T) {
		writes, left := 0, false
		for writes < 12 && !left {
			o := w.edit(configMaps, "api", "robot", `{"data":{"color":"black"}}`)
			w.eventually("the edit is healed, or left alone with a warning that names field and manager", func() bool {
				w.mu.Lock()
				r := w.fakeHub.apps[a.id]
				w.mu.Unlock()
				left = strings.Contains(strings.Join(r.GetWarnings(), "\n"), "api: data.color is repeatedly changed by robot") && r.GetSync() == "OutOfSync"
				return left || w.get(configMaps, "api").GetResourceVersion() != o.GetResourceVersion()
			})
			if !left {
				writes++
			}
		}
		if writes < 3 || !left {
			t.Errorf("healed %d times; left alone: %v", writes, left)
		}
		w.live(configMaps, "api", data("color", "red")) // patience has an end
	})
}

func TestHealOff(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	a.policy.SelfHeal = false
	a.deploy(configMap("web", "red"))
	a.synced()
	t.Run("AUTO-06 without selfHeal drift is reported and not reverted", func(t *testing.T) {
		w.edit(configMaps, "web", "kubectl-edit", `{"data":{"color":"blue"}}`)
		w.resource(nameOf("ConfigMap", w.namespace, "web"), func(r *linkv1.Resource) bool { return r.GetSync() == "OutOfSync" && r.GetDiff() == "data.color" })
		a.await("OutOfSync", func(r *linkv1.AppReport) bool { return r.GetSync() == "OutOfSync" })
		if err := data("color", "blue")(w.get(configMaps, "web")); err != nil {
			t.Error(err)
		}
	})
	t.Run("AUTO-06 switching it on heals at once", func(t *testing.T) {
		a.policy.SelfHeal = true
		w.append(a.stateRow())
		w.live(configMaps, "web", data("color", "red"))
		a.synced()
	})
	t.Run("HLT-04 DIFF a missing object is reported", func(t *testing.T) {
		a.policy.SelfHeal = false
		w.append(a.stateRow())
		a.waitForState()
		if err := w.at(configMaps).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		a.await("Missing", func(r *linkv1.AppReport) bool { return r.GetSync() == "OutOfSync" && r.GetHealth() == "Missing" })
	})
}
