package apply

import (
	"crypto/sha256"

	"github.com/capstan-cd/capstan/agent/tracking"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// The annotations that the engine writes.
const (
	trackingAnnotation = tracking.Annotation
	instanceAnnotation = "capstan.dev/hook-instance"
)

// trackingID names the application to which an object belongs (TRK-02). It
// describes the object itself, so that copied annotations are detected.
func (a *app) trackingID(key manifest.Key) string {
	return tracking.ID{App: a.name(), Key: key}.String()
}

// prepare adds the namespace and the tracking id to a manifest, which
// CustomResourceDefinitions never get (TRK-06).
func (a *app) prepare(o *manifest.Object, key manifest.Key) {
	o.SetNamespace(key.Namespace)
	o.SetName(key.Name)
	if key.Kind == "ClusterRole" && o.Object["aggregationRule"] != nil {
		delete(o.Object, "rules") // the control plane writes them; two writers would overwrite each other
	}
	if key.Kind == "CustomResourceDefinition" {
		return
	}
	annotate(o, trackingAnnotation, a.trackingID(key))
	if id := a.e.tenantSettings().Tenant; id != "" {
		annotate(o, tracking.Tenant, id)
	}
	if id := a.installation(); id != "" {
		annotate(o, tracking.Installation, id)
	}
	a.writeMarks(o, key)
}

// annotate sets one annotation, also if the others are malformed.
func annotate(o *manifest.Object, name, value string) { setEntry(o, "annotations", name, value) }

// setEntry sets one entry of labels or annotations, also if the others are
// malformed.
func setEntry(o *manifest.Object, section, name, value string) {
	meta, ok := o.Object["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		o.Object["metadata"] = meta
	}
	all, ok := meta[section].(map[string]any)
	if !ok {
		all = map[string]any{}
		meta[section] = all
	}
	all[name] = value
}

// contentOf hashes the desired fields of an object: all but its status and the
// API server's bookkeeping.
func contentOf(object map[string]any) string {
	text, err := manifest.AppendCanonical(nil, desiredFields(object))
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return string(sum[:16])
}

// desiredFields returns an object without status and bookkeeping.
func desiredFields(object map[string]any) map[string]any {
	out := make(map[string]any, len(object))
	for k, v := range object {
		if k != "status" {
			out[k] = v
		}
	}
	meta, ok := object["metadata"].(map[string]any)
	if !ok {
		return out
	}
	slim := make(map[string]any, len(meta))
	for k, v := range meta {
		switch k {
		case "managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink":
		default:
			slim[k] = v
		}
	}
	out["metadata"] = slim
	return out
}
