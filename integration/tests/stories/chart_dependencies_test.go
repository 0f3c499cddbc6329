package stories_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-cd/capstan/hub/source/charts/chartstest"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// A chart in Git that depends on charts of a private chart repository and of a
// private registry, and a kustomization that inflates one: real servers over
// TLS, with passwords.
func TestChartsOfRepositories(t *testing.T) {
	ctx := within(t, 5*waitLimit)
	charts, registry := chartstest.NewRepository(), chartstest.NewRegistry()
	t.Cleanup(charts.Close)
	t.Cleanup(registry.Close)
	charts.Protect("bot", "canary-charts")
	registry.Protect("bot", "canary-charts")
	conf := map[string]string{"templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Chart.Name }}}\ndata: {v: {{ .Chart.Version | quote }}}\n"}
	charts.Publish("redis", "1.0.0", conf)
	if _, err := registry.Push(ctx, "team", "mysql", "2.0.0", conf); err != nil {
		t.Fatal(err)
	}
	oci := strings.Replace(registry.URL, "https://", "oci://", 1) + "/team"
	repo := repository(t, "chart-dependencies", map[string]string{
		"chart/Chart.yaml":             fmt.Sprintf("apiVersion: v2\nname: parent\nversion: 1.0.0\ndependencies:\n- {name: redis, version: ^1, repository: '@stable'}\n- {name: mysql, version: 2.0.0, repository: %q}\n", oci),
		"kustomize/kustomization.yaml": fmt.Sprintf("namePrefix: k-\nhelmCharts:\n- {name: redis, version: 1.0.0, repo: %q, namespace: chart-inflated, releaseName: r}\n", charts.URL),
	})
	project := func(repositories ...string) string {
		return fmt.Sprintf("apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: charts, namespace: argocd}\nspec:\n  sourceRepos: [%s]\n  destinations: [{name: in-cluster, namespace: \"*\"}]\n",
			strings.Join(append(repositories, fmt.Sprintf("%q", repo.URL())), ", "))
	}
	app := func(name, path string) string {
		return fmt.Sprintf("---\napiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: %[1]s, namespace: argocd}\nspec:\n  project: charts\n  source: {repoURL: %[2]q, path: %[3]s, targetRevision: main}\n"+
			"  destination: {name: in-cluster, namespace: %[1]s}\n  syncPolicy: {automated: {prune: true, selfHeal: true}, syncOptions: [CreateNamespace=true]}\n", name, repo.URL(), path)
	}
	apply := func(t *testing.T, text string) {
		t.Helper()
		if _, err := s.API.Apply(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	says := func(t *testing.T, name string, texts ...string) {
		t.Helper()
		condition(t, name, func(x stack.App) error {
			for _, c := range x.Status.Conditions {
				all := true
				for _, text := range texts {
					all = all && strings.Contains(c.Message, text)
				}
				if all {
					return nil
				}
			}
			return fmt.Errorf("no condition says %q: %+v", texts, x.Status.Conditions)
		})
	}
	has := func(t *testing.T, namespace, name, want string) {
		t.Helper()
		if _, err := s.Clusters["in-cluster"].WaitFor(within(t, waitLimit), configMaps, namespace, name, value(want)); err != nil {
			t.Fatal(err)
		}
	}
	add := func(t *testing.T, url, kind string, more ...string) {
		t.Helper()
		out, err := s.API.CLI(ctx, "canary-charts", append([]string{"repo", "add", url, "--type", kind, "--username", "bot", "--password-stdin", "--insecure"}, more...)...)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	refresh := func(t *testing.T, name string) {
		t.Helper()
		if out, err := s.API.CLI(within(t, waitLimit), "", "app", "refresh", name); err != nil {
			t.Logf("%v\n%s", err, out) // it says what the application says
		}
	}
	t.Run("HELM-15 an unregistered repository, and one that the project does not permit, are named", func(t *testing.T) {
		apply(t, project()+app("chart-parent", "chart"))
		says(t, "chart-parent", `none is registered under that name`, `project "charts" does not permit the repository `+oci)
	})
	t.Run("HELM-15 dependencies of a chart repository and of a registry are fetched with their credentials", func(t *testing.T) {
		add(t, charts.URL, "helm", "--name", "stable")
		add(t, oci, "oci")
		apply(t, project(fmt.Sprintf("%q, %q", charts.URL, oci)))
		refresh(t, "chart-parent")
		settled(t, "chart-parent")
		has(t, "chart-parent", "redis", "1.0.0")
		has(t, "chart-parent", "mysql", "2.0.0")
	})
	t.Run("HELM-15 a refresh finds a new version within the range", func(t *testing.T) {
		charts.Publish("redis", "1.1.0", conf)
		if err := poll.Until(within(t, waitLimit), func(ctx context.Context) error {
			refresh(t, "chart-parent")
			o, err := s.Clusters["in-cluster"].WaitFor(ctx, configMaps, "chart-parent", "redis", func(*unstructured.Unstructured) error { return nil })
			if err == nil && value("1.1.0")(o) != nil {
				err = fmt.Errorf("redis is still the old one")
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("KUST-08 charts of a kustomization need the build option", func(t *testing.T) {
		apply(t, app("chart-inflated", "kustomize"))
		says(t, "chart-inflated", "helmCharts need the build option --enable-helm")
	})
	t.Run("KUST-08 with it they are inflated", func(t *testing.T) {
		apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm, namespace: argocd}\ndata: {kustomize.buildOptions: --enable-helm}\n")
		t.Cleanup(func() {
			if _, err := s.API.CLI(context.WithoutCancel(ctx), "", "settings", "set", "kustomize.buildOptions", "--unset"); err != nil {
				t.Error(err)
			}
		})
		refresh(t, "chart-inflated")
		settled(t, "chart-inflated")
		has(t, "chart-inflated", "k-redis", "1.0.0")
	})
	t.Run("HELM-15 without the permission nothing new is rendered, and deployed objects stay", func(t *testing.T) {
		apply(t, project(fmt.Sprintf("%q", charts.URL)))
		refresh(t, "chart-parent")
		says(t, "chart-parent", `project "charts" does not permit the repository `+oci)
		has(t, "chart-parent", "mysql", "2.0.0")
	})
}
