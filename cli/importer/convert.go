package importer

import (
	"maps"
	"slices"
	"strings"
)

const (
	argoGroup   = "argoproj.io/"
	argoPrefix  = "argocd.argoproj.io/"
	secretType  = argoPrefix + "secret-type"
	trackingID  = argoPrefix + "tracking-id"
	instance    = "app.kubernetes.io/instance"
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	argoSecret  = "argocd-secret"
)

// The annotation of applications that are imported, and its values.
const (
	Imported  = "capstan.dev/imported"
	Observed  = "observe"
	Confirmed = "confirmed"
)

// A class is what a document is to the hub. The classes are applied in their
// order: settings before what they are about, applications and their sets last.
type class int

const (
	leftOut class = iota
	settingsMap
	project
	declaration // of a repository, a credential template or a cluster
	application
	applicationSet // after its applications, which it takes over
)

// An Item is one document, and what became of it.
type Item struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Result is created, configured, unchanged, "left out", refused or deleted.
	Result string   `json:"result"`
	Notes  []string `json:"notes,omitempty"`
	// Install is how the agent of a cluster is installed.
	Install string `json:"install,omitempty"`

	class class
	doc   document
	code  string // of the error that refused it
}

// classify says what a document is to the hub, and why it is left out.
func classify(d document) (class, string) {
	switch kind, version := d.kind(), d.apiVersion(); {
	case d.name() == "":
		return leftOut, "it has no name"
	case strings.HasPrefix(version, argoGroup) && kind == "Application":
		return application, ""
	case strings.HasPrefix(version, argoGroup) && kind == "AppProject":
		return project, ""
	case strings.HasPrefix(version, argoGroup) && kind == "ApplicationSet":
		return applicationSet, ""
	case kind == "ConfigManagementPlugin":
		return leftOut, "the operator of the hub declares plugins, in files of this form"
	case strings.HasPrefix(version, argoGroup) || strings.HasPrefix(version, "argocd-image-updater."):
		return leftOut, "objects of this kind are not served"
	case version == "v1" && kind == "ConfigMap" && strings.HasPrefix(d.name(), "argocd-"):
		return settingsMap, ""
	case version == "v1" && kind == "Secret" && (d.name() == argoSecret || strings.HasPrefix(d.name(), "argocd-") && d.labels()[secretType] == ""):
		return settingsMap, ""
	case version == "v1" && kind == "Secret" && d.labels()[secretType] != "":
		return declaration, ""
	case version == "v1" && kind == "Secret":
		return leftOut, "it has no label " + secretType
	}
	return leftOut, "objects for a cluster belong into a repository that an Application names"
}

// clean leaves out what a cluster or another hub has written.
func (it *Item) clean() {
	meta := map[string]any{}
	for _, key := range []string{"name", "namespace", "labels", "annotations", "finalizers"} {
		if v, there := it.doc.meta()[key]; there {
			meta[key] = v
		}
	}
	if it.class == declaration || it.class == settingsMap {
		delete(meta, "annotations")
		delete(meta, "finalizers")
		if a := it.doc.annotations(); it.doc.labels()[secretType] == "cluster" && len(a) > 0 {
			meta["annotations"] = asMap(without(a, lastApplied, "managed-by"))
		}
	} else if a := it.doc.annotations(); len(a) > 0 {
		meta["annotations"] = asMap(without(a, lastApplied, argoPrefix+"refresh", argoPrefix+"hydrate", argoPrefix+"application-set-refresh"))
	}
	object := maps.Clone(it.doc.object)
	object["metadata"] = meta
	delete(object, "status")
	if _, there := object["operation"]; there && it.class == application {
		it.note("its operation in progress is not taken over")
		delete(object, "operation")
	}
	it.doc.object = object
}

// dropped are keys of argocd-secret that are Argo CD's own, and why the hub has
// no use for them.
func dropped(key string) string {
	switch {
	case key == "server.secretkey":
		return "the hub signs with keys of its own"
	case key == "admin.password" || key == "admin.passwordMtime" || strings.HasPrefix(key, "accounts."):
		return "accounts of the hub have passwords and tokens of their own"
	case key == "tls.crt" || key == "tls.key":
		return "the hub's certificate is part of its configuration"
	}
	return ""
}

// dropOwn leaves out the keys of argocd-secret that are Argo CD's own.
func (it *Item) dropOwn() {
	if it.doc.kind() != "Secret" || it.doc.name() != argoSecret {
		return
	}
	var keys []string
	for _, field := range []string{"data", "stringData"} {
		values, _ := it.doc.object[field].(map[string]any)
		for key := range values {
			if dropped(key) != "" {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		it.dropKey(key, dropped(key))
	}
}

// dropKey leaves out one key of a ConfigMap or Secret.
func (it *Item) dropKey(key, why string) {
	for _, field := range []string{"data", "stringData"} {
		if values, ok := it.doc.object[field].(map[string]any); ok {
			values = maps.Clone(values)
			delete(values, key)
			it.doc.object[field] = values
		}
	}
	it.note("the key " + key + " is left out: " + why)
}

// holds reports whether a ConfigMap or Secret still has a key.
func (it *Item) holds(key string) bool {
	for _, field := range []string{"data", "stringData"} {
		values, _ := it.doc.object[field].(map[string]any)
		if _, there := values[key]; there {
			return true
		}
	}
	return false
}

func (it *Item) note(text string) {
	if !slices.Contains(it.Notes, text) {
		it.Notes = append(it.Notes, text)
	}
}

// annotate sets an annotation, or removes it if the value is empty.
func (it *Item) annotate(key, value string) {
	all := it.doc.annotations()
	if all[key] = value; value == "" {
		delete(all, key)
	}
	it.doc.meta()["annotations"] = asMap(all)
}

// kustomizeVersions are the versions of Kustomize that an application asks for.
func (it *Item) kustomizeVersions() (out []string) {
	spec, _ := it.doc.object["spec"].(map[string]any)
	sources, _ := spec["sources"].([]any)
	for _, s := range append(sources, spec["source"]) {
		source, _ := s.(map[string]any)
		kustomize, _ := source["kustomize"].(map[string]any)
		if v := textOf(kustomize, "version"); v != "" {
			out = append(out, v)
		}
	}
	return out
}

func asMap(texts map[string]string) map[string]any {
	out := make(map[string]any, len(texts))
	for k, v := range texts {
		out[k] = v
	}
	return out
}

func without(texts map[string]string, keys ...string) map[string]string {
	for _, k := range keys {
		delete(texts, k)
	}
	return texts
}
