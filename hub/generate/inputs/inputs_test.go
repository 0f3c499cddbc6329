package inputs_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate/inputs"
	"github.com/capstan-cd/capstan/hub/generate/scm"
	"github.com/capstan-cd/capstan/shared/fault"
)

// known is what a hub knows, of one tenant.
type known struct {
	project  string // its spec; empty: the set may be of any project
	clusters []hub.Cluster
	repos    map[string]hub.Repository
}

func (k known) View(context.Context, hub.TenantID, string) (inputs.View, error) {
	v := inputs.View{Clusters: k.clusters}
	if k.project != "" {
		v.Project = &hub.Project{Meta: hub.Meta{Name: "team"}, Spec: json.RawMessage(k.project)}
	}
	return v, nil
}

func (k known) Repository(_ context.Context, _ hub.TenantID, url, _ string) (hub.Repository, []hub.Ref, error) {
	r, found := k.repos[url]
	if !found {
		return r, nil, fault.New(fault.Missing, "there is none")
	}
	return r, nil, nil
}

func generate(t *testing.T, k known, generator string) (hub.Generation, error) {
	t.Helper()
	spec := `{"goTemplate":true,"generators":[` + generator + `],"template":{"metadata":{"name":"{{.name}}"},"spec":{"project":"team",
		"source":{"repoURL":"https://git.test/x","path":"x"},"destination":{"server":"{{.server}}","namespace":"x"}}}}`
	access := func(hub.TenantID, hub.ApplicationSet, map[string]string, bool) scm.Access { return nil }
	g := inputs.New(k, nil, nil, access, time.Now)
	set := hub.ApplicationSet{Meta: hub.Meta{Namespace: "argocd", Name: "s"}, Project: "team", Spec: json.RawMessage(spec)}
	return g.Generate(t.Context(), "acme", set, hub.GenerationLimit{})
}

func TestClustersOfAProject(t *testing.T) {
	t.Parallel()
	cluster := func(name, project string) hub.Cluster {
		return hub.Cluster{Meta: hub.Meta{Name: name, Labels: map[string]string{"a": "b"}}, Server: "https://" + name + ".test", ClusterScope: hub.ClusterScope{Project: project}}
	}
	all := []hub.Cluster{cluster("east", ""), cluster("west", ""), cluster("own", "team"), cluster("theirs", "other")}
	cases := map[string]struct {
		project string
		want    []string
	}{
		"a set of any project sees all":                          {"", []string{"east", "own", "theirs", "west"}},
		"a project sees what its destinations reach and its own": {`{"destinations":[{"server":"https://east.test","namespace":"x"}]}`, []string{"east", "own"}},
		"a denied cluster is not listed":                         {`{"destinations":[{"name":"*","namespace":"*"},{"server":"!https://west.test","namespace":"*"}]}`, []string{"east", "own"}},
		"only its own where it permits no others":                {`{"permitOnlyProjectScopedClusters":true,"destinations":[{"name":"*","namespace":"*"}]}`, []string{"own"}},
	}
	for name, c := range cases {
		t.Run("SEC-D11 AGEN-02 "+name, func(t *testing.T) {
			t.Parallel()
			found, err := generate(t, known{project: c.project, clusters: all}, `{"clusters":{}}`)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range found.Applications {
				got = append(got, a.Name)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRepositoriesOfAProject(t *testing.T) {
	t.Parallel()
	long := time.Now().Add(-time.Hour)
	cases := map[string]struct {
		project string
		repo    *hub.Repository
		want    string // part of the error, or of what it waits for
	}{
		"SEC-D11 a repository that the project does not permit is not opened": {`{"sourceRepos":["https://other.test/*"]}`, &hub.Repository{FetchedAt: &long}, "does not permit the repository"},
		"SEC-D11 nor one of another project":                                  {`{"sourceRepos":["*"]}`, &hub.Repository{FetchedAt: &long, Project: "other"}, `belongs to project "other"`},
		"FT-G2 a host that is away for long is an error":                      {`{"sourceRepos":["*"]}`, &hub.Repository{FetchedAt: &long, Error: "the host is away", ErrorSince: &long}, "the host is away"},
		"AGEN-03 a repository that is new is waited for":                      {`{"sourceRepos":["*"]}`, nil, "is being fetched"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := known{project: c.project, repos: map[string]hub.Repository{}}
			if c.repo != nil {
				k.repos["https://git.test/r"] = *c.repo
			}
			found, err := generate(t, k, `{"git":{"repoURL":"https://git.test/r","directories":[{"path":"*"}]}}`)
			text := found.Waits
			if err != nil {
				text = fault.Sentence(err)
			}
			if !strings.Contains(text, c.want) || len(found.Applications) > 0 {
				t.Errorf("%q does not say %q", text, c.want)
			}
		})
	}
}

func TestGeneratorsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, generator := range map[string]string{
		"AGEN-12(refused) clusterDecisionResource": `{"clusterDecisionResource":{"configMapRef":"decisions","name":"x"}}`,
		"AGEN-13(refused) plugin":                  `{"plugin":{"configMapRef":{"name":"plugin"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := generate(t, known{}, generator)
			if f, ok := fault.As(err); !ok || f.Kind != fault.Invalid || !strings.Contains(f.Cause, "is not served") || f.Fix == "" {
				t.Errorf("%v", err)
			}
		})
	}
}
