package hub

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// GeneratePathsAnnotation names the paths that the manifests of an application
// depend on. Recorded inputs make it unnecessary; plugins can be given these
// paths only (CMP-14).
const GeneratePathsAnnotation = "argocd.argoproj.io/manifest-generate-paths"

// A PluginSource is the block of a source that a config management plugin
// renders (rows CMP).
type PluginSource struct {
	Name       string            `json:"name,omitempty"` // empty: the plugin that discovers the source
	Env        []PluginVar       `json:"env,omitempty"`
	Parameters []PluginParameter `json:"parameters,omitempty"`
}

// A PluginVar is a variable that a plugin gets as ARGOCD_ENV_<name>.
type PluginVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// A PluginParameter is a text, a list or a map.
type PluginParameter struct {
	Name   string             `json:"name,omitempty"`
	String *string            `json:"string,omitempty"`
	Array  *[]string          `json:"array,omitempty"`
	Map    *map[string]string `json:"map,omitempty"`
}

// A PluginAnnouncement is a parameter that a plugin announces (CMP-11).
type PluginAnnouncement struct {
	Name           string            `json:"name,omitempty"`
	Title          string            `json:"title,omitempty"`
	Tooltip        string            `json:"tooltip,omitempty"`
	Required       bool              `json:"required,omitempty"`
	ItemType       string            `json:"itemType,omitempty"`
	CollectionType string            `json:"collectionType,omitempty"`
	String         string            `json:"string,omitempty"`
	Array          []string          `json:"array,omitempty"`
	Map            map[string]string `json:"map,omitempty"`
}

// A DeclaredPlugin is a plugin as users see it.
type DeclaredPlugin struct {
	Name       string // with the version
	Discovers  bool
	Parameters []PluginAnnouncement
}

// A SourceView is a directory of a repository at a revision.
type SourceView struct {
	Tenant      TenantID
	Repository  Repository
	Refs        []Ref
	Settings    map[string]string // those that Renders names
	Revision    string            // empty: the default branch
	Path        string
	Chart       string // of a repository of charts, or below the address of a registry
	Plugin      string // the full name; empty: discovery decides
	Application string // may be empty
}

// A FoundSource is a directory or chart that is a source of an application.
type FoundSource struct {
	Path, Type string
	Chart      string // of an index
}

// A Listing is what a repository of charts or artifacts publishes.
type Listing struct {
	Charts []PublishedChart // of an index, in the order of their names
	Tags   []string         // of a registry
}

// A PublishedChart is a chart of an index, with its newest version first.
type PublishedChart struct {
	Name     string
	Versions []string
}

// SourceDetails say what a source is, and what can be set about it.
type SourceDetails struct {
	Type      string            `json:"type"`
	Commit    string            `json:"commit"`
	Helm      *HelmDetails      `json:"helm,omitempty"`
	Kustomize *KustomizeDetails `json:"kustomize,omitempty"`
	Plugin    *PluginDetails    `json:"plugin,omitempty"`
}

// HelmDetails are those of a chart.
type HelmDetails struct {
	Name       string          `json:"name"`
	Values     string          `json:"values"`
	ValueFiles []string        `json:"valueFiles"`
	Parameters []HelmParameter `json:"parameters"`
}

// KustomizeDetails are those of a kustomization.
type KustomizeDetails struct {
	Images []string `json:"images"`
}

// PluginDetails are those of a source that a plugin renders.
type PluginDetails struct {
	Name       string               `json:"name"`
	Parameters []PluginAnnouncement `json:"parameters"`
}

// PluginBlock decodes the block of a plugin. Nil: there is none.
func (s Source) PluginBlock() (*PluginSource, error) {
	if len(s.Plugin) == 0 || string(bytes.TrimSpace(s.Plugin)) == "null" {
		return nil, nil
	}
	var p PluginSource
	if err := json.Unmarshal(s.Plugin, &p); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "plugin cannot be read: %s", err)
	}
	for _, v := range p.Env {
		if v.Name == "" || strings.ContainsAny(v.Name, "=\x00") || strings.ContainsRune(v.Value, 0) {
			return nil, fault.With(fault.New(fault.Invalid, "plugin.env has a variable with the name or value %q, which no program can be given", cut(v.Name)), "", "use letters, digits and underscores")
		}
	}
	return &p, nil
}

// Variables returns the environment of parameters: all of them as JSON in
// ARGOCD_APP_PARAMETERS, and each in PARAM_<NAME>, with _<i> and _<KEY> for
// lists and maps (CMP-10).
func (p PluginSource) Variables() ([]string, error) {
	parameters := p.Parameters
	if parameters == nil {
		parameters = []PluginParameter{}
	}
	text, err := json.Marshal(parameters)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "plugin.parameters cannot be written: %s", err)
	}
	out := []string{"ARGOCD_APP_PARAMETERS=" + string(text)}
	for _, one := range p.Parameters {
		name := "PARAM_" + variableName(one.Name)
		if one.String != nil {
			out = append(out, name+"="+*one.String)
		}
		if one.Array != nil {
			for i, v := range *one.Array {
				out = append(out, name+"_"+strconv.Itoa(i)+"="+v)
			}
		}
		if one.Map != nil {
			for _, k := range slices.Sorted(maps.Keys(*one.Map)) {
				out = append(out, name+"_"+variableName(k)+"="+(*one.Map)[k])
			}
		}
	}
	return out, nil
}

var notOfVariables = regexp.MustCompile(`[^A-Z0-9_]`)

func variableName(name string) string {
	return notOfVariables.ReplaceAllString(strings.ToUpper(name), "_")
}
