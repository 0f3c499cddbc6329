package helm

import (
	"bytes"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/hub/source/charts/chartstest"
	"github.com/capstan-cd/capstan/shared/fault"
)

const parentChart = `apiVersion: v2
name: c
version: 1.0.0
dependencies:
- {name: redis, version: ^1, repository: 'https://charts.example.com', condition: redis.enabled}
- {name: mysql, version: ^2, repository: 'oci://registry.example.com/charts', alias: db, condition: db.enabled}
- {name: common, version: 0.1.0, repository: '@stable'}
`

// TestRemoteDependencies renders a chart whose dependencies are in repositories.
// What goes over the network is tested in hub/source/charts.
func TestRemoteDependencies(t *testing.T) {
	t.Parallel()
	object := func(name string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {v: {{ .Values.v | quote }}, r: {{ .Release.Name }}}\n"
	}
	archives := map[string][]byte{
		"redis": chartstest.Pack("redis", "1.4.0", map[string]string{"templates/a.yaml": object("redis"), "values.yaml": "v: own\n"}),
		"mysql": chartstest.Pack("mysql", "2.0.1", map[string]string{"templates/a.yaml": object("mysql"), "crds/x.yaml": "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: x.example.com}\n"}),
		"common": chartstest.Pack("common", "0.1.0", map[string]string{
			"Chart.yaml": "apiVersion: v2\nname: common\nversion: 0.1.0\ntype: library\n", "templates/_a.tpl": `{{ define "common.name" }}from-common{{ end }}`,
		}),
	}
	files := map[string]string{
		"c/Chart.yaml": parentChart, "c/values.yaml": "redis: {enabled: true, v: parent}\ndb: {enabled: true}\n",
		"c/templates/own.yaml": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"{{ include "common.name" . }}"}}`,
	}
	run := func(t *testing.T, more map[string]string, refuse string, h hub.HelmSource) (string, []string, error) {
		t.Helper()
		req := rendertest.Request(hub.Source{Path: "c", Helm: &h}, with(files, more))
		var asked []string
		req.Chart = func(ref hub.ChartRef, _ string) (hub.ChartArchive, error) {
			asked = append(asked, ref.String())
			if strings.HasPrefix(ref.Repository, refuse) && refuse != "" {
				return hub.ChartArchive{}, fault.New(fault.Invalid, "project %q does not permit the repository %s", "shop", ref.Repository)
			}
			return hub.ChartArchive{Digest: chartstest.Digest(archives[ref.Name]), Data: archives[ref.Name]}, nil
		}
		out, _, err := renderChart(t, req)
		if err != nil {
			return "", asked, err
		}
		return rendertest.Text(t, out, "shop"), asked, nil
	}
	t.Run("HELM-15 dependencies of repositories and registries, a library, and an alias with values", func(t *testing.T) {
		t.Parallel()
		text, asked, err := run(t, nil, "", hub.HelmSource{Values: "db: {v: given}\n"})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"name":"redis"`, `"v":"parent"`, `"name":"mysql"`, `"v":"given"`, `"name":"from-common"`, `"name":"x.example.com"`, `"r":"web"`} {
			if !strings.Contains(text, want) {
				t.Errorf("%s is missing in\n%s", want, text)
			}
		}
		if len(asked) != 3 {
			t.Errorf("asked for %q", asked)
		}
	})
	t.Run("HELM-15 what is in the charts directory is not fetched", func(t *testing.T) {
		t.Parallel()
		text, asked, err := run(t, map[string]string{"c/charts/redis-1.0.0.tgz": string(chartstest.Pack("redis", "1.0.0", map[string]string{"templates/a.yaml": object("vendored")}))}, "", hub.HelmSource{})
		if err != nil || !strings.Contains(text, `"name":"vendored"`) || len(asked) != 2 {
			t.Errorf("asked for %q, %v:\n%s", asked, err, text)
		}
	})
	t.Run("HELM-15 a dependency that is switched off needs no permission", func(t *testing.T) {
		t.Parallel()
		text, _, err := run(t, nil, "oci://", hub.HelmSource{Values: "db: {enabled: false}\n"})
		if err != nil || strings.Contains(text, "mysql") {
			t.Errorf("%v:\n%s", err, text)
		}
	})
	t.Run("HELM-15 all repositories that are not permitted are named", func(t *testing.T) {
		t.Parallel()
		more := map[string]string{"c/Chart.yaml": strings.ReplaceAll(parentChart, "'@stable'", "'oci://registry.example.com/more'")}
		_, _, err := run(t, more, "oci://", hub.HelmSource{})
		for _, want := range []string{`"mysql"`, "does not permit the repository oci://registry.example.com/charts", `"common"`, "does not permit the repository oci://registry.example.com/more"} {
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), want) {
				t.Errorf("%v does not say %q", fault.Sentence(err), want)
			}
		}
	})
	lock := func(digest string) map[string]string {
		return map[string]string{"c/Chart.lock": "dependencies:\n- {name: redis, version: 1.3.0, repository: 'https://charts.example.com'}\n" +
			"- {name: mysql, version: 2.0.1, repository: 'oci://registry.example.com/charts'}\n- {name: common, version: 0.1.0, repository: '@stable'}\ndigest: " + digest + "\n"}
	}
	locked := hash([2][]*chart.Dependency{{
		{Name: "redis", Version: "^1", Repository: "https://charts.example.com", Condition: "redis.enabled"},
		{Name: "mysql", Version: "^2", Repository: "oci://registry.example.com/charts", Alias: "db", Condition: "db.enabled"},
		{Name: "common", Version: "0.1.0", Repository: "@stable"},
	}, {
		{Name: "redis", Version: "1.3.0", Repository: "https://charts.example.com"},
		{Name: "mysql", Version: "2.0.1", Repository: "oci://registry.example.com/charts"},
		{Name: "common", Version: "0.1.0", Repository: "@stable"},
	}})
	t.Run("HELM-15 the lock file decides about versions", func(t *testing.T) {
		t.Parallel()
		_, asked, err := run(t, lock(locked), "", hub.HelmSource{})
		if err != nil || len(asked) == 0 || asked[0] != "https://charts.example.com redis 1.3.0" {
			t.Errorf("asked for %q, %v", asked, err)
		}
	})
	t.Run("HELM-15 a lock file of other dependencies is refused", func(t *testing.T) {
		t.Parallel()
		_, asked, err := run(t, lock("sha256:00"), "", hub.HelmSource{})
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "Chart.lock") || !strings.Contains(fault.Sentence(err), "helm dependency update") || len(asked) > 0 {
			t.Errorf("asked for %q, %v", asked, fault.Sentence(err))
		}
	})
	t.Run("SEC-B3 an archive that is none", func(t *testing.T) {
		t.Parallel()
		req := rendertest.Request(hub.Source{Path: "c"}, files)
		req.Chart = func(hub.ChartRef, string) (hub.ChartArchive, error) {
			return hub.ChartArchive{Digest: "sha256:00", Data: bytes.Repeat([]byte("x"), 100)}, nil
		}
		_, _, err := renderChart(t, req)
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "c/Chart.yaml, dependency redis") {
			t.Errorf("%v", fault.Sentence(err))
		}
	})
	t.Run("HELM-15 an archive with another chart", func(t *testing.T) {
		t.Parallel()
		req := rendertest.Request(hub.Source{Path: "c"}, files)
		req.Chart = func(hub.ChartRef, string) (hub.ChartArchive, error) {
			return hub.ChartArchive{Digest: "sha256:00", Data: archives["common"]}, nil
		}
		_, _, err := renderChart(t, req)
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), `contains the chart "common"`) {
			t.Errorf("%v", fault.Sentence(err))
		}
	})
}
