package agenttest_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// set gives the agent other settings of its tenant.
func (w *world) set(s *linkv1.Settings) {
	if w.settings == "" {
		w.settings = string(hub.NewID[hub.ApplicationID]())
	}
	w.version++
	s.Version = w.version
	w.append(row(linkv1.RowKind_ROW_KIND_SETTINGS, w.settings, s))
}

// syncAgain syncs the application once more as it is.
func (a *application) syncAgain() {
	a.w.t.Helper()
	id, op := a.operation(nil)
	a.w.append(op)
	a.w.ended(id, "Succeeded")
}

func TestTrackingOfArgo(t *testing.T) {
	w := newWorld(t)
	const annotation, label = "argocd.argoproj.io/tracking-id", "app.kubernetes.io/instance"
	marks := func(a *application, name, id, instance string) {
		t.Helper()
		o := w.get(configMaps, name)
		if got := o.GetAnnotations()[annotation]; got != id {
			t.Errorf("the annotation is %q, want %q", got, id)
		}
		if got := o.GetLabels()[label]; got != instance {
			t.Errorf("the label is %q, want %q", got, instance)
		}
		if got, want := o.GetAnnotations()["capstan.dev/tracking-id"], "argocd_"+a.name+":/ConfigMap:"+w.namespace+"/"+name; got != want {
			t.Errorf("our own mark is %q, want %q", got, want)
		}
	}
	id := func(a *application, name string) string { return a.name + ":/ConfigMap:" + w.namespace + "/" + name }
	quiet := func(a *application) {
		t.Helper()
		r := a.await("application is Synced", func(r *linkv1.AppReport) bool { return r.GetSync() == "Synced" })
		if len(r.GetNotes()) > 0 {
			t.Errorf("our own mark of Argo CD is taken for somebody else's: %v", r.GetNotes())
		}
	}
	a := w.application()
	t.Run("TRK-01 without a setting there are no marks of Argo CD", func(t *testing.T) {
		a.deploy(configMap("marked", "red"))
		marks(a, "marked", "", "")
	})
	t.Run("TRK-02 the annotation of Argo CD is written on request, with the next sync", func(t *testing.T) {
		w.set(&linkv1.Settings{TrackingMethod: "annotation"})
		w.eventually("the next sync writes it", func() bool {
			a.syncAgain()
			return w.get(configMaps, "marked").GetAnnotations()[annotation] != ""
		})
		marks(a, "marked", id(a, "marked"), "")
		quiet(a)
		before := w.get(configMaps, "marked").GetResourceVersion()
		a.syncAgain()
		if w.get(configMaps, "marked").GetResourceVersion() != before {
			t.Error("an object that is marked as it should be is written again")
		}
	})
	t.Run("TRK-08 a mark that was changed makes the object OutOfSync and is healed", func(t *testing.T) {
		w.edit(configMaps, "marked", "kubectl-edit", `{"metadata":{"annotations":{"`+annotation+`":"other:/ConfigMap:x/marked"}}}`)
		w.live(configMaps, "marked", func(o *unstructured.Unstructured) error {
			if got := o.GetAnnotations()[annotation]; got != id(a, "marked") {
				return fmt.Errorf("the annotation is %q", got)
			}
			return nil
		})
		quiet(a)
	})
	t.Run("TRK-04 TRK-05 label and installation are written too, and the label is cut at 63 characters", func(t *testing.T) {
		b := w.application()
		b.name = "long-" + strings.Repeat("x", 57) + "-end" // the 63rd character is a dash
		w.set(&linkv1.Settings{TrackingMethod: "annotation+label", InstallationId: "prod"})
		w.eventually("the settings hold", func() bool {
			b.deploy(configMap("both", "red"))
			return w.get(configMaps, "both").GetLabels()[label] != ""
		})
		marks(b, "both", id(b, "both"), "long-"+strings.Repeat("x", 57))
		if got := w.get(configMaps, "both").GetAnnotations()["argocd.argoproj.io/installation-id"]; got != "prod" {
			t.Errorf("the installation is %q", got)
		}
		quiet(b)
		b.deploy(configMap("both", "blue"))
		quiet(b)
	})
	t.Run("TRK-01 an adoption preserves the requested marks", func(t *testing.T) {
		c := w.application()
		w.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: adopted, namespace: NS, annotations: {" + annotation + ": '" + id(c, "adopted") + "'}}\ndata: {color: red}\n")
		c.deploy(configMap("adopted", "red"))
		marks(c, "adopted", id(c, "adopted"), c.name)
		quiet(c)
	})
	t.Run("TRK-04 by label only, under another key, and a chart's own value is replaced", func(t *testing.T) {
		w.set(&linkv1.Settings{TrackingMethod: "label", InstanceLabelKey: "example.com/app"})
		d := w.application()
		labelled := strings.Replace(configMap("labelled", "red"), "namespace: NS", "namespace: NS, labels: {example.com/app: chart}", 1)
		w.eventually("the settings hold", func() bool {
			d.deploy(labelled)
			return w.get(configMaps, "labelled").GetLabels()["example.com/app"] == d.name
		})
		marks(d, "labelled", "", "")
		quiet(d)
	})
	t.Run("TRK-01 without the setting the next sync removes the marks", func(t *testing.T) {
		w.set(&linkv1.Settings{})
		w.eventually("the next sync takes them off", func() bool {
			a.syncAgain()
			return w.get(configMaps, "marked").GetAnnotations()[annotation] == ""
		})
		marks(a, "marked", "", "")
		quiet(a)
	})
}
