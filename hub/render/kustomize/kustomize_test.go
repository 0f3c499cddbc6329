package kustomize

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 1
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: web
        image: my-app:v1
      - name: side
        image: registry.example/side@sha256:0000000000000000000000000000000000000000000000000000000000000000
`

// shop is a base and an overlay.
func shop() map[string]string {
	return map[string]string{
		"base/kustomization.yaml":             "resources: [deployment.yaml]\nconfigMapGenerator:\n- name: conf\n  files: [conf.txt]\n  options: {disableNameSuffixHash: true}\n",
		"base/deployment.yaml":                deployment,
		"base/conf.txt":                       "one\n",
		"overlays/prod/kustomization.yaml":    "resources: [../../base]\npatches:\n- path: replicas.yaml\n",
		"overlays/prod/replicas.yaml":         "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: 3\n",
		"components/extra/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources: [extra.yaml]\n",
		"components/extra/extra.yaml":         "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: extra\n",
	}
}

func with(more map[string]string) map[string]string {
	out := shop()
	maps.Copy(out, more)
	return out
}

func build(t *testing.T, path string, k *hub.KustomizeSource, files map[string]string) (string, *render.Recorder, error) {
	t.Helper()
	return buildWith(t, nil, path, k, files)
}

func buildWith(t *testing.T, settings map[string]string, path string, k *hub.KustomizeSource, files map[string]string) (string, *render.Recorder, error) {
	t.Helper()
	req := rendertest.Request(hub.Source{Path: path, Kustomize: k}, files)
	req.Settings = settings
	job, rec := rendertest.Job(req, 0)
	out, err := Render(t.Context(), job)
	if err != nil {
		return "", rec, err
	}
	return rendertest.Text(t, out, "shop"), rec, nil
}

const (
	golden = `{"apiVersion":"v1","data":{"conf.txt":"one\n"},"kind":"ConfigMap","metadata":{"name":"conf"}}
{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":3,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"image":"my-app:v1","name":"web"},{"image":"registry.example/side@sha256:0000000000000000000000000000000000000000000000000000000000000000","name":"side"}]}}}}
`
	goldenEdited = `{"apiVersion":"v1","data":{"conf.txt":"one\n"},"kind":"ConfigMap","metadata":{"annotations":{"team":"platform"},"labels":{"by":"capstan"},"name":"prod-conf-v2","namespace":"production"}}
{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"annotations":{"team":"platform"},"labels":{"by":"capstan"},"name":"prod-web-v2","namespace":"production"},"spec":{"replicas":7,"selector":{"matchLabels":{"app":"web","by":"capstan"}},"template":{"metadata":{"annotations":{"team":"platform"},"labels":{"app":"web","by":"capstan"}},"spec":{"containers":[{"image":"registry.example.com/my-app:v1.2.3","name":"web"},{"image":"registry.example/side:v9","name":"side"}]}}}}
`
)

func TestGolden(t *testing.T) {
	t.Parallel()
	t.Run("a base and an overlay", func(t *testing.T) {
		t.Parallel()
		got, _, err := build(t, "overlays/prod", nil, shop())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(golden, got); d != "" {
			t.Errorf("objects (-want +got):\n%s", d)
		}
	})
	t.Run("KUST-01 KUST-02 all edits", func(t *testing.T) {
		t.Parallel()
		got, _, err := build(t, "overlays/prod", &hub.KustomizeSource{
			NamePrefix: "prod-", NameSuffix: "-v2", Namespace: "production",
			Images:            []string{"my-app=registry.example.com/my-app:v1.2.3", "registry.example/side:v9"},
			Replicas:          []hub.KustomizeReplica{{Name: "web", Count: []byte("7")}},
			CommonLabels:      map[string]string{"by": "capstan"},
			CommonAnnotations: map[string]string{"team": "platform"},
		}, shop())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(goldenEdited, got); d != "" {
			t.Errorf("objects (-want +got):\n%s", d)
		}
	})
}

func TestEdits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		k    hub.KustomizeSource
		more map[string]string
		has  []string
		not  []string
	}{
		"KUST-04 a digest": {
			k: hub.KustomizeSource{Images: []string{"my-app@sha256:aa"}}, has: []string{`"my-app@sha256:aa"`},
		},
		"KUST-04 a registry with a port": {
			k: hub.KustomizeSource{Images: []string{"my-app=localhost:5000/x"}}, has: []string{`"localhost:5000/x:v1"`},
		},
		"KUST-04 a later entry of the same name wins": {
			k: hub.KustomizeSource{Images: []string{"my-app:v2", "my-app=other:v3"}}, has: []string{`"other:v3"`}, not: []string{"v2"},
		},
		"KUST-04 it replaces the kustomization's own": {
			k:    hub.KustomizeSource{Images: []string{"my-app:v2"}},
			more: map[string]string{"overlays/prod/kustomization.yaml": "resources: [../../base]\nimages:\n- {name: my-app, newName: old, newTag: v0}\n"},
			has:  []string{`"my-app:v2"`}, not: []string{"old"},
		},
		"KUST-04 a star keeps the new name": {
			k:    hub.KustomizeSource{Images: []string{"my-app=*:v2"}},
			more: map[string]string{"overlays/prod/kustomization.yaml": "resources: [../../base]\nimages:\n- {name: my-app, newName: old, newTag: v0}\n"},
			has:  []string{`"old:v2"`},
		},
		"KUST-01 a count that is text": {
			k: hub.KustomizeSource{Replicas: []hub.KustomizeReplica{{Name: "web", Count: []byte(`"0"`)}}}, has: []string{`"replicas":0`},
		},
		"KUST-03 labels without selectors": {
			k:   hub.KustomizeSource{CommonLabels: map[string]string{"by": "x"}, LabelWithoutSelector: true},
			has: []string{`"metadata":{"labels":{"by":"x"},"name":"web"}`, `"matchLabels":{"app":"web"}`, `"template":{"metadata":{"labels":{"app":"web"}}`},
		},
		"KUST-03 labels in templates": {
			k:   hub.KustomizeSource{CommonLabels: map[string]string{"by": "x"}, LabelWithoutSelector: true, LabelIncludeTemplates: true},
			has: []string{`"matchLabels":{"app":"web"}`, `"template":{"metadata":{"labels":{"app":"web","by":"x"}}`},
		},
		"KUST-03 forced labels": {
			k:    hub.KustomizeSource{CommonLabels: map[string]string{"by": "new"}, ForceCommonLabels: true},
			more: map[string]string{"overlays/prod/kustomization.yaml": "resources: [../../base]\ncommonLabels: {by: old, stay: y2}\n"},
			has:  []string{`"by":"new","stay":"y2"`}, not: []string{`"old"`},
		},
		"KUST-03 the environment in annotations, if asked": {
			k:   hub.KustomizeSource{CommonAnnotations: map[string]string{"app": "$ARGOCD_APP_NAME"}, CommonAnnotationsEnvsubst: true},
			has: []string{`"app":"web"`},
		},
		"KUST-03 and not otherwise": {
			k:   hub.KustomizeSource{CommonAnnotations: map[string]string{"app": "$ARGOCD_APP_NAME"}},
			has: []string{`"app":"$ARGOCD_APP_NAME"`},
		},
		"KUST-05 patches in place and by path": {
			k: hub.KustomizeSource{Patches: []hub.KustomizePatch{
				{Patch: "- op: replace\n  path: /spec/replicas\n  value: 9\n", Target: &hub.KustomizeSelector{Kind: "Deployment", LabelSelector: ""}},
				{Path: "more.yaml"},
			}},
			more: map[string]string{"overlays/prod/more.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: conf\ndata:\n  k: v\n"},
			has:  []string{`"replicas":9`, `"k":"v"`},
		},
		"KUST-05 a patch that renames": {
			k: hub.KustomizeSource{Patches: []hub.KustomizePatch{{
				Patch: "- {op: replace, path: /metadata/name, value: new}\n", Target: &hub.KustomizeSelector{Kind: "Deployment", Name: "web"}, Options: map[string]bool{"allowNameChange": true},
			}}},
			has: []string{`"name":"new"`},
		},
		"KUST-06 a component": {
			k: hub.KustomizeSource{Components: []string{"../../components/extra"}}, has: []string{`"name":"extra"`},
		},
		"KUST-06 components that are missing": {
			k: hub.KustomizeSource{Components: []string{"../none", "../../components/extra"}, IgnoreMissingComponents: true}, has: []string{`"name":"extra"`},
		},
		"KUST-07 a version that is here": {k: hub.KustomizeSource{Version: "v5.8.0"}, has: []string{`"web"`}},
		"another name of the file": {
			k:    hub.KustomizeSource{NamePrefix: "p-"},
			more: map[string]string{"base/kustomization.yaml": "", "base/Kustomization": "resources: [deployment.yaml]\n"},
			has:  []string{`"p-web"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := with(c.more)
			maps.DeleteFunc(files, func(_, v string) bool { return v == "" })
			got, _, err := build(t, "overlays/prod", &c.k, files)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range c.has {
				if !strings.Contains(got, s) {
					t.Errorf("%s is missing in\n%s", s, got)
				}
			}
			for _, s := range c.not {
				if strings.Contains(got, s) {
					t.Errorf("%s should not be in\n%s", s, got)
				}
			}
		})
	}
}

func TestBuildOptions(t *testing.T) {
	t.Parallel()
	outside := with(map[string]string{"overlays/prod/kustomization.yaml": "resources: [../../base/deployment.yaml]\n"})
	const anywhere, all, one = "--load-restrictor LoadRestrictionsNone", "kustomize.buildOptions", "kustomize.buildOptions.v5.8.0"
	versioned := &hub.KustomizeSource{Version: "v5.8.0"}
	for name, c := range map[string]struct {
		settings map[string]string
		k        *hub.KustomizeSource
		files    map[string]string
		says     []string // of the error; none: there is none
		has      string
	}{
		"KUST-08 files outside of the directory are refused":       {nil, nil, outside, []string{"security"}, ""},
		"KUST-08 and read where the options say so":                {map[string]string{all: anywhere}, nil, outside, nil, `"web"`},
		"KUST-08 and a base is still a directory":                  {map[string]string{all: anywhere}, nil, with(nil), nil, `"replicas":3`},
		"KUST-08 options of a version count for it":                {map[string]string{one: anywhere}, versioned, outside, nil, `"web"`},
		"KUST-08 those of all builds do not, as in Argo CD":        {map[string]string{all: anywhere}, versioned, outside, []string{"security"}, ""},
		"KUST-08 those of a version count for no other":            {map[string]string{one: anywhere}, nil, outside, []string{"security"}, ""},
		"SEC-A2 KUST-08 nothing outside of the repository is read": {map[string]string{all: anywhere}, nil, with(map[string]string{"overlays/prod/kustomization.yaml": "resources: [../../../etc/passwd]\n"}), []string{"overlays/prod"}, ""},
		"KUST-08 a label":  {map[string]string{all: "--enable-managedby-label"}, nil, with(nil), nil, `"app.kubernetes.io/managed-by":"kustomize-`},
		"KUST-08 an order": {map[string]string{all: "--reorder legacy"}, nil, with(nil), nil, `"web"`},
		"SEC-A7 KUST-08 options that start programs": {map[string]string{all: "--enable-alpha-plugins --enable-exec"}, nil, with(nil), []string{"argocd-cm, key kustomize.buildOptions", "--enable-alpha-plugins", "sandbox"}, ""},
		"KUST-08 an option that is not known":        {map[string]string{one: "--sort"}, versioned, with(nil), []string{"key kustomize.buildOptions.v5.8.0", `"--sort"`}, ""},
		"SEC-A7 charts where they are not switched on": {
			nil, nil, with(map[string]string{"overlays/prod/kustomization.yaml": "helmCharts: [{name: redis, repo: 'https://charts.example.com'}]\n"}), []string{"overlays/prod/kustomization.yaml", "helmCharts need the build option --enable-helm", "kustomize.buildOptions"}, "",
		},
		"SEC-A7 charts as a generator": {
			map[string]string{all: "--enable-helm"}, nil, with(map[string]string{
				"overlays/prod/kustomization.yaml": "generators: [gen.yaml]\n", "overlays/prod/gen.yaml": "apiVersion: builtin\nkind: HelmChartInflationGenerator\nmetadata: {name: x}\nname: redis\nrepo: https://charts.example.com\n",
			}), []string{"overlays/prod"}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _, err := buildWith(t, c.settings, "overlays/prod", c.k, c.files)
			if len(c.says) == 0 {
				if err != nil || !strings.Contains(got, c.has) {
					t.Errorf("%v; %s is missing in\n%s", err, c.has, got)
				}
				return
			}
			if fault.KindOf(err) != fault.Invalid {
				t.Fatalf("error %v; want Invalid", err)
			}
			for _, s := range c.says {
				if !strings.Contains(fault.Sentence(err), s) {
					t.Errorf("%q does not say %q", fault.Sentence(err), s)
				}
			}
		})
	}
}

// The order shows in what each step would make of the others' results.
func TestOrderOfEdits(t *testing.T) {
	t.Parallel()
	got, _, err := build(t, "overlays/prod", &hub.KustomizeSource{
		NamePrefix: "p-", Namespace: "production", Images: []string{"my-app:v2"}, CommonLabels: map[string]string{"by": "capstan"},
		Patches:    []hub.KustomizePatch{{Patch: "- op: replace\n  path: /spec/replicas\n  value: 9\n", Target: &hub.KustomizeSelector{Kind: "Deployment", Name: "web"}}},
		Components: []string{"../../components/late"},
	}, with(map[string]string{
		// It finds the Deployment under the name it has before the prefix, and
		// sees the replicas of the base: components come first when it is built.
		"components/late/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources: [late.yaml]\npatches:\n- target: {kind: Deployment, name: web}\n  patch: |\n    - {op: test, path: /spec/replicas, value: 1}\n    - {op: add, path: /metadata/annotations, value: {seen: one}}\n",
		"components/late/late.yaml":          "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: late}\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{`"replicas":9`, `"seen":"one"`, `"name":"p-web"`, `"name":"p-late"`, `"namespace":"production"`, `my-app:v2`, `"by":"capstan"`} {
		if !strings.Contains(got, s) {
			t.Errorf("KUST-02: %s is missing in\n%s", s, got)
		}
	}
	t.Run("KUST-02 patches are appended and components added after those of the kustomization", func(t *testing.T) {
		t.Parallel()
		job, _ := rendertest.Job(rendertest.Request(hub.Source{Path: "overlays/prod"}, shop()), 0)
		text := "components: [a]\npatches: [{path: first.yaml}]\nresources: [x]\n"
		out, err := edit(t.Context(), job, hub.KustomizeSource{
			Patches: []hub.KustomizePatch{{Path: "second.yaml"}, {Path: "third.yaml"}}, Components: []string{"../../components/extra"},
		}, "overlays/prod/kustomization.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		want := "components:\n- a\n- ../../components/extra\npatches:\n- path: first.yaml\n- path: second.yaml\n- path: third.yaml\nresources:\n- x\n"
		if d := cmp.Diff(want, string(out)); d != "" {
			t.Errorf("kustomization (-want +got):\n%s", d)
		}
	})
}

func TestBadKustomizations(t *testing.T) {
	t.Parallel()
	file := func(text string) map[string]string {
		return map[string]string{"overlays/prod/kustomization.yaml": text}
	}
	for name, c := range map[string]struct {
		path string
		k    *hub.KustomizeSource
		more map[string]string
		says []string
	}{
		"SEC-A6 a base without a repository to open it": {more: file("resources: ['https://github.com/org/repo//base?ref=v1']\n"), says: []string{"overlays/prod/kustomization.yaml", "cannot be fetched here", "https://github.com/org/repo//base"}},
		"KUST-10 a password is not repeated": {
			more: file("resources: ['https://me:hunter2@example.com/x.git']\n"), says: []string{"contains a password", "example.com/x.git"},
		},
		"SEC-A6 a remote component":   {more: file("components: ['ssh://git@example.com/x']\n"), says: []string{"names no repository"}},
		"SEC-A6 a remote patch":       {more: file("resources: [../../base]\npatches: [{path: 'http://169.254.169.254/x'}]\n"), says: []string{"remote files are not served yet"}},
		"SEC-A6 a remote generator":   {more: file("configMapGenerator: [{name: a, files: ['k=http://127.0.0.1/x']}]\n"), says: []string{"remote files are not served yet"}},
		"SEC-A6 a remote transformer": {more: file("transformers: ['http://127.0.0.1/x']\n"), says: []string{"remote files are not served yet"}},
		"SEC-A6 a remote schema":      {more: file("openapi: {path: 'http://127.0.0.1/x'}\n"), says: []string{"remote files are not served yet"}},
		"SEC-A6 in a base":            {more: map[string]string{"base/kustomization.yaml": "resources: ['https://example.com/x']\n"}, says: []string{"base/kustomization.yaml", "names no repository"}},
		"SEC-A6 in the settings":      {k: &hub.KustomizeSource{Components: []string{"https://example.com/x"}}, says: []string{"components of its own repository"}},
		"SEC-A7 charts":               {more: file("helmCharts: [{name: redis, repo: 'https://charts.example.com'}]\n"), says: []string{"overlays/prod/kustomization.yaml", "helmCharts need the build option --enable-helm"}},
		"SEC-A7 a plugin":             {more: map[string]string{"overlays/prod/kustomization.yaml": "generators: [gen.yaml]\n", "overlays/prod/gen.yaml": "apiVersion: example.com/v1\nkind: Evil\nmetadata: {name: x}\n"}, says: []string{"overlays/prod/kustomization.yaml"}},
		"SEC-A7 a function that is started": {
			more: map[string]string{"overlays/prod/kustomization.yaml": "generators: [gen.yaml]\n", "overlays/prod/gen.yaml": "apiVersion: v1\nkind: Evil\nmetadata:\n  name: x\n  annotations:\n    config.kubernetes.io/function: |\n      exec: {path: /bin/true}\n"},
			says: []string{"overlays/prod/kustomization.yaml"},
		},
		"SEC-A2 a file outside the repository": {more: file("resources: [../../../../etc/passwd]\n"), says: []string{"overlays/prod/kustomization.yaml"}},
		"SEC-A2 an absolute file":              {more: file("resources: [/etc/passwd]\n"), says: []string{"overlays/prod/kustomization.yaml"}},
		"SEC-A2 a file outside the kustomization": {
			more: file("resources: [../../base/deployment.yaml]\n"), says: []string{"security"},
		},
		"SEC-A1 a link outside the kustomization": {
			more: map[string]string{"overlays/prod/kustomization.yaml": "resources: [link.yaml]\n", "link overlays/prod/link.yaml": "../../base/deployment.yaml"}, says: []string{"security"},
		},
		"SEC-A1 a link outside the repository": {
			more: map[string]string{"overlays/prod/kustomization.yaml": "resources: [link.yaml]\n", "link overlays/prod/link.yaml": "../../../etc/passwd"}, says: []string{"leads out of the repository"},
		},
		"SEC-A1 an absolute link": {
			more: map[string]string{"overlays/prod/kustomization.yaml": "resources: [link.yaml]\n", "link overlays/prod/link.yaml": "/etc/passwd"}, says: []string{"overlays/prod/link.yaml", "leads out of the repository"},
		},
		"SEC-B11 a cycle":                    {more: map[string]string{"base/kustomization.yaml": "resources: [../overlays/prod]\n"}, says: []string{"cycle"}},
		"SEC-B11 a self import":              {more: file("resources: [.]\n"), says: []string{"cycle"}},
		"a file that is missing":             {more: file("resources: [none.yaml]\n"), says: []string{"none.yaml"}},
		"text that is no YAML":               {more: file("resources: [\n"), says: []string{"overlays/prod/kustomization.yaml"}},
		"a field that is unknown":            {more: file("resource: [x]\n"), says: []string{"resource"}},
		"no kustomization":                   {path: "components", k: &hub.KustomizeSource{}, says: []string{"no kustomization file"}},
		"KUST-04 an image that sets nothing": {k: &hub.KustomizeSource{Images: []string{"my-app"}}, says: []string{"kustomize.images", "my-app"}},
		"KUST-04 no name":                    {k: &hub.KustomizeSource{Images: []string{"=x:v1"}}, says: []string{"kustomize.images"}},
		"KUST-01 a count that is none":       {k: &hub.KustomizeSource{Replicas: []hub.KustomizeReplica{{Name: "web", Count: []byte(`"many"`)}}}, says: []string{"kustomize.replicas", "web"}},
		"KUST-03 a label twice": {
			k: &hub.KustomizeSource{CommonLabels: map[string]string{"by": "x"}}, more: file("resources: [../../base]\ncommonLabels: {by: y2}\n"), says: []string{`label "by" is already set`, "forceCommonLabels"},
		},
		"KUST-03 templates without more": {k: &hub.KustomizeSource{LabelIncludeTemplates: true}, says: []string{"labelWithoutSelector"}},
		"KUST-05 an empty patch":         {k: &hub.KustomizeSource{Patches: []hub.KustomizePatch{{}}}, says: []string{"patch 1"}},
		"KUST-06 a missing component":    {k: &hub.KustomizeSource{Components: []string{"../none"}}, says: []string{"../none", "ignoreMissingComponents"}},
		"KUST-07 an unknown version":     {k: &hub.KustomizeSource{Version: "v3.8.0"}, says: []string{"v3.8.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := c.path
			if path == "" {
				path = "overlays/prod"
			}
			_, _, err := build(t, path, c.k, with(c.more))
			if kind := fault.KindOf(err); kind != fault.Invalid {
				t.Fatalf("error kind %q, want %q: %v", kind, fault.Invalid, err)
			}
			for _, s := range c.says {
				if !strings.Contains(fault.Sentence(err), s) {
					t.Errorf("%q does not say %q", fault.Sentence(err), s)
				}
			}
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "root:") {
				t.Errorf("%q says too much", err)
			}
		})
	}
}

func TestOnlyWhatWasReadIsAnInput(t *testing.T) {
	t.Parallel()
	req := rendertest.Request(hub.Source{Path: "overlays/prod"}, shop())
	job, rec := rendertest.Job(req, 0)
	if _, err := Render(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	tree := req.Trees[0].(*rendertest.Tree)
	for name, want := range map[string]bool{
		"README.md": true, "components/extra/extra.yaml": true, "overlays/prod/notes.txt": true,
		"base/deployment.yaml": false, "base/conf.txt": false, "overlays/prod/replicas.yaml": false, "overlays/prod/kustomization.yml": false,
		"overlays/prod/kustomization.yaml": false, "base/Kustomization": false,
	} {
		fresh, err := render.Fresh(rec.Inputs(), []hub.Tree{tree.With(map[string]string{name: "x: y2\n"})}, req)
		if err != nil || fresh != want {
			t.Errorf("after a change of %s fresh is %v (%v), want %v", name, fresh, err, want)
		}
	}
}

func TestASchemaOfOneBuildIsNotThatOfTheNext(t *testing.T) {
	files := with(map[string]string{
		"overlays/prod/kustomization.yaml": "resources: [../../base]\nopenapi: {path: schema.json}\n",
		"overlays/prod/schema.json":        `{"definitions":{}}`,
	})
	if _, _, err := build(t, "overlays/prod", nil, files); err != nil {
		t.Fatal(err)
	}
	got, _, err := build(t, "overlays/prod", nil, shop())
	if err != nil || got != golden {
		t.Errorf("after a build with a schema of its own: %v\n%s", err, got)
	}
}
