package agenttest_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// accept writes a state whose target is accepted without an operation, as when
// the import of an application is confirmed whose objects equal its manifests.
func (a *application) accept() {
	a.w.t.Helper()
	a.accepted = a.target
	a.w.append(a.stateRow())
	a.waitForState()
}

// What Argo CD has applied, and equals the manifests, is taken over as it is.
func TestObjectsOfAnImport(t *testing.T) {
	w := newWorld(t)
	full := func(name string) string {
		return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: NS}\ndata: {color: red, old: x}\n"
	}
	a := w.application()
	a.policy = &linkv1.Policy{}
	versions := map[string]string{}
	for _, name := range []string{"healed", "pruned", "same"} {
		versions[name] = w.asArgo(t, name, a.name, "").GetResourceVersion()
	}
	unchanged := func(t *testing.T, names ...string) {
		t.Helper()
		for _, name := range names {
			if got := w.get(configMaps, name).GetResourceVersion(); got != versions[name] {
				t.Errorf("%s was written: version %s, was %s", name, got, versions[name])
			}
		}
	}
	t.Run("FT-U3 TRK-01 what equals its manifests is Synced, and nothing is written", func(t *testing.T) {
		a.render(full("healed") + full("pruned") + full("same"))
		a.synced()
		unchanged(t, "healed", "pruned", "same")
	})
	t.Run("FT-U3 TRK-01 a confirmation writes nothing, and from then on drift is healed", func(t *testing.T) {
		a.policy = &linkv1.Policy{Automated: true, SelfHeal: true, Prune: true}
		a.accept()
		a.await("all are recorded", func(r *linkv1.AppReport) bool {
			return note(r, "SharedResourceWarning", "pruned is tracked by Argo CD application "+a.name+" too") && note(r, "SharedResourceWarning", "same is tracked by Argo CD application "+a.name+" too")
		})
		w.edit(configMaps, "healed", "kubectl-edit", `{"data":{"color":"black"}}`)
		w.live(configMaps, "healed", data("color", "red"))
		unchanged(t, "pruned", "same")
		w.tracked("healed", a)
	})
	t.Run("FT-U3 what leaves Git is pruned, although it was never written", func(t *testing.T) {
		a.deploy(full("healed") + full("same"))
		w.waitDeleted(configMaps, "pruned")
		w.tracked("same", a)
		a.synced()
	})
	t.Run("FT-U3 INV-5 INV-6 an edit while the agent asks whether an object is equal is healed", func(t *testing.T) {
		c := w.application()
		c.policy = &linkv1.Policy{}
		w.asArgo(t, "raced", c.name, "")
		c.render(full("raced"))
		c.synced()
		asked, edited := make(chan struct{}), make(chan struct{})
		var once sync.Once
		w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			answer, err := next.RoundTrip(r)
			if r.URL.Query().Get("dryRun") != "" && strings.HasSuffix(r.URL.Path, "/raced") {
				once.Do(func() { close(asked) })
				<-edited
			}
			return answer, err
		})
		defer w.faults.set(nil)
		c.policy = &linkv1.Policy{Automated: true, SelfHeal: true}
		c.accept()
		<-asked
		w.edit(configMaps, "raced", "kubectl-edit", `{"data":{"color":"black"},"metadata":{"annotations":{"link.argocd.argoproj.io/seen":"https://example.com"}}}`)
		w.resource(nameOf("ConfigMap", w.namespace, "raced"), func(r *linkv1.Resource) bool { return len(r.GetLinks()) > 0 })
		close(edited)
		w.live(configMaps, "raced", data("color", "red"))
	})
	t.Run("FT-U3 another application's objects stay its own", func(t *testing.T) {
		w.asArgo(t, "foreign", "guestbook", "")
		b := w.application()
		b.policy = &linkv1.Policy{}
		b.render(full("foreign"))
		b.synced()
		b.policy = &linkv1.Policy{Automated: true, SelfHeal: true}
		b.accept()
		w.edit(configMaps, "foreign", "kubectl-edit", `{"data":{"color":"black"}}`)
		b.await("the difference is shown and not healed", func(r *linkv1.AppReport) bool { return r.GetSync() == "OutOfSync" })
		if err := data("color", "black")(w.get(configMaps, "foreign")); err != nil {
			t.Error(err)
		}
	})
}
