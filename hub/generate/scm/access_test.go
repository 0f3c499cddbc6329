package scm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/hub/generate/scm"
	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/integration/rigs/scmhosts"
)

// An access is that of one tenant to one server, through the guard.
type access struct {
	ca      string
	secrets map[string]string // name/key → value
	maps    map[string]string
	apps    map[string]string // Secret → token
	answers *scm.Answers
	refuse  error

	mu   sync.Mutex
	http map[string]*http.Client // by authorities
	uses []scm.ClientUse
	app  []scm.AppUse
}

func newAccess(host *scmhosts.Server, answers *scm.Answers) *access {
	return &access{
		ca: host.CA(), answers: answers, secrets: map[string]string{"creds/token": host.Token + "\n"}, maps: map[string]string{"authorities/ca": host.CA()},
		apps: map[string]string{"app": host.Token}, http: map[string]*http.Client{},
	}
}

var errNoSecret = errors.New("there is no such value")

func (a *access) Secret(_ context.Context, kind, name, key string) (string, error) {
	from := a.secrets
	if kind == scm.ConfigMapKind {
		from = a.maps
	}
	v, ok := from[name+"/"+key]
	if !ok {
		return "", fmt.Errorf("%s %s: %w", kind, name, errNoSecret)
	}
	return v, nil
}

func (a *access) App(_ context.Context, use scm.AppUse) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.app = append(a.app, use)
	return a.apps[use.Secret], nil
}

func (a *access) Client(_ context.Context, use scm.ClientUse) (*http.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.uses = append(a.uses, use)
	if a.refuse != nil {
		return nil, a.refuse
	}
	ca := a.ca
	if use.CA != "" {
		ca = use.CA
	}
	if c := a.http[ca]; c != nil && !use.Insecure {
		return c, nil
	}
	c, err := guard.Client([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, ca, use.Insecure)
	if err == nil && !use.Insecure {
		a.http[ca] = c
	}
	return c, err
}

func (a *access) Answers() *scm.Answers { return a.answers }

// providerOf is the generator scmProvider for a server.
func providerOf(t *testing.T, host *scmhosts.Server, extra, rest string) *scm.Provider {
	t.Helper()
	api := host.HTTP.URL
	of := map[string]string{
		scmhosts.GitHub:          `"github":{"organization":"acme","api":%q,"tokenRef":{"secretName":"creds","key":"token"}%s}`,
		scmhosts.GitLab:          `"gitlab":{"group":"acme","api":%q,"tokenRef":{"secretName":"creds","key":"token"}%s}`,
		scmhosts.Gitea:           `"gitea":{"owner":"acme","api":%q,"tokenRef":{"secretName":"creds","key":"token"}%s}`,
		scmhosts.BitbucketServer: `"bitbucketServer":{"project":"acme","api":%q,"basicAuth":{"username":"robot","passwordRef":{"secretName":"creds","key":"token"}}%s}`,
		scmhosts.AzureDevOps:     `"azureDevOps":{"organization":"acme","teamProject":"team","api":%q,"accessTokenRef":{"secretName":"creds","key":"token"}%s}`,
	}
	p, err := scm.ParseProvider(json.RawMessage("{" + fmt.Sprintf(of[host.Kind], api, extra) + rest + "}"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// pullsOf is the generator pullRequest for the repository shop of a server.
func pullsOf(t *testing.T, host *scmhosts.Server, repo, extra, rest string) *scm.PullRequests {
	t.Helper()
	of := map[string]string{
		scmhosts.GitHub:          `"github":{"owner":"acme","repo":%[2]q,"api":%[1]q,"tokenRef":{"secretName":"creds","key":"token"}%[3]s}`,
		scmhosts.GitLab:          `"gitlab":{"project":"acme/%[2]s","api":%[1]q,"tokenRef":{"secretName":"creds","key":"token"}%[3]s}`,
		scmhosts.Gitea:           `"gitea":{"owner":"acme","repo":%[2]q,"api":%[1]q,"tokenRef":{"secretName":"creds","key":"token"}%[3]s}`,
		scmhosts.Bitbucket:       `"bitbucket":{"owner":"acme","repo":%[2]q,"api":"%[1]s/2.0","bearerToken":{"tokenRef":{"secretName":"creds","key":"token"}}%[3]s}`,
		scmhosts.BitbucketServer: `"bitbucketServer":{"project":"acme","repo":%[2]q,"api":%[1]q,"bearerToken":{"tokenRef":{"secretName":"creds","key":"token"}}%[3]s}`,
		scmhosts.AzureDevOps:     `"azuredevops":{"organization":"acme","project":"team","repo":%[2]q,"api":%[1]q,"tokenRef":{"secretName":"creds","key":"token"}%[3]s}`,
	}
	p, err := scm.ParsePullRequests(json.RawMessage("{" + fmt.Sprintf(of[host.Kind], host.HTTP.URL, repo, extra) + rest + "}"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// repositoryKinds are the kinds whose API's address a generator may set.
// Bitbucket Cloud has one address.
func repositoryKinds() []string {
	return slices.DeleteFunc(scmhosts.Kinds(), func(k string) bool { return k == scmhosts.Bitbucket })
}

// shop is a repository with two branches.
func shop(id int64, name string) scmhosts.Repository {
	return scmhosts.Repository{ID: id, Name: name, Default: "main", Branches: []scmhosts.Branch{
		{Name: "main", SHA: scmhosts.SHA(name + "main"), Paths: []string{"kustomization.yaml", "deploy/app.yaml"}},
		{Name: "release/1.0", SHA: scmhosts.SHA(name + "release"), Paths: []string{"README.md"}},
	}}
}

// listed are the names and branches of repositories.
func listed(all []scm.Repository) []string {
	var out []string
	for _, r := range all {
		out = append(out, r.Name+"@"+r.Branch)
	}
	return out
}
