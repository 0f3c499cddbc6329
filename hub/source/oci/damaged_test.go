package oci_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub/source/archives"
	"github.com/capstan-cd/capstan/hub/source/charts/chartstest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// TestDamagedCache changes what is stored of an artifact, as a bad disk does.
func TestDamagedCache(t *testing.T) {
	t.Parallel()
	flip := func(text, by string) func([]byte) []byte {
		return func(b []byte) []byte { return bytes.Replace(b, []byte(text), []byte(by), 1) }
	}
	half := func(b []byte) []byte { return b[:len(b)/2] }
	for name, c := range map[string]struct {
		ending string
		change func([]byte) []byte // nil: the file is gone
	}{
		"a byte of a file":         {".data", flip("kind: ConfigMap", "kind: ConfigMax")},
		"half of the files":        {".data", half},
		"no files":                 {".data", nil},
		"a name in the list":       {".json", flip("a.yaml", "b.yaml")},
		"a digest in the list":     {".json", flip(`"h":"`, `"h":"0`)},
		"half of the list":         {".json", half},
		"no list":                  {".json", nil},
		"something else as a list": {".json", func([]byte) []byte { return []byte("{}") }},
		"an empty list":            {".json", func([]byte) []byte { return nil }},
	} {
		t.Run("FT-G5 SRC-03 "+name, func(t *testing.T) {
			t.Parallel()
			o := newOrigin(t)
			commit := o.push("1.0.0", chartstest.Files(map[string]string{"a.yaml": "kind: ConfigMap\n"}))
			dir, repo := t.TempDir(), o.Hub()
			open := func(s *archives.Source) (string, error) {
				tree, err := s.Tree(t.Context(), tenant, repo, commit)
				if err != nil {
					return "", err
				}
				b, err := fs.ReadFile(tree, "a.yaml")
				return string(b), err
			}
			if got, err := open(newSource(t, archives.Config{Dir: dir}, nobody)); err != nil || got != "kind: ConfigMap\n" {
				t.Fatalf("%q, %v", got, err)
			}
			stored, err := filepath.Glob(filepath.Join(dir, "*", "*", "*"+c.ending))
			if err != nil || len(stored) != 1 {
				t.Fatal(stored, err)
			}
			before, err := os.ReadFile(stored[0])
			if err != nil {
				t.Fatal(err)
			}
			if c.change == nil {
				err = os.Remove(stored[0])
			} else if after := c.change(bytes.Clone(before)); bytes.Equal(before, after) {
				t.Fatal("nothing was changed")
			} else {
				err = os.WriteFile(stored[0], after, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			s := newSource(t, archives.Config{Dir: dir}, nobody) // as after a restart
			got, err := open(s)
			if err != nil {
				if fault.KindOf(err) != fault.Offline || !strings.Contains(fault.Sentence(err), "damaged") {
					t.Errorf("the first read: %v", err)
				}
				got, err = open(s)
			}
			if err != nil || got != "kind: ConfigMap\n" {
				t.Errorf("%q, %v: the artifact was not fetched again", got, err)
			}
		})
	}
}
