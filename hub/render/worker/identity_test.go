package worker

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/hub/render/scheduler"
)

// cached renders by the stage's rule: what is stored for the same parameters
// counts while all that it has read is what it was.
type cached struct {
	t       *testing.T
	pool    *scheduler.Pool
	stored  map[[sha256.Size]byte][]render.Result
	renders int
}

func (c *cached) get(req render.Request) render.Result {
	c.t.Helper()
	key := render.ParamsHash(req)
	for _, res := range c.stored[key] {
		if fresh, err := render.Fresh(res.Inputs, req.Trees, req); err != nil {
			c.t.Fatal(err)
		} else if fresh {
			return res
		}
	}
	res, err := c.pool.Render(c.t.Context(), req)
	if err != nil {
		c.t.Fatal(err)
	}
	c.renders++
	c.stored[key] = append(c.stored[key], res)
	return res
}

func text(res render.Result) string {
	var b bytes.Buffer
	for _, o := range res.Objects {
		b.Write(o.JSON)
	}
	return b.String()
}

// charted is an application of a chart, with values from another repository.
func charted(template string) render.Request {
	req := request(hub.Source{Path: "c", TargetRevision: "main", Helm: &hub.HelmSource{ValueFiles: []string{"$values/v.yaml"}}}, map[string]string{
		"c/Chart.yaml": chartYAML, "README": "one",
		"c/templates/x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n  v: {{ .Values.v | quote }}\n  more: " + template + "\n",
	})
	req.Sources = append(req.Sources, hub.Source{RepoURL: "https://git.example/values.git", Ref: "values"})
	req.Trees = append(req.Trees, rendertest.NewTree(map[string]string{"v.yaml": "v: one\n", "README": "one"}))
	req.KubeVersion, req.APIVersions = "v1.34.2", []string{"v1", "example.com/v1"}
	req.Settings = map[string]string{}
	return req
}

func TestWhatIdentifiesARender(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	const (
		nothing = `"-"`
		version = `'{{ .Capabilities.KubeVersion.Minor }} {{ .Capabilities.APIVersions.Has "example.com/v1" }}'`
	)
	tree := func(i int, name, text string) func(*render.Request) {
		return func(r *render.Request) {
			r.Trees[i] = r.Trees[i].(*rendertest.Tree).With(map[string]string{name: text})
		}
	}
	setting := func(key, value string) func(*render.Request) {
		return func(r *render.Request) { r.Settings = map[string]string{key: value} }
	}
	for name, c := range map[string]struct {
		template string
		change   func(*render.Request)
		another  bool // another render
		same     bool // which has the same objects
	}{
		"nothing is changed":                                {nothing, func(*render.Request) {}, false, true},
		"the revision: a file that is read":                 {nothing, tree(0, "c/values.yaml", "x: 1\n"), true, true},
		"the revision: a file that is rendered":             {nothing, tree(0, "c/templates/y.yaml", configMap), true, false},
		"the revision: a file that is not read":             {nothing, tree(0, "README", "two"), false, true},
		"a ref source's revision: a file that is read":      {nothing, tree(1, "v.yaml", "v: two\n"), true, false},
		"a ref source's revision: one that is not read":     {nothing, tree(1, "README", "two"), false, true},
		"the source: its path":                              {nothing, func(r *render.Request) { r.Sources[0].Path = "./c" }, true, true},
		"the source: its address":                           {nothing, func(r *render.Request) { r.Sources[0].RepoURL = "https://git.example/fork.git" }, true, true},
		"the source: a parameter":                           {nothing, func(r *render.Request) { r.Sources[0].Helm.Parameters = []hub.HelmParameter{{Name: "v", Value: "p"}} }, true, false},
		"a ref source: its address":                         {nothing, func(r *render.Request) { r.Sources[1].RepoURL = "https://git.example/fork.git" }, true, true},
		"the name of a revision with the same commit":       {nothing, func(r *render.Request) { r.Sources[0].TargetRevision = "v1.0.0" }, false, true},
		"the name of the application":                       {nothing, func(r *render.Request) { r.Application = "other" }, true, false},
		"the namespace":                                     {`"{{ .Release.Namespace }}"`, func(r *render.Request) { r.Namespace = "other" }, true, false},
		"the project":                                       {nothing, func(r *render.Request) { r.Project = "other" }, true, true},
		"the Kubernetes version, where it is asked for":     {version, func(r *render.Request) { r.KubeVersion = "v1.35.0" }, true, false},
		"the Kubernetes version, where it is not":           {nothing, func(r *render.Request) { r.KubeVersion = "v1.35.0" }, false, true},
		"the list of APIs: the one that is asked for":       {version, func(r *render.Request) { r.APIVersions = []string{"v1"} }, true, false},
		"the list of APIs: one that nobody asks for":        {version, func(r *render.Request) { r.APIVersions = append(slices.Clone(r.APIVersions), "else.com/v1") }, false, true},
		"the tracking method, which agents write":           {nothing, setting("application.resourceTrackingMethod", "label"), false, true},
		"the label key, which agents write":                 {nothing, setting("application.instanceLabelKey", "example.com/instance"), false, true},
		"the installation id, which agents write":           {nothing, setting("installationID", "two"), false, true},
		"settings of another renderer than that of a chart": {nothing, setting(hub.KustomizeOptionsKey, "--reorder legacy"), false, true},
	} {
		t.Run("REPO-02 "+name, func(t *testing.T) {
			t.Parallel()
			cache := &cached{t: t, pool: p, stored: map[[sha256.Size]byte][]render.Result{}}
			before := cache.get(charted(c.template))
			cache.get(charted(c.template))
			if cache.renders != 1 {
				t.Fatalf("%d renders of equal requests", cache.renders)
			}
			changed := charted(c.template)
			c.change(&changed)
			after := cache.get(changed)
			if want := map[bool]int{false: 1, true: 2}[c.another]; cache.renders != want {
				t.Errorf("%d renders, want %d", cache.renders, want)
			}
			if (text(before) == text(after)) != c.same {
				t.Errorf("before %s\nafter  %s", text(before), text(after))
			}
			// A new render has the same result as the cache.
			anew, err := p.Render(t.Context(), changed)
			if err != nil || text(anew) != text(after) {
				t.Errorf("%v; the cache gives another result than a render:\n%s\n%s", err, text(after), text(anew))
			}
			cache.get(changed)
			cache.get(charted(c.template)) // and the first one counts still
			if want := map[bool]int{false: 1, true: 2}[c.another]; cache.renders != want {
				t.Errorf("%d renders after all was asked for again, want %d", cache.renders, want)
			}
		})
	}
}

func TestBuildVariables(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	for variable, set := range map[string]func(r *render.Request) (was, is string){
		"ARGOCD_APP_NAME":         func(r *render.Request) (string, string) { r.Application = "other"; return "web", "other" },
		"ARGOCD_APP_NAMESPACE":    func(r *render.Request) (string, string) { r.Namespace = "other"; return "shop", "other" },
		"ARGOCD_APP_PROJECT_NAME": func(r *render.Request) (string, string) { r.Project = "other"; return "default", "other" },
		"ARGOCD_APP_REVISION":     commits(40), "ARGOCD_APP_REVISION_SHORT": commits(7), "ARGOCD_APP_REVISION_SHORT_8": commits(8),
		"ARGOCD_APP_SOURCE_PATH": func(r *render.Request) (string, string) {
			was := r.Sources[0].Path
			r.Sources[0].Path = "./" + was
			return was, "./" + was
		},
		"ARGOCD_APP_SOURCE_REPO_URL": func(r *render.Request) (string, string) {
			r.Sources[0].RepoURL = "https://me:hunter2@git.example/two.git"
			return "https://git.example/app.git", "https://git.example/two.git"
		},
		"ARGOCD_APP_SOURCE_TARGET_REVISION": func(r *render.Request) (string, string) {
			r.Sources[0].TargetRevision = "v2"
			return "main", "v2"
		},
		"KUBE_VERSION":      func(r *render.Request) (string, string) { r.KubeVersion = "v1.35.0"; return "v1.34.2", "v1.35.0" },
		"KUBE_API_VERSIONS": func(r *render.Request) (string, string) { r.APIVersions = []string{"v1"}; return "v1,apps/v1", "v1" },
	} {
		for _, written := range []string{"$" + variable, "${" + variable + "}"} {
			files := map[string]string{
				"c/Chart.yaml": chartYAML, "c/templates/x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\ndata:\n  v: {{ .Values.v | quote }}\n",
				"k/kustomization.yaml": "resources: [x.yaml]\n", "k/x.yaml": configMap,
				"j/x.jsonnet": `{apiVersion: "v1", kind: "ConfigMap", metadata: {name: "x"}, data: {v: std.extVar("v")}}`,
			}
			for tool, source := range map[string]hub.Source{
				"Jsonnet":   {Path: "j", Directory: &hub.DirectorySource{Jsonnet: &hub.JsonnetSource{ExtVars: []hub.JsonnetVar{{Name: "v", Value: written}}}}},
				"Helm":      {Path: "c", Helm: &hub.HelmSource{Parameters: []hub.HelmParameter{{Name: "v", Value: written, ForceString: true}}}},
				"Kustomize": {Path: "k", Kustomize: &hub.KustomizeSource{CommonAnnotations: map[string]string{"v": written}, CommonAnnotationsEnvsubst: true}},
			} {
				t.Run("SRC-17 "+tool+" is given "+written, func(t *testing.T) {
					t.Parallel()
					source.TargetRevision = "main"
					source.RepoURL = "https://git.example/app.git"
					first := request(source, files)
					first.KubeVersion, first.APIVersions = "v1.34.2", []string{"v1", "apps/v1"}
					second := first
					second.Sources = slices.Clone(first.Sources)
					second.Trees = slices.Clone(first.Trees)
					was, is := set(&second)
					for value, req := range map[string]render.Request{was: first, is: second} {
						res, err := p.Render(t.Context(), req)
						if err != nil {
							t.Fatal(err)
						}
						if want := `"v":"` + value + `"`; !strings.Contains(text(res), want) || strings.Contains(text(res), "hunter2") {
							t.Errorf("no %s in %s", want, text(res))
						}
						var asked []string
						for _, in := range res.Inputs {
							if name, ok := strings.CutPrefix(in.Path, render.FactEnv); ok && in.Kind == hub.InputFact {
								asked = append(asked, name)
							}
						}
						if d := cmp.Diff([]string{variable}, asked); d != "" {
							t.Errorf("variables that the result depends on (-want +got):\n%s", d)
						}
					}
				})
			}
		}
	}
}

// commits returns the beginnings of two commits.
func commits(length int) func(*render.Request) (was, is string) {
	return func(r *render.Request) (string, string) {
		was := r.Trees[0].Commit()
		r.Trees[0] = r.Trees[0].(*rendertest.Tree).With(map[string]string{"README": "another commit"})
		return was[:length], r.Trees[0].Commit()[:length]
	}
}
