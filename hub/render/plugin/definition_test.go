package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestGuide(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../integration/testdata/guide/11-config-management-plugin.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all, err := Parse("11.yaml", text)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d definitions, %v", len(all), err)
	}
	d := all[0]
	t.Run("CMP-02 guide/11 is read as it is, out of its ConfigMap", func(t *testing.T) {
		want := render.InstalledPlugin{Name: "cdk8s", Version: "v1.0", FileName: "cdk8s.yaml", Digest: d.Digest}
		if diff := cmp.Diff(want, d.InstalledPlugin); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"sh", "-c", "npm install"}, d.Init.line()); diff != "" {
			t.Errorf("init (-want +got):\n%s", diff)
		}
		if line := d.Generate.line(); len(line) != 3 || line[2] != "npx cdk8s synth\ncat dist/*.yaml\n" {
			t.Errorf("generate %q", line)
		}
	})
	t.Run("CMP-06 it is called by name and version", func(t *testing.T) {
		if d.FullName() != "cdk8s-v1.0" || !d.Discovers() {
			t.Errorf("%q, discovers: %t", d.FullName(), d.Discovers())
		}
	})
	t.Run("CMP-04 another program, version or variable is another digest", func(t *testing.T) {
		for _, change := range [][2]string{{"cdk8s synth", "cdk8s synth --all"}, {"v1.0", "v1.1"}, {"npm install", "npm ci"}, {"cdk8s.yaml\"", "cdk8s.yml\""}} {
			other, err := Parse("11.yaml", []byte(strings.Replace(string(text), change[0], change[1], 1)))
			if err != nil || other[0].Digest == d.Digest {
				t.Errorf("%q: %v, the same digest", change[1], err)
			}
		}
	})
}

const whole = `apiVersion: argoproj.io/v1alpha1
kind: ConfigManagementPlugin
metadata:
  name: all
  annotations:
    capstan.dev/writable: "true"
    capstan.dev/hosts: registry.example.com, "*.example.org:8443"
    capstan.dev/tenants: t1,t2
    capstan.dev/revision: ignore
    other.example.com/x: "y"
spec:
  version: v2
  init: {command: [a], args: [b]}
  generate: {command: [c], args: [d]}
  discover:
    fileName: "*.cue"
    find: {glob: "**/x.yaml", command: [e], args: [f]}
  parameters:
    static:
    - {name: images, title: Images, tooltip: those, required: true, itemType: string, collectionType: map, map: {a: b}}
    - {name: number, itemType: number, string: "1"}
    dynamic: {command: [g], args: [h]}
  preserveFileMode: true
  provideGitCreds: true
`

func TestDefinition(t *testing.T) {
	t.Parallel()
	t.Run("CMP-02 every field is read", func(t *testing.T) {
		t.Parallel()
		all, err := Parse("p.yaml", []byte(whole))
		if err != nil {
			t.Fatal(err)
		}
		want := Definition{
			InstalledPlugin: render.InstalledPlugin{Name: "all", Version: "v2", FileName: "*.cue", Glob: "**/x.yaml", Command: true, Digest: all[0].Digest, IgnoresRevision: true},
			File:            "p.yaml", Init: Command{[]string{"a"}, []string{"b"}}, Generate: Command{[]string{"c"}, []string{"d"}}, Find: Command{[]string{"e"}, []string{"f"}},
			Static: []Parameter{
				{Name: "images", Title: "Images", Tooltip: "those", Required: true, ItemType: "string", CollectionType: "map", Map: map[string]string{"a": "b"}},
				{Name: "number", ItemType: "number", CollectionType: "string", String: "1"},
			},
			Dynamic: Command{[]string{"g"}, []string{"h"}}, PreserveFileMode: true, GitCredentials: true, Writable: true,
			Hosts: []string{"registry.example.com", `"*.example.org:8443"`}, Tenants: []hub.TenantID{"t1", "t2"},
		}
		want.Hosts[1] = all[0].Hosts[1]
		if diff := cmp.Diff(want, all[0]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	for name, c := range map[string]struct{ from, to, says string }{
		"a field that is unknown":       {"preserveFileMode: true", "preserveFileModes: true", "preserveFileModes"},
		"another version of the API":    {"argoproj.io/v1alpha1", "argoproj.io/v1", "apiVersion"},
		"no name":                       {"name: all", "name: ''", "metadata.name"},
		"a name with a slash":           {"name: all", "name: ../all", "metadata.name"},
		"no program":                    {"generate: {command: [c], args: [d]}", "generate: {}", "spec.generate has no command"},
		"a malformed pattern":           {`fileName: "*.cue"`, `fileName: "[a"`, "spec.discover.fileName"},
		"a malformed glob":              {`"**/x.yaml"`, `"{a"`, "spec.discover.find.glob"},
		"a switch that is none":         {`writable: "true"`, `writable: "perhaps"`, "capstan.dev/writable"},
		"an annotation that is unknown": {"capstan.dev/hosts:", "capstan.dev/host:", "capstan.dev/host is unknown"},
		"a parameter without a name":    {"name: images", "name: ''", "has no name"},
		"a type of a parameter":         {"collectionType: map", "collectionType: set", "collectionType"},
		"a type of an item":             {"itemType: number", "itemType: date", "itemType"},
		"a public variable of no file":  {"capstan.dev/revision: ignore", "capstan.dev/public-env: REGION", "REGION"},
		"variables that are not there":  {"capstan.dev/revision: ignore", "capstan.dev/env-file: /nonexistent/env", "/nonexistent/env"},
	} {
		t.Run("CMP-02 "+name+" is refused by name", func(t *testing.T) {
			t.Parallel()
			_, err := Parse("p.yaml", []byte(strings.Replace(whole, c.from, c.to, 1)))
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), c.says) || !strings.Contains(fault.Sentence(err), "p.yaml") {
				t.Errorf("error %v, want %q", err, c.says)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("b.yaml", minimal("two", ""))
	write("a.yml", minimal("one", "")+"---\n"+minimal("three", ""))
	write("README", "none")
	write(".hidden.yaml", "broken: [")
	write("env", "# of the operator\nTOKEN=hunter2=\n\n")
	write("c.yaml", strings.Replace(minimal("four", ""), "name: four", "name: four\n  annotations: {capstan.dev/env-file: "+filepath.Join(dir, "env")+"}", 1))
	all, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range all {
		names = append(names, d.FullName())
	}
	if diff := cmp.Diff([]string{"one", "three", "two", "four"}, names); diff != "" {
		t.Errorf("CMP-01 plugins (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"TOKEN=hunter2="}, all[3].Env); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	write("d.yaml", minimal("two", ""))
	write("e.yaml", "kind: Deployment\n")
	write("env2", "TOKEN hunter2\n")
	write("f.yaml", strings.Replace(minimal("five", ""), "name: five", "name: five\n  annotations: {capstan.dev/env-file: "+filepath.Join(dir, "env2")+"}", 1))
	_, err = Load(dir)
	for _, want := range []string{"the plugin two is declared in", "e.yaml", `"Deployment"`, "line 1 is not of the form NAME=value"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("CMP-02 error %v does not say %q", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "hunter2") {
		t.Errorf("CMP-15 a value is in the error: %v", err)
	}
	if _, err := Load(filepath.Join(dir, "nowhere")); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a folder that is not there: %v", err)
	}
	if all, err := Load(""); err != nil || all != nil {
		t.Errorf("without a folder: %v, %v", all, err)
	}
}

// minimal is a definition that runs a script.
func minimal(name, script string) string {
	return "apiVersion: argoproj.io/v1alpha1\nkind: ConfigManagementPlugin\nmetadata:\n  name: " + name + "\nspec:\n  generate:\n    command: [sh, -c]\n    args:\n    - |\n" +
		"      " + strings.ReplaceAll(strings.TrimSpace("set -e\n"+script), "\n", "\n      ") + "\n"
}
