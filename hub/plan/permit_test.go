package plan_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/plan"
	"github.com/capstan-cd/capstan/shared/fault"
)

// permit is one judgement: a project against one application.
type permit struct {
	why          string
	repos        []string
	destinations []hub.Destination
	source       hub.Source
	destination  hub.Destination
	allowed      bool
}

func TestPermits(t *testing.T) {
	t.Parallel()
	all := []string{"*"}
	everywhere := []hub.Destination{{Name: "*", Namespace: "*"}}
	shop := hub.Source{RepoURL: "https://git.example.com/team/shop.git", Path: "."}
	prod := hub.Destination{Name: "prod", Namespace: "shop"}
	server := hub.Destination{Server: "https://prod.k8s.example.com", Namespace: "shop"}
	cases := map[string]permit{
		"PROJ-01 PROJ-03 anything": {"stars allow all", all, everywhere, shop, prod, true},
		"PROJ-01 PROJ-03 nothing":  {"a project without lists permits nothing", nil, nil, shop, prod, false},
		"PROJ-03 entry without cluster": {"an entry that names no cluster is none",
			all, []hub.Destination{{Namespace: "*"}}, shop, prod, false},
		"PROJ-03 by name for an entry by server": {"both are the same cluster",
			all, []hub.Destination{{Server: "https://prod.k8s.example.com", Namespace: "*"}}, shop, prod, true},
		"PROJ-03 by server for an entry by name": {"both are the same cluster",
			all, []hub.Destination{{Name: "prod", Namespace: "*"}}, shop, server, true},
		"PROJ-03 entry with both, one wrong": {"both parts must hold",
			all, []hub.Destination{{Server: "https://other", Name: "prod", Namespace: "*"}}, shop, prod, false},
		"PROJ-03 namespace glob": {"a run of characters", all, []hub.Destination{{Name: "prod", Namespace: "shop*"}}, shop, prod, true},
		"PROJ-03 other namespace": {"outside the glob",
			all, []hub.Destination{{Name: "prod", Namespace: "kube-*"}}, shop, prod, false},
		"PROJ-03 denied namespace": {"a denial wins over a permit, in any order",
			all, []hub.Destination{{Name: "*", Namespace: "!shop"}, {Name: "*", Namespace: "*"}}, shop, prod, false},
		"PROJ-03 denied namespace last": {"a denial wins over a permit, in any order",
			all, []hub.Destination{{Name: "*", Namespace: "*"}, {Name: "*", Namespace: "!sh?p"}}, shop, prod, false},
		"PROJ-03 denied cluster": {"a denial by name holds for the server's URL too",
			all, []hub.Destination{{Name: "*", Namespace: "*"}, {Name: "!prod", Namespace: "*"}}, shop, server, false},
		"PROJ-03 denied server": {"a denial by server holds for the name too",
			all, []hub.Destination{{Name: "*", Namespace: "*"}, {Server: "!https://prod.*", Namespace: "*"}}, shop, prod, false},
		"PROJ-03 denial of another cluster": {"it says nothing of this one",
			all, []hub.Destination{{Name: "*", Namespace: "*"}, {Name: "!test", Namespace: "*"}}, shop, prod, true},
		"PROJ-03 only denials": {"what is not denied is not permitted by that",
			all, []hub.Destination{{Name: "!test", Namespace: "*"}}, shop, prod, false},
		"both server and name": {"APP-03 exactly one", all, everywhere, shop,
			hub.Destination{Name: "prod", Server: "https://prod.k8s.example.com"}, false},
		"PROJ-01 repository without .git": {"one repository, two spellings",
			[]string{"https://git.example.com/team/shop"}, everywhere, shop, prod, true},
		"PROJ-01 repository glob":         {"a star within one element", []string{"https://git.example.com/*/shop"}, everywhere, shop, prod, true},
		"PROJ-01 a star stops at a slash": {"team/shop are two elements", []string{"https://git.example.com/*"}, everywhere, shop, prod, false},
		"PROJ-01 two stars":               {"they match slashes too", []string{"https://git.example.com/**"}, everywhere, shop, prod, true},
		"PROJ-01 alternatives":            {"one of them", []string{"https://git.example.com/{team,other}/*"}, everywhere, shop, prod, true},
		"PROJ-01 denied alternatives": {"one of them is enough",
			[]string{"*", "!https://git.example.com/{team,other}/**"}, everywhere, shop, prod, false},
		"PROJ-03 denied alternatives": {"one of them is enough",
			all, []hub.Destination{{Name: "*", Namespace: "*"}, {Name: "*", Namespace: "!{kube-*,shop}"}}, shop, prod, false},
		"PROJ-03 denied class": {"a class is no text",
			all, []hub.Destination{{Name: "*", Namespace: "*"}, {Name: "*", Namespace: "!s[a-z]op"}}, shop, prod, false},
		"PROJ-01 other repository": {"not in the list",
			[]string{"https://git.example.com/other/*"}, everywhere, shop, prod, false},
		"PROJ-01 denied repository": {"a denial wins",
			[]string{"*", "!https://git.example.com/team/*"}, everywhere, shop, prod, false},
		"PROJ-01 denied repository, other spelling": {"upper case, a port and a slash name the same repository",
			[]string{"*", "!https://git.example.com/team/shop"}, everywhere,
			hub.Source{RepoURL: "HTTPS://Git.Example.com:443/team/shop.git/", Path: "."}, prod, false},
		"PROJ-01 no repository": {"a source must say where", all, everywhere, hub.Source{Path: "."}, prod, false},
		"no path":               {"neither path nor chart", all, everywhere, hub.Source{RepoURL: shop.RepoURL}, prod, false},
		"ref only":              {"values of a chart elsewhere", all, everywhere, hub.Source{RepoURL: shop.RepoURL, Ref: "values"}, prod, true},
		"path and chart": {"one of them", all, everywhere,
			hub.Source{RepoURL: shop.RepoURL, Path: ".", Chart: "shop"}, prod, false},
		"SRC-02 chart":                       {"a chart of a Helm repository", all, everywhere, hub.Source{RepoURL: shop.RepoURL, Chart: "shop"}, prod, true},
		"SRC-03 oci":                         {"an OCI artifact", all, everywhere, hub.Source{RepoURL: "oci://ghcr.io/x", Path: "."}, prod, true},
		"HELM-16 permitted as it is written": {"without the scheme", []string{"ghcr.io/charts"}, everywhere, hub.Source{RepoURL: "ghcr.io/charts", Chart: "shop"}, prod, true},
		"HELM-16 permitted with its scheme":  {"one spelling of two", []string{"oci://ghcr.io/*"}, everywhere, hub.Source{RepoURL: "ghcr.io/charts", Chart: "shop"}, prod, true},
		"HELM-16 denied with its scheme":     {"one spelling of two", []string{"*", "!oci://ghcr.io/*"}, everywhere, hub.Source{RepoURL: "ghcr.io/charts", Chart: "shop"}, prod, false},
		"HELM-16 denied without its scheme":  {"one spelling of two", []string{"*", "!ghcr.io/charts"}, everywhere, hub.Source{RepoURL: "oci://ghcr.io/charts", Chart: "shop"}, prod, false},
		"plugin":                             {"the operator decides about plugins", all, everywhere, hub.Source{RepoURL: shop.RepoURL, Path: ".", Plugin: json.RawMessage(`{"name":"x"}`)}, prod, true},
		"plugin: null":                       {"null is nothing", all, everywhere, hub.Source{RepoURL: shop.RepoURL, Path: ".", Plugin: json.RawMessage(`null`)}, prod, true},
	}
	for name, c := range cases {
		t.Run("CMPR-06 "+name, func(t *testing.T) {
			t.Parallel()
			err := plan.Permits(refresh(t, hub.ProjectSpec{SourceRepos: c.repos, Destinations: c.destinations}), hub.ApplicationSpec{Source: &c.source, Destination: c.destination})
			if (err == nil) != c.allowed || err != nil && fault.KindOf(err) != fault.Invalid {
				t.Errorf("%s: %v", c.why, err)
			}
		})
	}
}

func refresh(t *testing.T, p hub.ProjectSpec) hub.Refresh {
	t.Helper()
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return hub.Refresh{
		Application: hub.Application{Project: "team"},
		Project:     &hub.Project{Meta: hub.Meta{Name: "team"}, Spec: raw},
		Cluster:     &hub.Cluster{Meta: hub.Meta{Name: "prod"}, Server: "https://prod.k8s.example.com"},
	}
}

func TestPermitsWithoutItsParts(t *testing.T) {
	t.Parallel()
	open := hub.ProjectSpec{SourceRepos: []string{"*"}, Destinations: []hub.Destination{{Name: "*", Namespace: "*"}}}
	spec := hub.ApplicationSpec{Source: &hub.Source{RepoURL: "https://git.example.com/shop", Path: "."}, Destination: hub.Destination{Name: "prod"}}
	cases := map[string]struct {
		why    string
		change func(*hub.Refresh, *hub.ApplicationSpec)
		says   string
	}{
		"APP-06 no project":       {"it does not exist", func(r *hub.Refresh, _ *hub.ApplicationSpec) { r.Project = nil }, `"team"`},
		"APP-03 unknown cluster":  {"no cluster of that name", func(r *hub.Refresh, _ *hub.ApplicationSpec) { r.Cluster = nil }, `"prod"`},
		"APP-02 no source":        {"nothing to render", func(_ *hub.Refresh, s *hub.ApplicationSpec) { s.Source = nil }, "source"},
		"APP-06 unreadable":       {"a project that cannot be read permits nothing", func(r *hub.Refresh, _ *hub.ApplicationSpec) { r.Project.Spec = []byte(`[]`) }, "AppProject"},
		"APP-02 one of two fails": {"each source is judged", func(_ *hub.Refresh, s *hub.ApplicationSpec) { s.Sources = []hub.Source{*s.Source, {}} }, "source 2"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s := refresh(t, open), spec
			c.change(&r, &s)
			if err := plan.Permits(r, s); fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), c.says) {
				t.Errorf("%s: %v", c.why, err)
			}
		})
	}
}

func TestPermitsInherited(t *testing.T) {
	t.Parallel()
	inherits := func(r *hub.Refresh, spec string) {
		r.Project.Labels = map[string]string{"team": "blue"}
		r.Project.Inherit("- {projectName: base, labelSelector: {matchLabels: {team: blue}}}",
			map[string]hub.Project{"base": {Meta: hub.Meta{Name: "base"}, Spec: json.RawMessage(spec)}})
	}
	onlyOwn := json.RawMessage(`{"sourceRepos":["*"],"destinations":[{"name":"*","namespace":"*"}],"permitOnlyProjectScopedClusters":true}`)
	base := func() (hub.Refresh, hub.ApplicationSpec) {
		source := hub.Source{RepoURL: "https://git.example.com/team/shop.git", Path: "."}
		return hub.Refresh{
			Application: hub.Application{Project: "shop", Meta: hub.Meta{Namespace: "argocd"}},
			Project:     &hub.Project{Meta: hub.Meta{Name: "shop"}, Spec: json.RawMessage(`{"sourceRepos":["*"],"destinations":[{"name":"*","namespace":"*"}]}`)},
			Cluster:     &hub.Cluster{Meta: hub.Meta{Name: "prod"}},
			Sources:     []hub.SourceState{{Repository: hub.Repository{URL: "https://git.example.com/team/shop", HasCredential: true}}},
		}, hub.ApplicationSpec{Source: &source, Destination: hub.Destination{Name: "prod", Namespace: "shop"}}
	}
	for name, c := range map[string]struct {
		change func(*hub.Refresh)
		says   string
	}{
		"a project that inherits nothing": {func(*hub.Refresh) {}, ""},
		"PROJ-18 a global project denies a repository": {func(r *hub.Refresh) {
			inherits(r, `{"sourceRepos":["!https://git.example.com/team/*"]}`)
		}, `denies the repository`},
		"PROJ-18 a global project denies a destination": {func(r *hub.Refresh) {
			inherits(r, `{"destinations":[{"name":"prod","namespace":"!shop"}]}`)
		}, `denies the destination`},
		"PROJ-18 a global project permits what the project does not": {func(r *hub.Refresh) {
			r.Project.Spec = json.RawMessage(`{}`)
			inherits(r, `{"sourceRepos":["*"],"destinations":[{"name":"prod","namespace":"*"}]}`)
		}, ""},
		"PROJ-18(refused) a global project that does not exist stops deployments": {func(r *hub.Refresh) {
			r.Project.Inherit("- projectName: base", nil)
		}, `there is no such project`},
		"PROJ-18(refused) a setting that cannot be read stops deployments": {func(r *hub.Refresh) { r.Project.Inherit("{", nil) }, `cannot be read`},
		"CLU-07 a cluster of the project needs no entry": {func(r *hub.Refresh) {
			r.Project.Spec, r.Cluster.Project = json.RawMessage(`{"sourceRepos":["*"]}`), "shop"
		}, ""},
		"CLU-07 a cluster of another project needs one": {func(r *hub.Refresh) {
			r.Project.Spec, r.Cluster.Project = json.RawMessage(`{"sourceRepos":["*"]}`), "bank"
		}, "does not permit the destination"},
		"CLU-07 an entry may deny a namespace of the project's cluster": {func(r *hub.Refresh) {
			r.Project.Spec, r.Cluster.Project = json.RawMessage(`{"sourceRepos":["*"],"destinations":[{"name":"*","namespace":"!shop"}]}`), "shop"
		}, "denies the destination"},
		"PROJ-04 CLU-07 only clusters of the project": {func(r *hub.Refresh) { r.Project.Spec = onlyOwn }, "only clusters that belong to it"},
		"PROJ-04 CLU-07 a cluster of another project is none of it": {func(r *hub.Refresh) {
			r.Project.Spec, r.Cluster.Project = onlyOwn, "bank"
		}, "only clusters that belong to it"},
		"PROJ-04 CLU-07 a cluster of the project is permitted":       {func(r *hub.Refresh) { r.Project.Spec, r.Cluster.Project = onlyOwn, "shop" }, ""},
		"CLU-01 CLU-06 a namespace that the cluster does not manage": {func(r *hub.Refresh) { r.Cluster.Namespaces = []string{"bank"} }, `"shop" of cluster "prod" is not managed`},
		"CLU-01 CLU-06 a namespace that the cluster manages":         {func(r *hub.Refresh) { r.Cluster.Namespaces = []string{"bank", "shop"} }, ""},
		"CRED-15 the repository of its own project":                  {func(r *hub.Refresh) { r.Sources[0].Repository.Project = "shop" }, ""},
		"CRED-15 another project's credential is not used":           {func(r *hub.Refresh) { r.Sources[0].Repository.Project = "other" }, `belongs to project "other"`},
		"CRED-15 another project's public repository needs no right": {func(r *hub.Refresh) {
			r.Sources[0].Repository.Project, r.Sources[0].Repository.HasCredential = "other", false
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, spec := base()
			c.change(&r)
			err := plan.Permits(r, spec)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v", err)
			}
		})
	}
}
