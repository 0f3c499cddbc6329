package explore

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/plugin"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/hub/render/scheduler"
	"github.com/capstan-cd/capstan/hub/render/worker"
	"github.com/capstan-cd/capstan/shared/fault"
)

// TestMain makes the test binary a worker or a plugin's first stage when it is
// started as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == render.WorkerCommand {
		os.Exit(worker.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == plugin.ProgramCommand {
		os.Exit(plugin.Main())
	}
	os.Exit(m.Run())
}

// trees serves one tree under the revision main.
type trees struct{ tree hub.Tree }

func (s trees) Resolve(_ context.Context, _ hub.TenantID, _ hub.Repository, _ []hub.Ref, revision, _ string) (string, error) {
	if revision != "" && revision != "main" {
		return "", fault.New(fault.Invalid, "there is no revision %s", revision)
	}
	return s.tree.Commit(), nil
}

func (s trees) Tree(context.Context, hub.TenantID, hub.Repository, string) (hub.Tree, error) {
	return s.tree, nil
}

func (s trees) List(context.Context, hub.TenantID, hub.Repository) (hub.Listing, error) {
	return hub.Listing{Charts: []hub.PublishedChart{{Name: "web", Versions: []string{"1.0.0"}}}}, nil
}

const definition = `apiVersion: argoproj.io/v1alpha1
kind: ConfigManagementPlugin
metadata: {name: cue}
spec:
  version: v1
  generate: {command: [echo]}
  discover: {fileName: "*.cue"}
  parameters:
    static: [{name: values, collectionType: map}]
    dynamic: {command: [cat, parameters.json]}
`

func explorer(t *testing.T, files map[string]string) *Explorer {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "cue.yaml"), []byte(definition), 0o600); err != nil {
		t.Fatal(err)
	}
	runner, err := plugin.New(plugin.Config{Folder: folder, Temp: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	cfg := render.Config{Log: slog.New(slog.DiscardHandler), Workers: 1, Processes: 1}
	if raceDetector {
		cfg.Sandbox, cfg.Limits.Memory = render.SandboxNone, 1<<30
	}
	pool, err := scheduler.NewPool(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return New(trees{rendertest.NewTree(files)}, pool, runner)
}

func view(change func(*hub.SourceView)) hub.SourceView {
	at := time.Unix(0, 0)
	v := hub.SourceView{Tenant: "t1", Repository: hub.Repository{ID: "r1", URL: "https://git.example.com/a.git", FetchedAt: &at}}
	if change != nil {
		change(&v)
	}
	return v
}

func files() map[string]string {
	return map[string]string{
		"chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n", "chart/values.yaml": "replicas: 3\nimage: {tag: v1, used: true}\nlist: [a, {b: 1.5}]\na.b: x\nempty:\n",
		"chart/values-prod.yaml": "replicas: 5\n", "chart/templates/x.yaml": "{{ fail \"templates are not rendered\" }}",
		"deep/k/kustomization.yml": "resources: [d.yaml]\n", "deep/k/d.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {template: {spec: {initContainers: [{name: i, image: init:1}], containers: [{name: a, image: web:2}, {name: b, image: web:2}]}}}\n",
		"cue/a.cue": "", "cue/parameters.json": `[{"name":"from-file","string":"x"}]`, "cue/kustomization.yaml": "",
		".hidden/Chart.yaml": "", "plain/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
		"bad/Chart.yaml": "name: [\n",
	}
}

func TestApps(t *testing.T) {
	t.Parallel()
	e := explorer(t, files())
	t.Run("REPO-01 API-15 the sources in a repository", func(t *testing.T) {
		commit, found, err := e.Apps(t.Context(), view(nil))
		if err != nil || len(commit) != 40 {
			t.Fatalf("%q, %v", commit, err)
		}
		want := []hub.FoundSource{{Path: "bad", Type: "Helm"}, {Path: "chart", Type: "Helm"}, {Path: "cue", Type: "Plugin"}, {Path: "deep/k", Type: "Kustomize"}}
		if d := cmp.Diff(want, found); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
	t.Run("API-15 the charts of an index are its sources", func(t *testing.T) {
		of := view(func(v *hub.SourceView) { v.Repository.Type, v.Repository.FetchedAt = hub.HelmRepository, nil })
		commit, found, err := e.Apps(t.Context(), of)
		if d := cmp.Diff([]hub.FoundSource{{Path: ".", Type: "Helm", Chart: "web"}}, found); d != "" || commit != "" || err != nil {
			t.Errorf("%q, %v (-want +got):\n%s", commit, err, d)
		}
		if _, err := e.Details(t.Context(), of); !strings.Contains(fault.Sentence(err), "none is named") {
			t.Errorf("details without a chart: %v", err)
		}
	})
	for name, c := range map[string]struct {
		change func(*hub.SourceView)
		says   string
	}{
		"a chart of a Git repository":      {func(v *hub.SourceView) { v.Chart = "web" }, "no charts by name"},
		"one that is not fetched yet":      {func(v *hub.SourceView) { v.Repository.FetchedAt = nil }, "not been fetched yet"},
		"one that cannot be fetched":       {func(v *hub.SourceView) { v.Repository.FetchedAt, v.Repository.Error = nil, "it is gone" }, "it is gone"},
		"a revision that it does not have": {func(v *hub.SourceView) { v.Revision = "v9" }, "no revision v9"},
	} {
		t.Run("API-15 refused: "+name, func(t *testing.T) {
			if _, _, err := e.Apps(t.Context(), view(c.change)); err == nil || !strings.Contains(fault.Sentence(err), c.says) {
				t.Errorf("error %v, want %q", err, c.says)
			}
			if _, err := e.Details(t.Context(), view(c.change)); err == nil || !strings.Contains(fault.Sentence(err), c.says) {
				t.Errorf("error %v, want %q", err, c.says)
			}
		})
	}
}

func TestDetails(t *testing.T) {
	t.Parallel()
	e := explorer(t, files())
	at := func(path, plugin string) hub.SourceView {
		return view(func(v *hub.SourceView) { v.Path, v.Plugin = path, plugin })
	}
	static := hub.PluginAnnouncement{Name: "values", CollectionType: "map", ItemType: "string"}
	for path, want := range map[string]hub.SourceDetails{
		"chart": {Type: "Helm", Helm: &hub.HelmDetails{
			Name: "shop", Values: files()["chart/values.yaml"], ValueFiles: []string{"values-prod.yaml", "values.yaml"},
			Parameters: []hub.HelmParameter{{Name: `a\.b`, Value: "x"}, {Name: "empty"}, {Name: "image.tag", Value: "v1"}, {Name: "image.used", Value: "true"}, {Name: "list[0]", Value: "a"}, {Name: "list[1].b", Value: "1.5"}, {Name: "replicas", Value: "3"}},
		}},
		"deep/k": {Type: "Kustomize", Kustomize: &hub.KustomizeDetails{Images: []string{"init:1", "web:2"}}},
		"plain":  {Type: "Directory"},
		"cue":    {Type: "Plugin", Plugin: &hub.PluginDetails{Name: "cue-v1", Parameters: []hub.PluginAnnouncement{static, {Name: "from-file", String: "x", CollectionType: "string", ItemType: "string"}}}},
	} {
		t.Run("REPO-01 API-15 details of "+want.Type, func(t *testing.T) {
			got, err := e.Details(t.Context(), at(path, ""))
			if err != nil {
				t.Fatal(err)
			}
			want.Commit = got.Commit
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
	for name, c := range map[string]struct{ path, plugin, says string }{
		"a path that is not there":      {"nowhere", "", `path "nowhere" does not exist`},
		"SEC-A2 a path outside":         {"../x", "", "leaves the repository"},
		"a chart that cannot be read":   {"bad", "", "bad/Chart.yaml"},
		"a plugin that is not declared": {"plain", "none", `there is no plugin "none"`},
		"SEC-A2 a plugin with a quote":  {"plain", "a\",\"env\":[]", "there is no plugin"},
	} {
		t.Run("API-15 refused: "+name, func(t *testing.T) {
			if _, err := e.Details(t.Context(), at(c.path, c.plugin)); fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), c.says) {
				t.Errorf("error %v, want %q", err, c.says)
			}
		})
	}
	t.Run("REPO-01 API-16 CMP-11 the plugins of a tenant", func(t *testing.T) {
		want := []hub.DeclaredPlugin{{Name: "cue-v1", Discovers: true, Parameters: []hub.PluginAnnouncement{static}}}
		if d := cmp.Diff(want, e.Plugins("t1")); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}
