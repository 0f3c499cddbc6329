package diff

import (
	"reflect"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// Keep returns the desired object with the fields of live that the rules ignore,
// as they are in live, also where they are missing there. All other fields are
// those of desired. Items of lists correspond by their place.
func Keep(desired, live *manifest.Object, ignore *Ignore) (*manifest.Object, error) {
	rules := ignore.forObject(manifest.KeyOf(desired))
	if rules.empty() {
		return desired, nil
	}
	wanted, err := rules.strip(desired)
	if err != nil {
		return nil, err
	}
	is, err := rules.strip(live)
	if err != nil {
		return nil, err
	}
	out, _ := keep(kept{desired.Object, wanted, live.Object, is}).(map[string]any)
	return &manifest.Object{Object: out}, nil
}

// kept is one value in its four forms: desired and live, each also without what
// is ignored.
type kept struct{ desired, wanted, live, is any }

func keep(v kept) any {
	if wanted, ok := v.wanted.(map[string]any); ok {
		if is, ok := v.is.(map[string]any); ok {
			return keepFields(v, wanted, is)
		}
	}
	if wanted, ok := v.wanted.([]any); ok {
		if is, ok := v.is.([]any); ok && len(wanted) > 0 {
			return keepItems(v, wanted, is)
		}
	}
	if reflect.DeepEqual(v.wanted, v.is) {
		return v.live
	}
	return v.desired
}

func keepFields(v kept, wanted, is map[string]any) map[string]any {
	desired, _ := v.desired.(map[string]any)
	live, _ := v.live.(map[string]any)
	out := map[string]any{}
	for name, value := range live {
		if _, plain := is[name]; !plain {
			out[name] = value // ignored as a whole
		}
	}
	for name, value := range wanted {
		if _, there := is[name]; there {
			out[name] = keep(kept{desired[name], value, live[name], is[name]})
		} else if _, ignored := live[name]; !ignored {
			out[name] = desired[name]
		}
	}
	return out
}

// keepItems is for lists that have lost no items to the rules.
func keepItems(v kept, wanted, is []any) any {
	desired, _ := v.desired.([]any)
	live, _ := v.live.([]any)
	if len(desired) != len(wanted) || len(live) != len(is) {
		if reflect.DeepEqual(v.wanted, v.is) {
			return v.live
		}
		return v.desired
	}
	out := make([]any, len(desired))
	for i := range desired {
		if i < len(live) {
			out[i] = keep(kept{desired[i], wanted[i], live[i], is[i]})
		} else {
			out[i] = desired[i]
		}
	}
	return out
}
