package changes

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// alwaysPreserved are the annotations that the set never takes away (ASET-15).
func alwaysPreserved() []string {
	return []string{
		"argocd.argoproj.io/refresh", "argocd.argoproj.io/hydrate", "notified.notifications.argoproj.io",
		"capstan.dev/refresh", hub.ImportedAnnotation,
	}
}

// merged is an application as the set writes it over one that is there: all of
// it, but for what is preserved and what differences are ignored.
func (r Request) merged(old hub.Application, want Application, ignores ignores) (Application, error) {
	labels, annotations := r.Preserved.Labels, append(alwaysPreserved(), r.Preserved.Annotations...)
	if own := r.Spec.PreservedFields; own != nil {
		labels, annotations = append(slices.Clone(labels), own.Labels...), append(annotations, own.Annotations...)
	}
	want.Labels = preserved(labels, old.Labels, want.Labels)
	want.Annotations = preserved(annotations, old.Annotations, want.Annotations)
	return ignores.keep(old, want)
}

// preserved is wanted with the live values of some keys.
func preserved(keys []string, live, wanted map[string]string) map[string]string {
	out := maps.Clone(wanted)
	for key, value := range live {
		if !slices.Contains(keys, key) {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	return out
}

// ignores are the ignored differences of a set.
type ignores struct{ rules *diff.Ignore }

func newIgnores(all []hub.IgnoredDifference) (ignores, error) {
	if len(all) == 0 {
		return ignores{}, nil
	}
	rules := make([]diff.Rule, len(all))
	for i, d := range all {
		rules[i] = diff.Rule{Group: manifest.HubGroup, Kind: "Application", Name: d.Name, JSONPointers: d.JSONPointers, JQ: d.JQPathExpressions}
	}
	found, err := diff.NewIgnore(rules)
	if err != nil {
		return ignores{}, fault.With(err, "spec.ignoreApplicationDifferences", "")
	}
	return ignores{found}, nil
}

// written is what the rules see of an application.
type written struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
		Finalizers  []string          `json:"finalizers,omitempty"`
	} `json:"metadata"`
	Spec json.RawMessage `json:"spec"`
}

func objectOf(m hub.Meta, spec json.RawMessage) (*manifest.Object, error) {
	w := written{APIVersion: "argoproj.io/v1alpha1", Kind: "Application", Spec: spec}
	w.Metadata.Name, w.Metadata.Namespace = m.Name, m.Namespace
	w.Metadata.Labels, w.Metadata.Annotations, w.Metadata.Finalizers = m.Labels, m.Annotations, m.Finalizers
	text, err := json.Marshal(w)
	if err != nil {
		return nil, fmt.Errorf("write application %q: %w", m.Name, err)
	}
	return manifest.FromCanonical(text)
}

// keep returns what is wanted with the ignored fields of what is there.
func (i ignores) keep(old hub.Application, want Application) (Application, error) {
	key := manifest.Key{Group: manifest.HubGroup, Kind: "Application", Namespace: old.Namespace, Name: old.Name}
	if i.rules.Empty(key) {
		return want, nil
	}
	desired, err := objectOf(want.Meta, want.Spec)
	if err != nil {
		return want, err
	}
	live, err := objectOf(old.Meta, old.Spec)
	if err != nil {
		return want, err
	}
	merged, err := diff.Keep(desired, live, i.rules)
	if err != nil {
		return want, err
	}
	text, err := json.Marshal(merged.Object)
	if err != nil {
		return want, fmt.Errorf("write application %q: %w", old.Name, err)
	}
	var out written
	if err := json.Unmarshal(text, &out); err != nil {
		return want, fmt.Errorf("read application %q: %w", old.Name, err)
	}
	want.Labels, want.Annotations, want.Finalizers, want.Spec = out.Metadata.Labels, out.Metadata.Annotations, out.Metadata.Finalizers, out.Spec
	return want, nil
}

// same reports whether an application is as it is wanted.
func same(old hub.Application, want Application) bool {
	return equalMaps(old.Labels, want.Labels) && equalMaps(old.Annotations, want.Annotations) &&
		slices.Equal(old.Finalizers, hub.OwnFinalizers(want.Finalizers)) && sameJSON(old.Spec, want.Spec)
}

func equalMaps(a, b map[string]string) bool { return len(a) == 0 && len(b) == 0 || maps.Equal(a, b) }

func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
