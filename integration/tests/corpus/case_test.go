package corpus_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
)

// namespace is that of the destination in all cases.
const namespace = "shop"

// A checkout is one case: a folder with files, and the source of an application
// that renders a path of it.
type checkout struct {
	name   string
	shows  string
	files  map[string]string
	source hub.Source
}

// checkouts reads the archives of a folder of testdata.
func checkouts(t *testing.T, folder string) []checkout {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", folder, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	var all []checkout
	for _, name := range names {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		c := checkout{name: strings.TrimSuffix(filepath.Base(name), ".txtar"), files: map[string]string{}, source: hub.Source{Path: "."}}
		for line := range strings.Lines(string(archive.Comment)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch key {
			case "shows":
				c.shows = value
			case "path":
				c.source.Path = value
			case "helm":
				c.source.Helm = decode[hub.HelmSource](t, name, value)
			case "kustomize":
				c.source.Kustomize = decode[hub.KustomizeSource](t, name, value)
			default:
				t.Fatalf("%s: unknown key %q", name, key)
			}
		}
		if c.shows == "" {
			t.Errorf("%s does not say what it shows", name)
		}
		for _, f := range archive.Files {
			c.files[f.Name] = string(f.Data)
		}
		all = append(all, c)
	}
	return all
}

func decode[T any](t *testing.T, name, text string) *T {
	t.Helper()
	out := new(T)
	if err := json.Unmarshal([]byte(text), out); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return out
}

// write puts the files into a new folder, as a checkout has them.
func (c checkout) write(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(scratch(t), "checkout") // no commas, which --values divides at
	for name, content := range c.files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// scratch makes a folder whose name has nothing of the test's title.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "corpus-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// job is what a renderer of the hub gets.
func (c checkout) job() render.Job {
	job, _ := rendertest.Job(rendertest.Request(c.source, c.files), 0)
	job.Namespace = namespace
	return job
}
