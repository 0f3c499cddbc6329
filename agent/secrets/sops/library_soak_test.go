//go:build soak

package sops_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/capstan-cd/capstan/agent/secrets/sops"
)

// TestFilesOfTheLibrary decrypts files that the library of SOPS has written.
// Building it takes minutes, so it belongs to make soak.
func TestFilesOfTheLibrary(t *testing.T) {
	dir := t.TempDir()
	source, err := txtar.ParseFile(filepath.Join("testdata", "library.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range source.Files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tool := filepath.Join(dir, "library")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", tool, ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := plainSecret + "# a comment\nextra: {num: 5, f: 1.25, b: true, nothing: null, list: [one, 2, {z: xx, a: ww}]}\n"
	for name, more := range map[string][]string{"the code covers all values": nil, "the code covers encrypted values": {"only"}} {
		t.Run("pain 22 a file of the SOPS library is decrypted: "+name, func(t *testing.T) {
			id := newKey(t)
			run := exec.CommandContext(t.Context(), tool, append([]string{id.Recipient().String()}, more...)...)
			run.Stdin = strings.NewReader(text)
			out, err := run.Output()
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := sops.Decrypt(normal(t, parse(t, "a.yaml", string(out))), []age.Identity{id}, sops.Options{})
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if diff := cmp.Diff(parse(t, "b.yaml", text).Object, got.Object); diff != "" {
				t.Error(diff)
			}
		})
	}
}
