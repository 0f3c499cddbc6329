package generate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate/template"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A Set is a spec that has been read and checked. It serves many goroutines.
type Set struct {
	name       string
	spec       hub.ApplicationSetSpec
	engine     *template.Engine
	template   map[string]any // metadata and spec of the main template
	generators []*generator
	warnings   []string
	checks     *template.Run // while the spec is read
}

// Parse reads the spec of the set with a name. The error has kind Invalid and
// names the field.
func Parse(name string, spec json.RawMessage) (*Set, error) {
	decoded, err := hub.DecodeApplicationSet(spec)
	if err != nil {
		return nil, typeError(err)
	}
	s := &Set{name: name, spec: decoded}
	if s.engine, err = template.New(decoded.GoTemplate, decoded.GoTemplateOptions); err != nil {
		return nil, fmt.Errorf("spec.goTemplateOptions: %w", err)
	}
	s.checks = s.engine.Start(context.Background(), 0)
	defer func() { s.checks = nil }()
	raw, err := object(spec)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the spec is no object")
	}
	if s.template, err = s.templateTree("spec.template", raw["template"]); err != nil {
		return nil, err
	}
	if raw["generators"] == nil {
		return nil, fault.With(fault.New(fault.Invalid, "spec.generators is missing"), "", "add a list of generators")
	}
	if s.generators, err = s.readGenerators("spec.generators", raw["generators"], 0); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	s.warnings = append(s.warnings, unknownFields(raw)...)
	slices.Sort(s.warnings)
	return s, nil
}

// Warnings are sentences about fields without effect.
func (s *Set) Warnings() []string { return s.warnings }

// templates are the templates of the set's generators, merged over the main one.
func (s *Set) templates() []map[string]any {
	var out []map[string]any
	for _, g := range s.generators {
		for _, src := range g.sources {
			out = append(out, src.merged)
		}
	}
	if len(out) == 0 {
		out = append(out, s.template)
	}
	return out
}

// standardRequeue is how long the result of generators holds that do not say so.
const (
	standardRequeue = 3 * time.Minute
	remoteRequeue   = 30 * time.Minute // of generators that call other servers
)

// Requeue is how long a result holds where nothing is known to change it; 0:
// until something changes (ASET-17). Standard is requeue.after of the tenant;
// 0: three minutes.
func (s *Set) Requeue(standard time.Duration) time.Duration {
	if standard <= 0 {
		standard = standardRequeue
	}
	return shortest(s.generators, standard)
}

func shortest(all []*generator, standard time.Duration) time.Duration {
	least := time.Duration(0)
	for _, g := range all {
		for _, src := range g.sources {
			if d := src.requeue(standard); d > 0 && (least == 0 || d < least) {
				least = d
			}
		}
	}
	return least
}

func (src source) requeue(standard time.Duration) time.Duration {
	if seconds, ok := src.config["requeueAfterSeconds"].(float64); ok {
		return time.Duration(seconds * float64(time.Second))
	}
	switch src.kind {
	case kindGit, kindDecision:
		return standard
	case kindSCM, kindPulls, kindPlugin:
		return remoteRequeue
	case kindMatrix, kindMerge:
		return shortest(src.children, standard)
	}
	return 0
}

// object reads a JSON object; its whole numbers are float64, as generators have
// them.
func object(raw json.RawMessage) (map[string]any, error) {
	var out map[string]any
	err := json.Unmarshal(raw, &out)
	return out, err
}

// exact reads a JSON object; its whole numbers are int64, so that none changes.
func exact(raw any) (map[string]any, error) {
	text, err := json.Marshal(raw)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var out map[string]any
	if err := d.Decode(&out); err != nil {
		return nil, err
	}
	return whole(out).(map[string]any), nil
}

func whole(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			v[k] = whole(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = whole(inner)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, err := v.Float64()
		if err != nil {
			return v.String()
		}
		return f
	}
	return v
}

// child is the object in a field of another; nil: there is none.
func child(m map[string]any, name string) map[string]any {
	out, _ := m[name].(map[string]any)
	return out
}
