package secret_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/hub/secret"
	"github.com/capstan-cd/capstan/shared/fault"
)

// key returns the base64 text of a key that consists of one byte.
func key(b byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)) }

func write(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "master.key")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWrapAndUnwrap(t *testing.T) {
	t.Parallel()
	m, err := secret.Load(write(t, key('a')+"\n", 0o600))
	if err != nil {
		t.Fatal(err)
	}
	plain := []byte("thirty-two bytes or anything else")
	first, err := m.Wrap(plain)
	if err != nil {
		t.Fatal(err)
	}
	second, err := m.Wrap(plain)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(first, second) {
		t.Error("the same text wrapped twice gave the same bytes")
	}
	if bytes.Contains(first, plain) {
		t.Error("the wrapped text holds the plain one")
	}
	got, err := m.Unwrap(first)
	if err != nil || !bytes.Equal(got, plain) {
		t.Errorf("Unwrap() = %q, %v, want the text that was wrapped", got, err)
	}
	for i := range first {
		changed := bytes.Clone(first)
		changed[i] ^= 1
		if _, err := m.Unwrap(changed); err == nil {
			t.Fatalf("Unwrap() opened a text whose byte %d was changed", i)
		}
	}
	for _, short := range [][]byte{nil, {1}, first[:9], first[:20]} {
		if _, err := m.Unwrap(short); fault.KindOf(err) != fault.Invalid {
			t.Errorf("Unwrap(%d bytes) error = %v, want Invalid", len(short), err)
		}
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	old, err := secret.Load(write(t, key('a'), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	wrapped, err := old.Wrap([]byte("before"))
	if err != nil {
		t.Fatal(err)
	}
	both, err := secret.Load(write(t, "# new\n"+key('b')+"\n\n# old\n"+key('a')+"\n", 0o400))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := both.Unwrap(wrapped); err != nil || string(got) != "before" {
		t.Errorf("after rotation Unwrap() = %q, %v", got, err)
	}
	if both.Current(wrapped) {
		t.Error("what the old key wrapped counts as current")
	}
	again, err := both.Wrap([]byte("after"))
	if err != nil {
		t.Fatal(err)
	}
	if !both.Current(again) {
		t.Error("what was wrapped now does not count as current")
	}
	if _, err := old.Unwrap(again); fault.KindOf(err) != fault.Missing {
		t.Errorf("the old key alone: error = %v, want Missing", err)
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		why  string
		text string
		mode os.FileMode
	}{
		"WorldReadable": {"everyone on the machine could open every tenant", key('a'), 0o644},
		"GroupWritable": {"the group could replace the key", key('a'), 0o660},
		"WorldWritable": {"everyone could replace the key", key('a'), 0o602},
		"Empty":         {"no key is not a key", "", 0o600},
		"Comments":      {"no key is not a key", "# nothing\n\n", 0o600},
		"NotBase64":     {"a pasted password must not become a weak key", "correct horse battery staple", 0o600},
		"TooShort":      {"16 bytes are half a key", base64.StdEncoding.EncodeToString(make([]byte, 16)), 0o600},
		"Zeros":         {"an unset variable gives zeros", base64.StdEncoding.EncodeToString(make([]byte, 32)), 0o600},
		"Twice":         {"a rotation that changed nothing is a mistake", key('a') + "\n" + key('a'), 0o600},
		"Long":          {"something else was given as the file", strings.Repeat("x", 70<<10), 0o600},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := secret.Load(write(t, c.text, c.mode))
			if fault.KindOf(err) != fault.Invalid {
				t.Fatalf("Load() error = %v, want Invalid: %s", err, c.why)
			}
			if first, _, _ := strings.Cut(c.text, "\n"); len(first) > 8 && !strings.HasPrefix(first, "#") && strings.Contains(err.Error(), first[:8]) {
				t.Errorf("the error repeats the key: %v", err)
			}
		})
	}
	t.Run("Folder", func(t *testing.T) {
		t.Parallel()
		if _, err := secret.Load(t.TempDir()); fault.KindOf(err) != fault.Invalid {
			t.Errorf("Load(folder) error = %v, want Invalid", err)
		}
	})
	t.Run("Missing", func(t *testing.T) {
		t.Parallel()
		if _, err := secret.Load(filepath.Join(t.TempDir(), "none")); fault.KindOf(err) != fault.Missing {
			t.Errorf("Load(nothing) error = %v, want Missing", err)
		}
	})
}

func TestCreate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "master.key")
	made, err := secret.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the new file has mode %04o, want 0600", info.Mode().Perm())
	}
	wrapped, err := made.Wrap([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := secret.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := loaded.Unwrap(wrapped); err != nil || string(got) != "x" {
		t.Errorf("the loaded key opens %q, %v", got, err)
	}
	if _, err := secret.Create(path); fault.KindOf(err) != fault.Conflict {
		t.Errorf("Create() over a file: error = %v, want Conflict", err)
	}
	if _, err := secret.Create(filepath.Join(path, "below", "a", "file")); fault.KindOf(err) != fault.Invalid {
		t.Errorf("Create() in no folder: error = %v, want Invalid", err)
	}
}

func TestLoadOrCreateAgree(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "master.key")
	first, err := secret.LoadOrCreate(path)
	if err != nil {
		t.Fatal(err)
	}
	wrapped, err := first.Wrap([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			m, err := secret.LoadOrCreate(path)
			if err != nil {
				t.Errorf("LoadOrCreate() error = %v", err)
				return
			}
			if _, err := m.Unwrap(wrapped); err != nil {
				t.Errorf("another key: %v", err)
			}
		})
	}
	wg.Wait()
}

func TestMasterIsNotPrinted(t *testing.T) {
	t.Parallel()
	m, err := secret.Load(write(t, key('a'), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q", "%d"} {
		if got := fmt.Sprintf(verb, m); got != "(master key)" {
			t.Errorf("%s prints %q", verb, got)
		}
	}
}
