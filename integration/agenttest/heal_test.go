package agenttest_test

import (
	"strings"
	"testing"
	"time"

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
	t.Run("AUTO-07 a deleted object is made again, and the others are left alone", func(t *testing.T) {
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
	t.Run("ENG fields of others are nobody's business", func(t *testing.T) {
		edited := w.edit(configMaps, "web", "someone", `{"data":{"extra":"1"}}`)
		w.edit(configMaps, "api", "kubectl-edit", `{"data":{"color":"blue"}}`)
		w.live(configMaps, "api", data("color", "red"))
		if got := w.get(configMaps, "web").GetResourceVersion(); got != edited.GetResourceVersion() {
			t.Error("an object whose own fields are as they should be was written")
		}
	})
	t.Run("FT-L6 12.8 healing goes on while the hub is away, and after a restart", func(t *testing.T) {
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
	t.Run("FT-K2 a program that fights is named and not fought for ever", func(t *testing.T) {
		writes := 0
		for range 12 {
			o := w.edit(configMaps, "api", "robot", `{"data":{"color":"black"}}`)
			deadline := time.Now().Add(time.Second)
			healed := false
			for time.Now().Before(deadline) && !healed {
				healed = w.get(configMaps, "api").GetResourceVersion() != o.GetResourceVersion()
			}
			if !healed {
				break
			}
			writes++
		}
		if writes < 3 || writes > 4 {
			t.Errorf("healed %d times before it was left alone", writes)
		}
		a.await("a warning that names field and manager", func(r *linkv1.AppReport) bool {
			return strings.Contains(strings.Join(r.GetWarnings(), "\n"), "api: data.color is fought over by robot") && r.GetSync() == "OutOfSync"
		})
		w.live(configMaps, "api", data("color", "red")) // patience has an end
	})
}

func TestHealOff(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	a.policy.SelfHeal = false
	a.deploy(configMap("web", "red"))
	a.synced()
	t.Run("AUTO-06 without selfHeal drift is told and left", func(t *testing.T) {
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
	t.Run("HLT-04 DIFF a missing object is told", func(t *testing.T) {
		a.policy.SelfHeal = false
		w.append(a.stateRow())
		w.await("the policy is taken", func() bool { return w.fakeHub.apps[a.id].GetGeneration() == a.generation })
		if err := w.at(configMaps).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		a.await("Missing", func(r *linkv1.AppReport) bool { return r.GetSync() == "OutOfSync" && r.GetHealth() == "Missing" })
	})
}
