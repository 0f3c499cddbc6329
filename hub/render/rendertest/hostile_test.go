package rendertest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
)

// The generators make what their names promise: a bomb without effect would
// prove nothing.
func TestGenerators(t *testing.T) {
	t.Parallel()
	entries := func(t *testing.T, packed string) (names []string, bytesOf int64) {
		t.Helper()
		z, err := gzip.NewReader(strings.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		r := tar.NewReader(z)
		for {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return names, bytesOf
			}
			if err != nil {
				t.Fatal(err)
			}
			names, bytesOf = append(names, h.Name), bytesOf+h.Size
		}
	}
	t.Run("zeros", func(t *testing.T) {
		t.Parallel()
		packed := PackedZeros("d", 256<<20)
		if names, size := entries(t, packed); len(names) != 2 || size < 256<<20 || len(packed) > 8<<20 {
			t.Errorf("%d entries of %d bytes in %d", len(names), size, len(packed))
		}
	})
	t.Run("entries", func(t *testing.T) {
		t.Parallel()
		packed := PackedEntries("d", 100_000)
		if names, _ := entries(t, packed); len(names) != 100_001 || len(packed) > 8<<20 {
			t.Errorf("%d entries in %d bytes", len(names), len(packed))
		}
	})
	t.Run("compressed twice", func(t *testing.T) {
		t.Parallel()
		packed := PackedInPacked("d", 10, 6)
		if names, _ := entries(t, packed); len(names) != 11 || len(packed) > 64<<10 {
			t.Errorf("%d entries in %d bytes", len(names), len(packed))
		}
		if names, _ := entries(t, PackedRaw(map[string]string{"../x": "y", "link l": "/etc", "hard h": "x"})); len(names) != 3 {
			t.Errorf("entries %q", names)
		}
	})
	t.Run("text", func(t *testing.T) {
		t.Parallel()
		for _, s := range []string{AliasBomb(9, 12), MergeBomb(8, 12)} {
			if len(s) > 4<<10 {
				t.Errorf("%d bytes", len(s))
			}
		}
		if n := len(Overlays(30)); n > 100 {
			t.Errorf("%d files", n)
		}
		if !bytes.Contains([]byte(Nested(3)), []byte("{a: {a: {a: 1}}}")) {
			t.Error(Nested(3))
		}
	})
}
