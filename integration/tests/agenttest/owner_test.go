package agenttest_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// render writes a state whose target is new and of which nothing is accepted,
// as of an application that nobody has synced.
func (a *application) render(yaml string) {
	a.w.t.Helper()
	a.target = a.snapshot(yaml)
	a.w.append(a.stateRow())
	a.waitForState()
}

// remove returns the rows that delete the application with its objects.
func (a *application) delete() (op string, rows []*linkv1.Row) {
	a.w.t.Helper()
	a.addTombstones(a.target, "")
	a.target, a.accepted = nil, nil
	state := a.stateRow()
	id, order := a.operation(func(o *linkv1.Operation) {
		o.Kind, o.Snapshot = linkv1.OperationKind_OPERATION_KIND_DELETE, nil
	})
	return id, []*linkv1.Row{state, order}
}

// shared says whether the hub hears that another application owns an object.
func (a *application) contested(about string) {
	a.w.t.Helper()
	a.await("SharedResourceWarning about "+about, func(r *linkv1.AppReport) bool {
		return r.GetSync() == "OutOfSync" && note(r, "SharedResourceWarning", about)
	})
}

// tracked checks which application a live object names.
func (w *world) tracked(name string, a *application) {
	w.t.Helper()
	want := "argocd_" + a.name + ":"
	if got := w.get(configMaps, name).GetAnnotations()["capstan.dev/tracking-id"]; !strings.HasPrefix(got, want) {
		w.t.Errorf("%s is tracked as %q, want %q", name, got, want)
	}
}

func TestRenderingOwnsNothing(t *testing.T) {
	w := newWorld(t)
	t.Run("TRK-07 SEC-A12 an application that only renders an object does not block another one that deploys it", func(t *testing.T) {
		a, b := w.application(), w.application()
		b.policy = &linkv1.Policy{}
		b.render(configMap("first", "blue"))
		a.deploy(configMap("first", "red"))
		a.synced()
		w.tracked("first", a)
		b.contested("first")
	})
	t.Run("TRK-07 of two that render it the first that is synced owns it, and the other one is refused", func(t *testing.T) {
		a, b := w.application(), w.application()
		a.render(configMap("second", "red"))
		b.render(configMap("second", "blue"))
		a.deploy(configMap("second", "red"))
		op := w.ended(b.begin(configMap("second", "blue"), nil), "Failed")
		if !strings.Contains(op.GetMessage(), "managed by application "+a.name) {
			t.Errorf("message is %q", op.GetMessage())
		}
		w.tracked("second", a)
	})
	t.Run("SEC-D2 SEC-A12 INV-13 an application whose project forbids an object never owns it and blocks no other", func(t *testing.T) {
		squatter, rightful := w.application(), w.application()
		squatter.policy.Limits = &linkv1.Limits{Namespaces: []string{"elsewhere"}}
		op := w.ended(squatter.begin(configMap("victim", "blue"), nil), "Failed")
		if got := messageOf(op, "victim"); !strings.Contains(got, "does not permit objects in namespace") {
			t.Errorf("message is %q", got)
		}
		rightful.deploy(configMap("victim", "red"))
		rightful.synced()
		w.tracked("victim", rightful)
		// What is pruned is not released to it either.
		w.ended(squatter.begin(configMap("victim", "blue"), nil), "Failed")
		rightful.deploy(configMap("rest", "red"))
		w.waitDeleted(configMaps, "victim")
	})
	t.Run("TRK-07 what one application prunes is deleted although another one that was never synced renders it", func(t *testing.T) {
		a, b := w.application(), w.application()
		a.deploy(configMap("stays", "red") + configMap("pruned", "red"))
		b.policy = &linkv1.Policy{}
		b.render(configMap("pruned", "blue"))
		b.contested("pruned")
		a.deploy(configMap("stays", "red"))
		w.waitDeleted(configMaps, "pruned")
		b.await("no warning any more", func(r *linkv1.AppReport) bool { return len(r.GetNotes()) == 0 })
		b.deploy(configMap("pruned", "blue"))
		w.tracked("pruned", b)
	})
	t.Run("TRK-07 an object that no owner restores belongs to the first permitted operation that writes it", func(t *testing.T) {
		a, b := w.application(), w.application()
		a.policy = &linkv1.Policy{}
		a.deploy(configMap("vanished", "red"))
		if err := w.at(configMaps).Delete(t.Context(), "vanished", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		a.await("it is missing", func(r *linkv1.AppReport) bool { return r.GetSync() == "OutOfSync" })
		b.deploy(configMap("vanished", "blue"))
		w.tracked("vanished", b)
		a.contested("vanished")
	})
	t.Run("TRK-07 an object that its owner no longer lists and has not pruned is released to the operation that writes it", func(t *testing.T) {
		a, b := w.application(), w.application()
		a.policy.Prune = false
		a.deploy(configMap("left", "red") + configMap("right", "red"))
		uid := w.get(configMaps, "left").GetUID()
		w.ended(a.begin(configMap("right", "red"), func(o *linkv1.Operation) { o.Options.Prune = false }), "Succeeded")
		b.deploy(configMap("left", "blue"))
		if got := w.get(configMaps, "left"); got.GetUID() != uid {
			t.Error("it was made anew")
		}
		w.tracked("left", b)
		b.synced()
	})
}

func TestDeletionsOfSharedObjects(t *testing.T) {
	w := newWorld(t)
	// pair deploys an object with one application and has another one refused it.
	pair := func(t *testing.T, name string, policy *linkv1.Policy) (a, b *application) {
		t.Helper()
		a, b = w.application(), w.application()
		a.deploy(configMap(name, "red"))
		b.policy = policy
		w.ended(b.begin(configMap(name, "blue"), nil), "Failed")
		return a, b
	}
	heals, manual := &linkv1.Policy{Automated: true, SelfHeal: true, Prune: true}, &linkv1.Policy{}
	t.Run("TRK-07 DEL-02 the owner is deleted first: the other one adopts the object, and deletes it with itself", func(t *testing.T) {
		for name, policy := range map[string]*linkv1.Policy{"order-heals": heals, "order-manual": manual} {
			a, b := pair(t, name, policy)
			uid := w.get(configMaps, name).GetUID()
			ida, rows := a.delete()
			w.append(rows...)
			w.ended(ida, "Succeeded")
			if got := w.get(configMaps, name); got.GetUID() != uid {
				t.Errorf("%s was deleted on the way", name)
			}
			if policy == heals {
				w.live(configMaps, name, data("color", "blue"))
				w.tracked(name, b)
			} else {
				b.await("OutOfSync without a warning", func(r *linkv1.AppReport) bool { return r.GetSync() == "OutOfSync" && len(r.GetNotes()) == 0 })
			}
			idb, rows := b.delete()
			w.append(rows...)
			w.ended(idb, "Succeeded")
			w.waitDeleted(configMaps, name)
		}
	})
	t.Run("TRK-07 DEL-02 the other one is deleted first", func(t *testing.T) {
		a, b := pair(t, "reversed", heals)
		idb, rows := b.delete()
		w.append(rows...)
		w.ended(idb, "Succeeded")
		w.tracked("reversed", a)
		ida, rows := a.delete()
		w.append(rows...)
		w.ended(ida, "Succeeded")
		w.waitDeleted(configMaps, "reversed")
	})
	t.Run("TRK-07 DEL-08 both are deleted at once", func(t *testing.T) {
		for _, name := range []string{"once-1", "once-2", "once-3"} {
			a, b := pair(t, name, heals)
			ida, first := a.delete()
			idb, second := b.delete()
			w.append(append(first, second...)...)
			w.ended(ida, "Succeeded")
			w.ended(idb, "Succeeded")
			w.waitDeleted(configMaps, name)
		}
	})
	t.Run("TRK-07 DEL-08 both are deleted one after the other, without waiting", func(t *testing.T) {
		for _, name := range []string{"next-1", "next-2", "next-3"} {
			a, b := pair(t, name, heals)
			ida, rows := a.delete()
			w.append(rows...)
			idb, rows := b.delete()
			w.append(rows...)
			w.ended(ida, "Succeeded")
			w.ended(idb, "Succeeded")
			w.waitDeleted(configMaps, name)
		}
	})
	t.Run("TRK-07 DEL-02 an object is deleted with its owner although another one that was never synced renders it", func(t *testing.T) {
		a, b := w.application(), w.application()
		a.deploy(configMap("unsynced", "red"))
		b.policy = manual
		b.render(configMap("unsynced", "blue"))
		ida, rows := a.delete()
		w.append(rows...)
		w.ended(ida, "Succeeded")
		w.waitDeleted(configMaps, "unsynced")
		idb, rows := b.delete()
		w.append(rows...)
		w.ended(idb, "Succeeded")
	})
}

func TestRefusedOperations(t *testing.T) {
	w := newWorld(t)
	unblocked := func(t *testing.T, b *application, op string) {
		t.Helper()
		b.await("the hub hears that nothing is in the way of operation "+op, func(r *linkv1.AppReport) bool { return r.GetUnblocked() == op })
	}
	for name, restart := range map[string]bool{"AUTO-04 TRK-07 the hub hears when the owner of what an operation was refused lets go": false, "AUTO-04 TRK-07 INV-2 also after a restart of the agent": true} {
		t.Run(name, func(t *testing.T) {
			a, b := w.application(), w.application()
			b.policy = &linkv1.Policy{Automated: true}
			a.deploy(configMap("wanted-"+a.name, "red"))
			op := b.begin(configMap("wanted-"+a.name, "blue"), nil)
			w.ended(op, "Failed")
			b.contested("wanted")
			if restart {
				w.stop()
				w.run()
				b.contested("wanted")
			}
			w.mu.Lock()
			early := w.fakeHub.apps[b.id].GetUnblocked()
			w.mu.Unlock()
			if early != "" {
				t.Errorf("the hub was told too early of %q", early)
			}
			ida, rows := a.delete()
			w.append(rows...)
			w.ended(ida, "Succeeded")
			unblocked(t, b, op)
			b.deploy(configMap("wanted-"+a.name, "blue"))
			b.synced()
			b.await("nothing is unblocked any more", func(r *linkv1.AppReport) bool { return r.GetUnblocked() == "" })
		})
	}
	t.Run("AUTO-04 TRK-07 an owner that no longer lists the object releases it", func(t *testing.T) {
		a, b := w.application(), w.application()
		a.deploy(configMap("moving", "red") + configMap("rest", "red"))
		op := b.begin(configMap("moving", "blue"), nil)
		w.ended(op, "Failed")
		w.ended(a.begin(configMap("rest", "red"), func(o *linkv1.Operation) { o.Options.Prune = false }), "Succeeded")
		unblocked(t, b, op)
	})
	t.Run("AUTO-04 TRK-05 a deleted object of another installation no longer blocks", func(t *testing.T) {
		w.asArgo(t, "north", "guestbook", "north")
		b := w.application()
		op := b.begin(configMap("north", "blue"), nil)
		w.ended(op, "Failed")
		if err := w.at(configMaps).Delete(t.Context(), "north", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		unblocked(t, b, op)
	})
	t.Run("TRK-07 INV-2 an adopted object belongs to its new owner after a restart", func(t *testing.T) {
		a, b := w.application(), w.application()
		b.policy = &linkv1.Policy{}
		a.deploy(configMap("heirloom", "red"))
		w.ended(b.begin(configMap("heirloom", "blue"), nil), "Failed")
		ida, rows := a.delete()
		w.append(rows...)
		w.ended(ida, "Succeeded")
		w.stop()
		w.run()
		c := w.application()
		if got := w.ended(c.begin(configMap("heirloom", "green"), nil), "Failed"); !strings.Contains(got.GetMessage(), "managed by application "+b.name) {
			t.Errorf("message is %q", got.GetMessage())
		}
		idb, rows := b.delete()
		w.append(rows...)
		w.ended(idb, "Succeeded")
		// The other one has accepted the object by now, so it is released to it.
		idc, rows := c.delete()
		w.append(rows...)
		w.ended(idc, "Succeeded")
		w.waitDeleted(configMaps, "heirloom")
	})
}
