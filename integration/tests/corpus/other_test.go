//go:build soak

package corpus_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/integration/rigs/build"
)

// Charts of the machine, for who wants to try others.
func TestOtherCharts(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("CAPSTAN_CORPUS")
	if dir == "" {
		t.Skip("CAPSTAN_CORPUS names no folder")
	}
	program, _, err := build.Renderers(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	charts, err := filepath.Glob(filepath.Join(dir, "*", "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range charts {
		folder := filepath.Dir(file)
		t.Run(filepath.Base(folder), func(t *testing.T) {
			t.Logf("%d objects", compareChart(t, program, checkout{
				files: readFiles(t, folder), source: hub.Source{Path: ".", Helm: &hub.HelmSource{KubeVersion: "1.34.0"}},
			}))
		})
	}
}

// readFiles reads all files below a folder.
func readFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files[filepath.ToSlash(name)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
