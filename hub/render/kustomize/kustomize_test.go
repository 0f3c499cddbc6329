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
	job, rec := rendertest.Job(rendertest.Request(hub.Source{Path: path, Kustomize: k}, files), 0)
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
		"KUST-07 a version that is here": {k: hub.KustomizeSource{Version: "v5.4.1"}, has: []string{`"web"`}},
		"KUST-09 facts are taken":        {k: hub.KustomizeSource{KubeVersion: "1.30", APIVersions: []string{"a/v1"}}, has: []string{`"web"`}},
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
		"KUST-10(refused) a remote base":       {more: file("resources: ['https://github.com/org/repo//base?ref=v1']\n"), says: []string{"remote bases are not served yet", "https://github.com/org/repo//base?ref=v1"}},
		"KUST-10(refused) git's short form":    {more: file("resources: ['git@example.com:org/repo']\n"), says: []string{"remote bases are not served yet"}},
		"KUST-10(refused) GitHub without more": {more: file("resources: [github.com/org/repo/base]\n"), says: []string{"remote bases are not served yet"}},
		"KUST-10(refused) with a ref":          {more: file("bases: ['host.example/org/repo?ref=main']\n"), says: []string{"remote bases are not served yet"}},
		"KUST-10(refused) a password is not repeated": {
			more: file("resources: ['https://me:hunter2@example.com/x.git']\n"), says: []string{"https://example.com/x.git"},
		},
		"SEC-A6 a remote component":   {more: file("components: ['ssh://git@example.com/x']\n"), says: []string{"remote bases are not served yet"}},
		"SEC-A6 a remote patch":       {more: file("resources: [../../base]\npatches: [{path: 'http://169.254.169.254/x'}]\n"), says: []string{"remote files are not served yet"}},
		"SEC-A6 a remote generator":   {more: file("configMapGenerator: [{name: a, files: ['k=http://127.0.0.1/x']}]\n"), says: []string{"remote files are not served yet"}},
		"SEC-A6 a remote transformer": {more: file("transformers: ['http://127.0.0.1/x']\n"), says: []string{"remote files are not served yet"}},
		"SEC-A6 a remote schema":      {more: file("openapi: {path: 'http://127.0.0.1/x'}\n"), says: []string{"remote files are not served yet"}},
		"SEC-A6 in a base":            {more: map[string]string{"base/kustomization.yaml": "resources: ['https://example.com/x']\n"}, says: []string{"base/kustomization.yaml", "remote bases"}},
		"SEC-A6 in the settings":      {k: &hub.KustomizeSource{Components: []string{"https://example.com/x"}}, says: []string{"remote bases are not served yet"}},
		"SEC-A7 charts":               {more: file("helmCharts: [{name: redis, repo: 'https://charts.example.com'}]\n"), says: []string{"helmCharts are not served yet", "redis", "https://charts.example.com"}},
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
