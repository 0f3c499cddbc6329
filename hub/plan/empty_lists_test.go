package plan_test

import (
	"encoding/json"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/plan"
)

// SEC-D7: a list that is empty, missing, null or blank permits nothing, in the
// hub and in what it sends to the agent.
func TestEmptyListsPermitNothing(t *testing.T) {
	t.Parallel()
	const anywhere = `"destinations":[{"name":"*","namespace":"*"}]`
	cases := map[string]struct {
		spec    string
		allowed bool
	}{
		"stars":                             {`{"sourceRepos":["*"],` + anywhere + `}`, true},
		"no list of repositories":           {`{` + anywhere + `}`, false},
		"null for repositories":             {`{"sourceRepos":null,` + anywhere + `}`, false},
		"an empty list of repositories":     {`{"sourceRepos":[],` + anywhere + `}`, false},
		"an empty text for a repository":    {`{"sourceRepos":[""],` + anywhere + `}`, false},
		"a blank for a repository":          {`{"sourceRepos":[" "],` + anywhere + `}`, false},
		"a repository with a blank behind":  {`{"sourceRepos":["https://git.example.com/team/other "],` + anywhere + `}`, false},
		"only denials of repositories":      {`{"sourceRepos":["!https://git.example.com/other"],` + anywhere + `}`, false},
		"no list of destinations":           {`{"sourceRepos":["*"]}`, false},
		"null for destinations":             {`{"sourceRepos":["*"],"destinations":null}`, false},
		"an empty list of destinations":     {`{"sourceRepos":["*"],"destinations":[]}`, false},
		"an empty destination":              {`{"sourceRepos":["*"],"destinations":[{}]}`, false},
		"a destination without a namespace": {`{"sourceRepos":["*"],"destinations":[{"name":"prod"}]}`, false},
		"a blank for a namespace":           {`{"sourceRepos":["*"],"destinations":[{"name":"prod","namespace":" "}]}`, false},
		"a blank for a cluster":             {`{"sourceRepos":["*"],"destinations":[{"name":" ","namespace":"*"}]}`, false},
	}
	source := hub.Source{RepoURL: "https://git.example.com/team/shop.git", Path: "."}
	for name, c := range cases {
		t.Run("SEC-D7 "+name, func(t *testing.T) {
			t.Parallel()
			r := refresh(t, hub.ProjectSpec{})
			r.Project.Spec = json.RawMessage(c.spec)
			err := plan.Permits(r, hub.ApplicationSpec{Source: &source, Destination: hub.Destination{Name: "prod", Namespace: "shop"}})
			if (err == nil) != c.allowed {
				t.Errorf("%s: %v", c.spec, err)
			}
		})
	}
	t.Run("SEC-D7 the agent is sent a denial of every namespace and kind, never an empty list", func(t *testing.T) {
		t.Parallel()
		for _, spec := range []string{`{}`, `{"destinations":null}`, `{"destinations":[]}`, `{"destinations":[{"name":"dev","namespace":"*"}]}`} {
			var p hub.ProjectSpec
			if err := json.Unmarshal([]byte(spec), &p); err != nil {
				t.Fatal(err)
			}
			var cluster hub.ScopedDestination
			cluster.Name = "prod"
			l := plan.Limits(cluster, "shop", p)
			if len(l.GetNamespaces()) != 1 || l.GetNamespaces()[0] != "!*" || len(l.GetClusterAllow()) != 0 {
				t.Errorf("%s becomes %+v", spec, l)
			}
		}
	})
	t.Run("SEC-D7 an empty whitelist of kinds permits none, and a missing one all", func(t *testing.T) {
		t.Parallel()
		for spec, set := range map[string]bool{`{"namespaceResourceWhitelist":[]}`: true, `{"namespaceResourceWhitelist":null}`: false, `{}`: false} {
			var p hub.ProjectSpec
			if err := json.Unmarshal([]byte(spec), &p); err != nil {
				t.Fatal(err)
			}
			l := plan.Limits(hub.ScopedDestination{}, "shop", p)
			if l.GetNamespacedAllowSet() != set || len(l.GetNamespacedAllow()) != 0 {
				t.Errorf("%s becomes %+v", spec, l)
			}
		}
	})
}
