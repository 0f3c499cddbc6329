package hub_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/capstan-cd/capstan/hub"
)

func TestGlobalsOf(t *testing.T) {
	t.Parallel()
	const value = `
- projectName: base
  labelSelector:
    matchLabels: {team: blue}
    matchExpressions:
    - {key: stage, operator: In, values: [prod, test]}
    - {key: free, operator: DoesNotExist}
`
	const notIn = "- projectName: base\n  labelSelector: {matchExpressions: [{key: a, operator: NotIn, values: [b]}]}"
	for name, c := range map[string]struct {
		value, project string
		labels         map[string]string
		want           []string
	}{
		"all terms hold":          {value, "shop", map[string]string{"team": "blue", "stage": "prod"}, []string{"base"}},
		"a label is another":      {value, "shop", map[string]string{"team": "red", "stage": "prod"}, nil},
		"a value is not listed":   {value, "shop", map[string]string{"team": "blue", "stage": "dev"}, nil},
		"a label must not be":     {value, "shop", map[string]string{"team": "blue", "stage": "prod", "free": ""}, nil},
		"it is the project":       {value, "base", map[string]string{"team": "blue", "stage": "prod"}, nil},
		"no selector means all":   {"- projectName: base", "shop", nil, []string{"base"}},
		"nothing is set":          {"", "shop", nil, nil},
		"not in, and not there":   {notIn, "shop", nil, []string{"base"}},
		"not in, and it is there": {notIn, "shop", map[string]string{"a": "b"}, nil},
		"several, each once":      {"- projectName: b\n- projectName: a\n- projectName: b", "shop", nil, []string{"b", "a"}},
	} {
		t.Run("PROJ-18 "+name, func(t *testing.T) {
			t.Parallel()
			all, err := hub.ParseGlobalProjects(c.value)
			if err != nil {
				t.Fatal(err)
			}
			if got := hub.GlobalsOf(all, hub.Project{Meta: hub.Meta{Name: c.project, Labels: c.labels}}); !slices.Equal(got, c.want) {
				t.Errorf("inherits from %q, want %q", got, c.want)
			}
		})
	}
}

func TestInheritedLists(t *testing.T) {
	t.Parallel()
	own := hub.Project{Meta: hub.Meta{Name: "shop", Version: 3}, Spec: json.RawMessage(`{
		"description": "own", "sourceRepos": ["a"], "namespaceResourceWhitelist": [{"group": "", "kind": "Service"}],
		"roles": [{"name": "dev"}], "newer": "field"}`)}
	base := hub.Project{Meta: hub.Meta{Name: "base", Version: 5}, Spec: json.RawMessage(`{
		"description": "theirs", "sourceRepos": ["b"], "destinations": [{"server": "*", "namespace": "*"}],
		"clusterResourceWhitelist": [{"group": "*", "kind": "*"}], "clusterResourceBlacklist": [{"group": "", "kind": "Node"}],
		"namespaceResourceWhitelist": [{"group": "apps", "kind": "*"}], "namespaceResourceBlacklist": [{"group": "", "kind": "Secret"}],
		"syncWindows": [{"kind": "deny", "schedule": "* * * * *", "duration": "1h", "applications": ["*"]}],
		"destinationServiceAccounts": [{"server": "*", "namespace": "*", "defaultServiceAccount": "deployer"}],
		"roles": [{"name": "admin"}], "sourceNamespaces": ["team-a"]}`)}
	alone, err := own.Effective()
	if err != nil {
		t.Fatal(err)
	}
	version := own.Revision()
	own.Inherit("- projectName: base", map[string]hub.Project{"base": base})
	s, err := own.Effective()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("PROJ-18 lists of kinds, windows, repositories, destinations and accounts are inherited", func(t *testing.T) {
		t.Parallel()
		counts := []int{
			len(s.SourceRepos), len(s.Destinations), len(s.ClusterResourceWhitelist), len(s.ClusterResourceBlacklist),
			len(s.NamespaceResourceWhitelist), len(s.NamespaceResourceBlacklist), len(s.SyncWindows), len(s.DestinationServiceAccounts),
		}
		if want := []int{2, 1, 1, 1, 2, 1, 1, 1}; !slices.Equal(counts, want) {
			t.Errorf("lists have %v entries, want %v: %+v", counts, want, s)
		}
		if s.SourceRepos[0] != "a" {
			t.Error("the project's own entries do not come first")
		}
	})
	t.Run("PROJ-18 roles, description and namespaces are not", func(t *testing.T) {
		t.Parallel()
		if s.Description != "own" || len(s.Roles) != 1 || s.Roles[0].Name != "dev" || s.SourceNamespaces != nil {
			t.Errorf("%+v", s)
		}
		if !slices.Equal(s.Unknown, alone.Unknown) || len(s.Unknown) != 1 {
			t.Errorf("fields that are not known: %q", s.Unknown)
		}
	})
	t.Run("PROJ-18 a change of the global project changes the revision", func(t *testing.T) {
		t.Parallel()
		before := own.Revision()
		base := base
		base.Version++
		changed := own
		changed.Inherit("- projectName: base", map[string]hub.Project{"base": base})
		if before == version || changed.Revision() == before {
			t.Error("the revision does not change")
		}
	})
}

func TestServiceAccount(t *testing.T) {
	t.Parallel()
	shop := hub.Destination{Server: "https://prod.example.com", Namespace: "shop"}
	entry := func(server, namespace, account string) hub.DestinationServiceAccount {
		return hub.DestinationServiceAccount{Server: server, Namespace: namespace, DefaultServiceAccount: account}
	}
	for name, c := range map[string]struct {
		entries []hub.DestinationServiceAccount
		at      hub.Destination
		want    string
	}{
		"no entry":                      {nil, shop, ""},
		"in the destination's":          {[]hub.DestinationServiceAccount{entry("*", "shop", "deployer")}, shop, "system:serviceaccount:shop:deployer"},
		"with its namespace":            {[]hub.DestinationServiceAccount{entry("*", "*", "ops:deployer")}, shop, "system:serviceaccount:ops:deployer"},
		"the first that matches counts": {[]hub.DestinationServiceAccount{entry("https://dev.*", "*", "a"), entry("https://prod.*", "sh*", "b"), entry("*", "*", "c")}, shop, "system:serviceaccount:shop:b"},
		"another namespace":             {[]hub.DestinationServiceAccount{entry("*", "bank", "a")}, shop, ""},
		"an empty namespace is none":    {[]hub.DestinationServiceAccount{entry("*", "", "a")}, shop, ""},
		"in the application's":          {[]hub.DestinationServiceAccount{entry("*", "*", "a")}, hub.Destination{Server: "https://prod.example.com"}, "system:serviceaccount:team-a:a"},
		"slashes at the end":            {[]hub.DestinationServiceAccount{entry("https://prod.example.com/", "*", "a")}, shop, "system:serviceaccount:shop:a"},
	} {
		t.Run("PROJ-05 IMP-02 "+name, func(t *testing.T) {
			t.Parallel()
			p := hub.ProjectSpec{DestinationServiceAccounts: c.entries}
			if got := p.ServiceAccount(hub.Application{Meta: hub.Meta{Namespace: "team-a"}}, c.at); got != c.want {
				t.Errorf("account %q, want %q", got, c.want)
			}
		})
	}
}
