package watch

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// Names of the columns that say where traffic goes. The console draws its
// network from them; they are no facts for tables.
const (
	routesColumn    = "routes"    // services behind a route, as name or namespace/name
	parentsColumn   = "parents"   // gateways in front of a route, in the same way
	hostsColumn     = "hosts"     // names that a route or a gateway answers to
	selectorColumn  = "selector"  // which pods a service is for, as key=value
	podLabelsColumn = "podLabels" // labels of the pods of a workload that nothing owns
)

// maxNetwork limits the entries of one column.
const maxNetwork = 20

const gatewayGroup = "gateway.networking.k8s.io"

// networkColumns returns where an object leads traffic (UI-06).
func networkColumns(o *manifest.Object) []Column {
	gvk := o.GroupVersionKind()
	switch gvk.Group + "/" + gvk.Kind {
	case "/Service":
		return columns(selectorColumn, labelsAt(o, "spec", "selector"))
	case "networking.k8s.io/Ingress", "extensions/Ingress":
		return columns(routesColumn, entries(ingressBackends(o)), hostsColumn, entries(texts(o, "host", "spec", "rules")))
	case gatewayGroup + "/Gateway":
		return columns(hostsColumn, entries(texts(o, "hostname", "spec", "listeners")))
	case gatewayGroup + "/HTTPRoute", gatewayGroup + "/GRPCRoute", gatewayGroup + "/TCPRoute", gatewayGroup + "/TLSRoute", gatewayGroup + "/UDPRoute":
		hosts, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "hostnames")
		return columns(routesColumn, entries(routeBackends(o)), parentsColumn, entries(references(mapsOf(o, "spec", "parentRefs"), "Gateway")), hostsColumn, entries(hosts))
	}
	return workloadColumns(o)
}

// workloadColumns are the labels of the pods of a workload, unless another
// object owns it.
func workloadColumns(o *manifest.Object) []Column {
	if len(o.GetOwnerReferences()) > 0 {
		return nil
	}
	switch o.GetKind() {
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job":
		return columns(podLabelsColumn, labelsAt(o, "spec", "template", "metadata", "labels"))
	case "Pod":
		return columns(podLabelsColumn, labelsAt(o, "metadata", "labels"))
	}
	return nil
}

// ingressBackends are the names of the services of an Ingress.
func ingressBackends(o *manifest.Object) []string {
	var out []string
	add := func(backend map[string]any) {
		name, _, _ := unstructured.NestedString(backend, "service", "name")
		if name == "" {
			name, _, _ = unstructured.NestedString(backend, "serviceName") // before networking.k8s.io/v1
		}
		out = append(out, name)
	}
	if backend, _, _ := unstructured.NestedMap(o.Object, "spec", "defaultBackend"); backend != nil {
		add(backend)
	}
	for _, rule := range mapsOf(o, "spec", "rules") {
		paths, _, _ := unstructured.NestedSlice(rule, "http", "paths")
		for _, p := range paths {
			path, _ := p.(map[string]any)
			backend, _, _ := unstructured.NestedMap(path, "backend")
			add(backend)
		}
	}
	return out
}

// routeBackends are the services of a route of the Gateway API.
func routeBackends(o *manifest.Object) []string {
	var out []string
	for _, rule := range mapsOf(o, "spec", "rules") {
		refs, _, _ := unstructured.NestedSlice(rule, "backendRefs")
		var all []map[string]any
		for _, r := range refs {
			if ref, ok := r.(map[string]any); ok {
				all = append(all, ref)
			}
		}
		out = append(out, references(all, "Service")...)
	}
	return out
}

// references are those of one kind, as name or namespace/name. A reference
// without a kind is of that kind.
func references(refs []map[string]any, kind string) []string {
	var out []string
	for _, ref := range refs {
		if k, _ := ref["kind"].(string); k != "" && k != kind {
			continue
		}
		name, _ := ref["name"].(string)
		if namespace, _ := ref["namespace"].(string); namespace != "" {
			name = namespace + "/" + name
		}
		out = append(out, name)
	}
	return out
}

// mapsOf are the maps of a list.
func mapsOf(o *manifest.Object, path ...string) []map[string]any {
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	list, _ := v.([]any)
	var out []map[string]any
	for _, x := range list {
		if m, ok := x.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// texts are the texts of a field of the maps of a list.
func texts(o *manifest.Object, field string, path ...string) []string {
	var out []string
	for _, m := range mapsOf(o, path...) {
		text, _ := m[field].(string)
		out = append(out, text)
	}
	return out
}

// labelsAt are labels as key=value, in order.
func labelsAt(o *manifest.Object, path ...string) string {
	labels, _, _ := unstructured.NestedStringMap(o.Object, path...)
	var out []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, key+"="+labels[key])
	}
	return entries(out)
}

// entries joins what is not empty, each once.
func entries(all []string) string {
	var out []string
	for _, text := range all {
		if text != "" && !strings.ContainsAny(text, " \n") && !slices.Contains(out, text) && len(out) < maxNetwork {
			out = append(out, strings.Clone(text))
		}
	}
	return strings.Join(out, " ")
}
