package agenttest_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// duringWrites runs a change once, before the first write of a kind reaches
// the API server.
func (k *kindOfTest) duringWrites(change func()) {
	var once sync.Once
	k.w.faults.set(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/"+k.group+"/") {
			once.Do(change)
		}
		return next.RoundTrip(r)
	})
}

// uid is the identity of an object, read in a version.
func (k *kindOfTest) uid(version, name string) types.UID {
	return k.w.get(k.at(version), name).GetUID()
}

// background makes objects go at once: the garbage collector of the test's
// cluster takes half a minute to learn of new kinds.
const background = ", annotations: {argocd.argoproj.io/sync-options: PrunePropagationPolicy=background}"

func bigger(yaml string) string { return strings.Replace(yaml, "size: 1", "size: 2", 1) }

func TestVersions(t *testing.T) {
	w := newWorld(t)
	k := w.newKind("Widget", "v1", "v1beta1")
	k.define()
	a := w.application()
	gone := "does not serve kind Widget of " + k.group + "/v1beta1; it serves that kind as v1 (write the manifests with apiVersion " + k.group + "/v1)"
	old := func(name string) string { return k.manifest("v1beta1", name, background) }
	a.deploy(old("kept") + old("dropped") + configMap("besides", "red"))
	a.synced()
	kept := k.uid("v1", "kept")
	t.Run("FT-K10 before a version is removed the application shows the API server's warning", func(t *testing.T) {
		k.serve("v1", "~v1beta1")
		k.define()
		says := "Widget of " + k.group + "/v1beta1: " + k.group + "/v1beta1 Widget is deprecated"
		a.await("a warning that the version is deprecated", func(r *linkv1.AppReport) bool {
			return r.GetSync() == "Synced" && slices.ContainsFunc(r.GetWarnings(), func(s string) bool { return strings.HasPrefix(s, says) })
		})
	})
	t.Run("FT-K10 INV-3 a version that is removed during an operation is reported with the served ones, the other objects are applied, nothing is pruned", func(t *testing.T) {
		k.duringWrites(func() {
			k.serve("v1", "-v1beta1")
			k.define()
		})
		op := w.ended(a.begin(bigger(old("kept"))+old("dropped")+configMap("besides", "blue"), nil), "Failed")
		w.faults.set(nil)
		if got := message(op, "Widget", "kept"); !strings.Contains(got, gone) || !strings.Contains(op.GetMessage(), gone) {
			t.Errorf("message of the object is %q, of the operation %q", got, op.GetMessage())
		}
		w.live(configMaps, "besides", data("color", "blue"))
		if k.uid("v1", "kept") != kept {
			t.Error("the object is another one")
		}
	})
	t.Run("FT-K10 INV-6 the last state of an object in the removed version is not reported as its state", func(t *testing.T) {
		a.await("state is Unknown with the reason", func(r *linkv1.AppReport) bool {
			return r.GetSync() == "Unknown" && strings.Contains(r.GetError(), gone) && r.GetHealth() == "Unknown"
		})
	})
	t.Run("FT-K10 DEL-07 an object of the removed version is pruned through one that is served", func(t *testing.T) {
		w.ended(a.begin(old("kept")+configMap("besides", "blue"), nil), "Failed") // what is kept cannot be applied
		w.ended(a.begin(k.manifest("v1", "kept", background)+configMap("besides", "green"), nil), "Succeeded")
		w.waitDeleted(k.at("v1"), "dropped")
		a.await("the application is Synced without a warning", func(r *linkv1.AppReport) bool {
			return r.GetSync() == "Synced" && len(r.GetWarnings()) == 0
		})
		if k.uid("v1", "kept") != kept {
			t.Error("the object was deleted and made anew")
		}
	})
	t.Run("FT-K10 a kind that is removed during an operation is reported, the other objects are applied, and it is healed when the kind is served again", func(t *testing.T) {
		k.duringWrites(func() {
			if err := shared.Delete(t.Context(), k.definition()); err != nil {
				t.Error(err)
			}
			if err := shared.KindInForce(t.Context(), k.plural+"."+k.group); err != nil {
				t.Error(err)
			}
		})
		op := w.ended(a.begin(bigger(k.manifest("v1", "kept", background))+configMap("besides", "yellow"), nil), "Failed")
		w.faults.set(nil)
		says := "does not serve kind Widget of " + k.group + "/v1 (install what defines the kind, or take its objects out of the manifests)"
		if got := message(op, "Widget", "kept"); !strings.Contains(got, says) || !strings.Contains(op.GetMessage(), says) {
			t.Errorf("message of the object is %q, of the operation %q", got, op.GetMessage())
		}
		w.live(configMaps, "besides", data("color", "yellow"))
		k.define()
		w.ended(a.begin(bigger(k.manifest("v1", "kept", background))+configMap("besides", "yellow"), nil), "Succeeded")
		w.live(k.at("v1"), "kept", exists)
		a.synced()
	})
	t.Run("FT-K10 objects are healed when their kind is served again", func(t *testing.T) {
		if err := shared.Delete(t.Context(), k.definition()); err != nil {
			t.Fatal(err)
		}
		a.await("application is not Synced", func(r *linkv1.AppReport) bool { return r.GetSync() == "OutOfSync" })
		if err := shared.KindInForce(t.Context(), k.plural+"."+k.group); err != nil {
			t.Fatal(err)
		}
		k.define()
		w.live(k.at("v1"), "kept", exists)
		a.synced()
	})
}
