package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
)

const chartYAML = "apiVersion: v2\nname: c\nversion: 1.0.0\n"

func names(res render.Result) []string {
	out := []string{}
	for _, o := range res.Objects {
		out = append(out, o.Ref.Kind+" "+o.Ref.Name)
	}
	return out
}

func TestTypeOfASource(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	chart := map[string]string{"a/Chart.yaml": chartYAML, "a/templates/x.yaml": strings.Replace(configMap, "name: a", "name: helm", 1)}
	kustomization := map[string]string{"a/kustomization.yml": "resources: [r.yaml]\n", "a/r.yaml": strings.Replace(configMap, "name: a", "name: kust", 1)}
	both := map[string]string{}
	for _, m := range []map[string]string{chart, kustomization} {
		for k, v := range m {
			both[k] = v
		}
	}
	for name, c := range map[string]struct {
		source hub.Source
		files  map[string]string
		kind   string
		want   []string
		says   string
	}{
		"SRC-14 a chart":                         {hub.Source{Path: "a"}, chart, render.TypeHelm, []string{"ConfigMap helm"}, ""},
		"SRC-14 a kustomization":                 {hub.Source{Path: "a"}, kustomization, render.TypeKustomize, []string{"ConfigMap kust"}, ""},
		"SRC-14 both: Kustomize wins":            {hub.Source{Path: "a"}, both, render.TypeKustomize, []string{"ConfigMap kust"}, ""},
		"SRC-14 the spec wins":                   {hub.Source{Path: "a", Helm: &hub.HelmSource{}}, both, render.TypeHelm, []string{"ConfigMap helm"}, ""},
		"SRC-14 an empty directory block":        {hub.Source{Path: "a", Directory: &hub.DirectorySource{Include: "r.yaml"}}, both, render.TypeDirectory, []string{"ConfigMap kust"}, ""},
		"SRC-14 neither":                         {hub.Source{Path: "a"}, map[string]string{"a/x.yaml": configMap}, render.TypeDirectory, []string{"ConfigMap a"}, ""},
		"SRC-01 the root":                        {hub.Source{Path: "."}, map[string]string{"x.yaml": configMap}, render.TypeDirectory, []string{"ConfigMap a"}, ""},
		"SRC-14 two blocks":                      {hub.Source{Path: "a", Helm: &hub.HelmSource{}, Kustomize: &hub.KustomizeSource{}}, both, "", nil, "Kustomize and Helm"},
		"a path that is not there":               {hub.Source{Path: "nope"}, both, "", nil, `path "nope" does not exist`},
		"a path that is a file":                  {hub.Source{Path: "a/r.yaml"}, both, "", nil, "is a file"},
		"SEC-A2 a path outside":                  {hub.Source{Path: "../x"}, both, "", nil, "leaves the repository"},
		"SEC-A2 a path with a zero byte":         {hub.Source{Path: "a\x00b"}, both, "", nil, "zero byte"},
		"SEC-A2 .git is no place":                {hub.Source{Path: ".git"}, both, "", nil, "does not exist"},
		"SEC-A2 backslashes are a name":          {hub.Source{Path: `..\..\etc`}, both, "", nil, "does not exist"},
		"SEC-A2 escapes are a name":              {hub.Source{Path: "%2e%2e/etc"}, both, "", nil, "does not exist"},
		"SEC-A1 a path that is a link out":       {hub.Source{Path: "l"}, map[string]string{"link l": "../.."}, "", nil, "symbolic link"},
		"a path that is a link inside":           {hub.Source{Path: "l"}, map[string]string{"link l": "a", "a/x.yaml": configMap}, render.TypeDirectory, []string{"ConfigMap a"}, ""},
		"path and chart":                         {hub.Source{Path: "a", Chart: "x"}, both, "", nil, "path and chart are both set"},
		"SRC-02 a chart with settings of others": {hub.Source{Chart: "x", Kustomize: &hub.KustomizeSource{}}, both, "", nil, "settings for Kustomize"},
		"SRC-10 ref and chart":                   {hub.Source{Chart: "x", Ref: "y"}, both, "", nil, "ref and chart"},
		"CMP a plugin":                           {hub.Source{Path: "a", Plugin: []byte(`{"name":"x"}`)}, both, "", nil, `there is no plugin "x" for this organisation`},
		"CMP a plugin and another tool":          {hub.Source{Path: "a", Plugin: []byte(`{"name":"x"}`), Helm: &hub.HelmSource{}}, both, "", nil, "Helm and Plugin"},
		"CMP a plugin of the wrong shape":        {hub.Source{Path: "a", Plugin: []byte(`{"name":1}`)}, both, "", nil, "plugin cannot be read"},
		"CMP-06 no plugin discovers the path":    {hub.Source{Path: "a", Plugin: []byte(`{}`)}, both, "", nil, `no plugin matches the path "a"`},
		"SRC-16 an override that names a plugin": {hub.Source{Path: "a"}, with(kustomization, map[string]string{"a/.argocd-source.yaml": "plugin: {name: other}\n"}), "", nil, `there is no plugin "other"`},
		"SRC-16 an override of settings": {
			hub.Source{Path: "a"}, with(kustomization, map[string]string{"a/.argocd-source.yaml": "kustomize: {namePrefix: p-}\n", "a/.argocd-source-web.yaml": "kustomize: {nameSuffix: -s}\npath: ../elsewhere\n"}),
			render.TypeKustomize, []string{"ConfigMap p-kust-s"}, "",
		},
		"SRC-16 an override that is no YAML": {hub.Source{Path: "a"}, with(kustomization, map[string]string{"a/.argocd-source.yaml": "["}), "", nil, "a/.argocd-source.yaml"},
		"SRC-16 of the wrong shape":          {hub.Source{Path: "a"}, with(kustomization, map[string]string{"a/.argocd-source.yaml": "kustomize: [1]\n"}), "", nil, "a/.argocd-source.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, err := p.Render(t.Context(), request(c.source, c.files))
			if c.says != "" {
				if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), c.says) {
					t.Fatalf("error %v, want kind %q and %q", err, fault.Invalid, c.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if res.SourceType != c.kind {
				t.Errorf("type %q, want %q", res.SourceType, c.kind)
			}
			if d := cmp.Diff(c.want, names(res)); d != "" {
				t.Errorf("objects (-want +got):\n%s", d)
			}
		})
	}
}

func with(files, more map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range []map[string]string{files, more} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

// The settings that a render reads are inputs: only a change of these voids the
// result.
func TestSettings(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	named := func(name string) string { return strings.Replace(configMap, "name: a", "name: "+name, 1) }
	kustomized := map[string]string{"a/k/kustomization.yaml": "resources: [../y.yaml, ../b]\n", "a/y.yaml": named("y"), "a/b/kustomization.yaml": "resources: []\n"}
	for name, c := range map[string]struct {
		source  hub.Source
		files   map[string]string
		key     string
		on      string
		off     []string // without the setting; nil: it is refused
		want    []string
		another string // a key that this render does not read
	}{
		"SRC-15 Helm is switched off": {
			hub.Source{Path: "a"}, map[string]string{"a/Chart.yaml": "# +argocd:skip-file-rendering\n" + chartYAML, "a/templates/x.yaml": configMap, "a/y.yaml": named("z")},
			hub.HelmEnableKey, "false", []string{"ConfigMap a"}, []string{"ConfigMap z"}, hub.KustomizeEnableKey,
		},
		"SRC-15 Kustomize is switched off": {
			hub.Source{Path: "a"}, map[string]string{"a/kustomization.yaml": "resources: [y.yaml]\nnamePrefix: p-\n", "a/y.yaml": named("z")},
			hub.KustomizeEnableKey, "false", []string{"ConfigMap p-z"}, []string{"ConfigMap z"}, hub.HelmEnableKey,
		},
		"SRC-15 Kustomize is switched off, though the spec names it": {
			hub.Source{Path: "a", Kustomize: &hub.KustomizeSource{NamePrefix: "q-"}}, map[string]string{"a/kustomization.yaml": "resources: [b/y.yaml]\n", "a/b/y.yaml": named("z"), "a/x.yaml": configMap},
			hub.KustomizeEnableKey, "false", []string{"ConfigMap q-z"}, []string{"ConfigMap a"}, hub.HelmEnableKey,
		},
		"DIR-08 hidden directories": {
			hub.Source{Path: ".", Directory: &hub.DirectorySource{Recurse: true}}, map[string]string{"x.yaml": configMap, ".d/h.yaml": named("h")},
			hub.HiddenDirectoriesKey, "true", []string{"ConfigMap a"}, []string{"ConfigMap a", "ConfigMap h"}, hub.KustomizeOptionsKey,
		},
		"KUST-08 options of all builds": {
			hub.Source{Path: "a/k"}, kustomized, hub.KustomizeOptionsKey, "--load-restrictor LoadRestrictionsNone", nil, []string{"ConfigMap y"}, hub.KustomizeOptionsOf("v5.8.0"),
		},
		"KUST-08 options of one version": {
			hub.Source{Path: "a/k", Kustomize: &hub.KustomizeSource{Version: "v5.8.0"}}, kustomized,
			hub.KustomizeOptionsOf("v5.8.0"), "--load-restrictor LoadRestrictionsNone", nil, []string{"ConfigMap y"}, hub.KustomizeOptionsKey,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := request(c.source, c.files)
			before, err := p.Render(t.Context(), req)
			if c.off == nil && fault.KindOf(err) != fault.Invalid || c.off != nil && (err != nil || !slices.Equal(names(before), c.off)) {
				t.Fatalf("without the setting: %v, %v", names(before), err)
			}
			req.Settings = map[string]string{c.key: c.on}
			after, err := p.Render(t.Context(), req)
			if err != nil || !slices.Equal(names(after), c.want) {
				t.Fatalf("with it: %v, %v; want %v", names(after), err, c.want)
			}
			fresh := func(settings map[string]string) bool {
				changed := req
				changed.Settings = settings
				ok, err := render.Fresh(after.Inputs, req.Trees, changed)
				if err != nil {
					t.Fatal(err)
				}
				return ok
			}
			if !fresh(req.Settings) || !fresh(map[string]string{c.key: c.on, c.another: "x"}) {
				t.Error("the result is void although nothing that it read has changed")
			}
			if fresh(nil) || fresh(map[string]string{c.key: c.on + " "}) {
				t.Error("the result still counts although the setting has changed")
			}
		})
	}
}

// Edits of a build are made in the worker's memory and never in a checkout, so
// nothing has to be locked: each of two renders waits until the other reads.
func TestBuildsSideBySide(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *render.Config) { c.Workers, c.Processes = 2, 2 })
	files := map[string]string{"kustomization.yaml": "resources: [r.yaml]\n", "r.yaml": configMap}
	var both sync.WaitGroup
	both.Add(2)
	var builds sync.WaitGroup
	for _, prefix := range []string{"one-", "two-"} {
		builds.Go(func() {
			req := request(hub.Source{Path: ".", Kustomize: &hub.KustomizeSource{NamePrefix: prefix}}, files)
			req.Trees[0] = &meeting{Tree: req.Trees[0], arrive: sync.OnceFunc(func() { both.Done(); both.Wait() })}
			res, err := p.Render(t.Context(), req)
			t.Run("KUST-11 builds with edits of one revision run at the same time: "+prefix, func(t *testing.T) {
				if err != nil || !slices.Equal(names(res), []string{"ConfigMap " + prefix + "a"}) {
					t.Errorf("%v, %v", names(res), err)
				}
			})
		})
	}
	builds.Wait()
}

// A meeting waits at its first read until the others have arrived.
type meeting struct {
	hub.Tree
	arrive func()
}

func (m *meeting) ReadFile(name string) ([]byte, error) {
	m.arrive()
	return m.Tree.ReadFile(name)
}

func TestSeveralSources(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	req := request(hub.Source{Path: "."}, map[string]string{"a.yaml": configMap, "b.yaml": strings.Replace(configMap, "name: a", "name: b", 1)})
	req.Sources = append(req.Sources, hub.Source{RepoURL: "https://git.example/two.git", Path: "k"}, hub.Source{RepoURL: "https://git.example/v.git", Ref: "values"})
	req.Trees = append(req.Trees, rendertest.NewTree(map[string]string{
		"k/kustomization.yaml": "resources: [x.yaml]\n", "k/x.yaml": strings.Replace(configMap, "k: v", "k: later", 1) + "---\n" + strings.Replace(configMap, "name: a", "name: c\n  namespace: shop", 1),
	}), rendertest.NewTree(map[string]string{"ignored.yaml": strings.Replace(configMap, "name: a", "name: z", 1)}))
	res, err := p.Render(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("SRC-10 a source that is only a ref has no objects", func(t *testing.T) {
		if d := cmp.Diff([]string{"ConfigMap a", "ConfigMap b", "ConfigMap c"}, names(res)); d != "" {
			t.Errorf("objects (-want +got):\n%s", d)
		}
		if res.SourceType != "Directory,Kustomize" {
			t.Errorf("type %q", res.SourceType)
		}
	})
	t.Run("APP-19 each source that makes manifests has its type, in order", func(t *testing.T) {
		req := req
		req.Sources, req.Trees = append(slices.Clone(req.Sources), req.Sources[0]), append(slices.Clone(req.Trees), req.Trees[0])
		res, err := p.Render(t.Context(), req)
		if err != nil || res.SourceType != "Directory,Kustomize,Directory" {
			t.Errorf("types %q, %v", res.SourceType, err)
		}
	})
	t.Run("SRC-12 a later source wins, with a warning", func(t *testing.T) {
		if !strings.Contains(string(res.Objects[0].JSON), "later") {
			t.Errorf("object %s", res.Objects[0].JSON)
		}
		if len(res.Warnings) != 1 || !strings.HasPrefix(res.Warnings[0], render.RepeatedResource+": /ConfigMap//a appeared 2 times") {
			t.Errorf("warnings %q", res.Warnings)
		}
	})
	t.Run("an error names the source", func(t *testing.T) {
		bad := req
		bad.Sources = append([]hub.Source{}, req.Sources...)
		bad.Sources[1].Path = "none"
		bad.Sources[1].RepoURL = "https://me:hunter2@git.example/two.git"
		_, err := p.Render(t.Context(), bad)
		if err == nil || !strings.Contains(fault.Sentence(err), "source 2 (https://git.example/two.git)") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error %v", err)
		}
	})
}

func TestEqualInputsGiveEqualResults(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	files := map[string]string{
		"c/Chart.yaml": chartYAML, "c/values.yaml": "a: 1\nb: {x: 1, z: 2}\n",
		"c/templates/x.yaml": "{{ range $k, $v := .Values.b }}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ $k }}}\ndata: {v: {{ keys $.Values.b | join \",\" | quote }}}\n{{ end }}",
	}
	var first render.Result
	for i := range 5 {
		res, err := p.Render(t.Context(), request(hub.Source{Path: "c"}, files))
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = res
		} else if d := cmp.Diff(first, res); d != "" {
			t.Fatalf("INV-7 the same inputs gave another result (-first +now):\n%s", d)
		}
	}
	req := request(hub.Source{Path: "c"}, files)
	if ok, err := render.Fresh(first.Inputs, req.Trees, req); !ok || err != nil {
		t.Errorf("the inputs of a render are not fresh in its own tree: %v", err)
	}
}

func TestLimitsOfOutput(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *render.Config) {
		c.Limits.Objects, c.Limits.ObjectBytes, c.Limits.OutputBytes = 50, 10_000, 100_000
		c.Limits.Inputs = 400
		c.Limits.FileBytes = 1 << 20
		c.Limits.DirectoryBytes = 20 << 20
	})
	many := map[string]string{}
	for i := range 500 {
		many[fmt.Sprintf("f%03d.txt", i)] = "x"
	}
	var objects, large strings.Builder
	for i := range 60 {
		fmt.Fprintf(&objects, "---\n%s", strings.Replace(configMap, "name: a", fmt.Sprintf("name: a%d", i), 1))
	}
	for i := range 20 {
		fmt.Fprintf(&large, "---\n%s", strings.Replace(strings.Replace(configMap, "name: a", fmt.Sprintf("name: a%d", i), 1), "k: v", "k: "+strings.Repeat("x", 8_000), 1))
	}
	chart := func(text string) map[string]string {
		return map[string]string{"Chart.yaml": chartYAML, "templates/a.yaml": text}
	}
	for name, c := range map[string]struct {
		files map[string]string
		says  string
	}{
		"SEC-B2 too many objects":       {map[string]string{"a.yaml": objects.String()}, "50"},
		"SEC-B2 one large object":       {map[string]string{"a.yaml": strings.Replace(configMap, "k: v", "k: "+strings.Repeat("x", 20_000), 1)}, "ConfigMap a has 20"},
		"SEC-B2 all together":           {map[string]string{"a.yaml": large.String()}, "100000 bytes"},
		"SEC-B2 a large file":           {map[string]string{"a.yaml": strings.Repeat("#", 2<<20)}, "a.yaml"},
		"SEC-B2 too many names":         {with(many, map[string]string{"a.yaml": configMap}), "400"},
		"SEC-B5 a chart of 100 MB":      {chart(`{{ range until 200 }}{{ repeat 1000000 "x" }}{{ end }}`), "write more than"},
		"SEC-B5 a list of a thousand m": {chart(`{{ range until 1000000000 }}{{ end }}`), "memory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if raceDetector && strings.Contains(name, "thousand m") {
				t.Skip("the race detector has no limit of memory")
			}
			_, err := p.Render(t.Context(), request(hub.Source{Path: "."}, c.files))
			if fault.KindOf(err) != fault.Exceeded || !strings.Contains(fault.Sentence(err), c.says) {
				t.Errorf("error %v, want kind %q and %q", err, fault.Exceeded, c.says)
			}
		})
	}
}

func TestInternalErrorsOfATree(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	tree := rendertest.NewTree(map[string]string{"a.yaml": configMap})
	tree.Break(errors.New("disk on fire"))
	req := request(hub.Source{Path: "."}, nil)
	req.Trees[0] = tree
	_, err := p.Render(t.Context(), req)
	if fault.KindOf(err) != fault.Internal || !strings.Contains(err.Error(), "disk on fire") {
		t.Errorf("error %v, want an internal one", err)
	}
	wellAgain(t, p)
}

func TestWorkersBelongToOneTenant(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *render.Config) { c.Workers, c.Processes = 1, 2 })
	for i, tenant := range []hub.TenantID{"t1", "t2", "t1", "t3", "t2"} {
		req := request(hub.Source{Path: "."}, map[string]string{"a.yaml": configMap})
		req.Tenant = tenant
		if _, err := p.Render(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if n := p.Workers(); n > 2 {
			t.Errorf("after render %d there are %d workers, want 2 at most", i+1, n)
		}
	}
}

func TestIdleWorkersEnd(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *render.Config) { c.Idle = 20 * time.Millisecond })
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	wellAgain(t, p)
	for p.Workers() > 0 {
		time.Sleep(time.Millisecond) // until it is gone; the test's own deadline ends a failure
	}
	wellAgain(t, p)
	cancel()
	wg.Wait()
	if n := p.Workers(); n != 0 {
		t.Errorf("after Run %d workers are left", n)
	}
	if _, err := p.Render(t.Context(), request(hub.Source{Path: "."}, map[string]string{"a.yaml": configMap})); fault.KindOf(err) != fault.Offline {
		t.Errorf("a closed pool gives %v, want kind %q", err, fault.Offline)
	}
}

func TestARenderEndsWithItsContext(t *testing.T) {
	defer runtest.NoLeaks(t)()
	p := newPool(t, func(c *render.Config) { c.Workers = 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := p.Render(ctx, probeRequest("spin", "")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want that of the context", err)
	}
	wellAgain(t, p)

	t.Run("so does one that waits", func(t *testing.T) {
		var wg sync.WaitGroup
		long, stop := context.WithCancel(t.Context())
		wg.Go(func() { _, _ = p.Render(long, probeRequest("spin", "")) })
		for busy := p; busy.Workers() == 0; {
			time.Sleep(time.Millisecond) // until the slow one has the worker
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		other := request(hub.Source{Path: "."}, map[string]string{"a.yaml": configMap})
		other.Tenant = "t2"
		if _, err := p.Render(ctx, other); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want that of the context", err)
		}
		stop()
		wg.Wait()
	})
	t.Run("and with its pool", func(t *testing.T) {
		var wg sync.WaitGroup
		var err error
		wg.Go(func() { _, err = p.Render(t.Context(), probeRequest("spin", "")) })
		time.Sleep(50 * time.Millisecond)
		p.Close()
		wg.Wait()
		if fault.KindOf(err) != fault.Offline {
			t.Errorf("error %v, want kind %q", err, fault.Offline)
		}
	})
}

func TestStatusWithoutASandbox(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *render.Config) { c.Sandbox = render.SandboxNone })
	status, err := p.Status(t.Context())
	if err != nil || !strings.HasPrefix(status, "none: ") {
		t.Errorf("status %q, %v", status, err)
	}
	// What the tests of the sandbox find refused is possible without it.
	if _, err := p.Render(t.Context(), probeRequest("read", "/proc/self/maps")); err != nil {
		t.Errorf("the probe itself is broken: %v", err)
	}
	if raceDetector {
		return
	}
	caged, err := newPool(t, nil).Status(t.Context())
	if err != nil || !strings.Contains(caged, "Landlock") || !strings.Contains(caged, "seccomp") {
		t.Errorf("status %q, %v", caged, err)
	}
}

func TestAWorkerIsStartedByAHubOnly(t *testing.T) {
	t.Parallel()
	if code := Main([]string{"--unknown"}); code == 0 {
		t.Error("unknown arguments are taken")
	}
}

func BenchmarkRender(b *testing.B) {
	files := map[string]string{}
	for i := range 5 {
		files[fmt.Sprintf("app/%d.yaml", i)] = strings.Replace(configMap, "name: a", fmt.Sprintf("name: a%d", i), 1)
	}
	var deployment bytes.Buffer
	deployment.WriteString("apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{ include \"c.name\" . }}\n  labels: {{- include \"c.labels\" . | nindent 4 }}\nspec:\n  replicas: {{ .Values.replicas }}\n  template:\n    spec:\n      containers:\n      - name: web\n        image: \"{{ .Values.image }}:{{ .Values.tag | default .Chart.AppVersion }}\"\n        resources: {{- toYaml .Values.resources | nindent 10 }}\n")
	chart := map[string]string{
		"c/Chart.yaml": chartYAML, "c/values.yaml": "replicas: 2\nimage: x\ntag: v1\nresources: {limits: {cpu: 1}}\n",
		"c/templates/_h.tpl":      "{{ define \"c.name\" }}{{ .Release.Name }}{{ end }}{{ define \"c.labels\" }}\na: {{ .Chart.Name }}\nb: {{ .Release.Name }}\n{{ end }}",
		"c/templates/deploy.yaml": deployment.String(), "c/templates/cm.yaml": configMap,
		"c/templates/svc.yaml": "apiVersion: v1\nkind: Service\nmetadata:\n  name: {{ include \"c.name\" . }}\n  labels: {{- include \"c.labels\" . | nindent 4 }}\nspec: {ports: [{port: 80}]}\n",
	}
	overlay := map[string]string{
		"base/kustomization.yaml": "resources: [a.yaml, b.yaml]\n", "base/a.yaml": configMap, "base/b.yaml": strings.Replace(configMap, "name: a", "name: b", 1),
		"o/kustomization.yaml": "resources: [../base]\nnamePrefix: p-\nlabels: [{pairs: {a: b}}]\n",
	}
	for name, c := range map[string]struct {
		path  string
		files map[string]string
	}{"plain-5-files": {"app", files}, "small-chart": {"c", chart}, "small-overlay": {"o", overlay}} {
		b.Run(name, func(b *testing.B) {
			p := newPool(b, nil)
			req := request(hub.Source{Path: c.path}, c.files)
			if _, err := p.Render(b.Context(), req); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := p.Render(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
