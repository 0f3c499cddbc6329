package worker

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/plugin"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// declare is a plugin that runs a script.
func declare(name, more, script string) string {
	return "apiVersion: argoproj.io/v1alpha1\nkind: ConfigManagementPlugin\nmetadata:\n  name: " + name + "\nspec:\n" + more +
		"  generate:\n    command: [sh, -c]\n    args:\n    - |\n      " + strings.ReplaceAll(strings.TrimSpace(script), "\n", "\n      ") + "\n"
}

// installed makes a runner of plugins.
func installed(t *testing.T, limits plugin.Limits, definitions ...string) *plugin.Runner {
	t.Helper()
	folder := t.TempDir()
	for i, text := range definitions {
		if err := os.WriteFile(filepath.Join(folder, strconv.Itoa(i)+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := plugin.New(plugin.Config{Folder: folder, Temp: t.TempDir(), Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// plugged gives a request the plugins of a runner.
func plugged(r *plugin.Runner, req render.Request) render.Request {
	req.Plugins, req.Plugin = r.Installed(req.Tenant), r.Run
	return req
}

// made prints a ConfigMap with variables as its data.
const made = `printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: made}\ndata:\n'
env | grep -E '^(ARGOCD|PARAM|KUBE)_' | sort | sed -e 's/"/\\"/g' -e 's/\([^=]*\)=\(.*\)/  \1: "\2"/'`

func named(name string) hub.Source {
	return hub.Source{Path: "a", Plugin: []byte(`{"name":"` + name + `"}`)}
}

func TestPlugins(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	object := func(name string) string {
		return "echo '{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"" + name + "\"}}'"
	}
	r := installed(t, plugin.Limits{},
		declare("plain", "", object("plain")),
		declare("versioned", "  version: v1\n", object("versioned")),
		declare("named-file", "  discover: {fileName: 'x*.cue'}\n", object("file")),
		declare("globbing", "  discover: {find: {glob: '**/deep/*.k'}}\n", object("glob")),
		declare("asking", "  discover: {find: {command: [sh, -c, 'find . -name marker']}}\n", object("asked")),
		declare("text", "", "echo this is no manifest: ["),
		declare("nothing", "", "exit 0"),
		declare("halves", "", "echo 'kind: ConfigMap'"),
		declare("failing", "", "echo why >&2; exit 2"),
		declare("documents", "", "echo ---; cat *.yaml"),
		declare("secret", "", "printf 'apiVersion: v1\\nkind: Secret\\nmetadata: {name: s}\\nstringData: {password: hunter2}\\ndata: [1]\\n'"))
	files := map[string]string{"a/r.yaml": configMap, "a/kustomization.yaml": "resources: [r.yaml]\n"}
	for name, c := range map[string]struct {
		source hub.Source
		files  map[string]string
		kind   string
		want   []string
		says   string
	}{
		"CMP-06 by its name":                                  {named("plain"), files, render.TypePlugin, []string{"ConfigMap plain"}, ""},
		"CMP-06 by name and version":                          {named("versioned-v1"), files, render.TypePlugin, []string{"ConfigMap versioned"}, ""},
		"CMP-06 one with a version is not found without":      {named("versioned"), files, "", nil, `there is no plugin "versioned"`},
		"CMP-06 one that is not there":                        {named("none"), files, "", nil, `there is no plugin "none"`},
		"CMP-07 a file name":                                  {hub.Source{Path: "a"}, with(files, map[string]string{"a/x1.cue": ""}), render.TypePlugin, []string{"ConfigMap file"}, ""},
		"CMP-07 a file name in a directory below":             {hub.Source{Path: "a"}, with(files, map[string]string{"a/b/x1.cue": ""}), render.TypeKustomize, []string{"ConfigMap a"}, ""},
		"CMP-07 a glob":                                       {hub.Source{Path: "a"}, with(files, map[string]string{"a/b/deep/x.k": ""}), render.TypePlugin, []string{"ConfigMap glob"}, ""},
		"CMP-07 a command":                                    {hub.Source{Path: "a"}, with(files, map[string]string{"a/b/marker": ""}), render.TypePlugin, []string{"ConfigMap asked"}, ""},
		"CMP-07 the first plugin that matches":                {hub.Source{Path: "a"}, with(files, map[string]string{"a/x.cue": "", "a/deep/x.k": ""}), render.TypePlugin, []string{"ConfigMap file"}, ""},
		"CMP-07 an empty name uses discovery":                 {named(""), with(files, map[string]string{"a/x.cue": ""}), render.TypePlugin, []string{"ConfigMap file"}, ""},
		"CMP-07 an empty name that nothing discovers":         {named(""), files, "", nil, "no plugin matches the path"},
		"CMP-07 one that is named must discover it, too":      {named("named-file"), files, "", nil, "the plugin named-file does not match"},
		"CMP-07 one that is named and discovers":              {named("asking"), with(files, map[string]string{"a/marker": ""}), render.TypePlugin, []string{"ConfigMap asked"}, ""},
		"CMP-07 none matches: as without plugins":             {hub.Source{Path: "a"}, files, render.TypeKustomize, []string{"ConfigMap a"}, ""},
		"SRC-14 a block of another tool comes before":         {hub.Source{Path: "a", Directory: &hub.DirectorySource{Include: "r.yaml"}}, with(files, map[string]string{"a/x.cue": ""}), render.TypeDirectory, []string{"ConfigMap a"}, ""},
		"CMP-08 many documents":                               {named("documents"), map[string]string{"a/r.yaml": configMap + "---\n" + strings.Replace(configMap, "name: a", "name: b", 1)}, render.TypePlugin, []string{"ConfigMap a", "ConfigMap b"}, ""},
		"CMP-08 no documents":                                 {named("nothing"), files, render.TypePlugin, []string{}, ""},
		"CMP-08 what is no YAML":                              {named("text"), files, "", nil, "output of plugin text"},
		"CMP-08 what is no object":                            {named("halves"), files, "", nil, "output of plugin halves"},
		"CMP-08 a program that fails":                         {named("failing"), files, "", nil, "plugin failing: its generate command failed (exit status 2): why"},
		"SRC-16 a plugin that a file in the repository names": {hub.Source{Path: "a"}, with(files, map[string]string{"a/.argocd-source-web.yaml": "plugin: {name: plain}\n"}), render.TypePlugin, []string{"ConfigMap plain"}, ""},
		"a path that is not there":                            {hub.Source{Path: "b", Plugin: []byte(`{"name":"plain"}`)}, files, "", nil, `path "b" does not exist`},
		"SEC-A2 a path outside":                               {hub.Source{Path: "../b", Plugin: []byte(`{"name":"plain"}`)}, files, "", nil, "leaves the repository"},
		"SEC-A2 a name that is a path":                        {named("../../bin/sh"), files, "", nil, "there is no plugin"},
		"CMP-15 a message about a Secret has no value":        {named("secret"), files, "", nil, "output of plugin secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, err := p.Render(t.Context(), plugged(r, request(c.source, c.files)))
			if c.says != "" {
				if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), c.says) || strings.Contains(err.Error(), "hunter2") {
					t.Fatalf("error %v, want kind %q and %q", err, fault.Invalid, c.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, names(res)); d != "" || res.SourceType != c.kind {
				t.Errorf("type %q, objects (-want +got):\n%s", res.SourceType, d)
			}
		})
	}
}

func TestShellsOfPlugins(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	// A command ends while the shell starts the next ones.
	r := installed(t, plugin.Limits{}, declare("p", "", `for i in $(seq 40); do sh -c 'env | grep x | sort | sed s/a/b/ >/dev/null' || exit 7; done; `+made))
	t.Run("a shell starts the commands of a pipeline, whichever ends first", func(t *testing.T) {
		res, err := p.Render(t.Context(), plugged(r, request(hub.Source{Path: "a", Plugin: []byte(`{"name":"p"}`)}, map[string]string{"a/x": ""})))
		if err != nil || len(res.Objects) != 1 {
			t.Errorf("%d objects, %v", len(res.Objects), err)
		}
	})
}

func TestSecretsInObjectsOfAPlugin(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	env := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(env, []byte("TOKEN=hunter2-token\nPIN=4711815\nREGION=eu-west-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ object, marks, says string }{
		"in a ConfigMap":             {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"a":"x","b":"url://$TOKEN@h"}}`, "/data/b", ""},
		"in variables of containers": {`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"m"},"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i","env":[{"name":"T","value":"$TOKEN"}]}]}}}}`, "/spec/template/spec/containers/0/env/0/value", ""},
		"in an annotation":           {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","annotations":{"example.com/t":"$TOKEN"}}}`, "/metadata/annotations/example.com~1t", ""},
		"in base64":                  {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"binaryData":{"a":"$(printf "$TOKEN" | base64)"}}`, "/binaryData/a", ""},
		"as a number":                {`{"apiVersion":"example.com/v1","kind":"Lock","metadata":{"name":"m"},"spec":{"pin":$PIN}}`, "/spec/pin", ""},
		"beside its own mark":        {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","annotations":{"capstan.dev/secret-fields":"/data/a"}},"data":{"a":"x","b":"$TOKEN"}}`, "/data/a\n/data/b", ""},
		"in no field":                {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"a":"$REGION"}}`, "", ""},
		"in the data of a Secret":    {`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"m"},"stringData":{"a":"$TOKEN"}}`, "", ""},
		"in a name":                  {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"$TOKEN"}}`, "", "metadata.name"},
		"in a key":                   {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"$TOKEN":"x"}}`, "", "a key of its manifest.data"},
		"in an object of the hub":    {`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"m"},"spec":{"source":{"repoURL":"https://x:$TOKEN@h/r"}}}`, "", "spec.source.repoURL"},
	} {
		t.Run("CMP-15 SEC-C8 a value of the operator is marked "+name, func(t *testing.T) {
			t.Parallel()
			script := "cat <<EOF\n" + c.object + "\nEOF"
			r := installed(t, plugin.Limits{}, strings.Replace(declare("p", "", script), "  name: p\n", "  name: p\n  annotations: {capstan.dev/env-file: "+env+", capstan.dev/public-env: REGION}\n", 1))
			res, err := p.Render(t.Context(), plugged(r, request(hub.Source{Path: "a", Plugin: []byte(`{"name":"p"}`)}, map[string]string{"a/x": ""})))
			if c.says != "" {
				if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), c.says) || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("error %v, want %q", err, c.says)
				}
				return
			}
			if err != nil || len(res.Objects) != 1 {
				t.Fatal(len(res.Objects), err)
			}
			o, err := manifest.FromCanonical(res.Objects[0].JSON)
			if err != nil {
				t.Fatal(err)
			}
			if marks, _ := manifest.RawAnnotation(o, manifest.SecretFields); marks != c.marks {
				t.Errorf("marks %q, want %q", marks, c.marks)
			}
			if body, err := manifest.Canonical(manifest.Mask(o, []byte("key"))); err != nil || strings.Contains(string(body), "hunter2") {
				t.Errorf("masked: %s, %v", body, err)
			}
		})
	}
}

func TestVariablesOfAPlugin(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	r := installed(t, plugin.Limits{}, declare("p", "", made))
	req := plugged(r, request(hub.Source{Path: "a", TargetRevision: "main", RepoURL: "https://me:hunter2@git.example/app.git", Plugin: []byte(`{"name":"p",
		"env":[{"name":"FOO","value":"bar"},{"name":"APP","value":"$ARGOCD_APP_NAME-x"}],
		"parameters":[{"name":"a-string","string":"s"},{"name":"an.array","array":["x","y"]},{"name":"map","map":{"k.1":"v"}},{"name":"none"}]}`)}, map[string]string{"a/x": ""}))
	req.KubeVersion, req.APIVersions = "v1.34.2", []string{"v1", "apps/v1"}
	res, err := p.Render(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	commit := req.Trees[0].Commit()
	got := text(res)
	for _, c := range []struct{ id, want string }{
		{"CMP-09", `"ARGOCD_ENV_FOO":"bar"`}, {"CMP-09", `"ARGOCD_ENV_APP":"web-x"`},
		{"CMP-10", `"PARAM_A_STRING":"s"`}, {"CMP-10", `"PARAM_AN_ARRAY_0":"x"`}, {"CMP-10", `"PARAM_AN_ARRAY_1":"y"`}, {"CMP-10", `"PARAM_MAP_K_1":"v"`},
		{"CMP-10", `"ARGOCD_APP_PARAMETERS":"[{\"name\":\"a-string\",\"string\":\"s\"},{\"name\":\"an.array\",\"array\":[\"x\",\"y\"]},{\"name\":\"map\",\"map\":{\"k.1\":\"v\"}},{\"name\":\"none\"}]"`},
		{"SRC-17", `"ARGOCD_APP_NAME":"web"`}, {"SRC-17", `"ARGOCD_APP_NAMESPACE":"shop"`}, {"SRC-17", `"ARGOCD_APP_PROJECT_NAME":"default"`},
		{"SRC-17", `"ARGOCD_APP_REVISION":"` + commit + `"`}, {"SRC-17", `"ARGOCD_APP_REVISION_SHORT":"` + commit[:7] + `"`}, {"SRC-17", `"ARGOCD_APP_REVISION_SHORT_8":"` + commit[:8] + `"`},
		{"SRC-17", `"ARGOCD_APP_SOURCE_PATH":"a"`}, {"SRC-17", `"ARGOCD_APP_SOURCE_REPO_URL":"https://git.example/app.git"`}, {"SRC-17", `"ARGOCD_APP_SOURCE_TARGET_REVISION":"main"`},
		{"SRC-17", `"KUBE_VERSION":"v1.34.2"`}, {"SRC-17", `"KUBE_API_VERSIONS":"v1,apps/v1"`},
	} {
		t.Run(c.id+" a plugin gets "+c.want, func(t *testing.T) {
			if !strings.Contains(got, c.want) {
				t.Errorf("no %s in %s", c.want, got)
			}
		})
	}
	if strings.Contains(got, "hunter2") {
		t.Errorf("SEC-C3 the password of the repository's address: %s", got)
	}
}

// A result depends on the whole tree that the plugin got, on the plugin, and on
// the variables.
func TestInputsOfAPlugin(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	files := map[string]string{"a/x": "1", "a/y/z": "1", "b/x": "1", "c/big.mp4": "1"}
	const ignoring = "apiVersion: argoproj.io/v1alpha1\nkind: ConfigManagementPlugin\nmetadata: {name: p, annotations: {capstan.dev/revision: ignore}}\nspec: {generate: {command: [sh, -c, 'find .. -type f -exec cat {} + > /dev/null; cat r.yaml 2> /dev/null || true']}}\n"
	counting := installed(t, plugin.Limits{}, declare("p", "", "exit 0"))
	base := func() render.Request {
		req := plugged(installed(t, plugin.Limits{}, ignoring), request(named("p"), files))
		req.Settings = map[string]string{}
		return req
	}
	tree := func(name, text string) func(*render.Request) {
		return func(r *render.Request) {
			r.Trees[0] = r.Trees[0].(*rendertest.Tree).With(map[string]string{name: text})
		}
	}
	narrow := func(r *render.Request) {
		r.Settings, r.GeneratePaths = map[string]string{hub.PluginPathsKey: "true"}, ".;/a/y"
	}
	for name, c := range map[string]struct {
		first  func(*render.Request)
		change func(*render.Request)
		fresh  bool
	}{
		"CMP-05 nothing is changed":                               {nil, func(*render.Request) {}, true},
		"CMP-05 a file of the path":                               {nil, tree("a/x", "2"), false},
		"CMP-05 a file elsewhere in the repository":               {nil, tree("b/x", "2"), false},
		"CMP-14 a file elsewhere, of a plugin that gets the path": {narrow, tree("b/x", "2"), true},
		"CMP-14 a file of the path that it gets":                  {narrow, tree("a/y/z", "2"), false},
		"CMP-14 other paths":                                      {narrow, func(r *render.Request) { r.GeneratePaths = "/b" }, false},
		"CMP-14 the setting":                                      {narrow, func(r *render.Request) { r.Settings = nil }, false},
		"CMP-14 other exclusions":                                 {nil, func(r *render.Request) { r.Settings = map[string]string{hub.PluginExclusionsKey: "**/*.mp4"} }, false},
		"CMP-04 another definition of the plugin":                 {nil, func(r *render.Request) { r.Plugins = counting.Installed("t1") }, false},
		"CMP-04 the plugin is gone":                               {nil, func(r *render.Request) { r.Plugins = nil }, false},
		"SRC-17 the version of the cluster":                       {nil, func(r *render.Request) { r.KubeVersion = "v1.35.0" }, false},
		"CMP-05 a commit alone, where the operator ignores these": {nil, tree("a/x", "1"), true},
		"CMP-05 a commit alone, otherwise":                        {func(r *render.Request) { r.Plugins, r.Plugin = counting.Installed("t1"), counting.Run; narrow(r) }, tree("b/x", "2"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := base()
			if c.first != nil {
				c.first(&req)
			}
			res, err := p.Render(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			changed := req
			changed.Trees = slices.Clone(req.Trees)
			c.change(&changed)
			fresh, err := render.Fresh(res.Inputs, changed.Trees, changed)
			if err != nil || fresh != c.fresh {
				t.Errorf("fresh: %t, %v; want %t", fresh, err, c.fresh)
			}
		})
	}
	t.Run("CMP-07 a plugin that is added and would discover the source", func(t *testing.T) {
		t.Parallel()
		req := plugged(installed(t, plugin.Limits{}), request(hub.Source{Path: "a"}, map[string]string{"a/r.yaml": configMap}))
		res, err := p.Render(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		later := plugged(installed(t, plugin.Limits{}, declare("q", "  discover: {fileName: r.yaml}\n", "exit 0")), req)
		if fresh, err := render.Fresh(res.Inputs, req.Trees, later); err != nil || fresh {
			t.Errorf("fresh: %t, %v", fresh, err)
		}
	})
}

// A plugin may take longer than a render, and has no share in its memory.
func TestPluginsAndRenders(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *render.Config) {
		c.Workers, c.Processes = 1, 2
		c.Limits.Timeout = 2 * time.Second
	})
	r := installed(t, plugin.Limits{Timeout: 20 * time.Second, Grace: time.Millisecond}, declare("slow", "", "sleep 3; echo '"+strings.ReplaceAll(strings.TrimSpace(configMap), "\n", "'; echo '")+"'"), declare("endless", "", "sleep 600"))
	t.Run("CMP-13 a plugin has a time limit of its own", func(t *testing.T) {
		res, err := p.Render(t.Context(), plugged(r, request(named("slow"), map[string]string{"a/x": ""})))
		if err != nil || len(res.Objects) != 1 {
			t.Errorf("%d objects, %v", len(res.Objects), err)
		}
	})
	t.Run("SEC-A11 CMP-13 the plugin of one tenant stops no render of another", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		running := make(chan struct{})
		ended := make(chan error, 1)
		req := plugged(r, request(named("endless"), map[string]string{"a/x": ""}))
		run := req.Plugin
		req.Plugin = func(ctx context.Context, call render.PluginCall) (render.PluginReply, error) {
			close(running)
			return run(ctx, call)
		}
		go func() { _, err := p.Render(ctx, req); ended <- err }()
		<-running
		other := request(hub.Source{Path: "."}, map[string]string{"a.yaml": configMap})
		other.Tenant = "other"
		if res, err := p.Render(t.Context(), other); err != nil || len(res.Objects) != 1 {
			t.Errorf("%d objects, %v", len(res.Objects), err)
		}
		select {
		case err := <-ended:
			t.Errorf("the plugin had ended before: %v", err)
		default:
		}
		cancel()
		<-ended
	})
}
