package stories_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/hub/source/charts/chartstest"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/registry"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// chartOf makes a ConfigMap that shows the chart's version and a value.
func chartOf() map[string]string {
	return map[string]string{
		"values.yaml":      "text: of the chart\n",
		"templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Chart.Name }}}\ndata: {v: {{ printf \"%s %s\" .Chart.Version .Values.text | quote }}}\n",
	}
}

// Applications whose sources are charts and artifacts: a chart repository and
// the registry of the Distribution project, over TLS with passwords.
func TestChartsAndArtifacts(t *testing.T) {
	ctx := within(t, 8*waitLimit)
	charts := chartstest.NewRepository()
	t.Cleanup(charts.Close)
	charts.Protect("bot", "canary-source")
	artifacts := registry.New(t, registry.Options{User: "bot", Password: "canary-source"})
	publish := func(t *testing.T, version string) {
		t.Helper()
		charts.Publish("web", version, chartOf())
		if _, err := artifacts.Push(ctx, "team/web", version, chartstest.Chart(chartstest.Pack("web", version, chartOf()))); err != nil {
			t.Fatal(err)
		}
		files := chartstest.Files(map[string]string{"app/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {v: \"" + version + " plain\"}\n"})
		files.Annotations = map[string]string{"org.opencontainers.image.title": "Web", "org.opencontainers.image.version": version, "org.opencontainers.image.authors": "Team"}
		if _, err := artifacts.Push(ctx, "team/plain", version, files); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, "1.0.0")
	values := repository(t, "chart-values", map[string]string{"production/values.yaml": "text: of a ref\n"})
	cli := func(t *testing.T, stdin string, args ...string) string {
		t.Helper()
		out, err := s.API.CLI(ctx, stdin, args...)
		if err != nil {
			t.Fatalf("capstan %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	app := func(name, sources string) string {
		return fmt.Sprintf("---\napiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: %[1]s, namespace: argocd}\nspec:\n  project: default\n%[2]s"+
			"  destination: {name: in-cluster, namespace: %[1]s}\n  syncPolicy: {automated: {prune: true, selfHeal: true}, syncOptions: [CreateNamespace=true]}\n", name, sources)
	}
	apply := func(t *testing.T, text string) {
		t.Helper()
		if out, err := s.API.Apply(ctx, text); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	has := func(t *testing.T, namespace, want string) {
		t.Helper()
		if err := poll.Until(within(t, waitLimit), func(ctx context.Context) error {
			o, err := s.Clusters["in-cluster"].WaitFor(ctx, configMaps, namespace, "web", func(*unstructured.Unstructured) error { return nil })
			if err != nil {
				return err
			}
			return value(want)(o)
		}); err != nil {
			t.Fatal(err)
		}
	}
	at := func(t *testing.T, name, want string) {
		t.Helper()
		condition(t, name, func(x stack.App) error {
			if x.Status.Sync.Revision != want {
				return fmt.Errorf("revision %q, want %q", x.Status.Sync.Revision, want)
			}
			return nil
		})
	}
	refresh := func(t *testing.T, names ...string) {
		t.Helper()
		for _, name := range names {
			if out, err := s.API.CLI(within(t, waitLimit), "", "app", "refresh", name); err != nil {
				t.Logf("%v\n%s", err, out)
			}
		}
	}
	t.Run("SRC-02 HELM-16 CRED-13 repositories of charts and artifacts are registered", func(t *testing.T) {
		cli(t, "canary-source", "repo", "add", charts.URL, "--type", "helm", "--username", "bot", "--password-stdin", "--insecure")
		cli(t, "canary-source", "repo", "add", artifacts.Host+"/team", "--type", "helm", "--enable-oci", "--username", "bot", "--password-stdin", "--insecure")
		cli(t, "canary-source", "repo", "add", artifacts.URL("team/plain"), "--type", "oci", "--username", "bot", "--password-stdin", "--insecure")
	})
	t.Run("SRC-02 CLI-02 an application is created with a chart of a chart repository", func(t *testing.T) {
		cli(t, "", "app", "create", "chart-http", "--repo", charts.URL, "--helm-chart", "web", "--revision", "1.*", "--dest-name", "in-cluster", "--dest-namespace", "chart-http",
			"--sync-policy", "automated", "--sync-option", "CreateNamespace=true")
		settled(t, "chart-http")
		at(t, "chart-http", "1.0.0")
		has(t, "chart-http", "1.0.0 of the chart")
		if out := cli(t, "", "app", "get", "chart-http"); !strings.Contains(out, "1.0.0") || !strings.Contains(out, "Synced") {
			t.Errorf("app get says\n%s", out)
		}
	})
	t.Run("HELM-16 SRC-02 an application has a chart of a registry, written without its scheme", func(t *testing.T) {
		apply(t, app("chart-oci", fmt.Sprintf("  source: {repoURL: %q, chart: web, targetRevision: ^1, helm: {valuesObject: {text: of the source}}}\n", artifacts.Host+"/team")))
		settled(t, "chart-oci")
		at(t, "chart-oci", "1.0.0")
		has(t, "chart-oci", "1.0.0 of the source")
	})
	var first string
	t.Run("SRC-03 an application has an artifact of a registry", func(t *testing.T) {
		apply(t, app("artifact", fmt.Sprintf("  source: {repoURL: %q, path: app, targetRevision: 1.x}\n", artifacts.URL("team/plain"))))
		first = settled(t, "artifact").Status.Sync.Revision
		if !strings.HasPrefix(first, "sha256:") {
			t.Errorf("the revision is %q", first)
		}
		has(t, "artifact", "1.0.0 plain")
	})
	t.Run("SRC-11 SRC-10 value files of a Git repository are read for a chart of a chart repository", func(t *testing.T) {
		apply(t, app("chart-values", fmt.Sprintf("  sources:\n  - {repoURL: %q, chart: web, targetRevision: 1.0.0, name: chart, helm: {valueFiles: [$values/production/values.yaml]}}\n  - {repoURL: %q, targetRevision: main, ref: values}\n", charts.URL, values.URL())))
		settled(t, "chart-values")
		has(t, "chart-values", "1.0.0 of a ref")
	})
	t.Run("HELM-11 SRC-10 guide/03, 04 and 10 sync when only the URLs are replaced", func(t *testing.T) { syncGuideOfCharts(t, charts) })
	t.Run("HELM-17 a new version within the range is found by a refresh, an exact one stays", func(t *testing.T) {
		publish(t, "1.1.0")
		refresh(t, "chart-http", "chart-oci", "artifact", "chart-values")
		at(t, "chart-http", "1.1.0")
		has(t, "chart-http", "1.1.0 of the chart")
		at(t, "chart-oci", "1.1.0")
		has(t, "chart-oci", "1.1.0 of the source")
		has(t, "artifact", "1.1.0 plain")
		has(t, "chart-values", "1.0.0 of a ref")
		if now := settled(t, "artifact").Status.Sync.Revision; now == first {
			t.Errorf("the artifact is still at %s", now)
		}
	})
	t.Run("FT-G7 other contents under a known version are an error until somebody accepts them", func(t *testing.T) {
		changed := chartOf()
		changed["values.yaml"] = "text: of an attacker\n"
		charts.Republish("web", "1.1.0", changed)
		refresh(t, "chart-http")
		condition(t, "chart-http", func(x stack.App) error {
			for _, c := range x.Status.Conditions {
				if strings.Contains(c.Message, "was published again with other contents") {
					return nil
				}
			}
			return fmt.Errorf("conditions %+v", x.Status.Conditions)
		})
		has(t, "chart-http", "1.1.0 of the chart")
		if out, err := s.API.CLI(within(t, waitLimit), "", "app", "refresh", "chart-http", "--hard"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		has(t, "chart-http", "1.1.0 of an attacker")
	})
	t.Run("SRC-02 a version that is not there is named, and what is deployed stays", func(t *testing.T) {
		apply(t, app("chart-oci", fmt.Sprintf("  source: {repoURL: %q, chart: web, targetRevision: 9.9.9}\n", artifacts.Host+"/team")))
		condition(t, "chart-oci", func(x stack.App) error {
			for _, c := range x.Status.Conditions {
				if strings.Contains(c.Message, `no version "9.9.9"`) {
					return nil
				}
			}
			return fmt.Errorf("conditions %+v", x.Status.Conditions)
		})
		has(t, "chart-oci", "1.1.0 of the source")
	})
}

// chartShowing is a chart of a ConfigMap that shows some of its values.
func chartShowing(values map[string]string, expression string) map[string]string {
	files := map[string]string{"templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shown}\ndata: {v: {{ printf " + expression + " | quote }}}\n"}
	maps.Copy(files, values)
	return files
}

// syncGuideOfCharts applies the guide's applications with charts.
func syncGuideOfCharts(t *testing.T, charts *chartstest.Server) {
	t.Helper()
	charts.Publish("my-chart", "1.0.0", chartShowing(map[string]string{
		"values.yaml":            "replicaCount: 1\nservice: {type: NodePort}\nenv: none\n",
		"values-production.yaml": "replicaCount: 2\nenv: production\n",
	}, `"%v %s %s %s" .Values.replicaCount .Values.service.type .Values.env .Values.resources.requests.cpu`))
	charts.Publish("my-app", "1.5.0", chartShowing(map[string]string{"values.yaml": "a: chart\nb: chart\nc: chart\n"}, `"%s %s %s" .Values.a .Values.b .Values.c`))
	charts.Publish("kube-prometheus-stack", "65.1.0", chartShowing(map[string]string{"values.yaml": "grafana: {replicas: 1}\n"},
		`"%s %v %s %s" .Release.Name .Values.grafana.replicas .Values.prometheus.prometheusSpec.retention .Values.grafana.adminPassword`))
	values := repository(t, "guide-values", map[string]string{
		"environments/production/values.yaml":  "b: values\nc: values\n",
		"environments/production/secrets.yaml": "c: secrets\n",
	})
	if _, err := s.API.Apply(t.Context(), "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: monitoring, namespace: argocd}\n"+
		"spec: {sourceRepos: ['*'], destinations: [{server: '*', namespace: '*'}], clusterResourceWhitelist: [{group: '*', kind: '*'}]}\n"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ file, name, namespace, replaced, want string }{
		{"03-application-multi-source.yaml", "my-app-multi-source", "my-app", "https://charts.example.com", "chart values secrets"},
		// Without the option to resolve secrets a placeholder is ordinary text.
		{"04-application-helm.yaml", "prometheus-stack", "monitoring", "https://prometheus-community.github.io/helm-charts", "prometheus 2 30d <path:secret/data/grafana#admin-password>"},
		{"10-application-helm-values.yaml", "my-release", "my-release", "https://charts.example.com", "3 ClusterIP production 100m"},
	} {
		text := strings.NewReplacer(c.replaced, charts.URL, "https://github.com/my-org/helm-values.git", values.URL()).Replace(guideFile(t, c.file))
		var object map[string]any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		// No application owns the namespace: guide/02 and guide/08 use it too.
		if err := s.Clusters["in-cluster"].Apply(t.Context(), "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+c.namespace+"}\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.API.Apply(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", c.file, err)
		}
		condition(t, c.name, func(x stack.App) error {
			if x.Status.Sync.Revision == "" {
				return fmt.Errorf("not compared yet: %v", x.Status.Conditions)
			}
			return nil
		})
		if c.name != "prometheus-stack" { // which is automated
			if out, err := s.API.CLI(within(t, waitLimit), "", "app", "sync", c.name); err != nil {
				t.Fatalf("%s: %v\n%s", c.file, err, out)
			}
		}
		if _, err := s.Clusters["in-cluster"].WaitFor(within(t, waitLimit), configMaps, c.namespace, "shown", value(c.want)); err != nil {
			t.Fatalf("%s: %v", c.file, err)
		}
		settled(t, c.name)
		equalBack(t, c.name, object)
	}
}
