package scm

import "github.com/capstan-cd/capstan/hub"

// The types of this file mirror the generators scmProvider and pullRequest of
// argoproj.io/v1alpha1 ApplicationSet.

type providerSpec struct {
	GitHub          *gitHubProvider          `json:"github"`
	GitLab          *gitLabProvider          `json:"gitlab"`
	Bitbucket       *bitbucketProvider       `json:"bitbucket"`
	BitbucketServer *bitbucketServerProvider `json:"bitbucketServer"`
	Gitea           *giteaProvider           `json:"gitea"`
	AzureDevOps     *azureProvider           `json:"azureDevOps"`
	AWSCodeCommit   *struct{}                `json:"awsCodeCommit"`

	Filters             []providerFilter         `json:"filters"`
	CloneProtocol       string                   `json:"cloneProtocol"`
	RequeueAfterSeconds *int64                   `json:"requeueAfterSeconds"`
	Template            *hub.ApplicationTemplate `json:"template"`
	Values              map[string]string        `json:"values"`
}

type pullRequestSpec struct {
	GitHub          *gitHubPulls          `json:"github"`
	GitLab          *gitLabPulls          `json:"gitlab"`
	Gitea           *giteaPulls           `json:"gitea"`
	Bitbucket       *bitbucketPulls       `json:"bitbucket"`
	BitbucketServer *bitbucketServerPulls `json:"bitbucketServer"`
	AzureDevOps     *azurePulls           `json:"azuredevops"`

	Filters             []pullFilter             `json:"filters"`
	ContinueOnNotFound  bool                     `json:"continueOnRepoNotFoundError"`
	RequeueAfterSeconds *int64                   `json:"requeueAfterSeconds"`
	Template            *hub.ApplicationTemplate `json:"template"`
	Values              map[string]string        `json:"values"`
}

// A secretRef names a value of a Secret.
type secretRef struct {
	Secret string `json:"secretName"`
	Key    string `json:"key"`
}

// A configRef names a value of a ConfigMap.
type configRef struct {
	ConfigMap string `json:"configMapName"`
	Key       string `json:"key"`
}

type basicAuth struct {
	Username string     `json:"username"`
	Password *secretRef `json:"passwordRef"`
}

type bearerToken struct {
	Token *secretRef `json:"tokenRef"`
}

type gitHubProvider struct {
	Organization    string     `json:"organization"`
	API             string     `json:"api"`
	Token           *secretRef `json:"tokenRef"`
	App             string     `json:"appSecretName"`
	AllBranches     bool       `json:"allBranches"`
	ExcludeArchived bool       `json:"excludeArchivedRepos"`
}

type gitHubPulls struct {
	Owner  string     `json:"owner"`
	Repo   string     `json:"repo"`
	API    string     `json:"api"`
	Token  *secretRef `json:"tokenRef"`
	App    string     `json:"appSecretName"`
	Labels []string   `json:"labels"`
}

type gitLabProvider struct {
	Group           string     `json:"group"`
	Subgroups       bool       `json:"includeSubgroups"`
	API             string     `json:"api"`
	Token           *secretRef `json:"tokenRef"`
	AllBranches     bool       `json:"allBranches"`
	Insecure        bool       `json:"insecure"`
	Shared          *bool      `json:"includeSharedProjects"` // nil: true
	Topic           string     `json:"topic"`
	CA              *configRef `json:"caRef"`
	IncludeArchived bool       `json:"includeArchivedRepos"`
}

type gitLabPulls struct {
	Project  string     `json:"project"`
	API      string     `json:"api"`
	Token    *secretRef `json:"tokenRef"`
	Labels   []string   `json:"labels"`
	State    string     `json:"pullRequestState"` // empty: all
	Insecure bool       `json:"insecure"`
	CA       *configRef `json:"caRef"`
}

type giteaProvider struct {
	Owner           string     `json:"owner"`
	API             string     `json:"api"`
	Token           *secretRef `json:"tokenRef"`
	AllBranches     bool       `json:"allBranches"`
	Insecure        bool       `json:"insecure"`
	ExcludeArchived bool       `json:"excludeArchivedRepos"`
}

type giteaPulls struct {
	Owner    string     `json:"owner"`
	Repo     string     `json:"repo"`
	API      string     `json:"api"`
	Token    *secretRef `json:"tokenRef"`
	Insecure bool       `json:"insecure"`
	Labels   []string   `json:"labels"`
}

type bitbucketProvider struct {
	Owner       string     `json:"owner"`
	User        string     `json:"user"`
	Password    *secretRef `json:"appPasswordRef"`
	AllBranches bool       `json:"allBranches"`
}

type bitbucketPulls struct {
	Owner  string       `json:"owner"`
	Repo   string       `json:"repo"`
	API    string       `json:"api"`
	Basic  *basicAuth   `json:"basicAuth"`
	Bearer *bearerToken `json:"bearerToken"`
}

type bitbucketServerProvider struct {
	Project     string       `json:"project"`
	API         string       `json:"api"`
	Basic       *basicAuth   `json:"basicAuth"`
	Bearer      *bearerToken `json:"bearerToken"`
	AllBranches bool         `json:"allBranches"`
	Insecure    bool         `json:"insecure"`
	CA          *configRef   `json:"caRef"`
}

type bitbucketServerPulls struct {
	Project  string       `json:"project"`
	Repo     string       `json:"repo"`
	API      string       `json:"api"`
	Basic    *basicAuth   `json:"basicAuth"`
	Bearer   *bearerToken `json:"bearerToken"`
	Insecure bool         `json:"insecure"`
	CA       *configRef   `json:"caRef"`
}

type azureProvider struct {
	Organization string     `json:"organization"`
	API          string     `json:"api"`
	Project      string     `json:"teamProject"`
	Token        *secretRef `json:"accessTokenRef"`
	AllBranches  bool       `json:"allBranches"`
}

type azurePulls struct {
	Organization string     `json:"organization"`
	Project      string     `json:"project"`
	Repo         string     `json:"repo"`
	API          string     `json:"api"`
	Token        *secretRef `json:"tokenRef"`
	Labels       []string   `json:"labels"`
}
