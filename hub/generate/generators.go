package generate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate/scm"
	"github.com/capstan-cd/capstan/shared/fault"
)

// The kinds of generators, by their fields.
const (
	kindList     = "list"
	kindClusters = "clusters"
	kindGit      = "git"
	kindSCM      = "scmProvider"
	kindDecision = "clusterDecisionResource"
	kindPulls    = "pullRequest"
	kindMatrix   = "matrix"
	kindMerge    = "merge"
	kindPlugin   = "plugin"
)

// kinds returns them in the order in which Argo CD evaluates those of one element.
func kinds() []string {
	return []string{kindList, kindClusters, kindGit, kindSCM, kindDecision, kindPulls, kindMatrix, kindMerge, kindPlugin}
}

// deepest is how deep combining generators may contain others.
const deepest = 2

// A generator is one element of a list of generators.
type generator struct {
	path     string
	sources  []source
	selector *hub.LabelSelector
}

// A source is one kind of a generator with its settings, whose texts may have
// placeholders.
type source struct {
	kind      string
	config    map[string]any // without template and children
	children  []*generator
	mergeKeys []string
	merged    map[string]any // its template over the main one; nil for children
}

// readGenerators reads a list of generators. depth is 0 for those of the set.
func (s *Set) readGenerators(path string, raw any, depth int) ([]*generator, error) {
	list, ok := raw.([]any)
	if !ok {
		return nil, fault.New(fault.Invalid, "%s is no list", path)
	}
	out := make([]*generator, len(list))
	for i, element := range list {
		g, err := s.readGenerator(fmt.Sprintf("%s[%d]", path, i), element, depth)
		if err != nil {
			return nil, err
		}
		out[i] = g
	}
	return out, nil
}

func (s *Set) readGenerator(path string, raw any, depth int) (*generator, error) {
	fields, _ := raw.(map[string]any)
	g := &generator{path: path}
	for _, kind := range kinds() {
		config, there := fields[kind].(map[string]any)
		if !there {
			continue
		}
		src, err := s.readSource(path+"."+kind, kind, config, depth)
		if err != nil {
			return nil, err
		}
		g.sources = append(g.sources, src)
	}
	if len(g.sources) == 0 || depth > 0 && len(g.sources) > 1 {
		return nil, fault.With(fault.New(fault.Invalid, "%s has %d generators", path, len(g.sources)), "", "set exactly one of "+strings.Join(kinds(), ", "))
	}
	if fields["selector"] != nil {
		g.selector = &hub.LabelSelector{}
		if err := convert(fields["selector"], g.selector); err != nil {
			return nil, fmt.Errorf("%s.selector: %w", path, err)
		}
		if err := checkKeys(*g.selector); err != nil && !s.placeholders(depth, fields["selector"]) {
			return nil, fmt.Errorf("%s.selector: %w", path, err)
		}
	}
	return g, nil
}

func (s *Set) readSource(path, kind string, config map[string]any, depth int) (source, error) {
	src := source{kind: kind, config: map[string]any{}}
	for k, v := range config {
		if k != "template" && k != "generators" && k != "mergeKeys" {
			src.config[k] = v
		}
	}
	var own map[string]any
	if config["template"] != nil {
		var err error
		if own, err = s.templateTree(path+".template", config["template"]); err != nil {
			return src, err
		}
		if depth > 0 && len(own) > 0 {
			s.warnings = append(s.warnings, path+".template has no effect: only generators of the set itself have templates")
		}
	}
	if depth == 0 {
		src.merged = over(own, s.template)
	}
	if kind == kindMatrix || kind == kindMerge {
		return s.readCombining(path, src, config, depth)
	}
	if err := src.check(); err != nil {
		return src, fmt.Errorf("%s: %w", path, err)
	}
	return src, s.checkTexts(path, src.config)
}

func (s *Set) readCombining(path string, src source, config map[string]any, depth int) (source, error) {
	if depth >= deepest {
		return src, fault.New(fault.Invalid, "%s is nested too deep: a matrix or merge may contain others, which may contain none", path)
	}
	var err error
	if src.children, err = s.readGenerators(path+".generators", config["generators"], depth+1); err != nil {
		return src, err
	}
	if err := convert(config["mergeKeys"], &src.mergeKeys); err != nil {
		return src, fmt.Errorf("%s.mergeKeys: %w", path, err)
	}
	switch n := len(src.children); {
	case src.kind == kindMatrix && n != 2:
		return src, fault.New(fault.Invalid, "%s has %d generators, and needs exactly two", path, n)
	case src.kind == kindMerge && n < 2:
		return src, fault.New(fault.Invalid, "%s has %d generators, and needs two or more", path, n)
	case src.kind == kindMerge && len(src.mergeKeys) == 0:
		return src, fault.New(fault.Invalid, "%s.mergeKeys is missing", path)
	}
	return src, nil
}

// check refuses settings that can give no parameters, whatever their
// placeholders mean.
func (src source) check() error {
	switch src.kind {
	case kindGit:
		return checkGit(src.config)
	case kindPlugin:
		if name, _ := child(src.config, "configMapRef")["name"].(string); name == "" {
			return fault.New(fault.Invalid, "configMapRef.name is missing")
		}
	case kindDecision:
		if ref, _ := src.config["configMapRef"].(string); ref == "" {
			return fault.New(fault.Invalid, "configMapRef is missing")
		}
	case kindClusters:
		return checkSelector(src.config["selector"])
	case kindSCM, kindPulls:
		return checkSCM(src)
	}
	return nil
}

func checkSelector(raw any) error {
	var s hub.LabelSelector
	if err := convert(raw, &s); err != nil {
		return err
	}
	text, err := json.Marshal(raw)
	if err != nil || strings.Contains(string(text), "{{") {
		return err
	}
	if err := checkLabels(s); err != nil {
		return fmt.Errorf("selector: %w", err)
	}
	return nil
}

// placeholders reports whether the selector of a nested generator may have
// placeholders, and has some.
func (s *Set) placeholders(depth int, raw any) bool {
	text, err := json.Marshal(raw)
	return err == nil && depth > 1 && strings.Contains(string(text), "{{")
}

// checkSCM reads the settings of a Git host, unless placeholders stand for some
// of them.
func checkSCM(src source) error {
	text, err := json.Marshal(src.config)
	if err != nil || strings.Contains(string(text), "{{") {
		return err
	}
	if src.kind == kindSCM {
		_, err = scm.ParseProvider(text)
	} else {
		_, err = scm.ParsePullRequests(text)
	}
	return err
}

// interpolate fills the placeholders of a source with the parameters of another
// generator. Values stay templates if they need parameters of their own.
func (r *round) interpolate(src source, params map[string]any) (source, error) {
	out := src
	out.config = map[string]any{}
	for k, v := range src.config {
		fill := r.templates.Tree
		if _, ok := v.(map[string]any); ok && k == "values" {
			fill = r.knownValues
		}
		filled, err := fill(v, params)
		if err != nil {
			return src, err
		}
		out.config[k] = filled
	}
	out.children = make([]*generator, len(src.children))
	for i, c := range src.children {
		filled := &generator{path: c.path, selector: c.selector}
		for _, inner := range c.sources {
			inner, err := r.interpolate(inner, params)
			if err != nil {
				return src, err
			}
			filled.sources = append(filled.sources, inner)
		}
		if c.selector != nil {
			var err error
			if filled.selector, err = r.interpolateSelector(c.selector, params); err != nil {
				return src, err
			}
		}
		out.children[i] = filled
	}
	return out, nil
}

func (r *round) knownValues(v any, params map[string]any) (any, error) {
	out := map[string]any{}
	values := v.(map[string]any)
	for _, k := range sortedKeys(values) {
		text, ok := values[k].(string)
		if !ok {
			return nil, fault.New(fault.Invalid, "values.%s is no text", k)
		}
		filled, err := r.templates.FillKnown(text, params)
		if err != nil {
			return nil, err
		}
		out[k] = filled
	}
	return out, nil
}

func (r *round) interpolateSelector(s *hub.LabelSelector, params map[string]any) (*hub.LabelSelector, error) {
	var raw any
	if err := convert(s, &raw); err != nil {
		return nil, err
	}
	filled, err := r.templates.Tree(raw, params)
	if err != nil {
		return nil, err
	}
	var out hub.LabelSelector
	if err := convert(filled, &out); err != nil {
		return nil, err
	}
	return &out, checkKeys(out)
}

// convert makes a typed value of a JSON value, or the other way.
func convert(from, to any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return typeError(err)
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
