package validation

import (
	"maps"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// SettingChanges reads the settings of a ConfigMap or Secret, and warns of what
// is dropped.
func SettingChanges(o *manifest.Object) ([]hub.SettingChange, []string, error) {
	values := map[string]string{}
	var warnings []string
	var err error
	data, _ := o.Object["data"].(map[string]any)
	text, _ := o.Object["stringData"].(map[string]any)
	gone := map[string]bool{}
	for _, m := range []map[string]any{data, text} {
		for k, v := range m {
			if v == nil {
				gone[k] = true
				delete(m, k)
			}
		}
	}
	if o.GetKind() == "Secret" {
		if values, err = SecretValues(o); err != nil {
			return nil, nil, err
		}
		warnings = WithheldWarning(Withheld(values))
	} else {
		for k, v := range data {
			s, ok := v.(string)
			if !ok {
				return nil, nil, fault.With(fault.New(fault.Invalid, "data.%s is no text", Shorten(k)), "", "put the value in quotes")
			}
			values[k] = s
		}
		if data == nil && o.Object["data"] != nil {
			return nil, nil, fault.New(fault.Invalid, "data is no map of texts")
		}
		if o.Object["binaryData"] != nil {
			warnings = append(warnings, "binaryData was not stored: settings are texts")
		}
	}
	var out []hub.SettingChange
	for _, k := range slices.Sorted(maps.Keys(values)) {
		v := values[k]
		out = append(out, hub.SettingChange{Map: o.GetName(), Key: k, Value: &v})
		delete(gone, k)
	}
	for _, k := range slices.Sorted(maps.Keys(gone)) {
		out = append(out, hub.SettingChange{Map: o.GetName(), Key: k})
	}
	return out, warnings, nil
}

// Sets reports whether one of some keys of argocd-cm is changed.
func Sets(changes []hub.SettingChange, keys ...string) bool {
	return slices.ContainsFunc(changes, func(c hub.SettingChange) bool {
		return c.Map == hub.SettingsMap && slices.Contains(keys, c.Key)
	})
}

// SettingName is what policies call a setting.
func SettingName(name, key string) string { return name + "/" + key }

// CheckSizes keeps what a tenant sets within bounds.
func CheckSizes(all []hub.Setting) error {
	if len(all) > settings.MaxKeys {
		return fault.New(fault.Exceeded, "a tenant has at most %d settings", settings.MaxKeys)
	}
	sizes := map[string]int{}
	for _, s := range all {
		if sizes[s.Map] += len(s.Key) + len(s.Value); sizes[s.Map] > settings.MaxValue {
			return fault.With(fault.New(fault.Exceeded, "its values have more than %d bytes together", settings.MaxValue), s.Map, "")
		}
	}
	return nil
}
