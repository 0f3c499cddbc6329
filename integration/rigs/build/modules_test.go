package build

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What the product and a local cluster share is compiled once only if both
// have it in the same version.
func TestTheLocalClusterHasTheModulesOfTheProduct(t *testing.T) {
	t.Parallel()
	root, err := SourceRoot()
	if err != nil {
		t.Fatal(err)
	}
	product := versions(t, filepath.Join(root, "go.mod"))
	cluster := versions(t, filepath.Join(root, "integration", "rigs", "localcluster", "go.mod"))
	shared := 0
	for path, want := range product {
		have, ok := cluster[path]
		if !ok {
			continue
		}
		shared++
		if have != want {
			t.Errorf("%s is %s in go.mod and %s in integration/rigs/localcluster/go.mod: it is compiled twice", path, want, have)
		}
	}
	if shared < 50 {
		t.Errorf("only %d modules are shared; were the files read?", shared)
	}
}

// versions reads which versions a go.mod file requires, or replaces them by.
func versions(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	required, replaced := map[string]string{}, map[string]string{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(strings.TrimPrefix(line, "require "))
		switch {
		case len(f) >= 4 && f[1] == "=>":
			replaced[f[0]] = f[3]
		case len(f) >= 2 && strings.HasPrefix(f[1], "v"):
			required[f[0]] = f[1]
		}
	}
	for path := range required {
		if v := replaced[path]; v != "" {
			required[path] = v
		}
	}
	return required
}

// The command lines that renders are compared with must be of the versions
// whose libraries the hub has.
func TestTheRenderersHaveTheVersionsOfTheProduct(t *testing.T) {
	t.Parallel()
	root, err := SourceRoot()
	if err != nil {
		t.Fatal(err)
	}
	product := versions(t, filepath.Join(root, "go.mod"))
	renderers := versions(t, filepath.Join(root, "integration", "tools", "renderers", "go.mod"))
	for _, path := range []string{"helm.sh/helm/v3", "sigs.k8s.io/kustomize/api", "sigs.k8s.io/kustomize/kyaml"} {
		if product[path] == "" || product[path] != renderers[path] {
			t.Errorf("%s is %q in go.mod and %q in integration/tools/renderers/go.mod", path, product[path], renderers[path])
		}
	}
}
