// Package manifest reads, names, normalises, serialises, orders, annotates and
// masks Kubernetes objects for hub and agent. It sends no requests and never
// changes what an object means. Renderers, the agent and the engine call it.
// Equal objects always have byte-equal canonical text, and numbers are exact.
package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-cd/capstan/shared/fault"
)

// An Object is one Kubernetes object without a Go type of its own.
type Object = unstructured.Unstructured

// A Key identifies an object in one cluster. It has no API version: the same
// object can be read in several versions.
type Key struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// KeyOf returns the key of an object as written; the namespace is empty if the
// manifest has none.
func KeyOf(o *Object) Key {
	group, _ := splitAPIVersion(o.GetAPIVersion())
	return Key{Group: group, Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
}

// String is "group/Kind/namespace/name", with nothing between the slashes for
// the core group and for cluster-scoped objects.
func (k Key) String() string {
	return k.Group + "/" + k.Kind + "/" + k.Namespace + "/" + k.Name
}

// Compare orders keys by group, kind, namespace and name.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Group, other.Group), cmp.Compare(k.Kind, other.Kind),
		cmp.Compare(k.Namespace, other.Namespace), cmp.Compare(k.Name, other.Name))
}

// ParseKey undoes Key.String.
func ParseKey(s string) (Key, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 4 || parts[1] == "" || parts[3] == "" {
		return Key{}, fault.New(fault.Invalid, "%q is not an object key of the form group/Kind/namespace/name", s)
	}
	return Key{Group: parts[0], Kind: parts[1], Namespace: parts[2], Name: parts[3]}, nil
}

// Describe names an object for people: "Deployment shop/web".
func (k Key) Describe() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// Version is the version half of an object's apiVersion.
func Version(o *Object) string {
	_, version := splitAPIVersion(o.GetAPIVersion())
	return version
}

func splitAPIVersion(s string) (group, version string) {
	if i := strings.IndexByte(s, '/'); i >= 0 {
		return s[:i], s[i+1:]
	}
	return "", s
}

// Order sorts objects in place as they are applied inside a wave (ENG-03,
// ENG-04): by the list of kinds, then by kind, group, namespace and name.
// Objects that are equal in all of these keep their order.
func Order(objs []*Object) {
	slices.SortStableFunc(objs, func(a, b *Object) int {
		x, y := KeyOf(a), KeyOf(b)
		return cmp.Or(cmp.Compare(KindOrder(x.Kind), KindOrder(y.Kind)), cmp.Compare(x.Kind, y.Kind),
			cmp.Compare(x.Group, y.Group), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
}

// LastKind is the position of every kind that is not in the list of kinds,
// except applications, which come after their projects.
const LastKind = 1000

// KindOrder is the position of a kind in the order of ENG-04. Kinds that others
// depend on come first, unknown kinds last.
func KindOrder(kind string) int {
	switch kind {
	case "Namespace":
		return 0
	case "NetworkPolicy":
		return 1
	case "ResourceQuota":
		return 2
	case "LimitRange":
		return 3
	case "PodSecurityPolicy":
		return 4
	case "PodDisruptionBudget":
		return 5
	case "ServiceAccount":
		return 6
	case "Secret", "SecretList":
		return 7
	case "ConfigMap":
		return 8
	case "StorageClass":
		return 9
	case "PersistentVolume":
		return 10
	case "PersistentVolumeClaim":
		return 11
	case "CustomResourceDefinition":
		return 12
	default:
		return laterKindOrder(kind)
	}
}

func laterKindOrder(kind string) int {
	later := [...]string{
		"ClusterRole", "ClusterRoleList", "ClusterRoleBinding", "ClusterRoleBindingList", "Role", "RoleList",
		"RoleBinding", "RoleBindingList", "Service", "DaemonSet", "Pod", "ReplicationController", "ReplicaSet",
		"Deployment", "HorizontalPodAutoscaler", "StatefulSet", "Job", "CronJob", "IngressClass", "Ingress", "APIService",
	}
	for i, k := range later {
		if k == kind {
			return 13 + i
		}
	}
	if kind == "Application" || kind == "ApplicationSet" {
		return LastKind + 1 // after the projects that they belong to, and deleted before them
	}
	return LastKind
}

// HubGroup is the API group of the objects that live in the hub.
const HubGroup = "argoproj.io"

// InHub reports whether objects of a kind live in the hub and in no cluster:
// Argo CD's own kinds. Other kinds of the group, such as Rollout, are those of
// clusters.
func InHub(group, kind string) bool {
	return group == HubGroup && (kind == "Application" || kind == "AppProject" || kind == "ApplicationSet")
}

// metadata reads one field of the object's metadata without copying it.
func metadata(o *Object, field string) any {
	meta, ok := o.Object["metadata"].(map[string]any)
	if !ok {
		return nil
	}
	return meta[field]
}

func objectName(o *Object) string {
	return fmt.Sprintf("%s %s", o.GetKind(), o.GetName())
}
