package process

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestPortsAreGivenOnce(t *testing.T) {
	t.Parallel()
	given := map[int]bool{}
	for range 300 {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if given[port] {
			t.Fatalf("port %d was given twice", port)
		}
		given[port] = true
		if ours, err := reserve(port); err != nil || ours && runtime.GOOS == "linux" {
			t.Fatalf("port %d can be reserved again (error %v)", port, err)
		}
	}
}

func TestSocketFoldersHaveShortNames(t *testing.T) {
	t.Parallel()
	long := filepath.Join(t.TempDir(), strings.Repeat("long-name-", 12))
	s, err := NewScratch("test", long)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := s.SocketFolder()
	if err != nil {
		t.Fatal(err)
	}
	if len(folder) > maxSocketFolder {
		t.Errorf("%q is too long for a socket", folder)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%q is still there: %v", folder, err)
	}
	if _, err := os.Stat(long); err != nil {
		t.Errorf("the folder of the caller's choice is gone: %v", err)
	}
}
