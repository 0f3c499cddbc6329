package worker

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// markSecrets marks the fields of an object that contain secrets, so that hub
// and agents mask them. An object is refused if they stand where they cannot be
// masked: in names, in keys, and in objects that live in the hub. The data of
// Secrets is masked without marks.
func markSecrets(o *manifest.Object, secrets []string) error {
	var forms []string
	for _, s := range secrets {
		forms = append(forms, manifest.FormsOf(s)...)
	}
	if len(forms) == 0 {
		return nil
	}
	m := marker{forms: forms}
	m.visit(nil, o.Object)
	switch key := manifest.KeyOf(o); {
	case m.shown != "":
		return fault.New(fault.Invalid, "an object has a secret of the plugin in %s, which everybody sees who sees the object", m.shown)
	case len(m.paths) > 0 && manifest.InHub(key.Group, key.Kind):
		return fault.New(fault.Invalid, "%s has a secret of the plugin in %s, which is shown to everybody who may see it", key.Describe(), strings.Join(m.paths[0], "."))
	}
	if manifest.IsSecret(o) {
		m.paths = slices.DeleteFunc(m.paths, func(path []string) bool { return path[0] == "data" || path[0] == "stringData" })
	}
	manifest.MarkSecret(o, m.paths)
	return nil
}

// A marker collects the fields that contain a secret.
type marker struct {
	forms []string
	paths [][]string
	shown string // the last place that cannot be masked; empty: there is none
}

func (m *marker) has(text string) bool {
	return slices.ContainsFunc(m.forms, func(form string) bool { return strings.Contains(text, form) })
}

func (m *marker) visit(path []string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if m.has(key) {
				m.shown = "a key of " + strings.Join(append([]string{"its manifest"}, path...), ".")
				continue
			}
			m.visit(append(slices.Clone(path), key), v[key])
		}
	case []any:
		for i, e := range v {
			m.visit(append(slices.Clone(path), strconv.Itoa(i)), e)
		}
	case nil, bool:
	case string:
		m.note(path, v)
	default:
		text, err := manifest.AppendCanonical(nil, v)
		if err == nil {
			m.note(path, string(text))
		}
	}
}

func (m *marker) note(path []string, text string) {
	switch {
	case !m.has(text) || slices.Equal(path, []string{"metadata", "annotations", manifest.SecretFields}):
	case manifest.Identifies(path):
		m.shown = strings.Join(path, ".")
	default:
		m.paths = append(m.paths, path)
	}
}
