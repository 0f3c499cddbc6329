// Package validation reads what users write and checks it: Applications,
// AppProjects, Secrets that declare repositories and clusters, settings, sync
// requests. It takes values and returns values, errors and warnings. It reads
// and writes no store, and knows no rights: hub/catalog, its caller, does.
// Errors name the object and the field, and show no secret value.
package validation

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// Group and kinds of Argo CD's objects.
const (
	ArgoVersion     = "argoproj.io/v1alpha1"
	KindApplication = "Application"
	KindProject     = "AppProject"
	SecretType      = "argocd.argoproj.io/secret-type"
)

// NotServed is the answer to kinds that no part of this release takes.
func NotServed(o *manifest.Object) error {
	object := manifest.KeyOf(o).Describe()
	fix := "leave it out of this apply"
	switch {
	case !strings.HasPrefix(o.GetAPIVersion(), "argoproj.io/"):
		fix = "objects for a cluster belong into a repository that an Application names"
	}
	return fault.With(fault.New(fault.Invalid, "%s %s is not served here", o.GetAPIVersion(), o.GetKind()), object, fix)
}

// ReadObject takes metadata and spec of one of Argo CD's objects. What the hub or
// a cluster writes is left out.
func ReadObject(o *manifest.Object) (hub.Meta, json.RawMessage, []string, error) {
	object := manifest.KeyOf(o).Describe()
	meta := hub.Meta{
		Namespace: o.GetNamespace(), Name: o.GetName(), Finalizers: o.GetFinalizers(),
		Labels: o.GetLabels(), Annotations: maps.Clone(o.GetAnnotations()),
	}
	delete(meta.Annotations, manifest.LastApplied)
	if len(meta.Annotations) == 0 {
		meta.Annotations = nil
	}
	var warnings []string
	for _, key := range slices.Sorted(maps.Keys(o.Object)) {
		switch key {
		case "apiVersion", "kind", "metadata", "spec", "status":
		case "operation":
			if o.GetKind() != KindApplication {
				return meta, nil, nil, fault.With(fault.New(fault.Invalid, "it has a field operation, which Applications alone can have"), object, "leave it out")
			}
		default:
			warnings = append(warnings, fmt.Sprintf("the field %s is dropped: there is none of that name", Shorten(key)))
		}
	}
	spec, ok := o.Object["spec"]
	if !ok {
		return meta, nil, nil, fault.With(fault.New(fault.Invalid, "it has no spec"), object, "")
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return meta, nil, nil, fault.With(fault.New(fault.Invalid, "its spec cannot be written as JSON"), object, "")
	}
	return meta, raw, warnings, nil
}

// OperationOf is the field operation of an Application.
func OperationOf(o *manifest.Object) (json.RawMessage, error) {
	v, there := o.Object["operation"]
	if !there {
		return nil, nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fault.With(fault.New(fault.Invalid, "its field operation cannot be written as JSON"), manifest.KeyOf(o).Describe(), "")
	}
	return raw, nil
}

// SecretValues returns stringData over data, decoded.
func SecretValues(o *manifest.Object) (map[string]string, error) {
	out := map[string]string{}
	for _, field := range []string{"data", "stringData"} {
		v, there := o.Object[field]
		if !there || v == nil {
			continue
		}
		m, ok := v.(map[string]any)
		if !ok {
			return nil, fault.New(fault.Invalid, "%s is no map of texts", field)
		}
		for k, v := range m {
			s, ok := v.(string)
			if !ok {
				return nil, fault.With(fault.New(fault.Invalid, "%s.%s is no text", field, Shorten(k)), "", "put the value in quotes")
			}
			if field == "data" {
				b, err := base64.StdEncoding.DecodeString(s)
				if err != nil {
					return nil, fault.With(fault.New(fault.Invalid, "data.%s is not base64", Shorten(k)), "", "write it under stringData")
				}
				s = string(b)
			}
			out[k] = s
		}
	}
	return out, nil
}

// WithheldValue stands in an export for the value of a secret, which no API
// returns. Who applies it means the value that is stored.
const WithheldValue = "<not exported>"

// Withheld removes the values that an export left out, and returns their keys.
func Withheld(values map[string]string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(values)) {
		if values[k] == WithheldValue {
			out = append(out, k)
			delete(values, k)
		}
	}
	return out
}

// WithheldWarning names values that an export left out; empty: there are none.
func WithheldWarning(keys []string) []string {
	if len(keys) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("exports contain no values of secrets: %s stays as it is stored, if it is; otherwise write its value into the file and apply it again", strings.Join(keys, ", "))}
}

// PopString removes a key and gives its value.
func PopString(m map[string]string, key string) string {
	v := m[key]
	delete(m, key)
	return v
}

// ClusterConfigKeys names the keys of a cluster's config.
func ClusterConfigKeys(config string) []string {
	if config == "" {
		return nil
	}
	var keys map[string]json.RawMessage
	if json.Unmarshal([]byte(config), &keys) != nil {
		return []string{"config"}
	}
	return slices.Sorted(maps.Keys(keys))
}
