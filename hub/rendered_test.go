package hub_test

import (
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func TestWhatAProjectRenders(t *testing.T) {
	all := []hub.GroupKind{{Group: "*", Kind: "*"}}
	everywhere := []hub.Destination{{Server: "*", Namespace: "*"}}
	argocd := []hub.Destination{{Server: "https://kubernetes.default.svc", Namespace: "argocd"}}
	open := hub.ProjectSpec{SourceRepos: []string{"*"}, Destinations: everywhere, ClusterResourceWhitelist: all}
	with := func(change func(*hub.ProjectSpec)) hub.ProjectSpec {
		p := open
		change(&p)
		return p
	}
	tests := map[string]struct {
		project      hub.ProjectSpec
		holds, rules bool
	}{
		"APP-31 a project that permits everything": {open, true, true},
		"APP-31 one for the hub's namespace alone": {hub.ProjectSpec{SourceRepos: []string{"*"}, Destinations: argocd}, true, false},
		"APP-31 one by the hub's name":             {hub.ProjectSpec{Destinations: []hub.Destination{{Name: "in-cluster", Namespace: "argo*"}}}, true, false},
		"APP-31 one for a cluster":                 {hub.ProjectSpec{Destinations: []hub.Destination{{Name: "prod", Namespace: "*"}}}, false, false},
		"APP-31 one for another namespace":         {hub.ProjectSpec{Destinations: []hub.Destination{{Name: "in-cluster", Namespace: "team"}}}, false, false},
		"APP-31 one that denies the namespace": {with(func(p *hub.ProjectSpec) {
			p.Destinations = append(everywhere, hub.Destination{Server: "*", Namespace: "!argocd"})
		}), false, false},
		"APP-31 one that denies the hub": {with(func(p *hub.ProjectSpec) {
			p.Destinations = append(everywhere, hub.Destination{Name: "!in-cluster", Namespace: "*"})
		}), false, false},
		"APP-31 one without destinations":  {hub.ProjectSpec{}, false, false},
		"APP-31 a kind that is not listed": {with(func(p *hub.ProjectSpec) { p.NamespaceResourceWhitelist = []hub.GroupKind{{Kind: "ConfigMap"}} }), false, false},
		"APP-31 an empty list of kinds":    {with(func(p *hub.ProjectSpec) { p.NamespaceResourceWhitelist = []hub.GroupKind{} }), false, false},
		"APP-31 a denied kind": {with(func(p *hub.ProjectSpec) {
			p.NamespaceResourceBlacklist = []hub.GroupKind{{Group: "argoproj.io", Kind: "Application"}}
		}), false, false},
		"APP-31 projects denied, applications not": {with(func(p *hub.ProjectSpec) {
			p.NamespaceResourceBlacklist = []hub.GroupKind{{Group: "argoproj.io", Kind: "AppProject"}}
		}), true, false},
		"APP-31 sources bound":                              {with(func(p *hub.ProjectSpec) { p.SourceRepos = []string{"https://example.com/*"} }), true, false},
		"APP-31 cluster-scoped kinds bound":                 {with(func(p *hub.ProjectSpec) { p.ClusterResourceWhitelist = nil }), true, false},
		"APP-31 every kind listed, the project restricted":  {hub.ProjectSpec{Destinations: argocd, NamespaceResourceWhitelist: all}, true, false},
		"APP-31 the kind named, the project restricted":     {hub.ProjectSpec{Destinations: argocd, NamespaceResourceWhitelist: []hub.GroupKind{{Group: "argoproj.io", Kind: "*"}}}, true, true},
		"APP-31 one project of a name is not all of them":   {hub.ProjectSpec{Destinations: argocd, NamespaceResourceWhitelist: []hub.GroupKind{{Group: "argoproj.io", Kind: "Application"}, {Group: "argoproj.io", Kind: "AppProject", Name: "a"}}}, true, false},
		"APP-31 the kind named, but not for this namespace": {hub.ProjectSpec{Destinations: []hub.Destination{{Name: "in-cluster", Namespace: "x"}}, NamespaceResourceWhitelist: all}, false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			key := manifest.Key{Group: manifest.HubGroup, Kind: "Application", Namespace: "argocd", Name: "a"}
			err := test.project.CheckHubObject("team", key)
			if (err == nil) != test.holds || (err != nil && fault.KindOf(err) != fault.Denied) {
				t.Errorf("holds: %v, wanted %v", err, test.holds)
			}
			if got := test.project.Rules("team", "argocd"); got != test.rules {
				t.Errorf("rules: %v, wanted %v", got, test.rules)
			}
		})
	}
}
