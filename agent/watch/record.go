package watch

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// A Record is what is stored and reported of a child.
type Record struct {
	UID, Parent                           string
	Group, Version, Kind, Namespace, Name string
	Health, Message                       string
	Created                               int64 // Unix seconds
	Info                                  []Column
	Links                                 []string // "title|URL" or URL
}

// A Column is one fact for users, such as "ready" and "1/2".
type Column struct{ Name, Value string }

func (r Record) equal(o Record) bool {
	return r.UID == o.UID && r.Parent == o.Parent && r.Health == o.Health && r.Message == o.Message && slices.Equal(r.Info, o.Info) && slices.Equal(r.Links, o.Links)
}

// reduce returns what is stored of a child.
func reduce(o *manifest.Object, health func(*manifest.Object) (string, string), labels []string) Record {
	gvk := o.GroupVersionKind()
	r := Record{
		UID: string(o.GetUID()), Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind,
		Namespace: o.GetNamespace(), Name: o.GetName(),
		Created: o.GetCreationTimestamp().Unix(), Info: Columns(o, labels), Links: Links(o),
	}
	r.Health, r.Message = health(o)
	return r
}

// Columns returns the facts shown of an object, and the values of the given
// labels that it has (TRK-09).
func Columns(o *manifest.Object, labels []string) []Column {
	out := append(kindColumns(o), networkColumns(o)...)
	for _, name := range labels {
		if v := o.GetLabels()[name]; v != "" {
			out = append(out, Column{name, strings.Clone(v)})
		}
	}
	return out
}

func kindColumns(o *manifest.Object) []Column {
	switch o.GetKind() {
	case "Pod":
		return podColumns(o)
	case "Deployment", "StatefulSet", "ReplicaSet":
		return replicaColumns(o)
	case "DaemonSet":
		return columns("ready", ratio(o, "numberReady", "desiredNumberScheduled"), "images", images(o, "spec", "template", "spec", "containers"))
	case "Service":
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "type")
		return columns("type", kind)
	case "PersistentVolumeClaim":
		phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
		return columns("phase", phase)
	case "Application":
		if !manifest.InHub(o.GroupVersionKind().Group, o.GetKind()) {
			return nil
		}
		sync, _, _ := unstructured.NestedString(o.Object, "status", "sync", "status")
		health, _, _ := unstructured.NestedString(o.Object, "status", "health", "status")
		return columns("sync", sync, "health", health)
	case "ControllerRevision":
		n, found, _ := unstructured.NestedInt64(o.Object, "revision")
		if !found {
			return nil
		}
		return columns("revision", fmt.Sprintf("Rev:%d", n))
	}
	return nil
}

func podColumns(o *manifest.Object) []Column {
	statuses, _, _ := unstructured.NestedSlice(o.Object, "status", "containerStatuses")
	var ready, restarts int64
	for _, s := range statuses {
		m, _ := s.(map[string]any)
		if ok, _ := m["ready"].(bool); ok {
			ready++
		}
		n, _ := m["restartCount"].(int64)
		restarts += n
	}
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "containers")
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
	count := ""
	if restarts > 0 {
		count = fmt.Sprint(restarts)
	}
	return columns("phase", phase, "ready", fmt.Sprintf("%d/%d", ready, len(containers)), "restarts", count,
		"node", node, "images", allImages(o))
}

func replicaColumns(o *manifest.Object) []Column {
	want, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	if !found {
		want = 1
	}
	ready, _, _ := unstructured.NestedInt64(o.Object, "status", "readyReplicas")
	revision, _ := manifest.RawAnnotation(o, "deployment.kubernetes.io/revision")
	if revision != "" && o.GetKind() == "ReplicaSet" {
		revision = "Rev:" + revision
	} else {
		revision = ""
	}
	return columns("ready", fmt.Sprintf("%d/%d", ready, want), "revision", revision,
		"images", images(o, "spec", "template", "spec", "containers"))
}

func ratio(o *manifest.Object, have, want string) string {
	a, _, _ := unstructured.NestedInt64(o.Object, "status", have)
	b, _, _ := unstructured.NestedInt64(o.Object, "status", want)
	return fmt.Sprintf("%d/%d", a, b)
}

// allImages joins the images of all containers of a pod.
func allImages(o *manifest.Object) string {
	out := strings.Fields(images(o, "spec", "containers"))
	for _, image := range strings.Fields(images(o, "spec", "initContainers")) {
		if !slices.Contains(out, image) {
			out = append(out, image)
		}
	}
	return strings.Join(out, " ")
}

// images joins the images of a list of containers.
func images(o *manifest.Object, path ...string) string {
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	list, _ := v.([]any)
	var out []string
	for _, c := range list {
		m, _ := c.(map[string]any)
		if image, _ := m["image"].(string); image != "" && !slices.Contains(out, image) {
			out = append(out, strings.Clone(image))
		}
	}
	return strings.Join(out, " ")
}

func columns(pairs ...string) []Column {
	var out []Column
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, Column{pairs[i], pairs[i+1]})
		}
	}
	return out
}
