package plain

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// object is the Jsonnet of a ConfigMap.
func object(name string) string {
	return `{apiVersion: "v1", kind: "ConfigMap", metadata: {name: "` + name + `"}}`
}

func with(data string) string {
	return `{apiVersion: "v1", kind: "ConfigMap", metadata: {name: "j"}, data: {k: ` + data + `}}`
}

func TestJsonnet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings *hub.JsonnetSource
		files    map[string]string
		want     string // in the objects
		kind     fault.Kind
		says     string
	}{
		"DIR-09 one object":           {files: map[string]string{"app/a.jsonnet": object("one")}, want: `"name":"one"`},
		"DIR-09 a list of objects":    {files: map[string]string{"app/a.jsonnet": "[" + object("one") + "," + object("two") + "]"}, want: `"name":"two"`},
		"DIR-09 an object of objects": {files: map[string]string{"app/a.jsonnet": `{apiVersion: "v1", kind: "List", items: [` + object("one") + `]}`}, want: `"name":"one"`},
		"DIR-09 an empty list":        {files: map[string]string{"app/a.jsonnet": "[]"}},
		"DIR-09 a variable": {
			settings: &hub.JsonnetSource{ExtVars: []hub.JsonnetVar{{Name: "v", Value: "text"}}},
			files:    map[string]string{"app/a.jsonnet": with(`std.extVar("v")`)}, want: `"k":"text"`,
		},
		"DIR-09 a variable that is code": {
			settings: &hub.JsonnetSource{ExtVars: []hub.JsonnetVar{{Name: "v", Value: "1 + 2", Code: true}}},
			files:    map[string]string{"app/a.jsonnet": with(`std.toString(std.extVar("v"))`)}, want: `"k":"3"`,
		},
		"DIR-09 arguments of the top level": {
			settings: &hub.JsonnetSource{TLAs: []hub.JsonnetVar{{Name: "a", Value: "x"}, {Name: "b", Value: "[1]", Code: true}}},
			files:    map[string]string{"app/a.jsonnet": "function(a, b) " + with(`a + std.length(b)`)}, want: `"k":"x1"`,
		},
		"DIR-09 the build environment": {
			settings: &hub.JsonnetSource{
				ExtVars: []hub.JsonnetVar{{Name: "v", Value: "$ARGOCD_APP_NAME-${ARGOCD_APP_NAMESPACE}"}},
				TLAs:    []hub.JsonnetVar{{Name: "a", Value: "'$ARGOCD_APP_SOURCE_PATH'", Code: true}},
			},
			files: map[string]string{"app/a.jsonnet": "function(a) " + with(`std.extVar("v") + a`)}, want: `"k":"web-shopapp"`,
		},
		"DIR-09 a library beside the file": {files: map[string]string{"app/a.jsonnet": with(`(import "l.libsonnet").v`), "app/l.libsonnet": `{v: "beside"}`}, want: `"k":"beside"`},
		"DIR-09 a library from the root of the repository": {
			settings: &hub.JsonnetSource{Libs: []string{"vendor", "lib"}},
			files:    map[string]string{"app/a.jsonnet": with(`(import "l.libsonnet").v`), "vendor/l.libsonnet": `{v: "vendor"}`, "lib/l.libsonnet": `{v: "lib"}`},
			want:     `"k":"lib"`, // the last one wins, as with -J
		},
		"DIR-09 a library that imports beside itself": {
			settings: &hub.JsonnetSource{Libs: []string{"/lib"}},
			files:    map[string]string{"app/a.jsonnet": with(`(import "x/l.libsonnet").v`), "lib/x/l.libsonnet": `{v: importstr "../t"}`, "lib/t": "text"}, want: `"k":"text"`,
		},
		"DIR-09 the application's directory is a library": {
			files: map[string]string{"app/a.jsonnet": with(`import "sub/l.libsonnet"`), "app/sub/l.libsonnet": `import "m.libsonnet"`, "app/m.libsonnet": `"m"`}, want: `"k":"m"`,
		},
		"DIR-09 bytes": {files: map[string]string{"app/a.jsonnet": with(`std.base64(importbin "b")`), "app/b": "x"}, want: `"k":"eA=="`},
		"DIR-09 a variable that is not there": {
			files: map[string]string{"app/a.jsonnet": with(`std.extVar("v")`)}, kind: fault.Invalid, says: "app/a.jsonnet: the Jsonnet cannot be evaluated: RUNTIME ERROR: Undefined external variable: v",
		},
		"DIR-09 a mistake names file and line": {files: map[string]string{"app/a.jsonnet": "{\n  a: }"}, kind: fault.Invalid, says: "app/a.jsonnet:2:6"},
		"DIR-09 what is no object":             {files: map[string]string{"app/a.jsonnet": `{a: 1}`}, kind: fault.Invalid, says: "item 1 of what the Jsonnet makes is no Kubernetes object"},
		"DIR-09 half an object":                {files: map[string]string{"app/a.jsonnet": `[` + object("a") + `, {kind: "ConfigMap"}]`}, kind: fault.Invalid, says: "app/a.jsonnet"},
		"DIR-09 what is text":                  {files: map[string]string{"app/a.jsonnet": `"text"`}, kind: fault.Invalid, says: "app/a.jsonnet"},
		"DIR-09 an import that is not there": {
			files: map[string]string{"app/a.jsonnet": `import "l.libsonnet"`}, kind: fault.Invalid, says: `there is no file "l.libsonnet" beside app/a.jsonnet`,
		},
		"DIR-04 the skip marker":                         {files: map[string]string{"app/a.jsonnet": "# +argocd:skip-file-rendering\nbroken ["}},
		"SEC-A2 an import from outside":                  {files: map[string]string{"app/a.jsonnet": `importstr "../../etc/passwd"`}, kind: fault.Invalid, says: "leaves the repository"},
		"SEC-A2 an absolute import is inside":            {files: map[string]string{"app/a.jsonnet": `importstr "/etc/passwd"`}, kind: fault.Invalid, says: "there is no file"},
		"SEC-A2 a library from outside":                  {settings: &hub.JsonnetSource{Libs: []string{"../lib"}}, files: map[string]string{"app/a.jsonnet": object("a")}, kind: fault.Invalid, says: "directory.jsonnet.libs"},
		"SEC-A1 an import of a link out":                 {files: map[string]string{"app/a.jsonnet": `importstr "l"`, "link app/l": "/etc/passwd"}, kind: fault.Invalid, says: "symbolic link"},
		"SEC-B8 a file that imports itself":              {files: map[string]string{"app/a.jsonnet": `local a = import "a.jsonnet"; a + ` + object("a")}, kind: fault.Invalid, says: "app/a.jsonnet"},
		"SEC-B8 a recursion without end":                 {files: map[string]string{"app/a.jsonnet": `local f(x) = f(x + 1) + 1; ` + with("f(1)")}, kind: fault.Invalid, says: "max stack frames"},
		"SEC-B8 an error that a file raises stays short": {files: map[string]string{"app/a.jsonnet": `error std.join("\n", [std.toString(i) for i in std.range(1, 1000)])`}, kind: fault.Invalid, says: "…"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := hub.Source{Path: "app", Directory: &hub.DirectorySource{Jsonnet: c.settings}}
			job, _ := rendertest.Job(rendertest.Request(source, c.files), 0)
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
			if c.want == "" {
				if len(out.Objects) != 0 {
					t.Errorf("objects %v", rendertest.Names(out))
				}
			} else if text := rendertest.Text(t, out, "shop"); !strings.Contains(text, c.want) {
				t.Errorf("no %s in %s", c.want, text)
			}
		})
	}
}

func TestJsonnetRecordsItsImports(t *testing.T) {
	t.Parallel()
	source := hub.Source{Path: "app", Directory: &hub.DirectorySource{Jsonnet: &hub.JsonnetSource{Libs: []string{"lib"}}}}
	job, rec := rendertest.Job(rendertest.Request(source, map[string]string{
		"app/a.jsonnet": with(`import "l.libsonnet"`), "lib/l.libsonnet": `"x"`, "lib/other.libsonnet": `"y"`,
	}), 0)
	if _, err := Render(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	var files, missing []string
	for _, in := range rec.Inputs() {
		switch in.Kind {
		case hub.InputFile:
			files = append(files, in.Path)
		case hub.InputMissing:
			missing = append(missing, in.Path)
		}
	}
	if d := cmp.Diff([]string{"app/a.jsonnet", "lib/l.libsonnet"}, files); d != "" {
		t.Errorf("DIR-09 files that the result depends on (-want +got):\n%s", d)
	}
	if !slices.Contains(missing, "app/l.libsonnet") {
		t.Errorf("DIR-09 a library that comes first later is not noticed: %v", missing)
	}
}

func TestJsonnetIsSwitchedOff(t *testing.T) {
	t.Parallel()
	for value, want := range map[string][]string{"false": {"ConfigMap b"}, "true": {"ConfigMap a", "ConfigMap b"}, "": {"ConfigMap a", "ConfigMap b"}} {
		t.Run("SRC-15 jsonnet.enable: "+value, func(t *testing.T) {
			t.Parallel()
			req := rendertest.Request(hub.Source{Path: "."}, map[string]string{"a.jsonnet": object("a"), "b.yaml": cm("b")})
			req.Settings = map[string]string{hub.JsonnetEnableKey: value}
			job, _ := rendertest.Job(req, 0)
			out, err := Render(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, rendertest.Names(out)); d != "" {
				t.Errorf("objects (-want +got):\n%s", d)
			}
		})
	}
}
