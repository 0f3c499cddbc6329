package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/shared/fault"
)

func TestReadFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"b.yaml": "b: 1", "a.yml": "a: 1", "notes.txt": "no", "sub/c.json": "{}"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read([]string{dir, "-"}, strings.NewReader("stdin: 1"))
	if diff := cmp.Diff("a: 1\n---\nb: 1\n---\n{}\n---\nstdin: 1", string(got.Text())); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if _, err := Read([]string{t.TempDir()}, nil); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a folder without manifests: %v", err)
	}
}
