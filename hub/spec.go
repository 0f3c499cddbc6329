package hub

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/syncwindow"
)

// The types of this file mirror the fields of argoproj.io/v1alpha1 that
// Capstan acts on. Objects are stored as they were given (json.RawMessage), so
// a field that is not listed here still comes back unchanged.

// An ApplicationSpec is the spec of an Application as users write it.
type ApplicationSpec struct {
	Project              string             `json:"project,omitempty"`
	Source               *Source            `json:"source,omitempty"`
	Sources              []Source           `json:"sources,omitempty"`
	Destination          Destination        `json:"destination"`
	SyncPolicy           *SyncPolicy        `json:"syncPolicy,omitempty"`
	IgnoreDifferences    []IgnoreDifference `json:"ignoreDifferences,omitempty"`
	Info                 []Info             `json:"info,omitempty"`
	RevisionHistoryLimit *int64             `json:"revisionHistoryLimit,omitempty"`
}

// EffectiveSources is sources if there are any, else the one source.
func (s ApplicationSpec) EffectiveSources() []Source {
	if len(s.Sources) > 0 {
		return s.Sources
	}
	if s.Source != nil {
		return []Source{*s.Source}
	}
	return nil
}

// RepoURLs are the normal forms of its sources' repositories, each once. One
// that has none is left out: the application's condition says so.
func (s ApplicationSpec) RepoURLs() []string {
	var out []string
	for _, source := range s.EffectiveSources() {
		if url, err := source.Repository(); err == nil && !slices.Contains(out, url) {
			out = append(out, url)
		}
	}
	return out
}

// RefsOf are the names of the refs that its sources follow of a repository of
// charts or artifacts, by its normalised URL.
func (s ApplicationSpec) RefsOf(url string) (out []string) {
	for _, source := range s.EffectiveSources() {
		if of, err := source.Repository(); err == nil && of == url {
			out = append(out, source.Target().Ref())
		}
	}
	return out
}

// Automated reports whether new revisions are applied without being asked.
func (s ApplicationSpec) Automated() bool {
	a := s.auto()
	return a != nil && (a.Enabled == nil || *a.Enabled)
}

// Prune, SelfHeal and AllowEmpty are false unless automation is on and says so.
func (s ApplicationSpec) Prune() bool      { return s.Automated() && s.auto().Prune }
func (s ApplicationSpec) SelfHeal() bool   { return s.Automated() && s.auto().SelfHeal }
func (s ApplicationSpec) AllowEmpty() bool { return s.Automated() && s.auto().AllowEmpty }

func (s ApplicationSpec) auto() *Automated {
	if s.SyncPolicy == nil {
		return nil
	}
	return s.SyncPolicy.Automated
}

// DecodeSpec reads the spec of an Application. Unknown fields are left alone.
func DecodeSpec(raw json.RawMessage) (ApplicationSpec, error) {
	var s ApplicationSpec
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fault.New(fault.Invalid, "spec is no valid Application spec: %w", err)
	}
	return s, nil
}

// DecodeProject reads the spec of an AppProject. Unknown fields are left alone.
func DecodeProject(raw json.RawMessage) (ProjectSpec, error) {
	var s ProjectSpec
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fault.New(fault.Invalid, "spec is no valid AppProject spec: %w", err)
	}
	return s, nil
}

// A Source says where manifests come from and how they are rendered.
type Source struct {
	RepoURL        string           `json:"repoURL"`
	Path           string           `json:"path,omitempty"`
	TargetRevision string           `json:"targetRevision,omitempty"` // empty means HEAD
	Chart          string           `json:"chart,omitempty"`
	Ref            string           `json:"ref,omitempty"`
	Name           string           `json:"name,omitempty"`
	TagPrefix      string           `json:"tagPrefix,omitempty"`
	Helm           *HelmSource      `json:"helm,omitempty"`
	Kustomize      *KustomizeSource `json:"kustomize,omitempty"`
	Directory      *DirectorySource `json:"directory,omitempty"`
	Plugin         json.RawMessage  `json:"plugin,omitempty"`
}

// A HelmSource has the Helm settings of a source (rows HELM).
type HelmSource struct {
	ReleaseName             string          `json:"releaseName,omitempty"`
	Namespace               string          `json:"namespace,omitempty"`
	ValueFiles              []string        `json:"valueFiles,omitempty"`
	IgnoreMissingValueFiles bool            `json:"ignoreMissingValueFiles,omitempty"`
	Values                  string          `json:"values,omitempty"`
	ValuesObject            json.RawMessage `json:"valuesObject,omitempty"`
	Parameters              []HelmParameter `json:"parameters,omitempty"`
	FileParameters          []HelmFile      `json:"fileParameters,omitempty"`
	PassCredentials         bool            `json:"passCredentials,omitempty"`
	SkipCrds                bool            `json:"skipCrds,omitempty"`
	SkipTests               bool            `json:"skipTests,omitempty"`
	SkipSchemaValidation    bool            `json:"skipSchemaValidation,omitempty"`
	KubeVersion             string          `json:"kubeVersion,omitempty"`
	APIVersions             []string        `json:"apiVersions,omitempty"`
	Version                 string          `json:"version,omitempty"`
}

// A HelmParameter is one --set or, with ForceString, --set-string.
type HelmParameter struct {
	Name        string `json:"name"`
	Value       string `json:"value"`
	ForceString bool   `json:"forceString,omitempty"`
}

// A HelmFile is one --set-file.
type HelmFile struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// A KustomizeSource has the edits made before a Kustomize build (rows KUST).
type KustomizeSource struct {
	NamePrefix                string             `json:"namePrefix,omitempty"`
	NameSuffix                string             `json:"nameSuffix,omitempty"`
	Images                    []string           `json:"images,omitempty"`
	Replicas                  []KustomizeReplica `json:"replicas,omitempty"`
	CommonLabels              map[string]string  `json:"commonLabels,omitempty"`
	CommonAnnotations         map[string]string  `json:"commonAnnotations,omitempty"`
	CommonAnnotationsEnvsubst bool               `json:"commonAnnotationsEnvsubst,omitempty"`
	ForceCommonLabels         bool               `json:"forceCommonLabels,omitempty"`
	ForceCommonAnnotations    bool               `json:"forceCommonAnnotations,omitempty"`
	LabelWithoutSelector      bool               `json:"labelWithoutSelector,omitempty"`
	LabelIncludeTemplates     bool               `json:"labelIncludeTemplates,omitempty"`
	Namespace                 string             `json:"namespace,omitempty"`
	Patches                   []KustomizePatch   `json:"patches,omitempty"`
	Components                []string           `json:"components,omitempty"`
	IgnoreMissingComponents   bool               `json:"ignoreMissingComponents,omitempty"`
	Version                   string             `json:"version,omitempty"`
	KubeVersion               string             `json:"kubeVersion,omitempty"`
	APIVersions               []string           `json:"apiVersions,omitempty"`
}

// A KustomizeReplica sets a replica count; Count is a number or a string.
type KustomizeReplica struct {
	Name  string          `json:"name"`
	Count json.RawMessage `json:"count"`
}

// A KustomizePatch is an inline patch or one in a file.
type KustomizePatch struct {
	Path    string             `json:"path,omitempty"`
	Patch   string             `json:"patch,omitempty"`
	Target  *KustomizeSelector `json:"target,omitempty"`
	Options map[string]bool    `json:"options,omitempty"`
}

// A KustomizeSelector picks the objects that a patch is for.
type KustomizeSelector struct {
	Group              string `json:"group,omitempty"`
	Version            string `json:"version,omitempty"`
	Kind               string `json:"kind,omitempty"`
	Name               string `json:"name,omitempty"`
	Namespace          string `json:"namespace,omitempty"`
	LabelSelector      string `json:"labelSelector,omitempty"`
	AnnotationSelector string `json:"annotationSelector,omitempty"`
}

// A DirectorySource has the settings of a plain directory (rows DIR).
type DirectorySource struct {
	Recurse                bool           `json:"recurse,omitempty"`
	Include                string         `json:"include,omitempty"`
	Exclude                string         `json:"exclude,omitempty"`
	DisableExtensionFilter bool           `json:"disableExtensionFilter,omitempty"`
	Jsonnet                *JsonnetSource `json:"jsonnet,omitempty"`
}

// A JsonnetSource has what Jsonnet files of a directory are evaluated with.
type JsonnetSource struct {
	ExtVars []JsonnetVar `json:"extVars,omitempty"`
	TLAs    []JsonnetVar `json:"tlas,omitempty"`
	Libs    []string     `json:"libs,omitempty"` // paths from the root of the repository
}

// A JsonnetVar is a variable or an argument: text or, with Code, Jsonnet.
type JsonnetVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Code  bool   `json:"code,omitempty"`
}

// A Destination is a cluster, by name or by server URL, and a default namespace.
type Destination struct {
	Server    string `json:"server,omitempty"`
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

// A SyncPolicy says when and how an application is synchronised.
type SyncPolicy struct {
	Automated                *Automated         `json:"automated,omitempty"`
	SyncOptions              []string           `json:"syncOptions,omitempty"`
	Retry                    *Retry             `json:"retry,omitempty"`
	ManagedNamespaceMetadata *NamespaceMetadata `json:"managedNamespaceMetadata,omitempty"`
}

// Option returns the value of "Name=value" in the sync options, and whether it
// is there. The last one wins.
func (p *SyncPolicy) Option(name string) (string, bool) {
	if p == nil {
		return "", false
	}
	return Option(p.SyncOptions, name)
}

// Option returns the value of "Name=value" in a list of options.
func Option(options []string, name string) (value string, found bool) {
	for _, o := range options {
		if len(o) > len(name) && o[:len(name)] == name && o[len(name)] == '=' {
			value, found = o[len(name)+1:], true
		}
	}
	return value, found
}

// Automated turns on synchronisation without being asked.
type Automated struct {
	Enabled    *bool `json:"enabled,omitempty"`
	Prune      bool  `json:"prune,omitempty"`
	SelfHeal   bool  `json:"selfHeal,omitempty"`
	AllowEmpty bool  `json:"allowEmpty,omitempty"`
}

// Retry says how often a failed operation is tried again.
type Retry struct {
	Limit   int64    `json:"limit,omitempty"` // below 0: without end
	Backoff *Backoff `json:"backoff,omitempty"`
	Refresh bool     `json:"refresh,omitempty"`
}

// Backoff is the wait between tries; durations as in Go ("5s", "3m").
type Backoff struct {
	Duration    string `json:"duration,omitempty"`
	Factor      *int64 `json:"factor,omitempty"`
	MaxDuration string `json:"maxDuration,omitempty"`
}

// NamespaceMetadata goes to the namespace that an operation creates.
type NamespaceMetadata struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// An IgnoreDifference leaves fields out of the comparison.
type IgnoreDifference struct {
	Group                 string   `json:"group,omitempty"`
	Kind                  string   `json:"kind"`
	Name                  string   `json:"name,omitempty"`
	Namespace             string   `json:"namespace,omitempty"`
	JSONPointers          []string `json:"jsonPointers,omitempty"`
	JQPathExpressions     []string `json:"jqPathExpressions,omitempty"`
	ManagedFieldsManagers []string `json:"managedFieldsManagers,omitempty"`
}

// Info is a named note on an application or an operation.
type Info struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// A ProjectSpec is the spec of an AppProject as users write it.
type ProjectSpec struct {
	Description                string              `json:"description,omitempty"`
	SourceRepos                []string            `json:"sourceRepos,omitempty"`
	Destinations               []Destination       `json:"destinations,omitempty"`
	ClusterResourceWhitelist   []GroupKind         `json:"clusterResourceWhitelist,omitempty"`
	ClusterResourceBlacklist   []GroupKind         `json:"clusterResourceBlacklist,omitempty"`
	NamespaceResourceWhitelist []GroupKind         `json:"namespaceResourceWhitelist,omitempty"`
	NamespaceResourceBlacklist []GroupKind         `json:"namespaceResourceBlacklist,omitempty"`
	Roles                      []ProjectRole       `json:"roles,omitempty"`
	SyncWindows                []syncwindow.Window `json:"syncWindows,omitempty"`
	OrphanedResources          *OrphanedMonitor    `json:"orphanedResources,omitempty"`
	SourceNamespaces           []string            `json:"sourceNamespaces,omitempty"`
	// PermitOnlyProjectScopedClusters leaves only clusters that belong to the
	// project as destinations (PROJ-04).
	PermitOnlyProjectScopedClusters bool                        `json:"permitOnlyProjectScopedClusters,omitempty"`
	DestinationServiceAccounts      []DestinationServiceAccount `json:"destinationServiceAccounts,omitempty"`
	Integrity
	Unenforced
	// Prunes is what one operation of an application may delete without
	// approval; it comes from an annotation of the project.
	Prunes PruneLimit `json:"-"`
}

// An OrphanedMonitor asks for the objects in a project's namespaces that no
// application manages (CMPR-11).
type OrphanedMonitor struct {
	Warn   *bool          `json:"warn,omitempty"` // absent: true
	Ignore []OrphanedRule `json:"ignore,omitempty"`
}

// Warns reports whether orphaned objects make a condition.
func (m OrphanedMonitor) Warns() bool { return m.Warn == nil || *m.Warn }

// An OrphanedRule leaves objects out of the monitor, by globs.
type OrphanedRule struct {
	Group string `json:"group,omitempty"`
	Kind  string `json:"kind,omitempty"`
	Name  string `json:"name,omitempty"`
}

// A GroupKind names a kind; either part may be a glob. Name may limit it.
type GroupKind struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name,omitempty"`
}

// A ProjectRole is a set of policies inside one project.
type ProjectRole struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Policies    []string `json:"policies,omitempty"`
	Groups      []string `json:"groups,omitempty"`
	// JWTTokens are what Argo CD has issued for the role. They are stored and
	// shown, and never accepted.
	JWTTokens []json.RawMessage `json:"jwtTokens,omitempty"`
}

// Meta is the metadata that the hub stores of every object a user applies.
type Meta struct {
	Namespace   string            `json:"namespace,omitempty"`
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Finalizers  []string          `json:"finalizers,omitempty"`
	Version     int64             `json:"version"` // grows by one with each write; the ETag
	CreatedAt   time.Time         `json:"createdAt"`
	UpdatedAt   time.Time         `json:"updatedAt"`
}
