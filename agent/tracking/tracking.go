// Package tracking reads and writes tracking marks, which name the application
// of an object: our own annotation, and the annotation and label of Argo CD. It
// makes no decisions and never changes an object. The agent calls it when it
// applies, adopts and deletes. A mark that does not describe its own object was
// copied, and is ignored.
package tracking

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// The annotations, and Argo CD's default label.
const (
	Annotation       = manifest.OwnPrefix + "tracking-id"
	Installation     = manifest.OwnPrefix + "installation-id"
	Tenant           = manifest.OwnPrefix + "tenant"
	ArgoAnnotation   = manifest.ArgoPrefix + "tracking-id"
	ArgoInstallation = manifest.ArgoPrefix + "installation-id"
	InstanceLabel    = "app.kubernetes.io/instance"
)

// The systems that mark objects.
const (
	Own  = "Capstan"
	Argo = "Argo CD"
)

// longestLabel is the longest value of a label, in characters.
const longestLabel = 63

// An ID is the content of a tracking annotation.
type ID struct {
	App string // "name", or "namespace_name"
	Key manifest.Key
}

// String writes an id: app:group/Kind:namespace/name.
func (id ID) String() string {
	k := id.Key
	return fmt.Sprintf("%s:%s/%s:%s/%s", id.App, k.Group, k.Kind, k.Namespace, k.Name)
}

// Parse reads an id; false: it is invalid.
func Parse(text string) (ID, bool) {
	parts := strings.SplitN(text, ":", 3) // names of roles may have colons
	if len(parts) != 3 || parts[0] == "" {
		return ID{}, false
	}
	group, kind, ok := strings.Cut(parts[1], "/")
	namespace, name, whole := strings.Cut(parts[2], "/")
	if !ok || !whole || kind == "" || name == "" {
		return ID{}, false
	}
	return ID{App: parts[0], Key: manifest.Key{Group: group, Kind: kind, Namespace: namespace, Name: name}}, true
}

// Describes reports whether an id is about an object, and was not copied with
// another one's annotations (TRK-03). For cluster-scoped objects Argo CD writes
// the destination's namespace.
func (id ID) Describes(key manifest.Key) bool {
	k := id.Key
	return k.Group == key.Group && k.Kind == key.Kind && k.Name == key.Name && (key.Namespace == "" || k.Namespace == key.Namespace)
}

// Application returns namespace and name of an id's application.
func (id ID) Application() (namespace, name string) {
	if ns, n, ok := strings.Cut(id.App, "_"); ok {
		return ns, n
	}
	return "", id.App
}

// A Mark names the owner of an object according to its annotations and labels.
type Mark struct {
	System       string // Own or Argo
	App          string // as in the mark; with Label perhaps truncated to 63 characters
	Label        bool   // found by label, which others may have set
	Installation string // one of several in a cluster; empty: none
	Tenant       string // id of the tenant; empty: none
}

// Title is the owner's name for users. It hides the names of other tenants'
// applications.
func (m Mark) Title() string {
	if m.Tenant != "" {
		return "an application of another tenant"
	}
	title := m.System + " application " + strings.ReplaceAll(m.App, "_", "/")
	if m.Installation != "" {
		title += " of installation " + m.Installation
	}
	return title
}

// Of reads the marks of an object, ours first. label names the label that Argo
// CD may use instead of its annotation; empty: the default.
func Of(o *manifest.Object, label string) []Mark {
	var out []Mark
	key := manifest.KeyOf(o)
	for _, a := range [...]struct{ system, annotation, installation string }{
		{Own, Annotation, Installation}, {Argo, ArgoAnnotation, ArgoInstallation},
	} {
		text, _ := manifest.RawAnnotation(o, a.annotation)
		if id, ok := Parse(text); ok && id.Describes(key) {
			installation, _ := manifest.RawAnnotation(o, a.installation)
			m := Mark{System: a.system, App: id.App, Installation: installation}
			if a.system == Own {
				m.Tenant, _ = manifest.RawAnnotation(o, Tenant)
			}
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		if app := labelled(o, label); app != "" {
			installation, _ := manifest.RawAnnotation(o, ArgoInstallation)
			out = append(out, Mark{System: Argo, App: app, Label: true, Installation: installation})
		}
	}
	return out
}

// labelled returns the application that the label names, if Argo CD itself has
// written the object: charts use the same label for their releases.
func labelled(o *manifest.Object, label string) string {
	if label == "" {
		label = InstanceLabel
	}
	app := o.GetLabels()[label]
	if app == "" {
		return ""
	}
	if ByArgo(o) {
		return app
	}
	return ""
}

// argoManager is the field manager of Argo CD.
const argoManager = "argocd-controller"

// ByArgo reports whether Argo CD itself has written some of an object.
func ByArgo(o *manifest.Object) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == argoManager })
}

// WithArgo adds Argo CD's field manager to an object that was stored without
// its managedFields, so that its marks can be read again. It changes the
// object.
func WithArgo(o *manifest.Object, there bool) *manifest.Object {
	if there {
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: argoManager}})
	}
	return o
}

// Names reports whether a mark names an application of this name: a label has
// only the first 63 characters (TRK-04).
func (m Mark) Names(name string) bool {
	if !m.Label {
		_, own := ID{App: m.App}.Application()
		return own == name
	}
	return m.App == name || (len(m.App) >= longestLabel && strings.HasPrefix(name, m.App))
}
