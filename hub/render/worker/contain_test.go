package worker

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A role is one way in which a renderer comes to read a file.
type role struct {
	source hub.Source
	files  map[string]string
	link   string // the name that is a link instead
	lists  bool   // the role is a directory
}

// roles are all of them, in a repository in which everything else is well.
func roles() map[string]role {
	k := func(text, link string) role {
		return role{source: hub.Source{Path: "k"}, files: map[string]string{"k/kustomization.yaml": text, "k/r.yaml": configMap}, link: link}
	}
	h := func(link string, helm *hub.HelmSource, more map[string]string) role {
		files := map[string]string{"c/Chart.yaml": chartYAML, "c/templates/a.yaml": configMap}
		for n, text := range more {
			files[n] = text
		}
		return role{source: hub.Source{Path: "c", Helm: helm}, files: files, link: link}
	}
	dir := func(r role) role { r.lists = true; return r }
	plain := map[string]string{"p/a.yaml": configMap}
	return map[string]role{
		"the path":                   {source: hub.Source{Path: "at"}, files: plain, link: "at", lists: true},
		"a manifest":                 {source: hub.Source{Path: "p"}, files: plain, link: "p/b.yaml"},
		"a manifest in JSON":         {source: hub.Source{Path: "p"}, files: plain, link: "p/b.json"},
		"overrides":                  {source: hub.Source{Path: "p"}, files: plain, link: "p/.argocd-source.yaml"},
		"overrides of one":           {source: hub.Source{Path: "p"}, files: plain, link: "p/.argocd-source-web.yaml"},
		"the chart's head":           h("c/Chart.yaml", &hub.HelmSource{}, nil),
		"the chart's values":         h("c/values.yaml", nil, nil),
		"the chart's schema":         h("c/values.schema.json", nil, nil),
		"the chart's ignores":        h("c/.helmignore", nil, nil),
		"a template":                 h("c/templates/b.yaml", nil, nil),
		"a partial":                  h("c/templates/_b.tpl", nil, nil),
		"a definition":               h("c/crds/b.yaml", nil, nil),
		"a packed chart":             h("c/charts/b-1.0.0.tgz", nil, nil),
		"templates":                  dir(h("c/templates/sub", nil, nil)),
		"charts":                     dir(h("c/charts", nil, nil)),
		"a file of the chart":        h("c/f", nil, map[string]string{"c/templates/f.yaml": "# {{ .Files.Get \"f\" }}\n"}),
		"files of the chart":         h("c/f/x", nil, map[string]string{"c/templates/f.yaml": "# {{ (.Files.Glob \"f/*\").AsConfig }}\n"}),
		"all files of the chart":     h("c/f", nil, map[string]string{"c/templates/f.yaml": "# {{ range $n, $_ := .Files }}{{ $n }}{{ end }}\n"}),
		"a value file":               h("v.yaml", &hub.HelmSource{ValueFiles: []string{"../v.yaml"}}, nil),
		"a value file, if it exists": h("v.yaml", &hub.HelmSource{ValueFiles: []string{"/v.yaml"}, IgnoreMissingValueFiles: true}, nil),
		"value files of a pattern":   h("vals/v.yaml", &hub.HelmSource{ValueFiles: []string{"/vals/*.yaml"}}, nil),
		"a file parameter":           h("v.txt", &hub.HelmSource{FileParameters: []hub.HelmFile{{Name: "a", Path: "/v.txt"}}}, nil),
		"a chart by path":            dir(h("dep", nil, map[string]string{"c/Chart.yaml": chartYAML + "dependencies: [{name: dep, version: 1.0.0, repository: 'file://../dep'}]\n"})),
		"the kustomization":          k("resources: [r.yaml]\n", "k/kustomization.yaml"),
		"a resource":                 k("resources: [r.yaml, b.yaml]\n", "k/b.yaml"),
		"a base":                     dir(k("resources: [r.yaml, ../base]\n", "base")),
		"a component":                dir(k("resources: [r.yaml]\ncomponents: [../comp]\n", "comp")),
		"a patch":                    k("resources: [r.yaml]\npatches: [{path: b.yaml}]\n", "k/b.yaml"),
		"a JSON patch":               k("resources: [r.yaml]\npatches: [{path: b.json, target: {kind: ConfigMap}}]\n", "k/b.json"),
		"a strategic patch":          k("resources: [r.yaml]\npatchesStrategicMerge: [b.yaml]\n", "k/b.yaml"),
		"a file of a generator":      k("configMapGenerator: [{name: g, files: [b.txt]}]\n", "k/b.txt"),
		"an env file":                k("secretGenerator: [{name: g, envs: [b.env]}]\n", "k/b.env"),
		"definitions":                k("resources: [r.yaml]\ncrds: [b.json]\n", "k/b.json"),
		"a schema":                   k("resources: [r.yaml]\nopenapi: {path: b.json}\n", "k/b.json"),
		"configurations":             k("resources: [r.yaml]\nconfigurations: [b.yaml]\n", "k/b.yaml"),
		"a transformer":              k("resources: [r.yaml]\ntransformers: [b.yaml]\n", "k/b.yaml"),
		"a replacement":              k("resources: [r.yaml]\nreplacements: [{path: b.yaml}]\n", "k/b.yaml"),
	}
}

// Nothing is read through a link out of the repository. The link is named, and
// the answer does not depend on whether its target exists.
func TestLinksLeadNowhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	canary := filepath.Join(dir, "c4n4ry")
	if err := os.WriteFile(canary, []byte("c4n4ry-inside"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := newPool(t, nil)
	up := strings.Repeat("../", 30)
	for name, r := range roles() {
		t.Run("SEC-A1 "+name, func(t *testing.T) {
			t.Parallel()
			attempt := func(links map[string]string) string {
				t.Helper()
				files := with(r.files, nil)
				delete(files, r.link)
				for n, target := range links {
					files["link "+n] = target
				}
				res, err := p.Render(t.Context(), request(r.source, files))
				all := fmt.Sprint(res) + fmt.Sprint(err)
				for _, o := range res.Objects {
					all += string(o.JSON)
				}
				if strings.Contains(all, "c4n4ry-inside") || strings.Contains(all, "root:") {
					t.Fatalf("what is behind the link shows: %s", all)
				}
				if err != nil && fault.KindOf(err) != fault.Invalid {
					t.Errorf("links %v: error %v (kind %q), want kind %q", links, err, fault.KindOf(err), fault.Invalid)
				}
				if err == nil {
					return ""
				}
				return fault.Sentence(err)
			}
			for what, links := range map[string][2]map[string]string{
				"absolute": {{r.link: canary}, {r.link: canary + "-none"}},
				"relative": {{r.link: up + strings.TrimPrefix(canary, "/")}, {r.link: up + "none/at/all"}},
				"chained":  {{r.link: path2(r.link, "hop1"), "hop1": "hop2", "hop2": canary}, {r.link: path2(r.link, "hop1"), "hop1": "hop2", "hop2": "/none"}},
				"through a directory": {
					{r.link: path2(r.link, "out/"+filepath.Base(dir)), "out": filepath.Dir(dir)},
					{r.link: path2(r.link, "out/none"), "out": "/none"},
				},
			} {
				there, none := attempt(links[0]), attempt(links[1])
				if there == "" || there != none {
					t.Errorf("%s: %q if the target exists, %q if not; want one refusal", what, there, none)
				}
				named := false // the link itself, or one on the way
				for link := range links[0] {
					named = named || strings.Contains(there, link)
				}
				if !named {
					t.Errorf("%s: %q names none of %v", what, there, links[0])
				}
				if strings.Contains(there, dir) {
					t.Errorf("%s: %q tells where the link leads", what, there)
				}
			}
			if gotText := attempt(map[string]string{r.link: path2(r.link, "loop"), "loop": r.link}); gotText == "" {
				t.Error("a circle of links is taken")
			}
			attempt(map[string]string{r.link: filepath.Base(r.link)}) // to itself
			attempt(map[string]string{r.link: "nowhere"})             // dangling: at most a sentence
		})
	}
}

// path2 is the text of a link at name to a file at the root.
func path2(name, target string) string {
	return strings.Repeat("../", strings.Count(name, "/")) + target
}

// Every field that is a path, with everything that a path should not be.
func TestPathsOfAllFields(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	base := map[string]string{
		"c/Chart.yaml": chartYAML, "c/templates/a.yaml": configMap, "p/a.yaml": configMap,
		"k/kustomization.yaml": "resources: [r.yaml]\n", "k/r.yaml": configMap,
	}
	quote := func(s string) string { return fmt.Sprintf("%q", strings.ToValidUTF8(s, "?")) }
	fields := map[string]func(path string) (hub.Source, map[string]string){
		"the path": func(s string) (hub.Source, map[string]string) { return hub.Source{Path: s}, base },
		"a value file": func(s string) (hub.Source, map[string]string) {
			return hub.Source{Path: "c", Helm: &hub.HelmSource{ValueFiles: []string{s}}}, base
		},
		"a value file of a ref": func(s string) (hub.Source, map[string]string) {
			return hub.Source{Path: "c", Ref: "r", Helm: &hub.HelmSource{ValueFiles: []string{"$r/" + s}}}, base
		},
		"a file parameter": func(s string) (hub.Source, map[string]string) {
			return hub.Source{Path: "c", Helm: &hub.HelmSource{FileParameters: []hub.HelmFile{{Name: "a", Path: s}}}}, base
		},
		"a dependency": func(s string) (hub.Source, map[string]string) {
			return hub.Source{Path: "c"}, with(base, map[string]string{"c/Chart.yaml": chartYAML + "dependencies: [{name: d, version: 1.0.0, repository: " + quote("file://"+s) + "}]\n"})
		},
		"a file that a template wants": func(s string) (hub.Source, map[string]string) {
			return hub.Source{Path: "c"}, with(base, map[string]string{"c/templates/f.yaml": "# {{ .Files.Get " + quote(s) + " }}{{ .Files.Glob " + quote(s) + " }}\n"})
		},
		"a component": func(s string) (hub.Source, map[string]string) {
			return hub.Source{Path: "k", Kustomize: &hub.KustomizeSource{Components: []string{s}}}, base
		},
		"a resource": func(s string) (hub.Source, map[string]string) {
			return hub.Source{Path: "k"}, with(base, map[string]string{"k/kustomization.yaml": "resources: [r.yaml, " + quote(s) + "]\n"})
		},
		"a patch of the spec": func(s string) (hub.Source, map[string]string) {
			return hub.Source{Path: "k", Kustomize: &hub.KustomizeSource{Patches: []hub.KustomizePatch{{Path: s}}}}, base
		},
		"a generator's file": func(s string) (hub.Source, map[string]string) {
			return hub.Source{Path: "k"}, with(base, map[string]string{"k/kustomization.yaml": "configMapGenerator: [{name: g, files: [" + quote("k="+s) + "]}]\n"})
		},
		"an include": func(s string) (hub.Source, map[string]string) {
			return hub.Source{Path: "p", Directory: &hub.DirectorySource{Recurse: true, Include: s}}, base
		},
	}
	for name, field := range fields {
		t.Run("SEC-A2 "+name, func(t *testing.T) {
			t.Parallel()
			for _, s := range rendertest.HostilePaths() {
				source, files := field(s)
				req := request(source, files)
				res, err := p.Render(t.Context(), req)
				if err != nil && fault.KindOf(err) != fault.Invalid && fault.KindOf(err) != fault.Exceeded {
					t.Errorf("%.80q: error %v (kind %q)", s, err, fault.KindOf(err))
				}
				if n := len(fault.Sentence(err)); err != nil && n > 2_000 {
					t.Errorf("%.80q: a sentence of %d bytes", s, n)
				}
				for _, read := range req.Trees[0].(*rendertest.Tree).Reads() {
					if !fs.ValidPath(read) {
						t.Errorf("%.80q: %q was read", s, read)
					}
				}
				for _, o := range res.Objects {
					if strings.Contains(string(o.JSON), "root:") {
						t.Errorf("%.80q: %s", s, o.JSON)
					}
				}
			}
		})
	}
}

func TestNothingIsFetched(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var calls atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			calls.Add(1)
			_ = c.Close()
		}
	}()
	p := newPool(t, nil)
	host := l.Addr().String()
	chart := rendertest.Chart
	kust := func(text string, more map[string]string) map[string]string {
		return with(map[string]string{"kustomization.yaml": text, "r.yaml": configMap}, more)
	}
	helm := func(files ...string) *hub.HelmSource { return &hub.HelmSource{ValueFiles: files} }
	for name, c := range map[string]struct {
		source hub.Source
		files  map[string]string
		fails  bool
	}{
		"SEC-A3 a value file over http":            {hub.Source{Helm: helm("http://" + host + "/v.yaml")}, chart(nil), true},
		"SEC-A3 a value file over https":           {hub.Source{Helm: helm("https://" + host + "/v.yaml")}, chart(nil), true},
		"SEC-A3 a value file of file:":             {hub.Source{Helm: helm("file:///etc/passwd")}, chart(nil), true},
		"SEC-A3 a value file of git::":             {hub.Source{Helm: helm("git::http://" + host + "/x")}, chart(nil), true},
		"SEC-A3 a value file of a plugin":          {hub.Source{Helm: helm("secrets+gpg-import:///x")}, chart(nil), true},
		"SEC-A3 though it may be missing":          {hub.Source{Helm: &hub.HelmSource{ValueFiles: []string{"http://" + host + "/v.yaml"}, IgnoreMissingValueFiles: true}}, chart(nil), true},
		"SEC-A6 a chart of a repository":           {hub.Source{}, chart(map[string]string{"Chart.yaml": chartYAML + "dependencies: [{name: d, version: 1.0.0, repository: 'http://" + host + "'}]\n"}), true},
		"SEC-A6 a chart of a registry":             {hub.Source{}, chart(map[string]string{"Chart.yaml": chartYAML + "dependencies: [{name: d, version: 1.0.0, repository: 'oci://" + host + "/d'}]\n"}), true},
		"SEC-A6 a schema elsewhere":                {hub.Source{}, chart(map[string]string{"values.schema.json": `{"$ref":"http://` + host + `/s"}`}), true},
		"SEC-A6 a schema in a file":                {hub.Source{}, chart(map[string]string{"values.schema.json": `{"$ref":"file:///etc/passwd"}`}), true},
		"SEC-A10 a host that is looked up":         {hub.Source{}, chart(map[string]string{"templates/b.yaml": "# {{ getHostByName \"" + host + "\" }}{{ getHostByName \"localhost\" }}\n"}), false},
		"SEC-A10 an object that is looked up":      {hub.Source{}, chart(map[string]string{"templates/b.yaml": "{{ if lookup \"v1\" \"Secret\" \"\" \"\" }}{{ fail \"found\" }}{{ end }}"}), false},
		"SEC-A10 the environment":                  {hub.Source{}, chart(map[string]string{"templates/b.yaml": "{{ env \"PATH\" }}"}), true},
		"SEC-A10 the environment in a text":        {hub.Source{}, chart(map[string]string{"templates/b.yaml": "{{ expandenv \"$PATH\" }}"}), true},
		"SEC-A6 a base":                            {hub.Source{}, kust("resources: ['http://"+host+"/x.git']\n", nil), true},
		"SEC-A6 a base of a host without scheme":   {hub.Source{}, kust("resources: ['gitlab.com/a/b//c']\n", nil), true},
		"SEC-A6 a base over git":                   {hub.Source{}, kust("resources: ['git::http://"+host+"/x']\n", nil), true},
		"SEC-A6 a base with a port":                {hub.Source{}, kust("resources: ['"+host+"/x.git']\n", nil), true},
		"SEC-A6 a file of a built-in generator":    {hub.Source{}, kust("generators: [g.yaml]\n", map[string]string{"g.yaml": "apiVersion: builtin\nkind: ConfigMapGenerator\nmetadata: {name: g}\nfiles: ['k=http://" + host + "/x']\n"}), true},
		"SEC-A6 a patch of a built-in":             {hub.Source{}, kust("resources: [r.yaml]\ntransformers: [t.yaml]\n", map[string]string{"t.yaml": "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: t}\npath: 'http://" + host + "/x'\n"}), true},
		"SEC-A7 charts of a kustomization":         {hub.Source{}, kust("helmCharts: [{name: x, repo: 'http://"+host+"'}]\n", nil), true},
		"SEC-A7 a built-in that inflates charts":   {hub.Source{}, kust("generators: [g.yaml]\n", map[string]string{"g.yaml": "apiVersion: builtin\nkind: HelmChartInflationGenerator\nmetadata: {name: g}\nname: x\nrepo: 'http://" + host + "'\n"}), true},
		"SEC-A7 the same in place":                 {hub.Source{}, kust("generators:\n- |\n  apiVersion: builtin\n  kind: HelmChartInflationGenerator\n  metadata: {name: g}\n  name: x\n  repo: 'http://"+host+"'\n", nil), true},
		"SEC-A7 a function that is started":        {hub.Source{}, kust("transformers: [f.yaml]\nresources: [r.yaml]\n", map[string]string{"f.yaml": "apiVersion: x/v1\nkind: F\nmetadata:\n  name: f\n  annotations:\n    config.kubernetes.io/function: |\n      exec: {path: /bin/true}\n"}), true},
		"SEC-A7 a function in a container":         {hub.Source{}, kust("transformers: [f.yaml]\nresources: [r.yaml]\n", map[string]string{"f.yaml": "apiVersion: x/v1\nkind: F\nmetadata:\n  name: f\n  annotations:\n    config.kubernetes.io/function: |\n      container: {image: x}\n"}), true},
		"SEC-A7 a plugin that is started":          {hub.Source{}, kust("generators: [g.yaml]\n", map[string]string{"g.yaml": "apiVersion: someteam.example.com/v1\nkind: Exec\nmetadata: {name: g}\n"}), true},
		"SEC-A7 a plugin written in Starlark":      {hub.Source{}, kust("transformers: [f.yaml]\nresources: [r.yaml]\n", map[string]string{"f.yaml": "apiVersion: x/v1\nkind: F\nmetadata:\n  name: f\n  annotations:\n    config.kubernetes.io/function: |\n      starlark: {path: x.star, name: x}\n"}), true},
		"SEC-A7 a version with an option in it":    {hub.Source{Kustomize: &hub.KustomizeSource{Version: "--enable-exec"}}, kust("resources: [r.yaml]\n", nil), true},
		"SEC-A8 names like options":                {hub.Source{Helm: &hub.HelmSource{ReleaseName: "--post-renderer=/bin/sh", Namespace: "-x", Parameters: []hub.HelmParameter{{Name: "--set", Value: "-f /etc/passwd"}}}}, chart(nil), false},
		"SEC-A8 a chart called like an option":     {hub.Source{}, chart(map[string]string{"Chart.yaml": "apiVersion: v2\nname: --debug\nversion: 1.0.0\n"}), false},
		"SEC-A8 a prefix like a command":           {hub.Source{Kustomize: &hub.KustomizeSource{NamePrefix: "$(id)-", NameSuffix: ";id"}}, kust("resources: [r.yaml]\n", nil), false},
		"SEC-A9 settings of git are just files":    {hub.Source{}, map[string]string{"a.yaml": configMap, ".gitattributes": "*.yaml filter=x\n", ".gitmodules": "[submodule \"x\"]\n\tpath = ../x\n\turl = file:///etc\n", ".gitconfig": "[core]\n\tfsmonitor = id\n"}, false},
		"SEC-A9 a link for the list of submodules": {hub.Source{}, map[string]string{"a.yaml": configMap, "link .gitmodules": "/etc/passwd"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.source.Path = "."
			res, err := p.Render(t.Context(), request(c.source, c.files))
			if kind := fault.KindOf(err); c.fails && kind != fault.Invalid || !c.fails && err != nil {
				t.Errorf("%d objects and error %v (kind %q), want an error: %v", len(res.Objects), err, kind, c.fails)
			}
			if err != nil && strings.Count(fault.Sentence(err), "\n") > 3 {
				t.Errorf("more than a sentence: %s", fault.Sentence(err))
			}
		})
	}
	t.Cleanup(func() {
		if n := calls.Load(); n != 0 {
			t.Errorf("SEC-A6 %d connections were made", n)
		}
	})
}

func TestTenantsShareNoProcess(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *render.Config) { c.Workers, c.Processes = 1, 3 })
	pid := func(tenant hub.TenantID) string {
		t.Helper()
		req := probeRequest("pid", "x")
		req.Tenant = tenant
		res, err := p.Render(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return string(res.Objects[0].JSON)
	}
	t.Run("SEC-A4 a worker that served one tenant serves no other", func(t *testing.T) {
		a, b, again := pid("a"), pid("b"), pid("a")
		if a == b || a != again {
			t.Errorf("processes: a %s, b %s, a again %s", a, b, again)
		}
	})
	t.Run("SEC-A4 tenants whose names differ by case or spaces are others", func(t *testing.T) {
		if pid("a") == pid("A") || pid("a") == pid("a ") {
			t.Error("they share a process")
		}
	})
}

func TestOpenFilesOfTheHub(t *testing.T) {
	if raceDetector {
		t.Skip("without a sandbox nothing is closed")
	}
	name := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(name, []byte("hidden"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	// A library that does not set the flag: the file would be inherited. No
	// renderer reaches its number otherwise.
	const number = 700
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD, number)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	p := newPool(t, nil)
	t.Run("SEC-A5 a renderer inherits no open file of the hub", func(t *testing.T) {
		res, err := p.Render(t.Context(), probeRequest("fd", fmt.Sprint(fd)))
		if err == nil || !strings.Contains(err.Error(), "bad file descriptor") {
			t.Errorf("file %d: %v, %v", fd, names(res), err)
		}
	})
}

// Only the pool starts programs, and only ours: there is no shell and no git. The
// first stage of a plugin is ours, too.
func TestNothingElseStartsPrograms(t *testing.T) {
	t.Parallel()
	allowed := map[string]bool{"scheduler/process.go": true, "worker/worker.go": true, "plugin/process.go": true, "plugin/cleanup.go": true}
	for _, root := range []string{"..", "../../source"} {
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			abs, err := filepath.Abs(name)
			if err != nil {
				return err
			}
			short := filepath.Base(filepath.Dir(abs)) + "/" + filepath.Base(abs)
			for _, i := range f.Imports {
				if i.Path.Value == `"os/exec"` && !allowed[short] {
					t.Errorf("SEC-A8 %s imports os/exec", short)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
