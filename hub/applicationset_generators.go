package hub

import "encoding/json"

// A Generator makes parameter sets. Exactly one of its kinds is set.
type Generator struct {
	List                    *ListGenerator      `json:"list,omitempty"`
	Clusters                *ClustersGenerator  `json:"clusters,omitempty"`
	Git                     *GitGenerator       `json:"git,omitempty"`
	SCMProvider             json.RawMessage     `json:"scmProvider,omitempty"` // of package scm
	PullRequest             json.RawMessage     `json:"pullRequest,omitempty"` // of package scm
	ClusterDecisionResource *DecisionGenerator  `json:"clusterDecisionResource,omitempty"`
	Plugin                  *PluginGenerator    `json:"plugin,omitempty"`
	Matrix                  *CombiningGenerator `json:"matrix,omitempty"`
	Merge                   *CombiningGenerator `json:"merge,omitempty"`

	Selector *LabelSelector `json:"selector,omitempty"` // of the parameter sets that count; nil: all
}

// A ListGenerator has the parameters themselves.
type ListGenerator struct {
	Elements     []json.RawMessage    `json:"elements,omitempty"`
	ElementsYAML string               `json:"elementsYaml,omitempty"`
	Template     *ApplicationTemplate `json:"template,omitempty"`
}

// A ClustersGenerator makes a parameter set for each cluster, or with FlatList
// one for all.
type ClustersGenerator struct {
	Selector LabelSelector        `json:"selector,omitzero"`
	Values   map[string]string    `json:"values,omitempty"`
	FlatList bool                 `json:"flatList,omitempty"`
	Template *ApplicationTemplate `json:"template,omitempty"`
}

// A GitGenerator makes parameter sets of directories or of files.
type GitGenerator struct {
	RepoURL             string               `json:"repoURL"`
	Revision            string               `json:"revision,omitempty"`
	Directories         []GitPath            `json:"directories,omitempty"`
	Files               []GitPath            `json:"files,omitempty"`
	PathParamPrefix     string               `json:"pathParamPrefix,omitempty"`
	Values              map[string]string    `json:"values,omitempty"`
	RequeueAfterSeconds *int64               `json:"requeueAfterSeconds,omitempty"`
	Template            *ApplicationTemplate `json:"template,omitempty"`
}

// A GitPath is a glob of directories or files.
type GitPath struct {
	Path    string `json:"path"`
	Exclude bool   `json:"exclude,omitempty"`
}

// A DecisionGenerator makes a parameter set for each cluster that is in the
// status of an object of another tool.
type DecisionGenerator struct {
	ConfigMapRef        string               `json:"configMapRef"`
	Name                string               `json:"name,omitempty"`
	LabelSelector       LabelSelector        `json:"labelSelector,omitzero"`
	Values              map[string]string    `json:"values,omitempty"`
	RequeueAfterSeconds *int64               `json:"requeueAfterSeconds,omitempty"`
	Template            *ApplicationTemplate `json:"template,omitempty"`
}

// A PluginGenerator makes the parameter sets that a server returns.
type PluginGenerator struct {
	ConfigMapRef        PluginConfigMap      `json:"configMapRef"`
	Input               PluginInput          `json:"input,omitzero"`
	Values              map[string]string    `json:"values,omitempty"`
	RequeueAfterSeconds *int64               `json:"requeueAfterSeconds,omitempty"`
	Template            *ApplicationTemplate `json:"template,omitempty"`
}

// A PluginConfigMap names the settings of a plugin.
type PluginConfigMap struct {
	Name string `json:"name"`
}

// PluginInput is what is sent to a plugin.
type PluginInput struct {
	Parameters map[string]json.RawMessage `json:"parameters,omitempty"`
}

// A CombiningGenerator combines the parameter sets of others. MergeKeys are of
// merge alone.
type CombiningGenerator struct {
	Generators []Generator          `json:"generators"`
	MergeKeys  []string             `json:"mergeKeys,omitempty"`
	Template   *ApplicationTemplate `json:"template,omitempty"`
}
