package generate

import (
	"encoding/json"
	"fmt"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate/template"
	"github.com/capstan-cd/capstan/shared/fault"
)

// list returns the elements of a list generator, and those of its elementsYaml
// (AGEN-01).
func (r *round) list(src source) ([]map[string]any, error) {
	var spec hub.ListGenerator
	if err := convert(src.config, &spec); err != nil {
		return nil, err
	}
	out := make([]map[string]any, 0, len(spec.Elements))
	for i, raw := range spec.Elements {
		params, err := r.element(raw)
		if err != nil {
			return nil, fmt.Errorf("elements[%d]: %w", i, err)
		}
		out = append(out, params)
	}
	if spec.ElementsYAML == "" {
		return out, nil
	}
	v, err := template.YAML("elementsYaml", []byte(spec.ElementsYAML))
	if err != nil {
		return nil, err
	}
	elements, ok := v.([]any)
	if !ok && v != nil {
		return nil, fault.New(fault.Invalid, "elementsYaml is no list")
	}
	for i, e := range elements {
		params, ok := e.(map[string]any)
		if !ok {
			return nil, fault.New(fault.Invalid, "elementsYaml: element %d is no map", i)
		}
		out = append(out, params)
	}
	return out, nil
}

// element returns the parameters of an element. Legacy templates know texts
// only, and of an element's values each as "values.NAME".
func (r *round) element(raw json.RawMessage) (map[string]any, error) {
	element, err := object(raw)
	if err != nil {
		return nil, fault.New(fault.Invalid, "it is no map")
	}
	if element == nil {
		element = map[string]any{}
	}
	if r.set.spec.GoTemplate {
		return element, nil
	}
	out := map[string]any{}
	for k, v := range element {
		if values, ok := v.(map[string]any); ok && k == "values" {
			for name, v := range values {
				if out["values."+name], ok = v.(string); !ok {
					return nil, notText("values." + name)
				}
			}
			continue
		}
		text, ok := v.(string)
		if !ok {
			return nil, notText(k)
		}
		out[k] = text
	}
	return out, nil
}

func notText(key string) error {
	return fault.With(fault.New(fault.Invalid, "%s is no text", key), "", "put the value in quotes, or set spec.goTemplate to true")
}
