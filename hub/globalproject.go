package hub

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/capstan-cd/capstan/shared/fault"
)

// GlobalProjectsKey of SettingsMap lists projects that others inherit from.
const GlobalProjectsKey = "globalProjects"

// A GlobalProject says which projects inherit from one project (PROJ-18).
type GlobalProject struct {
	Project  string        `yaml:"projectName"`
	Selector LabelSelector `yaml:"labelSelector"`
}

// A LabelSelector is that of Kubernetes. The zero value matches everything.
type LabelSelector struct {
	Labels      map[string]string     `yaml:"matchLabels"      json:"matchLabels,omitempty"`
	Expressions []LabelSelectorMember `yaml:"matchExpressions" json:"matchExpressions,omitempty"`
}

// A LabelSelectorMember is one condition of a LabelSelector.
type LabelSelectorMember struct {
	Key      string   `yaml:"key"      json:"key"`
	Operator string   `yaml:"operator" json:"operator"` // In, NotIn, Exists or DoesNotExist
	Values   []string `yaml:"values"   json:"values,omitempty"`
}

// ParseGlobalProjects reads a value of globalProjects. An empty text is an
// empty list. The error names the entry.
func ParseGlobalProjects(value string) (all []GlobalProject, err error) {
	if strings.TrimSpace(value) == "" {
		return nil, nil
	}
	defer func() {
		if recover() != nil { // the library panics on some hostile texts
			all, err = nil, fault.New(fault.Invalid, "the global projects are not readable YAML")
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader([]byte(value)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&all); err != nil && !errors.Is(err, io.EOF) {
		return nil, fault.Wrap(fault.Invalid, err, "the global projects are no list of projectName and labelSelector: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	for i, g := range all {
		if err := g.check(); err != nil {
			return nil, fmt.Errorf("entry %d of the global projects: %w", i+1, err)
		}
	}
	return all, nil
}

func (g GlobalProject) check() error {
	if g.Project == "" {
		return fault.New(fault.Invalid, "an entry of the global projects has no projectName")
	}
	if err := g.Selector.Check(); err != nil {
		return fmt.Errorf("global project %q: %w", g.Project, err)
	}
	return nil
}

// Check refuses conditions that no selector has.
func (s LabelSelector) Check() error {
	for _, e := range s.Expressions {
		switch {
		case e.Key == "":
			return fault.New(fault.Invalid, "a matchExpression has no key")
		case !slices.Contains([]string{"In", "NotIn", "Exists", "DoesNotExist"}, e.Operator):
			return fault.With(fault.New(fault.Invalid, "%q is no operator of a matchExpression", e.Operator), "", "use In, NotIn, Exists or DoesNotExist")
		case strings.HasSuffix(e.Operator, "In") == (len(e.Values) == 0):
			return fault.With(fault.New(fault.Invalid, "values of the matchExpression on %q do not suit %s", e.Key, e.Operator), "",
				"In and NotIn need values; Exists and DoesNotExist have none")
		}
	}
	return nil
}

// Matches reports whether labels satisfy the selector.
func (s LabelSelector) Matches(labels map[string]string) bool {
	for k, v := range s.Labels {
		if have, there := labels[k]; !there || have != v {
			return false
		}
	}
	return !slices.ContainsFunc(s.Expressions, func(e LabelSelectorMember) bool { return !e.matches(labels) })
}

func (e LabelSelectorMember) matches(labels map[string]string) bool {
	have, there := labels[e.Key]
	switch e.Operator {
	case "In":
		return there && slices.Contains(e.Values, have)
	case "NotIn":
		return !there || !slices.Contains(e.Values, have)
	case "DoesNotExist":
		return !there
	}
	return there
}

// GlobalsOf names the projects that a project inherits from, in the order of
// the setting, each once.
func GlobalsOf(all []GlobalProject, p Project) []string {
	var out []string
	for _, g := range all {
		if g.Project != p.Name && g.Selector.Matches(p.Labels) && !slices.Contains(out, g.Project) {
			out = append(out, g.Project)
		}
	}
	return out
}

// Inherit sets what a project inherits. Of value, the setting globalProjects,
// found has the named projects that exist. A value that cannot be read, and a
// global project that does not exist, stop the project's deployments: the
// restrictions that it should have are unknown.
func (p *Project) Inherit(value string, found map[string]Project) {
	p.Globals, p.Broken = nil, ""
	all, err := ParseGlobalProjects(value)
	if err != nil {
		p.Broken = "the setting " + GlobalProjectsKey + " of argocd-cm, which says what it inherits, cannot be read: " + fault.Sentence(err)
		return
	}
	for _, name := range GlobalsOf(all, *p) {
		g, there := found[name]
		if !there {
			p.Broken = fmt.Sprintf("it inherits from project %q by %s of argocd-cm, and there is no such project", name, GlobalProjectsKey)
			return
		}
		p.Globals = append(p.Globals, g)
	}
}

// inheritedLists are the fields of a global project that are appended to those
// of the projects that inherit from it.
func inheritedLists() []string {
	return []string{
		"sourceRepos", "destinations", "clusterResourceWhitelist", "clusterResourceBlacklist", "namespaceResourceWhitelist",
		"namespaceResourceBlacklist", "syncWindows", "destinationServiceAccounts",
	}
}

// Effective is the spec of a project together with what it inherits. The error
// is fault.Invalid if a spec cannot be read.
func (p Project) Effective() (ProjectSpec, error) {
	if p.Read != nil {
		return p.Read()
	}
	raw := p.Spec
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	raw, err := withInherited(raw, p.Globals)
	if err != nil {
		return ProjectSpec{}, fault.With(err, "project "+p.Name, "")
	}
	spec, err := DecodeProject(raw)
	spec.Broken, spec.AppNamespaces = p.Broken, p.AppNamespaces
	for _, pause := range p.Pauses {
		spec.SyncWindows = append(spec.SyncWindows, pause.Window())
	}
	return spec, err
}

// EffectiveJSON is the spec of Effective as JSON, with fields that this release
// does not know.
func (p Project) EffectiveJSON() (json.RawMessage, error) {
	raw, err := withInherited(p.Spec, p.Globals)
	return raw, fault.With(err, "project "+p.Name, "")
}

func withInherited(raw json.RawMessage, globals []Project) (json.RawMessage, error) {
	if len(globals) == 0 {
		return raw, nil
	}
	var own map[string]json.RawMessage
	if err := json.Unmarshal(raw, &own); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "its spec cannot be read")
	}
	if own == nil {
		own = map[string]json.RawMessage{}
	}
	for _, g := range globals {
		var from map[string]json.RawMessage
		if err := json.Unmarshal(g.Spec, &from); err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "the spec of project %q, from which it inherits, cannot be read", g.Name)
		}
		for _, name := range inheritedLists() {
			joined, err := join(own[name], from[name])
			if err != nil {
				return nil, fault.Wrap(fault.Invalid, err, "%s of project %q, from which it inherits, is no list", name, g.Name)
			}
			if joined != nil {
				own[name] = joined
			}
		}
	}
	return json.Marshal(own)
}

// join appends a JSON list to another; nil if there is nothing to append.
func join(to, more json.RawMessage) (json.RawMessage, error) {
	var a, b []json.RawMessage
	for raw, into := range map[*json.RawMessage]*[]json.RawMessage{&to: &a, &more: &b} {
		if len(*raw) == 0 {
			continue
		}
		if err := json.Unmarshal(*raw, into); err != nil {
			return nil, err
		}
	}
	if len(b) == 0 {
		return nil, nil
	}
	return json.Marshal(append(a, b...))
}

// Revision changes with every change of the project, of what it inherits and of
// the pauses that hold.
func (p Project) Revision() int64 {
	if len(p.Globals)+len(p.Pauses) == 0 && p.Broken == "" {
		return p.Version
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", p.Version, p.Broken)
	for _, g := range p.Globals {
		fmt.Fprintf(h, " %s %s %d", g.Name, g.ID, g.Version)
	}
	for _, pause := range p.Pauses {
		fmt.Fprintf(h, " %s %d %d", pause.Cluster, pause.Since.UnixNano(), pause.Until.UnixNano())
	}
	return -int64(h.Sum64()>>1) - 1 // versions are positive, so it is none
}
