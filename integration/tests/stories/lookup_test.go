package stories_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub/source/charts/chartstest"
	"github.com/capstan-cd/capstan/integration/rigs/registry"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// What people see of repositories and revisions before and after they deploy
// them: of Git, of a chart repository and of a registry, with passwords.
func TestRepositoryHelpers(t *testing.T) {
	ctx := within(t, 8*waitLimit)
	charts := chartstest.NewRepository()
	t.Cleanup(charts.Close)
	charts.Protect("bot", "canary-lookup")
	artifacts := registry.New(t, registry.Options{User: "bot", Password: "canary-lookup"})
	described := chartOf()
	described["Chart.yaml"] = "apiVersion: v2\nname: seen\nversion: 1.1.0\nappVersion: '7'\ndescription: Serves.\nhome: https://example.com\nmaintainers: [{name: Ann, email: ann@example.com}]\n"
	charts.Publish("seen", "1.0.0", chartOf())
	charts.Publish("seen", "1.1.0", described)
	charts.Publish("other", "3.0.0", chartOf())
	files := chartstest.Files(map[string]string{"app/a.yaml": configMap("seen", "artifact"), "k/kustomization.yaml": "resources: []\n"})
	files.Annotations = map[string]string{}
	for _, name := range []string{"title", "description", "version", "revision", "url", "source", "authors", "created"} {
		files.Annotations["org.opencontainers.image."+name] = "the " + name
	}
	for name, artifact := range map[string]chartstest.Artifact{"lookup/plain": files, "lookup/charts/seen": chartstest.Chart(chartstest.Pack("seen", "1.1.0", described))} {
		for _, tag := range []string{"1.0.0", "1.1.0"} {
			if _, err := artifacts.Push(ctx, name, tag, artifact); err != nil {
				t.Fatal(err)
			}
		}
	}
	git := repository(t, "lookup", map[string]string{"app/a.yaml": configMap("seen", "git"), "chart/Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\n", "chart/values.yaml": "replicas: 3\n"})
	for _, args := range [][]string{{"tag", "v1.0.0", "main"}, {"push", "--quiet", "origin", "v1.0.0"}} {
		if out, err := git.Run(ctx, args...); err != nil {
			t.Fatal(err, out)
		}
	}
	run := func(stdin string, args ...string) (string, error) { return s.API.CLI(ctx, stdin, args...) }
	cli := func(t *testing.T, args ...string) string {
		t.Helper()
		out, err := run("canary-lookup", args...)
		if err != nil {
			t.Fatalf("capstan %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	plain, ociCharts := artifacts.URL("lookup/plain"), artifacts.URL("lookup/charts")
	login := []string{"--username", "bot", "--password-stdin", "--insecure"}
	with := func(args ...string) []string { return append(args, login...) }
	for name, args := range map[string][]string{
		"Git": {git.URL()}, "a chart repository": with(charts.URL, "--type", "helm"), "a registry": with(plain, "--type", "oci"),
		"charts of a registry": with(ociCharts, "--type", "helm", "--enable-oci"),
	} {
		t.Run("API-15 CRED-17 validate reaches "+name+", and stores nothing", func(t *testing.T) {
			if out := cli(t, append([]string{"repo", "validate"}, args...)...); !strings.Contains(out, "Successful") {
				t.Errorf("it says\n%s", out)
			}
			if out := cli(t, "repo", "list"); name != "Git" && strings.Contains(out, strings.TrimPrefix(args[0], "oci://")) {
				t.Errorf("stored:\n%s", out)
			}
		})
	}
	for name, address := range map[string]string{"a chart repository": charts.URL, "a registry": plain} {
		t.Run("API-15 CRED-17 validate says what is wrong with "+name, func(t *testing.T) {
			kind := map[bool]string{true: "oci", false: "helm"}[strings.HasPrefix(address, "oci")]
			out, err := run("wrong", "repo", "validate", address, "--type", kind, "--username", "bot", "--password-stdin", "--insecure")
			if err == nil || !strings.Contains(out+err.Error(), "Failed") || !strings.Contains(out+err.Error(), "user name and password") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	cli(t, with("repo", "add", charts.URL, "--type", "helm")...)
	cli(t, with("repo", "add", plain, "--type", "oci")...)
	cli(t, with("repo", "add", ociCharts, "--type", "helm", "--enable-oci")...)
	deploy(t, "lookup-git", git.URL(), "app", "")
	settled(t, "lookup-git")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"API-15 refs of Git: branches and tags":           {[]string{"refs", git.URL(), "-o", "name"}, "main\nv1.0.0\n"},
		"API-15 refs of a chart repository: its versions": {[]string{"refs", charts.URL, "--chart", "seen", "-o", "name"}, "1.1.0\n1.0.0\n"},
		"API-15 refs of a registry: its tags":             {[]string{"refs", plain, "-o", "name"}, "1.0.0\n1.1.0\n"},
		"API-15 oci-tags of an artifact":                  {[]string{"tags", plain, "-o", "name"}, "1.0.0\n1.1.0\n"},
		"API-15 oci-tags of a chart":                      {[]string{"tags", ociCharts, "--chart", "seen", "-o", "name"}, "1.0.0\n1.1.0\n"},
		"API-15 helmcharts of an index":                   {[]string{"charts", charts.URL, "-o", "name"}, "other\nseen\n"},
		"API-15 apps in Git":                              {[]string{"apps", git.URL(), "-o", "name"}, "chart\n"},
		"API-15 apps in an artifact":                      {[]string{"apps", plain, "--revision", "1.x", "-o", "name"}, "k\n"},
		"API-15 apps in a chart of a registry":            {[]string{"apps", ociCharts, "--chart", "seen", "-o", "name"}, ".\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, cli(t, append([]string{"repo"}, c.args...)...)); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("API-15 apps in a chart repository are its charts", func(t *testing.T) {
		if out := cli(t, "repo", "apps", charts.URL); !strings.Contains(out, "seen") || !strings.Contains(out, "other") || !strings.Contains(out, "Helm") {
			t.Errorf("it says\n%s", out)
		}
	})
	for name, args := range map[string][]string{
		"a chart of Git": {git.URL(), "--path", "chart"}, "a chart of a chart repository": {charts.URL, "--chart", "seen", "--revision", "1.x"},
		"a chart of a registry": {ociCharts, "--chart", "seen"}, "an artifact": {plain, "--path", "app"},
	} {
		t.Run("API-15 appdetails of "+name, func(t *testing.T) {
			var d struct {
				Type, Commit string
				Helm         struct {
					Parameters []struct{ Name, Value string }
				}
			}
			if err := json.Unmarshal([]byte(cli(t, append(append([]string{"repo", "details"}, args...), "-o", "json")...)), &d); err != nil {
				t.Fatal(err)
			}
			if want := map[bool]string{true: "Directory", false: "Helm"}[name == "an artifact"]; d.Type != want || d.Commit == "" || want == "Helm" && len(d.Helm.Parameters) != 1 {
				t.Errorf("%+v", d)
			}
		})
	}
	for name, args := range map[string][]string{
		"tags of a chart repository": {"tags", charts.URL}, "charts of Git": {"charts", git.URL()}, "charts of a registry": {"charts", ociCharts},
		"details of no chart": {"details", charts.URL}, "a chart of Git": {"apps", git.URL(), "--chart", "seen"}, "a chart that is not there": {"details", charts.URL, "--chart", "none"},
		"a version that is not there": {"details", charts.URL, "--chart", "seen", "--revision", "9.9.9"}, "tags of a registry without a chart": {"tags", ociCharts},
	} {
		t.Run("API-15 refused: "+name, func(t *testing.T) {
			if out, err := run("", append([]string{"repo"}, args...)...); err == nil || strings.Contains(err.Error()+out, "canary-lookup") || strings.Contains(err.Error()+out, "unexpected") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	if _, err := s.API.Apply(ctx, fmt.Sprintf("apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: lookup-several, namespace: argocd}\nspec:\n  project: default\n  sources:\n"+
		"  - {repoURL: %q, path: app, targetRevision: main}\n  - {repoURL: %q, chart: seen, targetRevision: 1.1.0, helm: {releaseName: two}}\n  - {repoURL: %q, path: app, targetRevision: 1.1.0}\n  - {repoURL: %q, chart: seen, targetRevision: 1.1.0, helm: {releaseName: four}}\n"+
		"  destination: {name: in-cluster, namespace: lookup-several}\n", git.URL(), charts.URL, plain, ociCharts)); err != nil {
		t.Fatal(err)
	}
	var revisions []string
	condition(t, "lookup-several", func(stack.App) error {
		var x struct {
			Status struct {
				Sync struct{ Revisions []string }
			}
		}
		if err := s.API.Do(ctx, http.MethodGet, "/api/v1/applications/argocd/lookup-several", nil, &x); err != nil {
			return err
		}
		if revisions = x.Status.Sync.Revisions; len(revisions) != 4 {
			return fmt.Errorf("revisions %v", revisions)
		}
		return nil
	})
	get := func(t *testing.T, position int, kind string, into any) error {
		t.Helper()
		return s.API.Do(ctx, http.MethodGet, fmt.Sprintf("/api/v1/applications/argocd/lookup-several/revisions/%s/%s?sourcePosition=%d", revisions[position-1], kind, position), nil, into)
	}
	t.Run("API-13 SRC-26 metadata of a commit: author, date, message and tags", func(t *testing.T) {
		var m struct {
			Author, Message, Date string
			Tags                  []string
		}
		if err := get(t, 1, "metadata", &m); err != nil || m.Author == "" || m.Date == "" || !strings.HasPrefix(m.Message, "begin") || strings.Join(m.Tags, " ") != "v1.0.0" {
			t.Errorf("%+v, %v", m, err)
		}
	})
	for position, name := range map[int]string{2: "a chart repository", 4: "a registry"} {
		t.Run("API-13 chartdetails of "+name+": description, home and maintainers", func(t *testing.T) {
			var c struct {
				Name, Version, Description, Home, AppVersion string
				Maintainers                                  []string
			}
			if err := get(t, position, "chartdetails", &c); err != nil || c.Name != "seen" || c.Version != "1.1.0" || c.Description != "Serves." || c.Home != "https://example.com" || c.AppVersion != "7" ||
				strings.Join(c.Maintainers, "; ") != "Ann <ann@example.com>" {
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
	t.Run("API-13 SRC-05 ocimetadata of an artifact: its standard annotations", func(t *testing.T) {
		got := map[string]string{}
		if err := get(t, 3, "ocimetadata", &got); err != nil || len(got) != 8 {
			t.Fatalf("%v, %v", got, err)
		}
		for name, value := range got {
			if value != "the "+name {
				t.Errorf("%s is %q", name, value)
			}
		}
	})
	t.Run("API-13 what is of another kind, at another position or was never there is refused", func(t *testing.T) {
		for position, kind := range map[int]string{1: "chartdetails", 2: "ocimetadata", 3: "metadata"} {
			if err := get(t, position, kind, nil); err == nil {
				t.Errorf("%s of source %d is answered", kind, position)
			}
		}
		for _, at := range []string{revisions[0] + "/metadata?sourcePosition=2", strings.Repeat("c", 40) + "/metadata", revisions[0] + "/metadata?sourcePosition=9"} {
			if err := s.API.Do(ctx, http.MethodGet, "/api/v1/applications/argocd/lookup-several/revisions/"+at, nil, nil); err == nil {
				t.Errorf("%s is answered", at)
			}
		}
	})
	t.Run("API-13 app revision shows a chart, an artifact and a commit", func(t *testing.T) {
		for position, want := range map[string]string{"1": "v1.0.0", "2": "Ann <ann@example.com>", "3": "the title"} {
			if out := cli(t, "app", "revision", "lookup-several", revisions[position[0]-'1'], "--source-position", position); !strings.Contains(out, want) {
				t.Errorf("source %s:\n%s", position, out)
			}
		}
	})
}
