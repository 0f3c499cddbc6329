package plain

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

func cm(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\n"
}

func TestFilesThatAreRead(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"app/b.yaml":          cm("b"),
		"app/a.yml":           cm("a"),
		"app/c.json":          `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`,
		"app/d.txt":           cm("d"),
		"app/j.jsonnet":       object("j"),
		"app/k.libsonnet":     object("k"),
		"app/README.md":       "# none",
		"app/sub/e.yaml":      cm("e"),
		"app/sub/deep/f.yaml": cm("f"),
		"app/.hidden/g.yaml":  cm("g"),
		"app/.h.yaml":         cm("h"),
		"other/x.yaml":        cm("x"),
	}
	for name, c := range map[string]struct {
		dir  *hub.DirectorySource
		want []string
	}{
		"DIR-01 only the directory itself":            {nil, []string{"h", "a", "b", "c", "j"}},
		"DIR-01 recurse":                              {&hub.DirectorySource{Recurse: true}, []string{"h", "a", "b", "c", "j", "f", "e"}},
		"DIR-02 include crosses directories":          {&hub.DirectorySource{Recurse: true, Include: "*.yaml"}, []string{"h", "b", "f", "e"}},
		"DIR-02 include with braces":                  {&hub.DirectorySource{Recurse: true, Include: "{a.yml,sub/*}"}, []string{"a", "f", "e"}},
		"DIR-02 exclude":                              {&hub.DirectorySource{Recurse: true, Exclude: "{c.json,sub/deep/**}"}, []string{"h", "a", "b", "j", "e"}},
		"DIR-02 exclude is checked first":             {&hub.DirectorySource{Include: "{a.yml,b.yaml}", Exclude: "a*"}, []string{"b"}},
		"DIR-03 any extension":                        {&hub.DirectorySource{DisableExtensionFilter: true, Include: "d.txt"}, []string{"d"}},
		"DIR-02 nothing included gives nothing":       {&hub.DirectorySource{Include: "zzz"}, nil},
		"DIR-08 a hidden directory is not descended":  {&hub.DirectorySource{Recurse: true, Include: ".hidden/*"}, nil},
		"DIR-02 a character class":                    {&hub.DirectorySource{Include: "[ab].y*"}, []string{"a", "b"}},
		"DIR-02 include does not match in the middle": {&hub.DirectorySource{Recurse: true, Include: "e.yaml"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job, _ := rendertest.Job(rendertest.Request(hub.Source{Path: "app", Directory: c.dir}, files), 0)
			out, err := Render(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{}
			for _, n := range c.want {
				want = append(want, "ConfigMap "+n)
			}
			if d := cmp.Diff(want, rendertest.Names(out)); d != "" {
				t.Errorf("objects (-want +got):\n%s", d)
			}
		})
	}
}

func TestHiddenDirectories(t *testing.T) {
	t.Parallel()
	files := map[string]string{"app/a.yaml": cm("a"), "app/.hidden/g.yaml": cm("g"), "app/sub/.deep/f.yaml": cm("f")}
	for name, c := range map[string]struct {
		value string
		dir   *hub.DirectorySource
		want  []string
	}{
		"DIR-08 hidden directories are descended where the settings say so": {"true", &hub.DirectorySource{Recurse: true}, []string{"ConfigMap g", "ConfigMap a", "ConfigMap f"}},
		"DIR-08 not where nothing below is read":                            {"true", nil, []string{"ConfigMap a"}},
		"DIR-08 false":                                                      {"false", &hub.DirectorySource{Recurse: true}, []string{"ConfigMap a"}},
		"DIR-08 a value that is no switch":                                  {"perhaps", &hub.DirectorySource{Recurse: true}, []string{"ConfigMap a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := rendertest.Request(hub.Source{Path: "app", Directory: c.dir}, files)
			req.Settings = map[string]string{hub.HiddenDirectoriesKey: c.value}
			job, _ := rendertest.Job(req, 0)
			out, err := Render(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, rendertest.Names(out)); d != "" {
				t.Errorf("objects (-want +got):\n%s", d)
			}
		})
	}
}

func TestContentsOfFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
		kind  fault.Kind
		says  string
	}{
		"DIR-04 the skip marker": {
			files: map[string]string{"a.yaml": "# +argocd:skip-file-rendering\n" + cm("a") + "broken: [", "b.yaml": cm("b")},
			want:  []string{"ConfigMap b"},
		},
		"DIR-04 the marker must be a comment": {
			files: map[string]string{"a.yaml": cm("a") + "data:\n  k: \"+argocd:skip-file-rendering\"\n"},
			want:  []string{"ConfigMap a"},
		},
		"DIR-05 many documents": {
			files: map[string]string{"a.yaml": cm("a") + "---\n" + cm("b") + "---\n---\n# only a comment\n"},
			want:  []string{"ConfigMap a", "ConfigMap b"},
		},
		"a key given twice is taken as kubectl takes it": {
			files: map[string]string{"a.yaml": cm("a") + "data: {k: one}\ndata: {k: two}\n"},
			want:  []string{"ConfigMap a"},
		},
		"DIR-06 YAML that is no manifest": {
			files: map[string]string{"values.yaml": "replicas: 3\n", "a.yaml": cm("a")},
			want:  []string{"ConfigMap a"},
		},
		"DIR-06 half a manifest is an error": {
			files: map[string]string{"a.yaml": cm("a") + "---\nkind: ConfigMap\nmetadata:\n  name: b\n"},
			kind:  fault.Invalid, says: "a.yaml, document 2",
		},
		"SRC-20 no name": {
			files: map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  labels: {}\n"},
			kind:  fault.Invalid, says: "metadata.name",
		},
		"SRC-19 a list is opened": {
			files: map[string]string{"a.yaml": "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n"},
			want:  []string{"ConfigMap a", "ConfigMap b"},
		},
		"broken YAML names the file and the line": {
			files: map[string]string{"a.yaml": cm("a") + "data:\n  k: [1\n"},
			kind:  fault.Invalid, says: "a.yaml",
		},
		"DIR-07 the cap over all files": {
			files: map[string]string{
				"a.yaml": cm("a") + "data:\n  k: " + strings.Repeat("x", 6<<20) + "\n",
				"b.yaml": cm("b") + "data:\n  k: " + strings.Repeat("x", 6<<20) + "\n",
			},
			kind: fault.Exceeded, says: "bytes together",
		},
		"SEC-B1 an alias bomb": {
			files: map[string]string{"a.yaml": bomb()},
			kind:  fault.Exceeded, says: "a.yaml",
		},
		"SEC-B1 deep nesting": {
			files: map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000)},
			kind:  fault.Exceeded, says: "a.yaml",
		},
		"SEC-B1 a scalar of 100 MB": {
			files: map[string]string{"a.yaml": cm("a") + "data:\n  k: " + strings.Repeat("x", 100<<20)},
			kind:  fault.Exceeded, says: "a.yaml",
		},
		"SRC-22 a link that leaves the repository": {
			files: map[string]string{"link a.yaml": "../../etc/passwd"},
			kind:  fault.Invalid, says: "a.yaml: ",
		},
		"SRC-22 an absolute link": {
			files: map[string]string{"link a.yaml": "/etc/passwd"},
			kind:  fault.Invalid, says: "a.yaml: ",
		},
		"SEC-A1 a link in a circle": {
			files: map[string]string{"link a.yaml": "b.yaml", "link b.yaml": "a.yaml"},
			kind:  fault.Invalid, says: "a.yaml: ",
		},
		"SEC-A1 a dangling link": {
			files: map[string]string{"link a.yaml": "none.yaml"},
			kind:  fault.Invalid, says: "a.yaml: the symbolic link leads nowhere",
		},
		"SEC-A1 a link inside the repository": {
			files: map[string]string{"link a.yaml": "sub/real.yaml", "sub/real.yaml": cm("real")},
			want:  []string{"ConfigMap real"},
		},
		"SEC-A1 a bad link that is not read does no harm": {
			files: map[string]string{"link README": "/etc/passwd", "a.yaml": cm("a")},
			want:  []string{"ConfigMap a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job, _ := rendertest.Job(rendertest.Request(hub.Source{Path: "."}, c.files), 0)
			out, err := Render(t.Context(), job)
			if kind := fault.KindOf(err); kind != c.kind {
				t.Fatalf("error kind %q, want %q: %v", kind, c.kind, err)
			}
			if err != nil {
				if !strings.Contains(fault.Sentence(err), c.says) {
					t.Errorf("error %q does not say %q", fault.Sentence(err), c.says)
				}
				return
			}
			if d := cmp.Diff(c.want, rendertest.Names(out)); d != "" {
				t.Errorf("objects (-want +got):\n%s", d)
			}
		})
	}
}

func TestMalformedPatternIsRefused(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"[", "{a", "a\\"} {
		job, _ := rendertest.Job(rendertest.Request(hub.Source{Directory: &hub.DirectorySource{Exclude: pattern}}, map[string]string{"a.yaml": cm("a")}), 0)
		if _, err := Render(t.Context(), job); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "directory.exclude") {
			t.Errorf("pattern %q: error %v, want kind %q", pattern, err, fault.Invalid)
		}
	}
}

// bomb is the "billion laughs" of YAML.
func bomb() string {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\nl0: &l0 [x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&b, "l%d: &l%d [*l%d,*l%d,*l%d,*l%d,*l%d,*l%d,*l%d,*l%d,*l%d]\n", i, i, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1)
	}
	return b.String()
}
