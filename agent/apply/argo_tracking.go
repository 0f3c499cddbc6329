package apply

import (
	"strings"

	"github.com/capstan-cd/capstan/agent/tracking"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// An object may have the tracking marks of Argo CD, for tools that read them.
// Only our own mark decides who owns it (decision 0050).

// The values of Argo CD's setting for tracking marks (TRK-01).
const (
	marksAnnotation = "annotation"
	marksBoth       = "annotation+label"
	marksLabel      = "label"
)

// longestLabel is the longest value of a label, in characters (TRK-04).
const longestLabel = 63

// controlNamespace is the namespace of Argo CD's own Applications, which marks
// name without a namespace.
const controlNamespace = "argocd"

// argoName is the application's name in Argo CD's marks. The caller holds mu.
func (a *app) argoName() string {
	namespace, name := tracking.ID{App: a.name()}.Application()
	if namespace == "" || namespace == controlNamespace {
		return name
	}
	return namespace + "_" + name
}

// markLabel returns the label that marks an object, and its value. The caller
// holds mu.
func (a *app) markLabel() (key, value string) {
	key, value = a.e.tenantSettings().InstanceLabel, a.argoName()
	if key == "" {
		key = tracking.InstanceLabel
	}
	if len(value) > longestLabel {
		value = strings.TrimRight(value[:longestLabel], "-_.")
	}
	return key, value
}

// marksNow returns the tracking method for an object of the application; empty:
// only our own mark. The caller holds mu.
func (a *app) marksNow(key manifest.Key) string {
	c := a.e.tenantSettings()
	if c.Marks == "" || key.Kind == "CustomResourceDefinition" || inHub(key) {
		return ""
	}
	label, _ := a.markLabel()
	return c.Marks + " " + label
}

// writeMarks writes Argo CD's marks according to the tenant's settings. The
// caller holds mu.
func (a *app) writeMarks(o *manifest.Object, key manifest.Key) {
	if a.marksNow(key) == "" {
		return
	}
	a.labelled(o, key)
	if how := a.e.tenantSettings().Marks; how != marksAnnotation && how != marksBoth {
		return
	}
	id := tracking.ID{App: a.argoName(), Key: key}
	if key.Namespace == "" { // for cluster-scoped objects Argo CD writes the destination's namespace
		id.Key.Namespace = a.state.GetNamespace()
	}
	annotate(o, tracking.ArgoAnnotation, id.String())
	if installation := a.installation(); installation != "" {
		annotate(o, tracking.ArgoInstallation, installation)
	}
}

// labelled writes the label alone. Unlike an annotation, a missing label makes
// an object differ (TRK-08). The caller holds mu.
func (a *app) labelled(o *manifest.Object, key manifest.Key) {
	if how := a.e.tenantSettings().Marks; a.marksNow(key) == "" || how != marksLabel && how != marksBoth {
		return
	}
	name, value := a.markLabel()
	setEntry(o, "labels", name, value)
}

// mirrors reports whether an object has our mark and one of Argo CD that names
// the same application: then we have written both. If Argo CD itself has
// written some of the object, the mark may be its own. The caller holds mu.
func (a *app) mirrors(o *manifest.Object, m tracking.Mark) bool {
	if m.System != tracking.Argo || m.App != a.argoName() || m.Label || tracking.ByArgo(o) {
		return false
	}
	return m.Installation == "" || m.Installation == a.installation()
}
